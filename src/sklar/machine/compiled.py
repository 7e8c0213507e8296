"""Functions that numba compiles at their first call: nothing of it is loaded, nor compiled, before.

To load numba takes half a second, and to compile a kernel another: more than all the rest of a small release. So a
kernel is declared here, and whoever calls it first asks whether the work is large enough (`docs/architecture.md`).
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, update_wrapper
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar

from sklar.machine.cache import FOLDER

P = ParamSpec("P")
R = TypeVar("R")

NOTE = "compiling for this machine, once"
_listeners: list[Callable[[str], None]] = []
# Which modules another process compiles at this moment.
_helpers: dict[str, subprocess.Popen[bytes]] = {}

# Of the work from which on compiled code pays, what is enough where numba has been loaded already.
_LOADED = 0.1

# An array that is only read, such as the offsets of a schema's cells, as signatures name it.
OFFSETS = "Array(int64, 1, 'C', readonly=True)"


class OfNumba:
    """A name of numba's that kernels use, found when the first one is compiled; Python runs `plain` in its place."""

    def __init__(self, plain: Callable[..., Any], find: Callable[[], Any]) -> None:
        self.plain, self._find = plain, find

    def __call__(self, *args: Any) -> Any:
        """What Python runs."""
        return self.plain(*args)

    @cached_property
    def kernel(self) -> Any:
        """What numba knows under this name."""
        return self._find()


def _find_population_count() -> Any:
    """How many bits of a word are set: one instruction, which vectorizes where the machine can."""
    from numba.core.types import uint64
    from numba.extending import intrinsic

    def population_count(_context: Any, _word: Any) -> tuple[Any, Callable[..., Any]]:
        return uint64(uint64), lambda _target, builder, _signature, words: builder.ctpop(words[0])

    return intrinsic(population_count)


population_count = OfNumba(lambda word: int(word).bit_count(), _find_population_count)
# A range whose turns threads share, in kernels with `parallel=True`.
prange = OfNumba(range, lambda: import_module("numba").prange)


class Compiled(Generic[P, R]):
    """A function that is compiled when it is first called. `plain` is the same function as Python runs it."""

    def __init__(self, function: Callable[P, R], signature: str | list[str] | None, options: dict[str, Any]) -> None:
        self.plain = function
        self._signature, self._options = signature, options
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the compiled function."""
        found: R = self.kernel(*args, **kwargs)
        return found

    def compile(self) -> None:
        """Compile the function now, if it is one that others call."""
        if self._signature is not None:
            _ = self.kernel

    @cached_property
    def kernel(self) -> Any:
        """What numba makes of the function; from its cache where it was made before."""
        import numba

        function: Any = self.plain
        if self._signature is not None:
            _expect(function.__module__, function.__qualname__)
        # Compiled code calls compiled code: in its sight, every name is what numba has made of it.
        names = {
            name: value.kernel if isinstance(value, Compiled | OfNumba) else value
            for name, value in function.__globals__.items()
            if name in {*function.__code__.co_names, "__name__", "__builtins__"}
        }
        own = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        if self._signature is None:
            return numba.njit(**self._options)(own)
        return numba.njit(self._signature, **self._options)(own)


def compiled(signature: str | list[str] | None = None, **options: Any) -> Callable[[Callable[P, R]], Compiled[P, R]]:
    """Let numba compile a function for arguments of these types (or any of a list), and keep it, without Python's lock.

    A function without a signature is part of those that call it.
    """
    settings = {"inline": "always"} if signature is None else {"cache": True, "nogil": True}
    return lambda function: Compiled(function, signature, settings | options)


class Worth:
    """Whether work has become so much that compiled code pays, loading and compiling it included.

    Work is counted from the first call on, by public sizes alone. What is small each time but comes again and again
    pays, too. Where other code has loaded numba, which is most of what it costs, a tenth of the work is enough.

    >>> worth = Worth(100)
    >>> worth(101), worth(0)
    (True, True)
    """

    def __init__(self, most: float) -> None:
        self._most, self._done = most, 0.0

    def __call__(self, work: float) -> bool:
        """Count this much more work in."""
        self._done += work
        return self._done > self._most * (_LOADED if "numba" in sys.modules else 1.0)


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, `tell` that something is compiled, the first time that something is."""
    _listeners.append(tell)
    try:
        yield
    finally:
        if tell in _listeners:
            _listeners.remove(tell)


def load(name: str) -> ModuleType:
    """A module with all its kernels compiled, or loaded from the cache: before threads call them."""
    module = import_module(name)
    for value in vars(module).values():
        if isinstance(value, Compiled):
            value.compile()
    return module


def compile_ahead(names: list[str]) -> None:
    """Let another process compile the kernels of these modules, where they are not kept yet, while this one goes on.

    A compiler holds Python's lock: a thread of this process would keep all others from reading rows. Whoever needs one
    of these modules before that process has ended waits for it.
    """
    wanted = [name for name in names if name not in _helpers and not is_kept(name)]
    if not wanted:
        return
    _tell()
    # -P: a folder of this name where the command was given is not the package.
    command = [sys.executable, "-P", "-m", "sklar.machine.warm", *wanted]
    quiet = subprocess.DEVNULL
    try:
        helper = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603
    except OSError:
        # Where no process may be started, this one compiles.
        return
    atexit.register(helper.kill)
    _helpers.update(dict.fromkeys(wanted, helper))


def is_kept(module: str, function: str = "*") -> bool:
    """Whether compiled code of a module, or of a function of it, is in the cache."""
    kept = os.environ.get(FOLDER)
    return kept is not None and any(Path(kept).glob(f"*/{module.rpartition('.')[2]}.{function}-*.nbi"))


def _expect(module: str, function: str = "*") -> None:
    """Something of this module is about to be compiled, or loaded: wait for who compiles it, or tell that we do."""
    helper = _helpers.pop(module, None)
    if helper is not None:
        helper.wait()
    if not is_kept(module, function):
        _tell()


def _tell() -> None:
    while _listeners:
        _listeners.pop()(NOTE)
