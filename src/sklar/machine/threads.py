"""How many threads work at once, decided in one place, and the ways to use them.

Kernels are compiled to release the GIL and stay in the thread that calls them; so do matrix products here.
Several pieces of work side by side are faster than one after the other spread over all processors, many times so when
the machine is busy, and no result depends on the number of threads.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from itertools import islice
from threading import RLock
from typing import Any, TypeVar, cast

import threadpoolctl
from threadpoolctl import ThreadpoolController

from sklar.errors import SklarError

T = TypeVar("T")
R = TypeVar("R")
# Does independent pieces of work: together(work, items) gives their results in order.
Together = Callable[..., list[Any]]

_chosen: int | None = None
# One that its holder may take again: garbage is collected at any moment, and with it a stream that nobody ended.
_lock = RLock()
_inside = 0
_limits = ExitStack()
# The BLAS libraries, and how many modules were loaded when they were listed: to list them takes milliseconds.
_libraries: tuple[int, ThreadpoolController] | None = None


def workers() -> int:
    """How many threads work at once: what `using` says, else as many as this process has processors."""
    if _chosen is not None:
        return _chosen
    # A container or a batch system may grant fewer processors than the machine has.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Work with this many threads inside the block, in the whole process; None changes nothing."""
    global _chosen
    if threads is not None and (type(threads) is not int or threads < 1):
        raise SklarError(f"threads must be a whole number of at least 1, got {threads!r}.")
    before, _chosen = _chosen, threads or _chosen
    try:
        yield
    finally:
        _chosen = before


def side_by_side(work: Callable[[T], R], items: Iterable[T], *, threads: int | None = None) -> list[R]:
    """The results of independent pieces of work, in order; by so many threads, where more would not help."""
    with crew(threads) as together:
        return together(work, items)


@contextmanager
def undivided() -> Iterator[None]:
    """Matrix products stay in the thread that asks for them, in the whole process, until the last leaves its block.

    Blocks end in any order: the first to end must not free those that still work, nor the last keep what it found. A
    generator must not be suspended inside: whoever keeps it unread would keep the whole process at one thread."""
    global _inside, _libraries
    with _lock:
        _inside += 1
    # An interruption may fall anywhere from here on: whoever came in also leaves.
    try:
        with _lock:
            if _libraries is None or _libraries[0] != len(sys.modules):
                _libraries = len(sys.modules), ThreadpoolController().select(user_api="blas")
            # Those inside have limited all, but for a library that was loaded since.
            if any(library["num_threads"] > 1 for library in _libraries[1].info()):
                _take_control()
                _limits.enter_context(_libraries[1].limit(limits=1))
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _take_control()
                _limits.close()


def _take_control() -> None:
    """Let this thread set limits, whichever set the last ones.

    Newer versions of threadpoolctl take OpenBLAS's limit from one thread only, and ignore others without a word: where
    the last to leave was not the first that came in, the process would stay at one thread."""
    release = getattr(getattr(threadpoolctl, "OpenBLASController", None), "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


@contextmanager
def crew(threads: int | None = None) -> Iterator[Together]:
    """The same for work that comes again and again: threads that stay until the block ends."""
    with undivided(), ThreadPoolExecutor(threads or workers()) as pool:
        yield lambda work, items: list(pool.map(work, items))


@contextmanager
def _threads_of_a_stream(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for a generator: what has not begun when it ends is not begun.

    One that nobody read to its end is ended as garbage, at any moment, even in a thread that is just starting and holds
    what others need in order to end: that must not wait for them."""
    pool, waits = ThreadPoolExecutor(count), True
    try:
        yield pool
    except GeneratorExit:
        waits = False
        raise
    finally:
        pool.shutdown(wait=waits, cancel_futures=True)


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, each fetched by a thread of its own while the one before it is in use."""
    return merged([items], 1)


def merged(streams: Iterable[Iterable[T]], at_once: int) -> Iterator[T]:
    """The items of many streams, in any order, `at_once` streams at a time: for sums.

    Each stream is one item ahead at most, so that memory does not grow with their number or length.

    >>> sorted(merged([[1, 2], [], [3]], 2))
    [1, 2, 3]"""
    waiting, end = map(iter, streams), object()
    with _threads_of_a_stream(at_once) as pool:
        fetched: dict[Future[T | object], Iterator[T]]
        fetched = {pool.submit(next, stream, end): stream for stream in islice(waiting, at_once)}
        while fetched:
            for future in wait(fetched, return_when=FIRST_COMPLETED).done:
                stream, item = fetched.pop(future), future.result()
                following = next(waiting, None) if item is end else stream
                if following is not None:
                    fetched[pool.submit(next, following, end)] = following
                if item is not end:
                    yield cast(T, item)


def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The same as a stream: few items are taken and few results held at a time, however many there are."""
    count = workers()

    def piece(item: T) -> R:
        with undivided():
            return work(item)

    waiting = deque[Future[R]]()
    with _threads_of_a_stream(count) as pool:
        for item in items:
            waiting.append(pool.submit(piece, item))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
