"""Packages that are optional, or slow to load."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from sklar.errors import MissingExtraError


def require(module: str, *, what: str, package: str, extra: str) -> None:
    """Refuse, with the remedy, when `module` cannot be imported."""
    try:
        import_module(module)
    except ImportError:
        raise MissingExtraError(f"{what} needs {package}: pip install 'sklar[{extra}]'") from None


class _Lazy(ModuleType):
    """Stands for a package until one of its names is looked up, and holds all its names from then on."""

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


def lazily(name: str) -> Any:
    """A package that is imported at its first use: loading polars takes a fifth of a second."""
    return _Lazy(name)
