"""Packages that are imported when something of them is first asked for: to load polars takes a fifth of a second."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Stands for a package until one of its names is looked up, and holds all its names from then on."""

    def __getattr__(self, name: str) -> Any:
        vars(self).update(vars(import_module(self.__name__)))
        try:
            return vars(self)[name]
        except KeyError:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'") from None


def lazily(name: str) -> Any:
    """A package by name, not imported yet.

    >>> lazily("fractions").Fraction(1, 2)
    Fraction(1, 2)
    """
    return _Lazy(name)
