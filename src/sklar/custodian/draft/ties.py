"""Columns that determine others, or forbid combinations with them: facts of the rows that may be public rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sklar.custodian.draft.look import Look

# This share of the rows may break what is still proposed as a rule: real tables hold mistakes.
_BROKEN = 0.001
# A combination that chance alone would have given this many rows, and that hardly any row has, may be impossible.
_EXPECTED, _HARDLY = 100.0, 0.005
# A value that determines another one must occur this often on average, or every table would have such columns.
_ROWS_EACH = 10.0
_MOST_COLUMNS = 60
_MOST_LEVELS = 60


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tie:
    """`first` determines `second`, or some of their values exclude each other; `pairs` are these values: private.

    For a column that determines another, `pairs` give each value its partner.
    """

    how: Literal["determines", "excludes"]
    first: str
    second: str
    pairs: tuple[tuple[str, str], ...]
    broken: int


def find_ties(seen: Look, names: Sequence[str]) -> tuple[Tie, ...]:
    """The ties among these columns."""
    coded = {name: seen.coded[name] for name in names if name in seen.coded and len(seen.coded[name][0]) > 1}
    chosen = list(coded)[:_MOST_COLUMNS]
    ties: list[Tie] = []
    followers: set[str] = set()
    for i, one in enumerate(chosen):
        for two in chosen[i + 1 :]:
            tie = _tie(one, two, coded)
            if tie is None or (tie.how == "determines" and tie.second in followers):
                continue
            if tie.how == "determines":
                followers.add(tie.second)
            ties.append(tie)
    # What a column excludes is said once, not again for the columns that it determines.
    return tuple(tie for tie in ties if tie.how == "determines" or not {tie.first, tie.second} & followers)


def _tie(one: str, two: str, coded: dict[str, tuple[tuple[str, ...], NDArray[np.int32]]]) -> Tie | None:
    (texts, codes), (others, partners) = coded[one], coded[two]
    both = (codes >= 0) & (partners >= 0)
    places = codes[both].astype(np.int64) * len(others) + partners[both]
    table = np.bincount(places, minlength=len(texts) * len(others)).reshape(len(texts), len(others))
    # The column with more values, or the first of two with as many, is the one that determines.
    pairs = [(one, two, table, texts, others), (two, one, table.T, others, texts)]
    for first, second, counts, values, results in sorted(pairs, key=lambda pair: -len(pair[3])):
        found = _determines(counts)
        if found is not None:
            named = tuple((values[k], results[j]) for k, j in enumerate(counts.argmax(axis=1)) if counts[k].any())
            return Tie(how="determines", first=first, second=second, pairs=named, broken=found)
    return _excludes(one, two, table, texts, others)


def _determines(counts: NDArray[np.int64]) -> int | None:
    """How many rows break the rule that the first column determines the second; None where there is no such rule."""
    total, most = int(counts.sum()), int(counts.max(axis=1).sum())
    used = int(np.count_nonzero(counts.any(axis=1)))
    if total < _ROWS_EACH * used or total - most > _BROKEN * total:
        return None
    # A second column that is nearly constant needs no rule.
    return total - most if counts.sum(axis=0).max() < 0.98 * total else None


def _excludes(one: str, two: str, counts: NDArray[np.int64], texts: Sequence[str], others: Sequence[str]) -> Tie | None:
    if max(counts.shape) > _MOST_LEVELS or not counts.any():
        return None
    expected: NDArray[Any] = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    empty = (expected >= _EXPECTED) & (counts <= _HARDLY * expected)
    if not empty.any():
        return None
    pairs = tuple((texts[k], others[j]) for k, j in zip(*np.nonzero(empty), strict=True))
    return Tie(how="excludes", first=one, second=two, pairs=pairs, broken=int(counts[empty].sum()))
