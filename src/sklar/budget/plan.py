"""Which tables to measure at which scale: a frozen public value.

The first plan is made from public facts alone (the schema and the budget). A later one may be made from earlier noisy
tables; then its cost, not its scales, is what must have been fixed before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, compress
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from sklar.budget.method import Method
from sklar.errors import BudgetError
from sklar.kernel.cells import Cells, Doubles
from sklar.kernel.queries import MOST_COARSE, PARTS, Distances, Parities, Query, Shares, Tables, moved_sets
from sklar.kernel.theorems import MAX_SCALE, NOTHING, Budget, Spend, drawable, matched_factor, smallest
from sklar.machine.wording import said
from sklar.public.outputs import spread
from sklar.public.schema import TARGET_WEIGHT, Schema
from sklar.public.tree import Branch, Known, Tree, joint_of

# Which rules plan stages and fit a mixture, as model files state: another number wherever the same facts or the same
# tables give another plan or another fit.
RULES = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Queries with the scales of their noise, in the order in which they are measured."""

    parts: tuple[tuple[Query, Doubles], ...]

    def __post_init__(self) -> None:
        for _, scales in self.parts:
            scales.setflags(write=False)

    def spend(self, budget: Budget) -> Spend:
        """What the measurement costs."""
        return sum((query.bound(scales, budget) for query, scales in self.parts), NOTHING)

    def scales(self, order: int) -> Doubles:
        """The scales of tables of all sets of this order, or of their parities; shape (0,) where there are none."""
        for query, scales in self.parts:
            if isinstance(query, Parities) and 1 <= order <= query.orders:
                return np.full(int(query.sizes[order - 1]), scales[order - 1])
            if isinstance(query, Tables) and query.order == order:
                return scales
        return np.empty(0)

    @property
    def of_parities(self) -> bool:
        """Whether parities of bits stand in place of tables."""
        return any(isinstance(query, Parities) for query, _ in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """A first plan, and the cost that a second look at the two-way tables may have: both from public facts.

    `reserve` holds the scales that the second stage would have if it were planned like the first, shape (n_pairs,), or
    (0,) where all tables are measured at once. They fix its cost; how that is spread over the pairs may then depend on
    the first stage's tables. Parities are measured twice by the first plan (`looks`): the two looks cost together what
    one of half the variance would, and how far they lie apart shows what noise they have.
    """

    budget: Budget
    first: Plan
    reserve: Doubles

    def __post_init__(self) -> None:
        self.reserve.setflags(write=False)

    @property
    def most_later(self) -> float:
        """The largest scale of a table that is worth measuring later: `tokens_for` leaves room for twice as much."""
        return _LATER / 2 * max(float(scales.max()) for _, scales in self.first.parts)

    @property
    def looks(self) -> int:
        """How often the first plan is measured."""
        return 2 if self.first.of_parities else 1

    @property
    def precision(self) -> float:
        """The sum of 1 / scale^2 over all tables of both stages."""
        return float(sum(np.sum(scales**-2.0) for scales in (*(own for _, own in self.first.parts), self.reserve)))

    @property
    def pair_precision(self) -> Doubles:
        """The sum of 1 / scale^2 of each two-way table over both stages, shape (n_pairs,)."""
        second = self.reserve**-2.0 if self.reserve.size else 0.0
        return np.asarray(self.first.scales(2) ** -2.0 + second)

    @property
    def spend(self) -> Spend:
        """What all stages may cost together."""
        return sum([self.first.spend(self.budget)] * self.looks, self.budget.tables(self.reserve))


# Weights of one-way tables, then of two-way tables (`Schema.importance`); None where all matter alike.
Importance: TypeAlias = tuple[float, ...] | None

# Of the cost of all tables, the one-way tables' share where all are measured at once: they anchor every two-way table.
# Of the cost of two-way tables, the second-stage reserve.
ONE_WAY_SHARE, _SECOND_SHARE = 0.4, 0.4
# Larger tables need less noise per cell for the same total variation: cost grows with cells^0.2.
CELLS_POWER = 0.2
# The second stage's cost of a pair grows with the square root of its distance from independence and so many rows, which
# leave no pair out; it is rounded to powers of the other, which keeps the certificate short.
_DISTANCE_FLOOR, _COST_GRID = 200.0, 1.1
# Three-way tables are measured where noise has at least this scale (below it an epsilon promises little), and take at
# most this share of the second-stage reserve. To look at more of them than this takes too long.
_LEAST_NOISE, TRIPLES_SHARE = 1.0, 0.4
MOST_LOOKED_AT = 20_000
# Before they are chosen, all three-way tables are scored, at this share of the cost of the whole plan, where they,
# their cells, and the cells that all rows are counted into, are at most so many: a few seconds.
SCORES_SHARE = 0.02
# Tables of four are scored of so many columns, at half of that share, or where they hold a target; over so many levels.
_MOST_FOUR, _MOST_COARSE_FOUR = 15, 4
_MOST_SCORED = 10_000
_MOST_SCORED_CELLS = 1 << 24
_MOST_SCORED_WORK = 2e9
# A score is of use up to noise of this share of what a column that follows from two others would show.
_MOST_SCORE_NOISE = 1 / 8
# A middle one-way share, the total variation to expect at it where a share of 0.1 is best, and the least and most.
_MIDDLE_SHARE, _ONE_WAY_NOISE, _ONE_WAY_SHARES = 0.3, 0.02, (0.05, 0.5)
# Of the whole precision, what first moments inside the bins of one number take, and of all numbers together. The tokens
# that a row deals: a power of two, so that a noise scale in tokens is held as exactly as one in rows; and their kind.
_OF_ONE_NUMBER, _OF_NUMBERS = 0.015, 0.05
# Of the whole precision, what all sides of linked tables take at most, together.
_OF_SIDES = 0.4
TOKENS, INSIDE = 1024, "inside"
# The scale in tokens of rows up to which moments are measured; of people, by how much later scales may be larger.
_MOST_DEALT, _LATER = MAX_SCALE / 2**0.5, 32.0
# An error of x rows in any parity moves the tables that hold it by x / n in total variation. A table of three bits has
# three ones, three pairs and one triple; most triples say little beyond their pairs, and are shrunk by the fit: their
# noise counts for a tenth.
_PARITY_WEIGHTS = (3.0, 3.0, 0.1)
# Triples are measured where so many attributes have few of them, from noise of this share of the rows on, with their
# whole weight at half of it; and not where they have less than the least share of its root.
_MOST_BITS = 30
_MOST_NOISE, _LEAST_TRIPLES = 0.03, 1e-4


# The same public facts give the same plan, which an audit asks for thousands of times.
@lru_cache(maxsize=4)
def plan_release(
    cells: Cells,
    budget: Budget,
    method: Method,
    *,
    n_rows: int | None,
    rest: Spend | None = None,
    importance: Importance = None,
    again: bool = True,
    beside: tuple[Beside, ...] = (),
) -> Stages:
    """The plan of a release by this method that spends the whole budget, or as much as `rest` costs.

    Gaussian noise for a latent model is measured in two stages, everything else at once. Where all attributes are bits
    that matter alike, their parities are measured. `n_rows` is the number of rows where it is public, `importance` the
    schema's weights of one-way and two-way tables; `again` says whether rows can be counted a second time. What is
    measured `beside` (`beside_of`) is so in the first of two stages.
    """
    if importance is not None and budget.mechanism != "gaussian":
        raise BudgetError(said("budget.weights", mechanism=budget.mechanism))
    if any(each.per == "person" for each in beside):
        if budget.mechanism != "gaussian" or method.name == "binary":
            raise BudgetError(said("budget.linked_noise", mechanism=budget.mechanism, method=method.name))
        return plan_stages(cells, budget, n_rows, rest, importance, beside)
    if method.name == "binary" or budget.mechanism == "laplace":
        share = None if method.paper else ONE_WAY_SHARE
        first = plan_tables(cells, budget, one_way_share=share, rest=rest, importance=importance)
        return Stages(budget=budget, first=first, reserve=np.empty(0))
    if cells.are_bits and cells.n_attributes > 1 and importance is None:
        return _plan_parities(cells, budget, n_rows, rest, again=again)
    return plan_stages(cells, budget, n_rows, rest, importance, beside)


class Beside(NamedTuple):
    """Tables that are measured beside those of attributes: a query (`Shares`), and their part of the whole precision.

    Scales of a plan are in rows, or in people; what is drawn is in tokens (`in_tokens`).
    """

    what: str
    lengths: tuple[int, ...]
    share: float
    per: Literal["person", "row"]

    @property
    def weights(self) -> Doubles:
        """How much of the cost each table takes, beside the others."""
        return np.array(self.lengths) ** (CELLS_POWER if self.per == "person" else 0.0)

    @property
    def query(self) -> Shares:
        """What is asked."""
        each = TOKENS if self.per == "row" else 1
        return Shares(what=self.what, lengths=np.array(self.lengths, dtype=np.int64), each=each, per=self.per)


def beside_of(known: Known) -> tuple[Beside, ...]:
    """What is measured beside the tables of attributes: first moments inside bins, and sides of linked tables."""
    schema, sides = joint_of(known).measured, sides_of(known) if isinstance(known, Tree) else ()
    sizes = [schema.attributes[place].n_levels for place in inside_places(schema)]
    taken = min(_OF_ONE_NUMBER * len(sizes), _OF_NUMBERS)
    inside = [Beside(INSIDE, (*sizes, *sizes), taken, "person" if sides else "row")] if sizes else []
    each = min(1.0, _OF_SIDES / max(sum(SIDES[side.kind][0] for side in sides), _OF_SIDES))
    return (*inside, *(Beside(side.what, side.lengths, each * SIDES[side.kind][0], "person") for side in sides))


# What is measured of linked tables beside their joint table, by kind: its part of the whole precision, and what it is
# in words. Where no one attribute follows another, rows have one state.
SIDES: Mapping[str, tuple[float, str]] = {
    "number": (0.01, "how many {of} a person has"),
    "two": (0.08, "one attribute in two of a person's {of}"),
    "first": (0.015, "the first of a person's {of}"),
    "next": (0.07, "one of a person's {of} and the next one"),
    "gap": (0.04, "one of a person's {of} and the gap to the next one"),
    "gaps": (0.04, "how many {of} a person has, and the gaps between them"),
}
# Those that are about steps from a row to the next one.
STEPS = ("next", "gap", "gaps")
# Axes that are no attribute.
NUMBER, GAP, SINGLE = -1, -2, -3
# Cells of a table of two rows beyond which next to nothing but noise would be measured.
_MOST_OF_TWO = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Tables of one kind about the rows of one table: what the axes of each are about, and its shape.

    An axis is an attribute of the table, by its place, or else bins of the number of a person's rows or of gaps, or
    plain numbers. Two rows have no order: a triangle of cells.
    """

    of: Branch
    kind: str
    tables: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @property
    def what(self) -> str:
        """The name of its query."""
        return f"{self.of.name}: {self.kind}"

    @property
    def query(self) -> Shares:
        """What is asked of people."""
        return Beside(self.what, self.lengths, SIDES[self.kind][0], "person").query

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of cells of each table."""
        two = self.kind == "two"
        return tuple(shape[0] * (shape[0] + 1) // 2 if two else math.prod(shape) for _, shape in self.tables)


@lru_cache(maxsize=8)
def sides_of(tree: Tree) -> tuple[Side, ...]:
    """All that is measured of linked tables beside their joint table. What has no table is left out."""
    found = []
    for branch in tree.children(tree.name):
        course, determined = branch.course, branch.schema.determined
        sizes, bins = branch.schema.sizes.tolist(), len(branch.bins) - 1
        twice = [
            place
            for place, (name, size) in enumerate(zip(branch.schema.names, sizes, strict=True))
            if name != branch.order and name not in determined and size * (size + 1) // 2 <= _MOST_OF_TWO
        ]
        tables: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
            "number": [((SINGLE,), (branch.at_most + 1,))],
            "two": [((place, place), (sizes[place],)) for place in (twice if branch.at_most > 1 else ())],
        }
        if course is not None:
            gaps, states, state = len(course.gaps) - 1, course.states, course.follows
            tables["gaps"] = [((NUMBER, GAP), (bins - 2, gaps))]
            if state is not None:
                tables["first"] = [((state,), (states,))]
                tables["next"] = [((state, state), (states, states))]
                tables["gap"] = [((state, GAP), (states, gaps))]
        found += [Side(of=branch, kind=kind, tables=tuple(own)) for kind, own in tables.items() if own]
    return tuple(found)


def said_of(what: str) -> str:
    """What the tables of a side are, in words, by their name."""
    of, _, kind = what.partition(": ")
    return SIDES[kind][1].format(of=of)


def tokens_for(cells: Cells, budget: Budget, method: Method, beside: tuple[Beside, ...]) -> int:
    """How many tokens are a person's unit: so many that what rounds away is a thousandth of it, or as noise allows.

    From public facts alone, before anything is counted. A later stage's scales may be several times the first's.
    """
    parts = plan_release(cells, budget, method, n_rows=None, beside=beside).first.parts
    largest, tokens = max(float(scales.max()) for _, scales in parts), TOKENS
    while tokens > 1 and _LATER * largest * tokens > MAX_SCALE:
        tokens //= 2
    return tokens


def in_tokens(query: Query, scales: Doubles, tokens: int) -> tuple[Query, Doubles]:
    """A question about people, and its scales, in tokens of theirs: it costs the same rho, and no more mu^2."""
    if tokens == 1:
        return query, scales
    if isinstance(query, Distances):
        reference = None if query.reference is None else query.reference * tokens
        return replace(query, of=replace(query.of, each=tokens), reference=reference), scales
    if isinstance(query, Tables) or (isinstance(query, Shares) and query.per == "person"):
        return replace(query, each=tokens), scales * tokens
    return query, scales


def inside_places(schema: Schema) -> tuple[int, ...]:
    """The places of attributes whose levels do not tell where numbers lie."""
    return tuple(place for place, attribute in enumerate(schema.attributes) if spread(attribute))


# First moments inside bins: a table over the levels of each number, all of them twice, so that files show noise. A row
# whose number x lies in the bin from a to b deals the share (x - a) / (b - a) of its tokens, rounded, to that level,
# and the rest to nobody; a row at a point, or without a number, deals none (`rows.encode.dealt`). So it deals to at
# most one cell of a table, a whole number from 0 to G: replacing it moves a table by at most G down in one cell and G
# up in another; signed positions would move one cell by 2 G. With noise of G s in tokens a table costs the rho of a
# table of counts with noise s, and less than its mu^2: G^2 / (G^2 s^2 - 4) < 1 / (s^2 - 4). So plans pay for it as one.


def _plan_parities(cells: Cells, budget: Budget, n_rows: int | None, rest: Spend | None, *, again: bool) -> Stages:
    """Two looks at the parities of bits that spend the whole budget together, or as much as `rest` costs.

    Of triples too, where rows can be counted again, and few triples have little noise beside the public number of rows.
    """
    plan = _parities(cells, budget, 2, rest)
    if again and n_rows is not None and 3 <= cells.n_attributes <= _MOST_BITS:
        whole = _parities(cells, budget, 3, rest)
        noise = float(whole.scales(3)[0]) / math.sqrt(2)
        share = min(_MOST_NOISE * n_rows / noise - 1, 1.0)
        # Without a step: triples begin with little of the cost, and as much noise as can be drawn.
        if share > _LEAST_TRIPLES and noise * share**-0.5 < MAX_SCALE / 2:
            plan = _parities(cells, budget, 3, rest, share)
    return Stages(budget=budget, first=plan, reserve=np.empty(0))


def _parities(cells: Cells, budget: Budget, orders: int, rest: Spend | None, share: float = 1.0) -> Plan:
    """The plan of one of two looks at parities up to this order, triples at a `share` of the root of their weight."""
    query, shape = Parities(cells=cells, orders=orders), best_parities(cells.n_attributes, orders, share)

    def plan(factor: float) -> Plan:
        scales = drawable(factor * shape)
        # The number of rows, where it is measured, as precisely as ones.
        total = () if budget.rows_are_public else ((Tables(cells=cells, order=0), scales[:1].copy()),)
        return Plan(parts=(*total, (query, scales)))

    def fits(factor: float) -> bool:
        spend = plan(factor).spend(budget)
        spend = spend + spend
        if rest is None:
            return budget.spent(spend) <= budget.epsilon
        return budget.cost(rest).covers(budget.cost(spend))

    factor = smallest(fits, start=budget.rows * math.sqrt(cells.n_attributes) / budget.epsilon)
    largest = factor * float(shape.max())
    if largest > MAX_SCALE:
        facts = {"epsilon": budget.epsilon, "m": cells.n_attributes, "largest": largest, "most": MAX_SCALE}
        raise BudgetError(said("budget.too_much_noise", **facts))
    return plan(factor)


@lru_cache(maxsize=64)
def best_parities(m: int, orders: int, share: float = 1.0) -> Doubles:
    """Noise scales of ones, pairs and triples of m bits, up to a factor: the best by `_PARITY_WEIGHTS` at a cost."""
    moved, weights = moved_sets(m)[:, :orders], np.array([*_PARITY_WEIGHTS[:2], _PARITY_WEIGHTS[2] * share**2][:orders])
    # Costs of orders 2 and 3 beside that of ones, from coarse to fine.
    best, width = -math.log(m) * np.arange(1.0, orders), math.log(4.0)
    while width > 1e-4:
        steps = np.stack(np.meshgrid(*[np.arange(-2, 3) * width] * (orders - 1), indexing="ij"), -1)
        tried = best + steps.reshape(-1, orders - 1)
        costs = np.exp(np.hstack([np.zeros((len(tried), 1)), tried]))
        found = tried[np.argmin((weights / costs).sum(axis=1) * (costs @ moved.T).max(axis=1))]
        width = width if not np.array_equal(found, best) else width / 2
        best = found
    scales = np.exp(-np.concatenate([[0.0], best]) / 2)
    scales.setflags(write=False)
    return scales


def _weights(cells: Cells, importance: Importance) -> tuple[Doubles, Doubles]:
    """How much one-way tables and two-way tables matter, shapes (m,) and (n_pairs,)."""
    weights = np.ones(cells.n_attributes + cells.n_pairs) if importance is None else np.array(importance)
    return weights[: cells.n_attributes], weights[cells.n_attributes :]


def plan_stages(
    cells: Cells,
    budget: Budget,
    n_rows: int | None,
    rest: Spend | None = None,
    importance: Importance = None,
    beside: tuple[Beside, ...] = (),
) -> Stages:
    """Plan two stages of Gaussian noise that spend the whole budget together, or as much as `rest` costs.

    With v the total variation to expect in one-way tables at a share of 0.3, their share is 0.1 (v / 0.02)^0.5, from
    0.05 to 0.5; where the number of rows is not public, it is 0.3. v falls at most with the root of the whole
    precision, and so does the share: with a larger budget no table has more noise. First moments inside bins of single
    rows are left out where so much noise on tokens cannot be drawn.
    """
    # The whole precision, as one table has it, in half as many looks: about what they get.
    least = TOKENS * _scales(budget, np.ones(1), rest)[0] if beside else 0.0
    dealt = (each.per == "person" or least * (len(each.lengths) / each.share) ** 0.5 <= _MOST_DEALT for each in beside)
    beside = tuple(compress(beside, dealt))
    m, total = cells.n_attributes, 0 if budget.rows_are_public else 1
    taken, own = sum(each.share for each in beside), [each.weights for each in beside]
    parts = [each.share / (1 - taken) * cost / cost.sum() for each, cost in zip(beside, own, strict=True)]
    of_levels, of_pairs = _weights(cells, importance)
    weights = cells.pair_sizes**CELLS_POWER * of_pairs
    single = np.concatenate([np.full(total, of_levels.mean()), of_levels])

    def shared(share: float) -> Stages:
        pairs = (1 - share) * weights / weights.sum()
        costs = [share * single / single.sum(), (1 - _SECOND_SHARE) * pairs, _SECOND_SHARE * pairs, *parts]
        scales = _scales(budget, np.concatenate(costs) ** -0.5, rest)
        first, reserve, *dealt = np.split(scales, np.cumsum([total + m + cells.n_pairs, cells.n_pairs, *map(len, own)]))
        queries = [each.query for each in beside]
        more = ((query, part * query.each) for query, part in zip(queries, dealt, strict=False))
        plan = Plan(parts=(*_of_scales(cells, first, total).parts, *more))
        return Stages(budget=budget, first=plan, reserve=reserve.copy())

    stages = shared(1.0 if m == 1 else _MIDDLE_SHARE)
    if n_rows is None or m == 1:
        return stages
    noise = expected_one_way_tv(cells, n_rows, stages)
    return shared(float(np.clip(0.1 * math.sqrt(noise / _ONE_WAY_NOISE), *_ONE_WAY_SHARES)))


def _scales(budget: Budget, weights: Doubles, rest: Spend | None) -> Doubles:
    if rest is None:
        return budget.scales(weights)
    return drawable(weights * matched_factor(budget.tables(weights), rest))


def _of_scales(cells: Cells, scales: Doubles, total: int) -> Plan:
    """The plan of the number of rows, where it is measured, of all one-way and then of all two-way tables."""
    orders = np.split(scales[: total + cells.n_attributes + cells.n_pairs], [total, total + cells.n_attributes])
    own = ((order, part.copy()) for order, part in enumerate(orders) if part.size)
    return Plan(parts=tuple((Tables(cells=cells, order=order), part) for order, part in own))


def margin_sd(cells: Cells, one_way: Doubles, pair_precision: Doubles) -> Doubles:
    """The sd of a level's count averaged over its one-way table and the sums of its two-way tables, shape (m,).

    `one_way` holds noise sds, shape (m,), and `pair_precision` inverse variances of two-way cells, shape (n_pairs,). A
    sum over the K_j levels of another attribute has K_j times the variance of a cell.
    """
    implied = (cells.symmetric(pair_precision) / cells.sizes[None, :]).sum(axis=1)
    return np.asarray((one_way**-2.0 + implied) ** -0.5)


def expected_one_way_tv(cells: Cells, n_rows: int, stages: Stages) -> float:
    """The total variation to expect from noise alone: the mean over attributes of 0.4 K sd / n, at most 1."""
    sd = margin_sd(cells, stages.first.scales(1), stages.pair_precision)
    return float(np.mean(np.minimum(0.4 * cells.sizes * sd / n_rows, 1.0)))


def expected_pair_tvs(cells: Cells, n_rows: int, stages: Stages) -> Doubles:
    """The same of every two-way table, 0.4 K K' sd / n, at most 1, if stages are planned alike: shape (n_pairs,)."""
    return np.minimum(0.4 * cells.pair_sizes * stages.pair_precision**-0.5 / n_rows, 1.0)


def looks_for_triples(cells: Cells, stages: Stages) -> bool:
    """Whether a release looks for three-way tables after its first stage, by sizes and noise scales alone.

    A second stage must pay for them. Of three binary attributes one number is open, which parities say.
    """
    few = 1 <= math.comb(cells.n_attributes, 3) <= MOST_LOOKED_AT
    return bool(stages.reserve.size and few and stages.first.scales(2).min() >= _LEAST_NOISE)


class Scored(NamedTuple):
    """Tables whose distances are measured at this scale, over coarse levels of which only the numbers are meant.

    `share` is the part of the whole plan's precision that they take.
    """

    tables: Tables
    scale: float
    share: float


def plan_scores(
    cells: Cells, n_rows: int, stages: Stages, targets: tuple[int, ...] = (), orders: Sequence[int] = (3, 4)
) -> tuple[list[Scored], Stages] | None:
    """The scores of tables of these orders, and the stages with what is left of the reserve; None: no scores.

    They are made where tables are looked for, are not too many, and noise lets them tell something. Over even coarse
    levels, a column of K levels that follows from the others of a set of C cells and has no trace in fewer lies
    n sqrt((K - 1) / C) from independence. What is known of a score is an interval of four sds of its noise. On average
    over all tables it may be half as wide as that.

    Where sets of three are not scored, sets of four are not. All scores of an order have one scale, for a share of the
    precision of the whole plan. They take it out of the reserve, and all parts are scaled by one factor
    (`theorems.matched_factor`): together they cost at most what was set aside. Refused where they take half of it.
    """
    found = []
    for order in orders if looks_for_triples(cells, stages) else ():
        share = SCORES_SHARE if order == 3 or targets else SCORES_SHARE / 2
        tried = ((each, _score_scale(each, n_rows, stages, share)) for each in _candidates(cells, order, targets))
        own = next((Scored(tables, scale, share) for tables, scale in tried if scale is not None), None)
        if own is None:
            break
        found.append(own)
    if not found:
        return None
    reserve, taken = float(np.sum(stages.reserve**-2.0)), sum(each.share for each in found) * stages.precision
    if not taken <= reserve / 2:
        raise BudgetError(said("budget.scores_set_aside", share=taken / reserve))
    budget, left = stages.budget, stages.reserve * (1 - taken / reserve) ** -0.5
    spends = (Distances(of=each.tables, reference=None).bound(np.array([each.scale]), budget) for each in found)
    factor = matched_factor(sum(spends, budget.tables(left)), budget.tables(stages.reserve))
    scores = [each._replace(scale=float(drawable(each.scale * factor))) for each in found]
    return scores, replace(stages, reserve=drawable(left * factor))


def _candidates(cells: Cells, order: int, targets: tuple[int, ...]) -> Iterator[Tables]:
    """Tables that may be scored, the best first: of all sets of three, and of all sets of four of few columns.

    Where noise is too large for that, over fewer levels: of those that hold the target, if one is named. The target's
    own levels stay where it is the only one: 8 x 4^3 cells are as many as distances have (`MOST_APART`).
    """
    m, fine = cells.n_attributes, MOST_COARSE if order == 3 else _MOST_COARSE_FOUR
    held = bool(targets) and math.comb(m - 1, order - 1) <= _MOST_SCORED
    own = [each for each in combinations(range(m), order) if not set(targets).isdisjoint(each)] if held else []
    every = None if order == 3 else Tables(cells=cells, order=4).members if m <= _MOST_FOUR else own
    for sets, most in ((every, fine), *((own if held else every, most) for most in (MOST_COARSE, 4, 2))):
        levels = np.full(m, min(most, fine))
        levels[[*targets] if len(targets) == 1 else []] = MOST_COARSE
        within = np.arange(cells.n_levels) - cells.offsets[cells.attribute_of_level]
        coarse = np.minimum(within, levels[cells.attribute_of_level] - 1)
        yield Tables(cells=cells, order=order, sets=None if sets is None else np.array(sets), coarse=coarse)


def _score_scale(tables: Tables, n_rows: int, stages: Stages, share: float) -> float | None:
    """The scale of scores for this share of the precision; None where they are too many, or would tell too little."""
    number, shapes = len(tables.members), tables.shapes.astype(np.float64)
    if not number or number > _MOST_SCORED or n_rows * number > _MOST_SCORED_WORK:
        return None
    if tables.n_cells > _MOST_SCORED_CELLS:
        return None
    budget = stages.budget
    # At the scale of a table a distance costs (reach / d)^2 as much, d being the L2 sensitivity of a table.
    reach = float(Distances(of=tables, reference=None).bound(np.ones(1), budget).reach[0])
    wanted = (share * stages.precision / number) ** -0.5 * reach / (math.sqrt(budget.shifts) * budget.rows)
    largest = n_rows * float(np.mean(np.sqrt((shapes.min(axis=1) - 1) / shapes.prod(axis=1))))
    return None if wanted / PARTS > _MOST_SCORE_NOISE * largest or wanted > MAX_SCALE / 2 else wanted


def plan_second(
    cells: Cells,
    stages: Stages,
    distances: Doubles,
    importance: Importance = None,
    wanted: Sequence[tuple[Tables, Doubles]] = (),
) -> Plan:
    """Measure all pairs again, those further from independence more precisely, at the cost that was set aside.

    `distances` are L1 distances from independence in rows, shape (n_pairs,); `wanted` are larger tables and the
    scales that they are worth. Both are found from the first stage's noisy tables. Larger tables get the part of
    the reserve that their scales take, pairs the rest, and then all are scaled by one factor
    (`theorems.matched_factor`): whatever is wanted, the cost is at most the reserve's, so that the two stages compose
    adaptively within the budget. Refused where pairs would get less than 1 - `TRIPLES_SHARE` of the reserve.
    """
    cost = cells.pair_sizes**CELLS_POWER * np.sqrt(distances + _DISTANCE_FLOOR) * _weights(cells, importance)[1]
    pairs, two_way = _matched(_on_grid(cost / cost.max()) ** -0.5, stages), Tables(cells=cells, order=2)
    if not wanted:
        return Plan(parts=((two_way, pairs),))
    scales, ends = np.concatenate([own for _, own in wanted]), np.cumsum([own.size for _, own in wanted])
    reserve, taken = float(np.sum(stages.reserve**-2.0)), float(np.sum(scales**-2.0))
    if not taken <= TRIPLES_SHARE * reserve * (1 + 1e-9):
        raise BudgetError(said("budget.triples_set_aside", most=TRIPLES_SHARE, share=taken / reserve))
    third = _on_grid(scales**-2.0)
    # Rounding may not take more than the share, either.
    third *= min(1.0, TRIPLES_SHARE * reserve / float(third.sum()))
    second = pairs**-2.0
    second *= (reserve - third.sum()) / second.sum()
    *parts, pairs = np.split(_matched(np.concatenate([third, second]) ** -0.5, stages), ends)
    own = ((tables, part.copy()) for (tables, _), part in zip(wanted, parts, strict=True))
    return Plan(parts=((two_way, pairs.copy()), *own))


def target_words(schema: Schema) -> str:
    """What a schema's target costs other attributes, as a sentence; empty without one.

    Costs of pairs are proportional to cells^0.2 times their weights, and add up to the same: all others pay for those
    that weigh more.
    """
    if not schema.target or not schema.cells.n_pairs:
        return ""
    weights, plain = (_weights(schema.cells, each.importance)[1] for each in (schema, replace(schema, target=())))
    cost = schema.cells.pair_sizes**CELLS_POWER
    price = math.sqrt(float(cost @ weights) / float(cost @ plain))
    bits = " Without a target parities of bits would be measured, with less noise than tables." * schema.cells.are_bits
    less, more = 1 - price / math.sqrt(TARGET_WEIGHT), price - 1
    return said("budget.target", names=", ".join(schema.target), less=less, more=more) + bits


def _on_grid(cost: Doubles) -> Doubles:
    """Costs rounded to powers of `_COST_GRID`."""
    return np.asarray(_COST_GRID ** np.round(np.log(cost) / math.log(_COST_GRID)))


def _matched(scales: Doubles, stages: Stages) -> Doubles:
    """These scales of tables, times one factor, so that they cost no more than what was set aside."""
    return drawable(scales * matched_factor(stages.budget.tables(scales), stages.budget.tables(stages.reserve)))


def plan_tables(
    cells: Cells,
    budget: Budget,
    *,
    one_way_share: float | None = None,
    rest: Spend | None = None,
    importance: Importance = None,
) -> Plan:
    """A plan for all one-way and all two-way tables that spends the whole budget, or as much as `rest` costs.

    `one_way_share` is the part of the sum of 1/scale^2 (which privacy cost is proportional to under Gaussian noise)
    that goes to the one-way tables; None gives every table the same scale, as the paper does.
    """
    if one_way_share is not None and not 0 < one_way_share < 1:
        raise BudgetError(f"the one-way share must lie strictly between 0 and 1, got {one_way_share}.")
    total = 0 if budget.rows_are_public else 1
    single, n_pairs, each = total + cells.n_attributes, cells.n_pairs, [1.0, 1.0]
    if one_way_share is not None and n_pairs:
        each = [math.sqrt(single / one_way_share), math.sqrt(n_pairs / (1 - one_way_share))]
    weights = np.repeat(each, [single, n_pairs])
    if importance is not None:
        # A scale falls with the root of a weight; those of each order have a mean of one, which keeps their share.
        weights[total:] *= np.concatenate([(each / each.mean()) ** -0.5 for each in _weights(cells, importance)])
    return _of_scales(cells, _scales(budget, weights, rest), total)
