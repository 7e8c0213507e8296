"""The definitions of Sensitivity.v, word for word in Python: tests compare them with the kernel, `check` with Coq."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest


def apart(u: Sequence[int], v: Sequence[int]) -> int:
    """The squared distance of two tables."""
    return sum((x - y) ** 2 for x, y in zip_longest(u, v, fillvalue=0))


def steps(u: Sequence[int], v: Sequence[int]) -> int:
    """Their L1 distance."""
    return sum(abs(x - y) for x, y in zip_longest(u, v, fillvalue=0))


def place(before: int, sizes: Sequence[int], codes: Sequence[int]) -> int | None:
    """The place of a row in a table of these sizes, the last attribute fastest; none where a code is no level."""
    if not sizes or not codes:
        return None if sizes or codes else before
    return place(before * sizes[0] + codes[0], sizes[1:], codes[1:]) if codes[0] < sizes[0] else None


def table(n: int, rows: Sequence[int | None]) -> list[int]:
    """How many rows stand in each of the first n cells."""
    return [sum(row == cell for row in rows) for cell in range(n)]


def dealt(each: int, whole: int, before: int, parts: Sequence[int]) -> list[int]:
    """What entries with these parts get, after others with so many."""
    if not parts:
        return []
    upto = before + parts[0]
    return [each * upto // whole - each * before // whole, *dealt(each, whole, upto, parts[1:])]


def odd_sum(mask: Sequence[bool], row: Sequence[bool]) -> bool:
    """Whether the chosen bits of a row sum to an odd number."""
    return bool(sum(chosen and bit for chosen, bit in zip(mask, row, strict=False)) % 2)


def masks(k: int, m: int) -> list[tuple[bool, ...]]:
    """All sets of k of m bits."""
    if m == 0:
        return [()] if k == 0 else []
    chosen = [(True, *mask) for mask in masks(k - 1, m - 1)] if k else []
    return [(False, *mask) for mask in masks(k, m - 1)] + chosen


def moved(k: int, one: Sequence[bool], two: Sequence[bool]) -> int:
    """The sets of k bits whose parity differs between two rows."""
    return sum(odd_sum(mask, one) != odd_sum(mask, two) for mask in masks(k, len(one)))


def centered(line: Sequence[int]) -> list[int]:
    """K times what centering leaves of each of K numbers."""
    return [len(line) * number - sum(line) for number in line]
