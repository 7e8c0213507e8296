"""What was imported stays as it is: modules and classes whose names cannot be assigned to.

Python cannot stop a determined caller. It can stop the usual way in which one part of a program switches off the noise
of another: by assigning to a name that the other looks up.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn


def _refuse(name: str) -> NoReturn:
    raise AttributeError(f"'{name}' decides what leaves the private side, so it cannot be replaced.")


class _SealedModule(ModuleType):
    """A module whose names stay what they are."""

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(name)

    def __delattr__(self, name: str) -> None:
        _refuse(name)


class Sealed(type):
    """A class whose attributes stay what they are."""

    def __setattr__(cls, name: str, value: Any) -> None:
        _refuse(name)

    def __delattr__(cls, name: str) -> None:
        _refuse(name)


def seal(name: str) -> None:
    """Let no name of this module be assigned to from now on."""
    sys.modules[name].__class__ = _SealedModule
