"""Domains that are not public: how a release looks for them, and what it pays.

Categories are found by a stability-based histogram (Korolova et al. 2009; Bun, Nissim and Stemmer 2016): every value
that occurs gets noise, and those whose noisy count reaches a threshold are listed; all others go to `other`. The proof
of what a threshold costs beside its noise is in `Budget.less`. There are two rounds of fresh noise: all columns share
`FIRST` of the cost, then those that left more than `LEFT` of the rows in `other` share `SECOND` of it (all of them,
where the number of rows is not public). Which columns those are, and what goes back to the tables, follows from the
noisy blocks of the first (`Search.then`). What the second may cost in rho, mu^2 and lost delta is reserved before the
first, and any columns keep to it: the filters of `theorems` hold, and so does `Budget.less`.

Numbers are counted between declared bounds, table by table in finer cells (`Ladder`); bins and heaps follow from what
comes out (`fitting.domains`). One small table more, of decade by step, tells to what numbers are rounded. Cells are a
function of the schema and of earlier noisy tables: public.

Sensitivity. The cells of one table do not overlap, and whatever was chosen, they cover the same numbers: a row stands
in at most one cell of each table, and replacing it moves at most two cells by one. So each table costs what any
histogram costs, and which cells it has may depend on the noisy tables before it (adaptive composition): these were
paid for. Every cell gets noise, seen or not. At most `Budget.rows` rows of a person are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from sklar.errors import BudgetError
from sklar.kernel.cells import Doubles, Ints
from sklar.kernel.queries import Block, Common
from sklar.kernel.theorems import NOTHING, Budget, Spend, chance_of_one, drawable, least_threshold, matched_factor
from sklar.machine.wording import said
from sklar.public.axis import AXES
from sklar.public.outputs import grain
from sklar.public.schema import Attribute, Schema

Units = Ints
Searched = Literal["domain", "rounding"]

# Up to this many grains every value may be a level of its own, and there is nothing to search; up to this many the
# second table reaches the grain everywhere. So many parts a cell is divided into, and by the last table.
_VALUES, _SMALL = 32, 512
_DIVIDE, _GRAINS = 20, 4096
# A real without a step has this many decades below its larger bound.
_DECADES = 15
# A decade of the first table: single grains below 10.
_DECADE = (10, 12, 14, 16, 18, 20, 25, 30, 35, 40, 50, 60, 70, 80, 90)
# Bounds whose ratio is smaller than this do not reach toward 0. Cells of the first table: even ones, few, and by the
# calendar at least.
_REACH = 16
_EVEN, _FEW, _FIRST_CALENDAR = 64, 24, 16
# A cell is divided when its count is this many standard errors above zero: in the first table, then.
_SOLID_FIRST, _SOLID = 4.0, 3.0
_SECOND = 1_000_000
_CLOCK = {"hour": 3600 * _SECOND, "minute": 60 * _SECOND, "second": _SECOND}
_SPANS = ("decade", "year", "month", "day", "hour", "minute", "second")
_MONTHS = {"decade": 120, "year": 12, "month": 1}

# The standard error of a number's counts that a search wants, as a part of the rows.
WANTED = 0.0034
# What the tables of one column cost together, in tables at that noise. Two cost as much as four: where they reach every
# grain, the shape inside a bin is theirs alone.
_WHOLE_SEARCH = 4
# Of the whole cost, the most that finding numbers may take, however many columns there are.
MOST = 0.15
# Of the whole cost, a table of numbers where the number of rows is not public.
_UNKNOWN_ROWS = 0.005
# Of the whole cost, what one table of decade by step takes.
ROUNDING_SHARE = 0.0025
# Of the whole cost, what finding categories takes: all, then those that left more than this part of rows in `other`.
# Before there were rounds, all private domains, numbers too, shared the last.
FIRST, SECOND, LEFT = 0.05, 0.15, 0.03
# Of delta, the chance that a threshold lets a value pass that one person alone brought; each round has half of it.
DELTA_SHARE = 0.1
# Numbers take at most this many tables, or took in Sklar 0.2.
_MOST_TABLES = 8
# Longer texts are no categories.
MAX_TEXT = 200
# The cost that is left is held as that of many equal tables, so that no few tables are dearer than it.
_REST_TABLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The cells in which a search counts the numbers of one attribute: from bounds alone down to the grain.

    Numbers are counted in grains, from `low` up to but without `high`: 1 for whole numbers and days, a second for
    moments, a declared step, else a millionth of a millionth of the bound. The first table's cells grow with the
    distance from 0 (single grains up to 10, then 15 cells a decade; negative numbers mirrored), so that a bound of a
    billion adds few cells and no table. Bounds that do not reach toward 0 are divided evenly, dates and times by the
    calendar. Every later table has the cells of the one before it, and those that were chosen are divided. Edges of
    cells are round numbers, or begin years, months, days, hours.

    `tables` is how many tables the search takes; 0 where every value is a level. `spans` are calendar units, coarse to
    fine, of dates and times. `steps` are what numbers may be rounded to, in grains, each a multiple of the one before
    it; empty where the schema states a step or the tables reach the grain.
    """

    low: int
    high: int
    grain: Fraction
    tables: int
    real: bool = False
    spans: tuple[str, ...] = ()
    day: int = 0
    steps: tuple[int, ...] = ()

    def first(self) -> Units:
        """The edges of the first table's cells."""
        low, high, size = self.low, self.high, self.high - self.low
        if self.spans:
            return self._by_calendar(low, high, self.spans[0])
        if size <= _SMALL:
            return _multiples(low, high, _round_up(size / _FEW))
        if (low > 0 and high < _REACH * low) or (high <= 0 and -low < _REACH * -high):
            return _multiples(low, high, _round_up(size / _EVEN))
        return _within(low, high, np.concatenate([-_decades(max(-low, 0))[:0:-1], _decades(max(high, 0))]))

    def divided(self, edges: Units, counts: Doubles, sd: Doubles, table: int) -> Units:
        """The edges of table number `table`: cells with a solid count, by noisy counts and their errors, divided."""
        last, chosen = table == self.tables - 1, np.diff(edges) > 1
        if self.high - self.low > _SMALL:
            chosen &= counts >= (_SOLID_FIRST if table == 1 or last else _SOLID) * sd
        parts = [edges]
        for index in np.flatnonzero(chosen).tolist():
            low, high = int(edges[index]), int(edges[index + 1])
            if table < len(self.spans):
                parts.append(self._by_calendar(low, high, self.spans[table])[1:-1])
            else:
                parts.append(_multiples(low, high, _round_up((high - low) / (_GRAINS if last else _DIVIDE)))[1:-1])
        return np.sort(np.concatenate(parts))

    def units(self, numbers: Ints | Doubles) -> Units:
        """Numbers on the attribute's axis in grains, those beyond the bounds in the outermost."""
        if numbers.dtype.kind == "f":
            # A number that is too large is beyond the bounds, and no warning may say so.
            with np.errstate(over="ignore"):
                scaled = numbers * float(self.grain.denominator) / float(self.grain.numerator)
            # A real is at most half a grain from what was written: 0.29 * 100 is below 29.
            whole = np.rint(scaled) if self.real else np.floor(scaled)
            return np.clip(whole, self.low, self.high - 1).astype(np.int64)
        return np.clip(np.floor_divide(numbers, self.grain.numerator), self.low, self.high - 1)

    def axis(self, units: Units) -> Ints | Doubles:
        """The numbers on the axis that grains begin."""
        if self.grain.denominator == 1:
            return units * self.grain.numerator
        return units * float(self.grain.numerator) / self.grain.denominator

    def _by_calendar(self, low: int, high: int, span: str) -> Units:
        """Edges between two numbers of grains where this span of the calendar begins."""
        if span in _MONTHS:
            # Of all years that a date can have, from 10 on for decades, as days since 1970.
            first = "0010-01" if span == "decade" else "0001-01"
            months = np.arange(first, "10000-01", _MONTHS[span], dtype="datetime64[M]")
            return _within(low, high, months.astype("datetime64[D]").astype(np.int64) * self.day)
        return _multiples(low, high, max(self.day if span == "day" else _CLOCK[span] // self.grain.numerator, 1))

    def rounding_cells(self, units: Units) -> Units:
        """The cell of each number in the table of decade by step, flat: how many digits it has, and the largest of the
        steps that divides it. 0 has no digits. A number has one cell."""
        digits = np.zeros(units.size, dtype=np.int64)
        if not self.spans:
            digits = np.searchsorted(10 ** np.arange(19, dtype=np.int64), np.abs(units), side="right").astype(np.int64)
        step = np.zeros(units.size, dtype=np.int64)
        for index, width in enumerate(self.steps):
            step[units % width == 0] = index
        return digits * len(self.steps) + step

    @property
    def rounding_size(self) -> int:
        """How many cells that table has."""
        largest = max(abs(self.low), abs(self.high))
        return (1 if self.spans else len(str(largest)) + 1) * len(self.steps)

    def roundest(self, low: int, high: int) -> int:
        """The roundest number of grains from `low` up to and with `high`: what a person would write."""
        if low >= high:
            return low
        for span in self.spans:
            starts = self._by_calendar(low - 1, high + 1, span)[1:-1]
            if starts.size:
                return int(starts[starts.size // 2])
        if low <= 0 <= high:
            return 0
        power = int(10 ** (len(str(max(abs(low), abs(high)))) + 1))
        while True:
            for width in (max(power // part, 1) for part in (1, 2, 5)):
                multiple = -(-low // width) * width
                if multiple <= high:
                    # Of several, the one in the middle.
                    return multiple + (high - multiple) // width // 2 * width
            power //= 10


def next_cells(ladder: Ladder, tables: Sequence[Ints], scale: float) -> list[Units]:
    """The edges of the cells of every table so far and of the next one, by the noisy tables so far."""
    cells = [ladder.first()]
    for number in range(1, min(len(tables), ladder.tables - 1) + 1):
        edges = cells[-1]
        total, times = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
        # A cell that was not divided is counted again by every table, each time with fresh noise.
        for earlier, counts in zip(cells, tables, strict=False):
            place = np.searchsorted(earlier, edges[:-1], side="right") - 1
            same = (earlier[place] == edges[:-1]) & (earlier[place + 1] == edges[1:])
            total[same] += counts[place[same]]
            times += same
        cells.append(ladder.divided(edges, total / times, scale / np.sqrt(times), number))
    return cells


@lru_cache(maxsize=256)
def ladder_of(attribute: Attribute) -> Ladder:
    """The frame of the search between an attribute's bounds."""
    kind, first, last, stated = attribute.kind, attribute.edges[0], attribute.edges[-1], grain(attribute)
    unit = stated or Fraction(10) ** (math.floor(math.log10(max(abs(first), abs(last)))) - _DECADES)
    if kind == "real":
        low, high = round(Fraction(first) / unit), round(Fraction(last) / unit)
    else:
        low, high = math.floor(Fraction(first) / unit), math.ceil(Fraction(last) / unit)
    high = max(high, low + 1)
    size, day = high - low, 0
    spans: tuple[str, ...] = ()
    if (kind == "date" and unit == 1) or (kind in ("datetime", "time") and unit in (1, _SECOND)):
        day = 1 if kind == "date" else 86_400 * _SECOND // int(unit)
        fine = _SPANS[:4] if kind == "date" else _SPANS if kind == "datetime" else tuple(_CLOCK)
        lengths = {"decade": 3653 * day, "year": 366 * day, "month": 31 * day, "day": day}
        lengths |= {span: max(width // int(unit), 1) for span, width in _CLOCK.items()}
        begin = next((i for i, span in enumerate(fine) if size >= _FIRST_CALENDAR * lengths[span]), len(fine) - 1)
        spans = fine[begin:]
    tables = max(min(len(spans), 4), 2) if kind == "date" else 4
    if size <= _SMALL:
        tables = 0 if size <= min(_VALUES, attribute.at_most) else 2
    steps = () if tables < 3 or attribute.step is not None else _steps(kind, max(abs(low), abs(high)), int(unit))
    cut: dict[str, Any] = {"low": low, "high": high, "grain": unit, "tables": tables, "day": day, "steps": steps}
    return Ladder(**cut, real=kind == "real", spans=spans[:tables])


def _steps(kind: str, largest: int, unit: int) -> tuple[int, ...]:
    """What numbers may be rounded to, in grains, each a multiple of the one before it."""
    if kind == "date":
        return ()
    if AXES[kind].timed:
        clock = [_SECOND // 1000, _SECOND, 60 * _SECOND, 900 * _SECOND, 3600 * _SECOND, 86_400 * _SECOND]
        return (1, *(width // unit for width in clock if width > unit))
    steps = [1]
    while steps[-1] * 2 <= largest:
        steps.append(steps[-1] * (5 if len(steps) % 2 else 2))
    return tuple(steps)


def _decades(end: int) -> Units:
    """0, single grains up to 10, then 15 edges a decade, up to `end`."""
    edges, power = list(range(10)), 1
    while _DECADE[0] * power <= end:
        edges += [multiple * power for multiple in _DECADE]
        power *= 10
    return np.array([edge for edge in edges if edge <= end], dtype=np.int64)


def _round_up(width: float) -> int:
    """The next 1, 2 or 5 times a power of ten that is a width in grains."""
    if width <= 1:
        return 1
    power = 10 ** math.floor(math.log10(width))
    return next(int(factor * power) for factor in (1, 2, 5, 10, 20) if factor * power >= width)


def _multiples(low: int, high: int, width: int) -> Units:
    """The bounds, and the multiples of a width between them."""
    return _within(low, high, np.arange(low // width + 1, -(-high // width), dtype=np.int64) * width)


def _within(low: int, high: int, edges: Units) -> Units:
    """The bounds, and those of ascending edges that lie between them."""
    return np.concatenate([[low], edges[(edges > low) & (edges < high)], [high]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one search measures: noisy tables at one scale; a threshold for categories, and its chance to fail.

    It looks for a `domain`, or for the `rounding` of numbers, which lie between `bounds` and get `at_most` levels.
    Categories are searched in `round` 1 and 2; of numbers it is 0.
    """

    attribute: str
    tables: int
    scale: float
    threshold: int | None
    lost_delta: float
    of: Searched = "domain"
    bounds: tuple[float, float] | None = None
    at_most: int = 0
    round: int = 0

    def words(self, attribute: Attribute) -> str:
        """What it found of this attribute, in words; of categories, what all rounds did."""
        if self.of == "rounding":
            return "how its numbers are rounded, by decade and step"
        if self.threshold is not None:
            kept = f"{len(attribute.values):,} categories{' after a second round' if self.round == 2 else ''}"
            return f"{kept}, by {self.threshold:,} rows or more after noise"
        points = f" and {len(attribute.points):,} common values" if attribute.points else ""
        return f"{attribute.n_bins:,} bins{points} by {self.tables} noisy tables between the bounds"


Findings: TypeAlias = Sequence[Finding]
Blocks: TypeAlias = Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """The plan for all private domains, from public facts, and the cost that it leaves for the rest of the release.

    `share` is the part of the whole cost that it may take, `factor` how many times the noise of numbers is what they
    want. `second` is set aside for a second round. Without private domains all of the budget is left, and `rest` is
    None.
    """

    findings: tuple[Finding, ...] = ()
    rest: Spend | None = None
    share: float = 0.0
    factor: float = 1.0
    second: Spend = NOTHING

    def spend(self, budget: Budget) -> Spend:
        """What finding all domains costs, or may cost while a second round is to come."""
        return search_spend(self.findings, budget) + self.second

    def then(self, budget: Budget, blocks: Blocks = (), n_rows: int | None = None) -> Search:
        """The plan of both rounds, by the blocks of the first: what the second does not need goes to the rest.

        A column gets a second round where its first listed fewer than `at_most` values, and their noisy counts leave
        more than `LEFT` of the rows: in `other`, or without a value, which cannot be told apart. Without blocks yet,
        the plan is that of a second round for all.
        """
        # Of two rounds the first.
        known = {block.query.about: block.values for block in blocks[::-1] if isinstance(block.query, Common)}
        chosen = []
        for finding in (each for each in self.findings if each.round):
            counts = known.get(finding.attribute, np.empty(0))
            if counts.size < finding.at_most and (n_rows is None or n_rows - int(counts.sum()) > LEFT * n_rows):
                chosen.append(finding)
        if not chosen:
            return replace(self, second=NOTHING, rest=self.rest and self.rest + replace(self.second, lost_delta=0.0))
        scale = float(drawable(matched_factor(budget.tables(np.ones(len(chosen))), self.second)))
        chance = self.second.lost_delta / len(chosen)
        again = (_with_threshold(replace(each, scale=scale, round=2), chance, budget) for each in chosen)
        return replace(self, second=NOTHING, findings=(*self.findings, *again))


def _with_threshold(finding: Finding, chance: float, budget: Budget) -> Finding:
    """The finding with the least threshold that fails with at most this chance."""
    threshold = least_threshold(finding.scale, chance, budget.rows)
    lost = chance_of_one(finding.scale, threshold, budget.rows)
    return replace(finding, threshold=threshold, lost_delta=lost)


def search_spend(findings: Sequence[Finding], budget: Budget) -> Spend:
    """What these findings cost together."""
    lost = math.fsum(finding.lost_delta for finding in findings)
    return budget.tables([each.scale for each in findings], [each.tables for each in findings], lost)


def require_gaussian(schema: Schema, budget: Budget) -> None:
    """Refuse a budget whose noise finds no domains where the schema has private ones."""
    if schema.private_domains and budget.mechanism != "gaussian":
        names = ", ".join(attribute.name for attribute in schema.private_domains)
        raise BudgetError(said("budget.gaussian_only", names=names, mechanism=budget.mechanism))


def plan_search(schema: Schema, budget: Budget, *, n_rows: int | None) -> Search:
    """Plan how the schema's private domains are found: from the schema, the budget and the rows' number if public."""
    require_gaussian(schema, budget)
    return _planned(schema.private_domains, budget, n_rows)


def replan_search(schema: Schema, budget: Budget, findings: Findings, blocks: Blocks, n_rows: int | None) -> Search:
    """The plan that a release by this budget had for these findings, by the schema and the blocks that it found."""
    private = {finding.attribute: asked_of(finding, schema.attribute(finding.attribute)) for finding in findings}
    return _planned(list(private.values()), budget, n_rows).then(budget, blocks, n_rows)


def _planned(private: Sequence[Attribute], budget: Budget, n_rows: int | None) -> Search:
    """The plan of the first round, and what is set aside for the second."""
    if not private:
        return Search()
    categories = [attribute for attribute in private if attribute.categorical]
    ladders = {attribute.name: ladder_of(attribute) for attribute in private if not attribute.categorical}
    lost = DELTA_SHARE * budget.delta * bool(categories)
    inner = budget.less(lost)
    # What the whole budget buys, as a sum of 1 / scale^2.
    whole = float(np.sum(inner.scales(np.ones(_REST_TABLES)) ** -2.0))
    table = _UNKNOWN_ROWS if n_rows is None else (WANTED * max(n_rows, 1)) ** -2.0 / whole
    asked = sum(
        bool(ladder.tables) * _WHOLE_SEARCH * table + bool(ladder.steps) * ROUNDING_SHARE for ladder in ladders.values()
    )
    factor = min(1.0, MOST / asked) if asked else 1.0

    # Every search, how many tables it takes, and what each of them costs.
    wanted: list[tuple[Attribute, Searched, int, float]] = []
    for attribute in private:
        ladder = ladders.get(attribute.name)
        if ladder is None:
            wanted.append((attribute, "domain", 1, FIRST / len(categories)))
        elif ladder.tables:
            wanted.append((attribute, "domain", ladder.tables, table * factor * _WHOLE_SEARCH / ladder.tables))
        if ladder is not None and ladder.steps:
            wanted.append((attribute, "rounding", 1, ROUNDING_SHARE * factor))
    costs = [cost for *_, tables, cost in wanted for _ in range(tables)]
    second = SECOND * bool(categories)
    share = math.fsum(costs) + second
    parts = [np.full(_REST_TABLES * (part > 0), part / _REST_TABLES) for part in (second, 1 - share)]
    scales = inner.scales(np.concatenate([costs, *parts]) ** -0.5)
    lasts = np.cumsum([tables for _, _, tables, _ in wanted], dtype=np.int64) - 1
    findings = []
    for (attribute, of, tables, _), scale in zip(wanted, scales[lasts].tolist(), strict=True):
        finding = Finding(attribute=attribute.name, tables=tables, scale=scale, threshold=None, lost_delta=0.0, of=of)
        finding = replace(finding, at_most=attribute.at_most)
        if attribute.categorical:
            findings.append(_with_threshold(replace(finding, round=1), lost / 2 / len(categories), budget))
        else:
            findings.append(replace(finding, bounds=(attribute.edges[0], attribute.edges[-1])))
    aside, spare = np.split(scales[len(costs) :], [parts[0].size])
    later = budget.tables(aside, lost_delta=lost / 2) if second else NOTHING
    rest = budget.tables(spare)
    return Search(findings=tuple(findings), rest=rest, share=share, factor=factor**-0.5, second=later)


def finding_faults(
    schema: Schema, budget: Budget, findings: Findings, earlier: Sequence[str], blocks: Blocks, n_rows: int | None
) -> tuple[str, ...]:
    """What is wrong with the searches that a certificate states for this schema; none where it is what a release does.

    Every domain that was found has its search here, or was found by an `earlier` release, and no other has one; each
    was found by the tables that its bounds take, at the scale and the threshold that the budget gives to it; and those
    columns were searched again that the `blocks` of the first round ask for.
    """
    known = [attribute.name for attribute in schema.attributes if attribute.domain == "found"]
    searched = list(dict.fromkeys(finding.attribute for finding in findings))
    if sorted([*searched, *earlier]) != sorted(known):
        odd = sorted({*known} ^ {*searched, *earlier}) or sorted(searched)
        return (f"the domain of '{odd[0]}' is found with no search stated, or searched for and not found",)
    if any([name for name in known if name in own] != [*own] for own in (searched, earlier)):
        return ("searches are stated in another order than the schema's",)
    if not findings:
        return ()
    if budget.mechanism != "gaussian":
        return (f"a search takes Gaussian noise, not '{budget.mechanism}'",)
    for finding in findings:
        name, attribute = finding.attribute, schema.attribute(finding.attribute)
        numbers = not attribute.categorical
        if finding.round and len(attribute.values) > finding.at_most:
            return (f"the domain of '{name}' has more categories than were asked for",)
        if numbers != (finding.threshold is None) or not 1 <= finding.tables <= (_MOST_TABLES if numbers else 1):
            return (f"the domain of '{name}' cannot take {finding.tables} tables as stated",)
        if (finding.bounds is not None) != numbers:
            return (f"the search for the domain of '{name}' must state bounds if it is of numbers, and only then",)
        if finding.bounds and not finding.bounds[0] <= attribute.edges[0] <= attribute.edges[-1] <= finding.bounds[1]:
            return (f"the domain of '{name}' was searched for between other bounds than it lies in",)
    planned = replan_search(schema, budget, findings, blocks, n_rows).findings
    if len(planned) != len(findings):
        return (f"searches of {len(planned)} kinds are planned, and {len(findings)} are stated",)
    return tuple(
        f"the search for the domain of '{stated.attribute}' is not the one that this budget plans"
        for stated, own in zip(findings, planned, strict=True)
        if not _alike(stated, own, budget.rows)
    )


def _alike(stated: Finding, planned: Finding, rows: int) -> bool:
    """Whether two plans are one, but for the last digits, which may differ between machines."""
    same = replace(planned, scale=stated.scale, threshold=stated.threshold, lost_delta=stated.lost_delta) == stated
    close = same and math.isclose(stated.scale, planned.scale, rel_tol=1e-6)
    if stated.threshold is None or planned.threshold is None:
        return close and stated.threshold == planned.threshold and stated.lost_delta == 0
    near = abs(stated.threshold - planned.threshold) <= 1
    lost = chance_of_one(stated.scale, stated.threshold, rows)
    return close and near and math.isclose(stated.lost_delta, lost, rel_tol=1e-9)


def asked_of(finding: Finding, attribute: Attribute) -> Attribute:
    """The private domain that a finding looked for, from the attribute that it found."""
    return replace(attribute, edges=finding.bounds or (), domain="private", at_most=finding.at_most)


def fits(finding: Finding, schema: Schema, tables: Sequence[Ints]) -> bool:
    """Whether the tables of a number's answer have the cells that its bounds and the tables before them imply."""
    if finding.attribute not in schema.names or finding.bounds is None or len(tables) != finding.tables:
        return False
    ladder = ladder_of(asked_of(finding, schema.attribute(finding.attribute)))
    if finding.of == "rounding":
        return [table.size for table in tables] == [ladder.rounding_size]
    return ladder.tables == len(tables) and all(
        table.size == next_cells(ladder, tables[:number], finding.scale)[-1].size - 1
        for number, table in enumerate(tables)
    )
