"""Pairs of columns of any kinds: how strongly they go together in both tables, groups, and the score over all.

Pairs are compared on random samples of the rows. The association of two numbers (or times) is Spearman's correlation;
of a number by categories the correlation ratio of its ranks; of categories Cramér's V; the last two without the bias of
chance. Categories are the commonest of the real rows, and all others as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sklar.custodian.evaluate import verdict
from sklar.custodian.evaluate.raw import Floats, RawTable
from sklar.custodian.evaluate.verdict import CHANCE, LIMITS, ColumnFit, Reason, Verdict
from sklar.public.schema import Attribute

# At most so many pairs are compared, a random sample of them; so many categories of a column have a group of their own.
MAX_PAIRS, MAX_GROUPS = 1_000, 30
# Groups of at least so many rows of the sample are compared, and so many of a pair are told.
_LEAST_GROUP, _TOLD = 30, 3
# Without this much association to lose there is nothing to score.
_LEAST_LOSS = 0.01
_SEED = 2020


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupFit:
    """One group's numbers in both tables. `off`: the share on the wrong side of the real median, beyond chance."""

    group: str
    rows: tuple[int, int]
    mean: tuple[float, float]
    median: tuple[float, float]
    off: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PairFit:
    """How two columns go together, and the groups that lose most; `reasons` are its own, the verdict the worst."""

    columns: tuple[str, str]
    association: tuple[float, float]
    groups: tuple[GroupFit, ...]
    reasons: tuple[Reason, ...]
    verdict: Verdict

    @property
    def name(self) -> str:
        """Both names."""
        return " and ".join(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(verdict.to_figures(asdict(self)))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FidelityScore:
    """From 0 to 100: what is kept of columns, times what is kept of dependence (None where there is none to keep)."""

    overall: float
    columns: float
    dependence: float | None
    ends: str

    @property
    def line(self) -> str:
        """In words."""
        kept = "no dependence to keep" if self.dependence is None else f"dependence {self.dependence:.0f}"
        return f"Score {self.overall:.0f} of 100 (columns {self.columns:.0f}, {kept}). {self.ends}"


class Dependence:
    """All pairs of two tables, or a random sample of them. `stated` says how many, on how many rows."""

    def __init__(self, real: RawTable, other: RawTable) -> None:
        self._real, self._rows, self._generator = real, (real.rows, other.rows), np.random.default_rng(_SEED)
        self._grouped = [column.categories is not None for column in real.columns]
        self._ready = [self._prepared(rows) for rows in self._rows]
        both = np.stack(np.triu_indices(len(real.columns), 1), axis=1)
        every = len(both)
        chosen = np.arange(every) if every <= MAX_PAIRS else self._generator.choice(every, MAX_PAIRS, replace=False)
        self.pairs: list[tuple[int, int]] = both[np.sort(chosen)].tolist()
        of = f" of {every:,}, at random" if every > MAX_PAIRS else ""
        named = zip((real, other), ("real", "synthetic"), strict=True)
        rows = (f"{each.rows.shape[1]:,} of {each.n_rows:,} {name}" for each, name in named)
        self.stated = f"{len(self.pairs):,}{of}, on {' and '.join(rows)} rows"

    def _prepared(self, rows: Floats) -> Floats:
        """Ranks of numbers and codes of categories, shape (columns, rows)."""
        ready = np.full_like(rows, np.nan)
        for at, column in enumerate(self._real.columns):
            if column.categories is None:
                here = ~np.isnan(rows[at])
                _, places, counts = np.unique(rows[at][here], return_inverse=True, return_counts=True)
                ready[at][here] = (np.cumsum(counts) - counts / 2)[places]
            else:
                keys = column.categories.frame["key"][:MAX_GROUPS].sort().to_numpy()
                ready[at] = np.where(np.isin(rows[at], keys), np.searchsorted(keys, rows[at]), keys.size)
        return ready

    def _associations(self, ready: Sequence[Floats] | Floats) -> Floats:
        grouped = self._grouped
        return np.array([associate(ready[i], ready[j], grouped=(grouped[i], grouped[j])) for i, j in self.pairs])

    def compare(self, columns: Sequence[ColumnFit]) -> tuple[PairFit, ...]:
        """Every pair, with its verdict."""
        both = np.stack([self._associations(ready) for ready in self._ready], axis=1).tolist() if self.pairs else []
        return tuple(self._pair(columns, *pair, *found) for pair, found in zip(self.pairs, both, strict=True))

    def _pair(self, columns: Sequence[ColumnFit], i: int, j: int, real: float, given: float) -> PairFit:
        sizes = [int((~np.isnan(ready[[i, j]])).all(axis=0).sum()) for ready in self._ready]
        error = CHANCE * math.sqrt(sum(1 / max(size, 1) for size in sizes))
        reasons = [*verdict.weigh("association", abs(real - given), error, f"association {given:.2f} for {real:.2f}")]
        reasons += verdict.untold("association", error, f"{min(sizes):,} rows with both are too few to tell")
        groups: list[GroupFit] = []
        if self._grouped[i] != self._grouped[j]:
            by, number = (i, j) if self._grouped[i] else (j, i)
            groups = sorted(self._groups(by, number), key=lambda each: -each.off * each.rows[0])
            spread = float(np.nanstd(self._rows[0][number])) if groups else 0.0
            reasons += _reasons_of_groups(columns[by].name, columns[number].attribute, groups, spread)
        return PairFit(
            columns=(columns[i].name, columns[j].name),
            association=(real, given),
            groups=tuple(groups[:_TOLD]),
            reasons=tuple(reasons),
            verdict=verdict.worst([columns[i].verdict, columns[j].verdict, *(each.verdict for each in reasons)]),
        )

    def _groups(self, by: int, number: int) -> Iterator[GroupFit]:
        categories = self._real.columns[by].categories
        names = [] if categories is None else categories.frame[:MAX_GROUPS].sort("key")["text"].to_list()
        for code, name in enumerate(names):
            found = [rows[number][ready[by] == code] for rows, ready in zip(self._rows, self._ready, strict=True)]
            mine, given = (each[~np.isnan(each)] for each in found)
            # A group that is gone is the column's loss.
            if mine.size >= _LEAST_GROUP and given.size > 0:
                median = float(np.median(mine)), float(np.median(given))
                means = float(mine.mean()), float(given.mean())
                # Half of the group should lie on either side; a tie at the median may lie on both.
                off = max((given < median[0]).mean() - 0.5, 0.5 - (given <= median[0]).mean())
                off -= CHANCE * 0.5 * math.sqrt(1 / mine.size + 1 / given.size)
                rows = mine.size, given.size
                yield GroupFit(group=name, rows=rows, mean=means, median=median, off=max(float(off), 0.0))

    def score(self, columns: Sequence[ColumnFit], test: RawTable | None) -> FidelityScore:
        """Between real test rows (100) and independent columns (0): see docs/evaluation.md."""
        tables = (*self._rows, *([test.rows] if test else []))
        shuffled = [rows[:, self._generator.permutation(rows.shape[1])] for rows in tables]
        if test is None:
            # Half of the real rows stand for test rows.
            shuffled = [shuffled[0][:, ::2], shuffled[1], shuffled[0][:, 1::2]]
        real, *others = shuffled
        few = min(each.shape[1] for each in others)
        other, held = (each[:, :few] for each in others)
        lost, usual = (
            np.array([_lost(*two, grouped=grouped) for *two, grouped in zip(real, rows, self._grouped, strict=True)])
            for rows in (other, held)
        )
        # A column that is not to be used keeps nothing, whatever its distribution.
        lost[[column.verdict == "do not use" for column in columns]] = 1.0
        kept, dependence = 1 - max(0.0, float(lost.mean() - usual.mean())) / max(1 - float(usual.mean()), 1e-9), None
        if self.pairs:
            true, given, again = (self._associations(self._prepared(rows)) for rows in (real, other, held))
            apart = self._associations([self._generator.permutation(column) for column in self._prepared(other)])
            found, least, most = (float(np.abs(true - each).mean()) for each in (given, again, apart))
            if most - least > _LEAST_LOSS:
                dependence = 100 * min(1.0, max(0.0, 1 - (found - least) / (most - least)))
        overall = 100 * kept * (1.0 if dependence is None else dependence / 100)
        told = "half of the real rows beside the other half" if test is None else "real test rows"
        words = f"100: {told}; 0: independent columns, or columns not to be used."
        if CHANCE * math.sqrt(1 / max(real.shape[1], 1) + 1 / max(few, 1)) > LIMITS["association"][1]:
            words += " So few rows leave it largely to chance."
        return FidelityScore(overall=overall, columns=100 * kept, dependence=dependence, ends=words)


def associate(one: Floats, two: Floats, *, grouped: tuple[bool, bool]) -> float:
    """How strongly two columns of ranks, or of codes where `grouped`, go together; 0 where one does not vary."""
    here = ~(np.isnan(one) | np.isnan(two))
    one, two, n = one[here], two[here], int(here.sum())
    if n < 3 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return 0.0
    if not any(grouped):
        return float(np.corrcoef(one, two)[0, 1])
    if not all(grouped):
        ranks, codes = (two, one.astype(np.int64)) if grouped[0] else (one, two.astype(np.int64))
        times = np.bincount(codes)
        sums, times = np.bincount(codes, weights=ranks)[times > 0], times[times > 0]
        within = 1 - ((sums**2 / times).sum() / n - ranks.mean() ** 2) / ranks.var()
        return math.sqrt(min(1.0, max(0.0, 1 - within * (n - 1) / max(n - times.size, 1))))
    first, second = (np.unique(each, return_inverse=True)[1] for each in (one, two))
    r, k = int(first.max()) + 1, int(second.max()) + 1
    table = np.bincount(first * k + second, minlength=r * k).reshape(r, k)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    square = max(0.0, ((table - expected) ** 2 / expected).sum() / n - (r - 1) * (k - 1) / (n - 1))
    least = min(each - (each - 1) ** 2 / (n - 1) for each in (r, k)) - 1
    return min(1.0, math.sqrt(square / least)) if least > 0 else 0.0


def _reasons_of_groups(by: str, attribute: Attribute, groups: Sequence[GroupFit], spread: float) -> Iterator[Reason]:
    """What the medians and means of groups lose, weighted by their rows."""
    if not groups or spread == 0:
        return
    rows, error = (np.array([each.rows for each in groups]), CHANCE * spread)
    means, medians = (np.array([getattr(each, name) for each in groups]) for name in ("mean", "median"))
    gaps = np.abs(means[:, 0] - means[:, 1]) - error * np.sqrt((1 / rows).sum(axis=1))
    losses = {"medians": np.array([each.off for each in groups]), "means": np.maximum(gaps, 0.0) / spread}
    for figure, values in (("medians", medians), ("means", means)):
        most = int(np.argmax(losses[figure] * rows[:, 0]))
        true, given = (verdict.text(attribute, float(each)) for each in values[most])
        words = f"{figure} of {attribute.name} by {by}: {given} for {true} where it is {groups[most].group!r}"
        yield from verdict.weigh(f"group {figure}", float(losses[figure] @ rows[:, 0] / rows[:, 0].sum()), 0.0, words)


def _lost(one: Floats, two: Floats, *, grouped: bool) -> float:
    """What one column loses, from 0 to 1: values that do not survive, or the larger of KS and missing numbers."""
    if grouped:
        keys, places = np.unique(np.concatenate([one, two]), return_inverse=True)
        shares = [np.bincount(each, minlength=keys.size) / max(each.size, 1) for each in np.split(places, [one.size])]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)
    sides = [np.sort(each[~np.isnan(each)]) for each in (one, two)]
    missing = abs(sides[0].size / max(one.size, 1) - sides[1].size / max(two.size, 1))
    if not all(each.size for each in sides):
        return missing
    upto = [np.searchsorted(each, np.concatenate(sides), side="right") / each.size for each in sides]
    return max(missing, float(np.abs(upto[0] - upto[1]).max()))
