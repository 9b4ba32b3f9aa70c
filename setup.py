"""The packages of the wheel: `sql/` and `udfs/` are installed inside `spark_cep`.

All other settings are in pyproject.toml, which cannot rename folders that it searches for.
"""

from setuptools import find_packages, setup

FOLDERS = {"spark_cep": "spark_cep", "spark_cep.sql": "sql", "spark_cep.udfs": "udfs"}

setup(
    package_dir=FOLDERS,
    packages=[
        package
        for name, folder in FOLDERS.items()
        for package in (name, *(f"{name}.{inner}" for inner in find_packages(folder)))
    ],
)
