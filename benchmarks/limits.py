"""The limits of this machine, measured beside a release, and what the release would take at them.

Rates are per CPU second of one thread, while all workers are at work: on a busy machine a thread waits, but a second of
its CPU time holds as much work as ever. Rates of the disk are per second of wall time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sklar.machine.compiled import compiled, population_count
from sklar.machine.threads import side_by_side, using, workers
from sklar.public.schema import Schema
from sklar.rows.count import Counter, ask_all
from sklar.rows.source import batch_rows

SECONDS = 0.4
_WORDS = 1024  # two operands of 8 KiB: half of the smallest L1 in use
_SIDE = 1024
_TRIAD = 1 << 23
_DISK = 256 << 20
_LEVELS = 16


@compiled("uint64(uint64[::1], uint64[::1], int64)")
def and_popcount(one: Any, other: Any, rounds: int) -> Any:
    """The bits that two planes share, counted `rounds` times."""
    total = np.uint64(0)
    for turn in range(rounds):
        # One word changes each round: else a compiler could find that all rounds are alike.
        one[np.uint64(turn) % np.uint64(one.size)] ^= np.uint64(1)
        part = np.uint64(0)
        # An unsigned index: for a signed one the compiled code would check whether it is negative.
        for i in range(np.uint64(one.size)):
            part += population_count(one[i] & other[i])
        total += part
    return total


@compiled("void(uint8[::1], uint8[::1], uint32[::1], int64)")
def joint_histogram(one: Any, other: Any, table: Any, rounds: int) -> None:
    """Add two columns of codes below `_LEVELS` to their two-way table, `rounds` times."""
    for _ in range(rounds):
        for i in range(one.size):
            table[np.uint64(one[i]) * np.uint64(_LEVELS) + np.uint64(other[i])] += np.uint32(1)


@compiled("void(float64[::1], float64[::1], float64[::1])")
def triad(out: Any, one: Any, other: Any) -> None:
    """out = one + 3 other: two reads and a write per element, from memory."""
    for i in range(out.size):
        out[i] = one[i] + 3.0 * other[i]


def _rate(make: Callable[[int], Callable[[], object]], amount: float) -> float:
    """How much a CPU second does, when every worker repeats its own piece of work, of this amount, for a while."""

    def work(piece: Callable[[], object]) -> tuple[int, float]:
        piece()
        begin, stop, repeats = time.thread_time(), time.perf_counter() + SECONDS, 0
        while time.perf_counter() < stop or not repeats:
            piece()
            repeats += 1
        return repeats, time.thread_time() - begin

    done = side_by_side(work, [make(worker) for worker in range(workers())])
    return amount * sum(repeats for repeats, _ in done) / sum(seconds for _, seconds in done)


def _popcount(worker: int) -> Callable[[], object]:
    planes = np.random.default_rng(worker).integers(0, 1 << 63, (2, _WORDS)).astype(np.uint64)
    return lambda: and_popcount(planes[0], planes[1], 1000)


def _histogram(worker: int) -> Callable[[], object]:
    codes = np.random.default_rng(worker).integers(0, _LEVELS, (2, 8 * _WORDS)).astype(np.uint8)
    table = np.zeros(_LEVELS * _LEVELS, dtype=np.uint32)
    return lambda: joint_histogram(codes[0], codes[1], table, 100)


def _multiply(worker: int) -> Callable[[], object]:
    factors = np.random.default_rng(worker).standard_normal((2, _SIDE, _SIDE), dtype=np.float32)
    out = np.empty((_SIDE, _SIDE), dtype=np.float32)
    return lambda: np.matmul(factors[0], factors[1], out=out)


def _stream(_worker: int) -> Callable[[], object]:
    arrays = np.ones((3, _TRIAD))
    return lambda: triad(arrays[0], arrays[1], arrays[2])


def disk(folder: Path) -> dict[str, float]:
    """Bytes a second written to `folder` and flushed, and read back past the cache."""
    path, block = folder / "disk.part", np.random.default_rng(0).bytes(1 << 22)
    try:
        begin = time.perf_counter()
        with path.open("wb") as file:
            for _ in range(_DISK // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        write = _DISK / (time.perf_counter() - begin)
        with path.open("rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            begin, held = time.perf_counter(), bytearray(len(block))
            while file.readinto(held):
                pass
        return {"disk_write": write, "disk_read": _DISK / (time.perf_counter() - begin)}
    finally:
        path.unlink(missing_ok=True)


def measure(folder: Path, threads: int | None) -> dict[str, float]:
    """All rates: words, increments, multiply-adds and bytes a second."""
    with using(threads):
        return {
            "popcount": _rate(_popcount, 1000 * _WORDS),
            "histogram": _rate(_histogram, 100 * 8 * _WORDS),
            "multiply_add": _rate(_multiply, _SIDE**3),
            "memory": _rate(_stream, 3 * 8 * _TRIAD),
            **disk(folder),
        }


def counting(schema: Schema, threads: int | None) -> float:
    """Rows that a CPU second counts once their columns are bits and codes: one batch is counted again and again."""
    rows = batch_rows(schema.n_attributes)
    generator, counter = np.random.default_rng(0), Counter(ask_all(schema))
    counter.begin(rows)
    for index, size in enumerate(schema.sizes.tolist()):
        counter.put_codes(index, generator.integers(0, size, rows, dtype=np.int32))

    def work(job: Callable[[], None]) -> float:
        begin = time.thread_time()
        job()
        return time.thread_time() - begin

    with using(threads):
        side_by_side(work, counter.jobs())
        stop, repeats, seconds = time.perf_counter() + SECONDS, 0, 0.0
        while time.perf_counter() < stop or not repeats:
            seconds += sum(side_by_side(work, counter.jobs()))
            repeats += 1
    return rows * repeats / seconds


def counting_floor(rows: int, sizes: Sequence[int], rates: Mapping[str, float]) -> float:
    """CPU seconds of exact two-way counts at these rates, each pair by the cheaper way.

    With a bit plane per level but one, a pair takes (a - 1)(b - 1) passes over rows / 64 words and the margins give the
    rest; by its histogram it takes one increment a row.

    >>> counting_floor(640, [2, 2, 3], {"popcount": 10.0, "histogram": 1000.0})
    1.92
    """
    free = np.asarray(sizes, dtype=np.float64) - 1
    a, b = np.triu_indices(free.size, 1)
    planes = free[a] * free[b] * (rows / 64 / rates["popcount"])
    return float(np.minimum(planes, rows / rates["histogram"]).sum())


def floors(run: Mapping[str, Any], sizes: Sequence[int], rates: Mapping[str, float]) -> dict[str, float | None]:
    """Seconds that parts of a release take at these rates: CPU seconds, and wall time for the disk.

    `multiply` is the product with the copula's factor, None where rows are drawn otherwise. `pass` is one write and one
    read of every cell as a byte, which counting and sampling need at least.
    """
    multiplied = run["multiplications"]
    return {
        "counting": counting_floor(run["rows"], sizes, rates),
        "multiply": None if multiplied is None else run["rows"] * multiplied / rates["multiply_add"],
        "pass": 2 * run["rows"] * len(sizes) / rates["memory"],
        "disk": run["output_bytes"] / rates["disk_write"],
    }
