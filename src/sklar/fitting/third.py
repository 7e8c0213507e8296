"""Which tables of three and four attributes are worth measuring: post-processing of the first stage's noisy tables. The
derivation: docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from sklar.budget import plan
from sklar.budget.plan import TRIPLES_SHARE, Plan, Scored, Stages, expected_pair_tvs, plan_scores, plan_second
from sklar.fitting.choose import SEED as SPLIT_SEED
from sklar.fitting.choose import choose_steps, fit_steps
from sklar.fitting.denoise import denoise_margins, interactions
from sklar.fitting.descent import Start, multiplied, step_operations
from sklar.fitting.margins import Estimates, margins, pool_blocks
from sklar.kernel.cells import Doubles, Floats, Ints
from sklar.kernel.queries import MOST_COARSE, PARTS, Block, Distances, Tables
from sklar.public.schema import TARGET_WEIGHT, Schema

MOST_TRIPLES = 120
FITS, COMPONENTS = 4, 150
# Steps of a fit that chooses tables; where the domain is so large that it affords fewer than the second, none is made.
MOST_STEPS, LEAST_STEPS = 300, 100
MOST_OPERATIONS = 5e11
SEED = 1_000
# A score is right within so many sds of its noise. Fits that disagree by this share of a distance show its shape.
_SURE = 2.0
_SHAPED = 0.1
# Tables of four matter so much less than those of three where no target is named: they are to find what only they show.
_OF_FOUR = 0.1
# What noise costs pairs is at least this part of what it costs before they are denoised.
_LEAST_PRICE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Disagreement:
    """What fits of the first stage say of tables of one order: v, c, and centered tables in rows, laid out by `tables`.

    `weights` say how much each matters, together with the others of its order.
    """

    tables: Tables
    variation: Doubles
    distance: Doubles
    reference: Ints
    n_rows: int
    weights: Doubles


def look(estimates: Estimates, schema: Schema, scores: Sequence[Scored]) -> tuple[Disagreement, ...]:
    """Fit the first stage's estimates several times; none where that takes too long, or there is nothing to see.

    What is scored is looked at, or, where nothing is, all tables of three attributes.
    """
    cells, start = estimates.cells, Start(components=COMPONENTS, sd=1.0, seed=SEED)
    affordable = MOST_OPERATIONS / ((FITS + 1) * step_operations(cells, start))
    if affordable < LEAST_STEPS:
        return ()
    steps = choose_steps(estimates, start, [SPLIT_SEED], min(int(affordable), MOST_STEPS))[0]
    levels = denoise_margins(estimates).levels
    if steps:
        model = fit_steps(estimates, schema, levels, start, steps=steps, fits=FITS)
        fits = model.probabilities.reshape(FITS, COMPONENTS, -1)
    elif scores:
        fits = levels.astype(np.float32).reshape(1, 1, -1)
    else:
        return ()
    asked = [each.tables for each in scores] or [Tables(cells=cells, order=3)]
    asked = [replace(each, coarse=coarsen(schema, levels, np.minimum(each.levels, MOST_COARSE))) for each in asked]
    return tuple(disagreement(fits, tables, estimates.n_rows, schema.targets) for tables in asked)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """What the first stage's noisy tables say of later ones: `distances` of pairs from independence, and fits.

    `seen` is empty where no larger tables are looked for, `scales` where there are no scores. `left` is what scores
    leave of the reserve: they are paid for whether tables are then wanted or not.
    """

    schema: Schema
    stages: Stages
    left: Stages
    distances: Doubles
    seen: tuple[Disagreement, ...]
    scales: tuple[float, ...]

    @property
    def scores(self) -> tuple[tuple[Distances, Doubles], ...]:
        """What is measured to choose by, with its scale: distances of tables of an order each, or nothing."""
        pairs = zip(self.seen if self.scales else (), self.scales, strict=True)
        return tuple((Distances(of=own.tables, reference=own.reference), np.array([scale])) for own, scale in pairs)

    def wanted(self, scores: Sequence[Block]) -> list[tuple[Tables, Doubles]]:
        """Larger tables that are worth their price, with the scales that they are worth."""
        if not self.seen:
            return []
        seen = [corrected(*each) for each in zip(self.seen, scores, strict=True)] if scores else self.seen
        # Denoised pairs are off by no more than their distance from independence.
        noise, n_rows = expected_pair_tvs(self.schema.cells, seen[0].n_rows, self.stages), seen[0].n_rows
        chosen = choose_scales(
            seen,
            price=float(np.mean(np.clip(self.distances / (2 * n_rows), _LEAST_PRICE * noise, noise))) / 2,
            precision=self.stages.precision,
            most_precision=TRIPLES_SHARE * float(np.sum(self.left.reserve**-2.0)),
        )
        heard = [scales <= self.stages.most_later for _, scales in chosen]
        pairs = [
            (own.tables, at[most], scales[most]) for own, (at, scales), most in zip(seen, chosen, heard, strict=True)
        ]
        return [(replace(tables, sets=tables.members[at]), scales) for tables, at, scales in pairs if at.size]

    def plan(self, scores: Sequence[Block]) -> Plan:
        """All that is measured later: pairs again, and chosen larger tables."""
        schema = self.schema
        return plan_second(schema.cells, self.left, self.distances, schema.importance, self.wanted(scores))


def look_ahead(
    blocks: Sequence[Block], schema: Schema, stages: Stages, n_rows: int | None, *, again: bool = True, **scored: Any
) -> Outlook:
    """What the first stage's noisy blocks say of later stages; `again` says whether rows can be counted once more."""
    estimates = pool_blocks(blocks, stages.budget.mechanism, n_rows)
    seen: tuple[Disagreement, ...] = ()
    planned = None
    if again and plan.looks_for_triples(schema.cells, stages):
        planned = plan_scores(schema.cells, estimates.n_rows, stages, schema.targets, **scored)
        seen = look(estimates, schema, () if planned is None else planned[0])
    scores, left = ([], stages) if planned is None or not seen else planned
    distances, scales = interactions(estimates, margins(estimates)), tuple(own.scale for own in scores)
    return Outlook(schema=schema, stages=stages, left=left, distances=distances, seen=seen, scales=scales)


def corrected(seen: Disagreement, scores: Block) -> Disagreement:
    """The distances within what the scores say, and the total variations that go with them."""
    rows, within = scores.values / PARTS, _SURE * float(scores.scales[0]) / PARTS
    distance = np.clip(seen.distance, np.maximum(rows - within, 0.0), np.maximum(rows + within, 0.0))
    flat = np.sqrt(seen.tables.sizes) / (2 * seen.n_rows)
    apart = seen.distance > 0
    shares = seen.variation[apart] / (seen.distance[apart] * flat[apart])
    share = np.full(distance.size, float(np.median(shares)) if shares.size else 1.0)
    shaped = apart & (seen.distance >= _SHAPED * distance)
    share[shaped] = shares[shaped[apart]]
    return replace(seen, distance=distance, variation=np.minimum(distance * flat * share, 1.0))


def choose_scales(
    seen: Sequence[Disagreement], *, price: float, precision: float, most_precision: float
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


def disagreement(fits: Floats, asked: Tables, n_rows: int, targets: Sequence[int] = ()) -> Disagreement:
    """How far these fits, shape (F, components, d), disagree on every one of these tables over coarse levels."""
    cells, coarse, levels, components = asked.cells, np.asarray(asked.coarse), asked.levels, fits.shape[1]
    starts = np.concatenate([[0], np.cumsum(levels)])
    # Probabilities of coarse levels in components, centered along each attribute: so are their products then.
    factors = np.zeros((int(starts[-1]), len(fits), components), dtype=np.float32)
    np.add.at(factors, starts[cells.attribute_of_level] + coarse, np.moveaxis(fits, 2, 0))
    factors -= np.repeat(np.add.reduceat(factors, starts[:-1]) / levels[:, None, None].astype(np.float32), levels, 0)
    factors = np.moveaxis(factors, 1, 0)
    variation, distance, means = [np.empty(0)], [np.empty(0)], [np.empty(0)]
    apart, members = max(len(fits) - 1, 1), asked.members
    # Tables that differ in their last attribute alone are products with one matrix.
    for first, alike in groupby(members.tolist(), key=lambda chosen: chosen[:-1]):
        lasts = [chosen[-1] for chosen in alike]
        both = multiplied([factors[:, starts[each] : starts[each + 1]] for each in first])
        last = np.concatenate([np.arange(starts[each], starts[each + 1]) for each in lasts])
        tables = both @ factors[:, last].transpose(0, 2, 1)
        tables /= np.float32(components)
        mean = tables.mean(axis=0)
        tables -= mean
        at = np.cumsum(levels[lasts]) - levels[lasts]
        variation.append(np.add.reduceat(np.abs(tables).sum(axis=(0, 1)), at) / (2 * apart))
        distance.append(np.sqrt(np.add.reduceat((tables**2).sum(axis=(0, 1)), at) / apart))
        means += [own.ravel() for own in np.split(mean, at[1:], axis=1)]
    weights = np.where(np.isin(members, targets).any(axis=1), TARGET_WEIGHT, 1.0)
    weights *= 1.0 if asked.order == 3 or targets else _OF_FOUR
    return Disagreement(
        tables=asked,
        variation=np.concatenate(variation),
        distance=n_rows * np.concatenate(distance),
        reference=np.rint(n_rows * np.concatenate(means)).astype(np.int64),
        n_rows=n_rows,
        weights=weights / len(members),
    )


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
