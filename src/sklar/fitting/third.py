"""Which tables of three and four attributes are worth measuring: post-processing of the first stage's noisy tables.

Pairs leave the structure of more columns open. The least that fits to them is the table of the largest entropy: the
one with these two-way tables and nothing beyond. Noisy **scores** say how far, in rows, every table lies from that,
over coarse levels and centered along each attribute, so that it holds nothing that smaller sets say. A score x with
noise of sd s stands for a distance c = x (1 - s^2 / x^2), none where x <= s. Errors that spread evenly over a table
have the total variation v = c sqrt(2 cells / pi) / (2 n). Where no scores are affordable, no larger table is wanted.

**Worth.** Noise of scale sigma on the prod(K - 1) dimensions of a centered table is sigma sqrt(prod(K - 1)) long;
s = c / that length is the signal over the noise. The best mix of a guess that is off by c and a measurement that is off
by c / s is off by c / sqrt(1 + s^2): the total variation falls from v to v / sqrt(1 + s^2).

**Cost.** Precision 1 / sigma^2 = s^2 prod(K - 1) / c^2 goes to it and not to pairs. A share x of the plan's precision C
that pairs lose makes their noise larger by x / 2: with u the total variation that noise alone would cost a two-way
table (`expected_pair_tv`), it costs u x / 2.

**The choice.** Over all N tables of so many attributes, the mean total variation falls by the most when, with
k = prod(K - 1) / (c^2 C), every table has

    d/ds [v (1 - 1 / sqrt(1 + s^2)) / N - price k s^2] = 0,   so   1 + s^2 = (v / (2 N price k))^(2/3),

where a table that holds a target counts `TARGET_WEIGHT` times, and those without a positive s are left out. The price
is u / 2, or higher where all together would take more than their share of what was set aside; of more than
`MOST_TRIPLES`, those are taken that are worth most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from sklar.budget import plan
from sklar.budget.plan import TRIPLES_SHARE, Plan, Scored, Stages, expected_pair_tv, plan_scores, plan_second
from sklar.fitting.denoise import denoise_margins, denoise_tables, interactions
from sklar.fitting.margins import Estimates, margins, pool_blocks
from sklar.kernel.cells import Doubles, Floats, Ints
from sklar.kernel.queries import MOST_COARSE, PARTS, Block, Distances, Tables
from sklar.public.schema import TARGET_WEIGHT, Schema

MOST_TRIPLES = 120
# Sweeps of proportional fitting, and cells that are fitted together.
SWEEPS, _TOGETHER = 20, 1 << 21
# Tables of four matter so much less than those of three where no target is named: they are to find what only they show.
_OF_FOUR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scoring:
    """Tables of one order to score, and the centered tables of the largest entropy, in rows, laid out by `tables`.

    `weights` say how much each table matters, together with the others of its order.
    """

    tables: Tables
    reference: Ints
    n_rows: int
    weights: Doubles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """What scores say of tables of one order: v and c."""

    tables: Tables
    variation: Doubles
    distance: Doubles
    weights: Doubles


def look(estimates: Estimates, schema: Schema, scores: Sequence[Scored]) -> tuple[Scoring, ...]:
    """What to score of these tables, over coarse levels by the first stage's margins."""
    levels = denoise_margins(estimates).levels
    pairs, found = denoise_tables(estimates, levels).shrunk, []
    for each in scores:
        coarse = coarsen(schema, levels, np.minimum(each.tables.levels, MOST_COARSE))
        tables = replace(each.tables, coarse=coarse)
        reference = centered(largest_entropy(pairs, tables), tables)
        weights = np.where(np.isin(tables.members, schema.targets).any(axis=1), TARGET_WEIGHT, 1.0)
        weights *= 1.0 if tables.order == 3 or schema.targets else _OF_FOUR
        rows = np.rint(estimates.n_rows * reference).astype(np.int64)
        weights /= len(weights)
        found.append(Scoring(tables=tables, reference=rows, n_rows=estimates.n_rows, weights=weights))
    return tuple(found)


def largest_entropy(pairs: Floats, tables: Tables) -> Doubles:
    """The tables of the largest entropy that have these two-way ones, all as shares, laid out by `tables`.

    They are found by proportional fitting (Deming and Stephan 1940; Csiszar 1975), of many tables together, each as
    large as the largest: what it has not is empty.
    """
    cells, levels, members = tables.cells, tables.levels, tables.members
    starts = np.concatenate([[0], np.cumsum(levels)])
    coarse = starts[cells.attribute_of_level] + (0 if tables.coarse is None else tables.coarse)
    both = np.zeros((starts[-1] + 1, starts[-1] + 1))
    for alike in cells.alike():
        first, second = (cells.offsets[each[alike]][:, None] for each in cells.pairs)
        own = pairs[cells.places(alike)]
        rows, columns = (coarse[each + np.arange(k)] for each, k in zip((first, second), own.shape[1:], strict=True))
        np.add.at(both, (rows[:, :, None], columns[:, None, :]), own)
    both += both.T
    size = int(levels.max())
    within = np.arange(size) < levels[members][:, :, None]
    axes = np.where(within, starts[members][:, :, None] + np.arange(size), starts[-1])
    found, together = [np.empty(0)], max(1, _TOGETHER // size**tables.order)
    for some in np.split(np.arange(len(members)), np.arange(together, len(members), together)):
        own = np.ones((some.size, *[size] * tables.order))
        for _ in range(SWEEPS):
            for a, b in combinations(range(tables.order), 2):
                rest = tuple(1 + axis for axis in range(tables.order) if axis not in (a, b))
                wanted = both[axes[some, a, :, None], axes[some, b, None, :]]
                wanted /= np.maximum(own.sum(axis=rest), 1e-300)
                own *= np.expand_dims(wanted, rest)
        kept = np.ones(own.shape, dtype=bool)
        for axis in range(tables.order):
            kept &= np.moveaxis(within[some, axis].reshape(-1, size, *[1] * (tables.order - 1)), 1, axis + 1)
        found.append(own[kept])
    return np.concatenate(found)


def centered(flat: Doubles, tables: Tables) -> Doubles:
    """These tables less their means along each attribute."""
    found = [np.empty(0)]
    for own, shape in zip(np.split(flat, tables.offsets[1:-1]), tables.shapes.tolist(), strict=True):
        table = own.reshape(shape)
        for axis in range(tables.order):
            table = table - table.mean(axis=axis, keepdims=True)
        found.append(table.ravel())
    return np.concatenate(found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """What the first stage's noisy tables say of later ones: `distances` of pairs from independence, and what to score.

    `left` is what scores leave of the reserve: they are paid for whether tables are then wanted or not.
    """

    schema: Schema
    stages: Stages
    left: Stages
    distances: Doubles
    scored: tuple[Scoring, ...]
    scales: tuple[float, ...]

    @property
    def scores(self) -> tuple[tuple[Distances, Doubles], ...]:
        """What is measured to choose by, with its scale: distances of tables of an order each, or nothing."""
        pairs = zip(self.scored, self.scales, strict=True)
        return tuple((Distances(of=own.tables, reference=own.reference), np.array([scale])) for own, scale in pairs)

    def wanted(self, scores: Sequence[Block]) -> list[tuple[Tables, Doubles]]:
        """Larger tables that are worth their price, with the scales that they are worth."""
        if not scores:
            return []
        seen = [said(*each) for each in zip(self.scored, scores, strict=True)]
        chosen = choose_scales(
            seen,
            price=expected_pair_tv(self.schema.cells, self.scored[0].n_rows, self.stages) / 2,
            precision=self.stages.precision,
            most_precision=TRIPLES_SHARE * float(np.sum(self.left.reserve**-2.0)),
        )
        pairs = zip(seen, chosen, strict=True)
        return [(replace(own.tables, sets=own.tables.members[at]), scales) for own, (at, scales) in pairs if at.size]

    def plan(self, scores: Sequence[Block]) -> Plan:
        """All that is measured later: pairs again, and chosen larger tables."""
        schema = self.schema
        return plan_second(schema.cells, self.left, self.distances, schema.importance, self.wanted(scores))


def look_ahead(
    blocks: Sequence[Block], schema: Schema, stages: Stages, n_rows: int | None, *, again: bool = True, **scored: Any
) -> Outlook:
    """What the first stage's noisy blocks say of later stages; `again` says whether rows can be counted once more."""
    estimates = pool_blocks(blocks, stages.budget.mechanism, n_rows)
    planned = None
    if again and plan.looks_for_triples(schema.cells, estimates.n_rows, stages, schema.targets):
        planned = plan_scores(schema.cells, estimates.n_rows, stages, schema.targets, **scored)
    scores, left = ([], stages) if planned is None else planned
    distances, scales = interactions(estimates, margins(estimates)), tuple(own.scale for own in scores)
    asked = look(estimates, schema, scores) if scores else ()
    return Outlook(schema=schema, stages=stages, left=left, distances=distances, scored=asked, scales=scales)


def said(asked: Scoring, scores: Block) -> Seen:
    """What scores say of distances, and the total variations that go with them."""
    rows, noise = np.maximum(scores.values / PARTS, 1e-9), float(scores.scales[0]) / PARTS
    distance = rows * np.maximum(1 - (noise / rows) ** 2, 0.0)
    flat = np.sqrt(2 / np.pi * asked.tables.sizes) / (2 * asked.n_rows)
    variation = np.minimum(distance * flat, 1.0)
    return Seen(tables=asked.tables, variation=variation, distance=distance, weights=asked.weights)


def choose_scales(
    seen: Sequence[Seen], *, price: float, precision: float, most_precision: float
) -> list[tuple[Ints, Doubles]]:
    """Which tables of each order to measure, ascending, and at which scales."""
    variation = np.concatenate([own.variation * own.weights for own in seen])
    distance, ends = np.concatenate([own.distance for own in seen]), np.cumsum([own.distance.size for own in seen])
    dimensions = np.concatenate([np.prod(own.tables.shapes - 1, axis=1) for own in seen])
    worth = np.flatnonzero((distance > 0) & (variation > 0))
    unit = dimensions[worth] / distance[worth] ** 2
    share = unit / precision

    def squares(times: float) -> Doubles:
        odds = variation[worth] / (2 * times * price * share)
        found = np.maximum(odds ** (2 / 3) - 1, 0.0)
        if np.count_nonzero(found) > MOST_TRIPLES:
            gain = variation[worth] * (1 - (1 + found) ** -0.5) - times * price * share * found
            found[np.argsort(-gain, kind="stable")[MOST_TRIPLES:]] = 0.0
        return np.asarray(found)

    times = 1.0
    while (found := squares(times)) @ unit > most_precision:
        times *= 1.1
    kept = found > 0
    chosen, scales = worth[kept], (found[kept] * unit[kept]) ** -0.5
    starts = np.searchsorted(chosen, ends[:-1])
    parts = zip(np.split(chosen, starts), np.split(scales, starts), ends, seen, strict=True)
    return [(at - end + own.distance.size, scale) for at, scale, end, own in parts]


def coarsen(schema: Schema, levels: Doubles, most: Ints) -> Ints:
    """The coarse level of every level, shape (d,), by noisy margins, shape (d,): at most so many an attribute.

    Numbers and ordered categories are cut where their margins have equal masses; of other categories, all but the
    most common are put together.
    """
    coarse = []
    for index, attribute in enumerate(schema.attributes):
        shares, values = levels[schema.cells.levels(index)], attribute.n_values
        own, limit = np.arange(shares.size), int(most[index])
        if shares.size > limit and (attribute.binned or attribute.ordered):
            # Values along the axis, then whatever else there is as one level.
            cuts = min(limit - (values < shares.size), values)
            own[:values], own[values:] = _cut(shares[:values], cuts), cuts
        elif shares.size > limit:
            top = np.sort(np.argsort(-shares, kind="stable")[: limit - 1])
            own[:] = limit - 1
            own[top] = np.arange(top.size)
        coarse.append(own)
    return np.concatenate(coarse)


def _cut(shares: Doubles, parts: int) -> Ints:
    """Runs of about equal mass, none of them empty: the part of every value, shape (values,)."""
    # A level that nobody has must belong somewhere, too.
    mass = shares + 1e-9 / shares.size
    middle = np.cumsum(mass) - mass / 2
    wanted = np.minimum((parts * middle / mass.sum()).astype(np.int64), parts - 1)
    # Every part has one value at least: it begins after as many as there are parts before it, and leaves as many.
    places = np.arange(shares.size)
    found = np.clip(wanted, np.maximum(parts - shares.size + places, 0), np.minimum(places, parts - 1))
    steps = np.minimum(np.diff(found, prepend=0), 1)
    found = np.maximum(np.cumsum(steps), np.maximum(parts - shares.size + places, 0))
    return np.asarray(found)
