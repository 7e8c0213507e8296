"""Shares and means, of all rows or of groups, and differences between groups: ratios of linear functionals.

The share of a group is a ratio, and so is the mean of a number that some rows do not have: both its terms are noisy.
Its interval is Fieller's (1954), the set of t for which numerator - t x denominator is within its error of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product

import numpy as np

from sklar.answer.effects import Codes, Floats
from sklar.answer.infer.inquiry import Figure, Inference, Inquiry
from sklar.answer.infer.onestep import Linearized, OneStep, Reference
from sklar.answer.predicate import Atom, Expression, QueryError

RecordFunction = Callable[[Codes], Floats]
# Where the numerator and the denominator of a ratio stand among all terms; None: it is no ratio.
Place = tuple[int, int | None]

_MOST_FIGURES = 1_000
# Functions of records that are held at once: 400 MB.
_MOST_NUMBERS = 50_000_000
_LEAST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ratio:
    """A statistic that is the mean of one function of records over that of another, e.g. over a group's share.

    No denominator: it is the mean of the numerator over all rows. `scale` is the largest size that the numerator has.
    """

    label: str
    numerator: RecordFunction
    denominator: RecordFunction | None
    scale: float = 1.0


def linear_in(ratios: Sequence[Ratio], reference: Reference) -> Linearized:
    """Numerators and denominators, one after the other: they are linear in the shares of records."""
    terms = [term for each in ratios for term in ((each.numerator, each.scale), (each.denominator, 1.0))]
    functions = [(function, scale) for function, scale in terms if function is not None]

    def evaluate(codes: Codes) -> Floats:
        return np.stack([function(codes) for function, _ in functions], axis=1)

    values, scales = evaluate(reference.codes), np.array([scale for _, scale in functions])
    means, by_fit = reference.union @ values, reference.weights @ values
    return Linearized(values=means, by_fit=by_fit, influence=evaluate, scale=scales)


def _places(ratios: Sequence[Ratio]) -> list[Place]:
    widths = [1 if ratio.denominator is None else 2 for ratio in ratios]
    starts = accumulate(widths[:-1], initial=0)
    return [(at, None if width == 1 else at + 1) for at, width in zip(starts, widths, strict=True)]


def _value(values: Floats, place: Place) -> tuple[float, Floats]:
    """A ratio, and its gradient by all terms, shape (q,)."""
    slope, (top, bottom) = np.zeros(values.size), place
    if bottom is None:
        slope[top] = 1.0
        return float(values[top]), slope
    # What is divided by is never zero; the interval tells that it may be.
    below = float(values[bottom]) if abs(values[bottom]) > _LEAST else _LEAST
    slope[top], slope[bottom] = 1 / below, -values[top] / below**2
    return float(values[top]) / below, slope


def fieller(values: Floats, covariance: Floats, place: tuple[int, int], quantile: float) -> tuple[float, float]:
    """The interval of a ratio N / D: all t with (N - t D)^2 <= z^2 Var(N - t D).

    Infinite where D itself is within z standard errors of zero: then every ratio may be the true one.

    >>> low, high = fieller(np.array([5.0, 10.0]), np.diag([0.01, 0.04]), (0, 1), 1.96)
    >>> round(low, 4), round(high, 4)
    (0.473, 0.5285)
    """
    top, bottom = place
    n, d = float(values[top]), float(values[bottom])
    nn, nd, dd = (float(covariance[pair]) for pair in ((top, top), (top, bottom), (bottom, bottom)))
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
    step = inquiry.one_step(linear_in(ratios, inquiry.reference))
    figures = figures_of(inquiry, ratios, step)
    unclear = [ratio.label for ratio, clear in zip(ratios, _clear(inquiry, ratios, step), strict=True) if not clear]
    if unclear:
        listed = "; ".join(unclear[:6]) + (" and others" if len(unclear) > 6 else "")
        inquiry.cautions.append(f"too few rows to tell from noise, so nothing is known: {listed}.")
    kinds = {"share": f"share of rows with {asked.event_text}", "mean": "mean of ", "shares": "shares of "}
    what = ("difference of " if asked.difference else "") + kinds[asked.kind] + "".join(names[i] for i in asked.names)
    by = " by " + ", ".join(names[i] for i in asked.by) if asked.by else ""
    return inquiry.inference(f"{what}{by}", figures)


def figures_of(inquiry: Inquiry, ratios: Sequence[Ratio], step: OneStep) -> list[Figure]:
    """The figures of these ratios, or of their differences from the first group."""
    places, figures = _places(ratios), []
    covariance = step.covariance(population=inquiry.population)
    if not inquiry.asked.difference:
        for ratio, (top, bottom) in zip(ratios, places, strict=True):
            estimate, slope = _value(step.values, (top, bottom))
            ends = None if bottom is None else fieller(step.values, covariance, (top, bottom), inquiry.quantile)
            figures.append(inquiry.figure(ratio.label, estimate, slope, step, interval=ends))
        return figures
    each = len(ratios) // math.prod(inquiry.model.schema.attributes[i].n_levels for i in inquiry.asked.by)
    clear = _clear(inquiry, ratios, step)
    for number in range(each, len(ratios)):
        base = number % each
        (here, slope), (there, base_slope) = (_value(step.values, places[at]) for at in (number, base))
        label, known = f"{ratios[number].label} less {ratios[base].label}", clear[number] and clear[base]
        ends = None if known else (-math.inf, math.inf)
        figures.append(inquiry.figure(label, here - there, slope - base_slope, step, interval=ends, tested=known))
    return figures


def _clear(inquiry: Inquiry, ratios: Sequence[Ratio], step: OneStep) -> list[bool]:
    """Whether each ratio's denominator can be told from zero."""
    errors = np.sqrt(np.maximum(np.diag(step.covariance(population=inquiry.population)), 0.0))
    clear = step.values > inquiry.quantile * errors
    return [below is None or bool(clear[below]) for _, below in _places(ratios)]


def asked_ratios(inquiry: Inquiry) -> list[Ratio]:
    """What is asked of every group, group after group."""
    schema, by = inquiry.model.schema, inquiry.asked.by
    sizes = [schema.attributes[i].n_levels for i in by]
    each = schema.attributes[inquiry.asked.names[0]].n_levels if inquiry.asked.kind == "shares" else 1
    if math.prod(sizes) * each > _MOST_FIGURES:
        raise QueryError(
            f"at most {_MOST_FIGURES:,} figures are given at once, got {math.prod(sizes) * each:,}. Ask about fewer "
            "groups, with where."
        )
    groups = product(*(range(size) for size in sizes))
    return [ratio for codes in groups for ratio in _ratios(inquiry, dict(zip(by, codes, strict=True)))]


def _ratios(inquiry: Inquiry, group: dict[int, int]) -> Iterator[Ratio]:
    """What is asked of one group: rows with these levels of some attributes."""
    asked, schema = inquiry.asked, inquiry.model.schema
    everyone = not group and asked.given is None
    name = ", ".join(f"{schema.names[i]} = {schema.attributes[i].levels[code]}" for i, code in group.items())
    levels = {i: (np.arange(schema.attributes[i].n_levels) == code).astype(np.float64) for i, code in group.items()}

    def within(codes: Codes) -> Floats:
        held = inquiry.holds(asked.given, codes)
        for i, own in levels.items():
            held = held * inquiry.column(codes, i, own)
        return held

    def share(event: Expression, label: str) -> Ratio:
        def numerator(codes: Codes) -> Floats:
            return within(codes) * inquiry.holds(event, codes)

        return Ratio(label=label, numerator=numerator, denominator=None if everyone else within)

    if asked.event is not None:
        yield share(asked.event, name or "share")
        return
    (index,) = asked.names
    attribute = schema.attributes[index]
    if asked.kind == "shares":
        after = f", {name}" if name else ""
        for code, level in enumerate(attribute.levels):
            event = Atom(attribute=index, levels=np.arange(attribute.n_levels) == code)
            yield share(event, f"{attribute.name} = {level}{after}")
        return
    own = inquiry.scores(index)

    def over(values: Floats) -> RecordFunction:
        return lambda codes: within(codes) * inquiry.column(codes, index, values)

    below = None if everyone and own.known.all() else over(own.known)
    scale = float(np.abs(own.filled).max())
    yield Ratio(label=name or "mean", numerator=over(own.filled), denominator=below, scale=scale)
