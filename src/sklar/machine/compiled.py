"""Functions that numba compiles at their first call: nothing of it is loaded, nor compiled, before.

To load numba takes half a second, and to compile a kernel another: more than all the rest of a small release. So a
kernel is declared here, and whoever calls it first asks whether the work is large enough (`docs/architecture.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# An array that is only read, such as the offsets of a schema's cells, as signatures name it.
OFFSETS = "Array(int64, 1, 'C', readonly=True)"


class Compiled(Generic[P, R]):
    """A function that is compiled when it is first called. `plain` is the same function as Python runs it."""

    def __init__(self, function: Callable[P, R], signature: str | None, options: dict[str, Any]) -> None:
        self.plain = function
        self._signature, self._options = signature, options
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the compiled function."""
        found: R = self.kernel(*args, **kwargs)
        return found

    @cached_property
    def kernel(self) -> Any:
        """What numba makes of the function; from its cache where it was made before."""
        import numba

        function: Any = self.plain
        # Compiled code calls compiled code: in its sight, every name is what numba has made of it.
        names = {
            name: value.kernel if isinstance(value, Compiled) else value
            for name, value in function.__globals__.items()
            if name in {*function.__code__.co_names, "__name__", "__builtins__"}
        }
        own = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        if self._signature is None:
            return numba.njit(**self._options)(own)
        return numba.njit(self._signature, **self._options)(own)


def compiled(signature: str | None = None, **options: Any) -> Callable[[Callable[P, R]], Compiled[P, R]]:
    """Let numba compile a function for arguments of these types, and keep the code, without Python's lock.

    A function without a signature is part of those that call it.
    """
    settings = {"inline": "always"} if signature is None else {"cache": True, "nogil": True}
    return lambda function: Compiled(function, signature, settings | options)


class Worth:
    """Whether work has become so much that compiled code pays, loading and compiling it included.

    Work is counted from the first call on, by public sizes alone. What is small each time but comes again and again
    pays, too.

    >>> worth = Worth(100)
    >>> worth(60), worth(30), worth(20), worth(0)
    (False, False, True, True)
    """

    def __init__(self, most: float) -> None:
        self._left = most

    def __call__(self, work: float) -> bool:
        """Count this much more work in."""
        self._left -= work
        return self._left < 0
