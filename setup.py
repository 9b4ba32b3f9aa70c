"""The packages of the wheel: `sql/` and `udfs/` are installed inside `spark_cep`.

The wheel also has the compiled matcher of row patterns, so that no executor has to compile it. That
takes numba; a wheel that is built without it is complete all the same, and compiles on first use.

All other settings are in pyproject.toml, which cannot rename folders that it searches for.
"""

import subprocess
import sys
from importlib.util import find_spec

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = {"spark_cep": "spark_cep", "spark_cep.sql": "sql", "spark_cep.udfs": "udfs"}


class BuildWithMatcher(build_py):
    """Builds the packages, and in the copy compiles the matcher."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        if find_spec("numba") is None:
            self.warn("numba is not here: the matcher will be compiled on its first use")
            return
        code = (
            "from pathlib import Path; from spark_cep.udfs import compiling; "
            "from spark_cep.udfs.rows import loading; "
            "compiling.write_packaged(loading.MATCHER, Path(loading.__file__).parent)"
        )
        # In the copy: here Python would import the sources.
        subprocess.run([sys.executable, "-c", code], cwd=self.build_lib, check=True)


setup(
    cmdclass={"build_py": BuildWithMatcher},
    package_dir=FOLDERS,
    packages=[
        package
        for name, folder in FOLDERS.items()
        for package in (name, *(f"{name}.{inner}" for inner in find_packages(folder)))
    ],
)
