"""Shares and means, of all rows or of groups, and differences between groups: ratios of linear functionals.

The share of a group is a ratio, and so is the mean of a number that some rows do not have: both its terms are noisy.
Its interval is Fieller's (1954), the set of t for which numerator - t x denominator is within its error of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from sklar.answer.effects import Codes, Floats
from sklar.answer.infer.inquiry import Figure, Inference, Inquiry, Interval
from sklar.answer.infer.onestep import Linearized, OneStep, Reference
from sklar.answer.predicate import QueryError

RecordFunction = Callable[[Codes], Floats]

_MOST_FIGURES = 1_000
# Functions of records that are held at once: 400 MB.
_MOST_NUMBERS = 50_000_000
_LEAST = 1e-12


class Ratio(NamedTuple):
    """The mean of one function of records over that of another, or over all rows; `scale` is the largest numerator."""

    label: str
    numerator: RecordFunction
    denominator: RecordFunction | None
    scale: float


def linear_in(ratios: Sequence[Ratio], reference: Reference) -> Linearized:
    """Numerators and denominators, one after the other: they are linear in the shares of records."""
    terms = [term for each in ratios for term in ((each.numerator, each.scale), (each.denominator, 1.0))]
    functions = [(function, scale) for function, scale in terms if function is not None]

    def evaluate(codes: Codes) -> Floats:
        return np.stack([function(codes) for function, _ in functions], axis=1)

    values, scales = evaluate(reference.codes), np.array([scale for _, scale in functions])
    means, by_fit = reference.union @ values, reference.weights @ values
    return Linearized(values=means, by_fit=by_fit, influence=evaluate, scale=scales)


def fieller(values: Floats, covariance: Floats, quantile: float) -> tuple[float, float]:
    """The interval of a ratio N / D, of `values` with this covariance: all t with (N - t D)^2 <= z^2 Var(N - t D).

    Infinite where D itself is within z standard errors of zero: then every ratio may be the true one.
    """
    (n, d), ((nn, nd), (_, dd)) = values.tolist(), covariance.tolist()
    leading = d**2 - quantile**2 * dd
    if leading <= 0:
        return -math.inf, math.inf
    middle = n * d - quantile**2 * nd
    root = math.sqrt(max(middle**2 - leading * (n**2 - quantile**2 * nn), 0.0))
    return (middle - root) / leading, (middle + root) / leading


def answer_ratios(inquiry: Inquiry) -> Inference:
    """`mean(x)`, `share(predicate)`, `share(x)`: of all rows, or by groups; and differences from the first group."""
    asked, names, ratios = inquiry.asked, inquiry.model.schema.names, asked_ratios(inquiry)
    if 2 * len(ratios) * max(len(inquiry.reference.codes), math.prod(inquiry.effects.sizes[:2])) > _MOST_NUMBERS:
        raise QueryError("these are too many groups of too many levels at once. Ask about fewer of them, with where.")
    figures = figures_of(inquiry, ratios, inquiry.one_step(linear_in(ratios, inquiry.reference)))
    kinds = {"share": f"share of rows with {asked.event_text}", "mean": "mean of ", "shares": "shares of "}
    what = ("difference of " if asked.difference else "") + kinds[asked.kind] + "".join(names[i] for i in asked.names)
    by = " by " + ", ".join(names[i] for i in asked.by) if asked.by else ""
    return inquiry.inference(f"{what}{by}", figures)


def figures_of(inquiry: Inquiry, ratios: Sequence[Ratio], step: OneStep) -> list[Figure]:
    """The figures of these ratios, or of their differences from the first group; unclear ones are cautioned about."""
    covariance, values = step.covariance(population=inquiry.population), step.values
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    # Of each ratio: its value, its gradient by all terms, its interval, and whether its denominator is above zero.
    found: list[tuple[float, Floats, Interval, bool]] = []
    top = 0
    for ratio in ratios:
        slope = np.eye(1, values.size, top)[0]
        if ratio.denominator is None:
            found.append((float(values[top]), slope, None, True))
            top += 1
            continue
        both, bottom = slice(top, top + 2), top + 1
        # What is divided by is never zero; the interval tells that it may be.
        below = float(values[bottom]) if abs(values[bottom]) > _LEAST else _LEAST
        slope[both] = 1 / below, -values[top] / below**2
        clear = bool(values[bottom] > inquiry.quantile * errors[bottom])
        interval = fieller(values[both], covariance[both, both], inquiry.quantile)
        found.append((float(values[top]) / below, slope, interval, clear))
        top += 2
    unclear = [ratio.label for ratio, (*_, clear) in zip(ratios, found, strict=True) if not clear]
    if unclear:
        listed = "; ".join(unclear[:6]) + (" and others" if len(unclear) > 6 else "")
        inquiry.cautions.append(f"too few rows to tell from noise, so nothing is known: {listed}.")
    if not inquiry.asked.difference:
        return [
            inquiry.figure(ratio.label, estimate, slope, step, ends=interval)
            for ratio, (estimate, slope, interval, _) in zip(ratios, found, strict=True)
        ]
    each, figures = len(ratios) // math.prod(inquiry.model.schema.attributes[i].n_levels for i in inquiry.asked.by), []
    for number in range(each, len(ratios)):
        (here, slope, _, clear), (there, base_slope, _, base_clear) = found[number], found[number % each]
        label, known = f"{ratios[number].label} less {ratios[number % each].label}", clear and base_clear
        ends = None if known else (-math.inf, math.inf)
        figures.append(inquiry.figure(label, here - there, slope - base_slope, step, ends=ends, tested=known))
    return figures


def asked_ratios(inquiry: Inquiry) -> list[Ratio]:
    """What is asked of every group, group after group: of rows with these levels of some attributes."""
    asked, attributes = inquiry.asked, inquiry.model.schema.attributes
    sizes = [attributes[i].n_levels for i in asked.by]
    number = math.prod(sizes) * (attributes[asked.names[0]].n_levels if asked.kind == "shares" else 1)
    if number > _MOST_FIGURES:
        raise QueryError(
            f"at most {_MOST_FIGURES:,} figures are given at once, got {number:,}. Ask about fewer groups, with where."
        )

    def column(index: int, values: Floats) -> RecordFunction:
        return lambda codes: inquiry.column(codes, index, values)

    def level(index: int, code: int) -> RecordFunction:
        return column(index, np.eye(1, attributes[index].n_levels, code)[0])

    def multiplied(terms: Sequence[RecordFunction]) -> RecordFunction:
        return lambda codes: math.prod((term(codes) for term in terms), start=np.ones(len(codes)))

    ratios, everyone = [], not asked.by and asked.given is None
    for codes in product(*(range(size) for size in sizes)):
        group = list(zip(asked.by, codes, strict=True))
        name = ", ".join(f"{attributes[i].name} = {attributes[i].levels[code]}" for i, code in group)
        within: list[RecordFunction] = [partial(inquiry.holds, asked.given), *(level(i, code) for i, code in group)]
        below, scale = [] if everyone else within, 1.0
        if asked.event is not None:
            tops: dict[str, RecordFunction] = {name or "share": partial(inquiry.holds, asked.event)}
        elif asked.kind == "shares":
            (index,), after = asked.names, f", {name}" if name else ""
            of, levels = attributes[index].name, attributes[index].levels
            tops = {f"{of} = {each}{after}": level(index, code) for code, each in enumerate(levels)}
        else:
            (index,), scores = asked.names, inquiry.scores(asked.names[0])
            tops, scale = {name or "mean": column(index, scores.filled)}, float(np.abs(scores.filled).max())
            if not everyone or not scores.known.all():
                below = [*within, column(index, scores.known)]
        bottom = multiplied(below) if below else None
        ratios += [Ratio(label, multiplied([*within, top]), bottom, scale) for label, top in tops.items()]
    return ratios
