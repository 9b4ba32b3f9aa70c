"""Finds `spark_cep.sql` and `spark_cep.udfs` when the package is imported from a checkout.

In an installed package, or a zip of the wheel, both are folders of this package. In a checkout
they are next to it, where Python does not look for submodules. The finder here gives these two
folders, and no other folder of the checkout, the names that they have when installed.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


_PACKAGE = Path(__file__).parent
_FOLDERS = ("sql", "udfs")


def install() -> None:
    """Adds the finder, once, if this is a checkout."""
    is_checkout = all(
        (_PACKAGE.parent / folder / "__init__.py").is_file() and not (_PACKAGE / folder).exists()
        for folder in _FOLDERS
    )
    if is_checkout and not any(isinstance(finder, _Checkout) for finder in sys.meta_path):
        # Before the finder of an editable install of another checkout, which has these names too.
        sys.meta_path.insert(0, _Checkout())


class _Checkout(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, folder = fullname.rpartition(".")
        if package != __package__ or folder not in _FOLDERS:
            return None
        return spec_from_file_location(fullname, _PACKAGE.parent / folder / "__init__.py")
