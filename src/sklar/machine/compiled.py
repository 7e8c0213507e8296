"""Lazy compilation: importing this module, or a module with kernels, loads neither numba nor kernels.

Both take half a second: more than the rest of a small release. So a kernel is compiled at its first call, which callers
make only for inputs large enough to repay it (`docs/architecture.md`).

numba unpickles its cache, so whoever can put a file there runs code as the user, and it checks none of its folders.
Compiled code is kept only in a folder that belongs to the user, is closed to all others (0700), and that no other user
can replace from a folder above; else every process compiles anew.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, update_wrapper
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from sklar.machine.wording import stated

P = ParamSpec("P")
R = TypeVar("R")

# The variable that names the folder, to numba and to us.
FOLDER = "NUMBA_CACHE_DIR"
KERNELS: dict[str, str] = stated("sklar.machine", "said.toml")["kernels"]
# A read-only array, such as the offsets of a schema's cells, as signatures name it.
OFFSETS = "Array(int64, 1, 'C', readonly=True)"
_listeners: list[Callable[[str], None]] = []
_lock = RLock()


def population_count(word: Any) -> int:
    """How many bits of a word are set: in kernels one instruction, which vectorizes where the machine can."""
    return int(word).bit_count()


@cache
def _of_numba() -> Any:
    """What `population_count` stands for in a kernel."""
    from numba.core.types import uint64
    from numba.extending import intrinsic

    def population_count(_context: Any, _word: Any) -> tuple[Any, Callable[..., Any]]:
        return uint64(uint64), lambda _target, builder, _signature, words: builder.ctpop(words[0])

    return intrinsic(population_count)


class Compiled(Generic[P, R]):
    """A function that is compiled when it is first called. `plain` is the same function as Python runs it."""

    def __init__(self, function: Callable[P, R], signature: str | list[str] | None, options: dict[str, Any]) -> None:
        self.plain, self.signature, self._options = function, signature, options
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the compiled function."""
        return cast(R, self.kernel(*args, **kwargs))

    @cached_property
    def kernel(self) -> Any:
        """What numba makes of the function; from the cache where it was compiled before."""
        numba, function = cast(Any, import_module("numba")), cast(Any, self.plain)
        while self.signature is not None and _listeners and not is_kept(function.__module__, function.__qualname__):
            _listeners.pop()("compiling for this machine, once")
        # Compiled code calls compiled code: each name stands for what numba has made of it.
        names = {
            name: value.kernel if isinstance(value, Compiled) else value
            for name, value in function.__globals__.items()
            if name in {*function.__code__.co_names, "__name__", "__builtins__"}
        }
        names |= {"population_count": _of_numba()} if "population_count" in names else {}
        own = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        # Of our kernels alone, so that a user's stay put.
        with _lock:
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = str(cache_folder() or before)
            try:
                return numba.njit(*([] if self.signature is None else [self.signature]), **self._options)(own)
            finally:
                numba.config.CACHE_DIR = before


def compiled(signature: str | list[str] | None = None, **options: Any) -> Callable[[Callable[P, R]], Compiled[P, R]]:
    """Compile a function for arguments of these types, and run it without the GIL; one of no types is inlined."""
    settings = {"inline": "always"} if signature is None else {"cache": True, "nogil": True}
    return lambda function: Compiled(function, signature, settings | options)


class Worth:
    """Whether there has been enough work, by public sizes alone, to repay loading and compiling kernels.

    Where other code has loaded numba, which is most of the cost, a tenth of it is enough.
    """

    def __init__(self, most: float) -> None:
        self._most, self._done = most, 0.0

    def __call__(self, work: float) -> bool:
        """Add this much work."""
        self._done += work
        return self._done > self._most * (0.1 if "numba" in sys.modules else 1.0)


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, `tell` the first time that something is compiled."""
    _listeners.append(tell)
    try:
        yield
    finally:
        if tell in _listeners:
            _listeners.remove(tell)


def load(name: str) -> ModuleType:
    """A module with all its kernels compiled, or loaded from the cache: before threads call them."""
    module = import_module(name)
    # Those without a signature are inlined into others.
    _ = [each.kernel for each in vars(module).values() if isinstance(each, Compiled) and each.signature is not None]
    return module


def is_kept(module: str, function: str = "*") -> bool:
    """Whether compiled code of a module, or of one of its functions, is in the cache."""
    folder = cache_folder()
    return folder is not None and any(folder.glob(f"*/{module.rpartition('.')[2]}.{function}-*.nbi"))


def cache_folder() -> Path | None:
    """Where compiled code is kept: the folder that the user names, ours, or one of this process alone."""
    if not hasattr(os, "geteuid"):
        # Systems without these rights keep a user's folders private by default.
        return None
    named = os.environ.get(FOLDER)
    if named and is_private(Path(named)):
        return Path(named)
    # Not Path.expanduser, which raises for a user without a home.
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108
    # In a folder for all users the name holds the user's number; is_private refuses one that another user made.
    for ours in (home / "sklar", temporary / f"sklar-{os.geteuid()}"):
        for each in (ours.parent, ours):
            with suppress(OSError):
                each.mkdir(mode=0o700)
        if is_private(ours):
            return ours
    return _folder_of_process()


def is_private(folder: Path) -> bool:
    """Whether a folder is this user's, writable, closed to others, and cannot be replaced by others."""
    try:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) != 0o700:
            return False
        for above in folder.resolve().parents:
            facts = above.stat()
            others_write = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
            if others_write or facts.st_uid not in (0, os.geteuid()):
                return False
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@cache
def _folder_of_process() -> Path:
    """A folder for this process alone, removed when it ends."""
    import atexit
    import shutil
    import tempfile

    folder, owner = Path(tempfile.mkdtemp(prefix="sklar-")), os.getpid()
    # Not when a forked worker ends.
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder
