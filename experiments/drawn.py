"""Coverage over many releases at once, without a fit for each of them.

Shares, means and differences are functions of noisy tables alone: the model has a part in the sampling error only. So
noisy tables of many releases are drawn directly, at the noise scales of one release that was fitted, and answered with
its model. Other estimates are a function of the model plus a linear one of noisy tables: to each model that is fitted,
some more tables are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from experiments.asked import Case, Codes, counts_of, measured_columns
from sklar.answer.effects import Effect, Floats, NoisyTable, Subset, pool_tables
from sklar.answer.infer.inquiry import Figure, Inquiry
from sklar.answer.infer.onestep import OneStep, grid, noise_covariance, one_step, parts
from sklar.answer.infer.statistics import asked_ratios, figures_of, interaction, linear_in
from sklar.files.model import Model
from sklar.kernel.theorems import noise_variance

LINEAR = ("means", "shares", "differences")
_AT_ONCE = 50
# Draws beside a fitted model: of the table itself too where the target is a population, which takes longer.
_AGAIN = {"table": 50, "population": 12}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Again:
    """An answer of a fitted model, to be given again for other noisy tables, and the truth."""

    kind: str
    question: str
    found: OneStep
    ours: Sequence[Figure]
    real: Sequence[Figure]


def draw_again(
    case: Case, model: Model, answers: Sequence[Again], generator: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """How often intervals hold the truth where the model is kept and noisy tables are drawn anew."""
    effects, rows = _effects(case, model, _AGAIN[case.target], generator)
    reach = NormalDist().inv_cdf(0.975)
    for each in answers:
        values = each.found.offset + sum(
            effects[subset].reshape(len(rows), -1) @ part.reshape(len(part), -1).T
            for subset, part in each.found.coefficients.items()
            if subset in effects
        )
        for place, (mine, true) in enumerate(zip(each.ours, each.real, strict=True)):
            if mine.name != "(intercept)":
                held = np.abs(values[:, place] - true.estimate) <= reach * mine.standard_error
                yield {
                    "kind": each.kind,
                    "question": each.question,
                    "drawn": float(held.size),
                    "drawn_ours": float(held.sum()),
                }


def draw_many(
    case: Case, model: Model, truths: Mapping[str, list[Figure]], times: int, generator: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """How often the intervals of linear figures hold `truths`, by question: one record for each question and batch."""
    for done in range(0, times, _AT_ONCE):
        effects, rows = _effects(case, model, min(_AT_ONCE, times - done), generator)
        for kind in LINEAR:
            for question in case.questions.get(kind, ()):
                held = _held(case, model, question, effects, rows, truths[question])
                yield {"kind": kind, "question": question, "drawn": float(held.size), "drawn_ours": float(held.sum())}


def test_many(case: Case, model: Model, times: int, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    """How often independence from the shuffled column is rejected at 5%, over tables and noise that are drawn anew."""
    if case.shuffled is None:
        return
    schema, place = case.schema, case.schema.names.index(case.shuffled)
    for done in range(0, times, _AT_ONCE):
        drawn, rows = _effects(replace(case, target="population"), model, min(_AT_ONCE, times - done), generator)
        for other, name in enumerate(schema.names):
            if other == place:
                continue
            pair = (min(place, other), max(place, other))
            own = Inquiry(model, f'independent("{case.shuffled}", "{name}")')
            linear = interaction(own.reference, pair, partial(own.holds, None))
            rejected = 0
            for at in range(len(rows)):
                by_set = {
                    subset: Effect(values=drawn[subset][at], variance=effect.variance)
                    for subset, effect in own.effects.by_set.items()
                }
                found = own.test(one_step(replace(own.effects, by_set=by_set), own.reference, linear))
                rejected += found.p_value < 0.05
            yield {
                "kind": "independence",
                "question": f"independent({case.shuffled}, {name})",
                "drawn": float(len(rows)),
                "drawn_ours": float(rejected),
            }


def _held(
    case: Case, model: Model, question: str, effects: Mapping[Subset, Floats], rows: Floats, true: list[Figure]
) -> Floats:
    """Whether each release's interval of each figure holds the truth, shape (releases, figures)."""
    inquiry = Inquiry(model, question, target=case.target)
    linear = linear_in(asked_ratios(inquiry), inquiry.reference)
    once = one_step(inquiry.effects, inquiry.reference, linear)
    function = linear.influence(grid(inquiry.effects.sizes)).T.reshape(-1, *inquiry.effects.sizes)
    coefficients = parts({inquiry.where: function})
    # The mean of a function over all cells, and its parts on effects.
    values = function.reshape(len(function), -1).mean(axis=1) + sum(
        effects[subset].reshape(len(rows), -1) @ part.reshape(len(part), -1).T for subset, part in coefficients.items()
    )
    noise = noise_covariance(coefficients, inquiry.effects)
    found = []
    for value in values:
        step = replace(once, values=value, noise=noise)
        figures = figures_of(inquiry, asked_ratios(inquiry), step)
        found.append([_holds(figure, truth.estimate) for figure, truth in zip(figures, true, strict=True)])
    return np.array(found, dtype=np.float64)


def _holds(figure: Figure, true: float) -> bool:
    return figure.low is None or figure.high is None or figure.low <= true <= figure.high


def _effects(
    case: Case, model: Model, times: int, generator: np.random.Generator
) -> tuple[dict[Subset, Floats], Floats]:
    """Pooled effects of many releases, with an axis for the releases in front, and their numbers of rows."""
    schema, columns = model.measured_schema, measured_columns(case.schema)
    cells, own = schema.cells, range(model.measured_schema.n_attributes)
    fixed = case.target == "table"
    drawn: list[Codes] = [case.draw(generator)[:, columns] for _ in range(1 if fixed else times)]
    counts = [counts_of(rows, schema) for rows in drawn]
    one_way = np.stack([each.one_way for each in counts]).astype(np.float64)
    pairs = np.stack([each.pairs for each in counts]).astype(np.float64)
    tables: list[tuple[Subset, Floats, float]] = []
    weighted, weights = np.zeros(times), 0.0

    def noisy(exact: Floats, scale: float) -> Floats:
        shape = (times, *exact.shape[1:])
        return np.asarray(exact + np.rint(scale * generator.standard_normal(shape)))

    for block in model.measured.blocks:
        order, scales = getattr(block.query, "order", None), block.scales.tolist()
        if order == 0:
            variance = float(noise_variance(model.certificate.mechanism, block.scales)[0])
            weighted += noisy(np.full((1,), float(len(drawn[0]))), scales[0]) / variance
            weights += 1 / variance
        if order == 1:
            for i in own:
                exact = one_way[:, cells.levels(i)]
                tables.append(((i,), noisy(exact, scales[i]), scales[i] ** 2))
        if order == 2:
            for pair, (i, j) in enumerate(zip(*(each.tolist() for each in cells.pairs), strict=True)):
                run = slice(int(cells.pair_offsets[pair]), int(cells.pair_offsets[pair + 1]))
                exact = pairs[:, run].reshape(-1, int(cells.sizes[i]), int(cells.sizes[j]))
                tables.append(((i, j), noisy(exact, scales[pair]), scales[pair] ** 2))
    held = [NoisyTable(attributes=where, counts=table, variance=variance) for where, table, variance in tables]
    rows = np.full(times, float(len(drawn[0])))
    if model.measured.n_rows is None:
        for table in held:
            size = table.counts[0].size
            weighted += table.counts.reshape(times, -1).sum(axis=1) / (size * table.variance)
            weights += 1 / (size * table.variance)
        rows = np.maximum(np.rint(weighted / weights), 1.0)
    pooled = pool_tables(held, tuple(own), 1)
    shares = {subset: effect.values / rows.reshape(-1, *[1] * len(subset)) for subset, effect in pooled.items()}
    return shares, rows
