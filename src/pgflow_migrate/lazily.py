"""Public names of a package that cost their import only when they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names(package: str, of: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``package``, so that importing it, or one of its modules, imports no others.

    Args:
        package: its ``__name__``.
        of: the public names of each of its modules; one beside the package begins with a dot.
    """
    module_of = {name: module for module, found in of.items() for name in found}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{module_of[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
