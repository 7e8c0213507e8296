"""Shares and means, of all rows or of groups, and differences between groups: ratios of linear functionals.

The share of a group is a ratio, and so is the mean of a number that some rows do not have: both its terms are noisy.
Its interval is Fieller's (1954), the set of t for which numerator - t x denominator is within its error of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from sklar.answer.infer.effects import Floats
from sklar.answer.infer.inquiry import Codes, Inquiry
from sklar.answer.infer.onestep import Linearized, OneStep
from sklar.answer.infer.reference import Reference
from sklar.answer.infer.result import Figure, Inference
from sklar.answer.predicate import Atom, Expression, QueryError

RecordFunction = Callable[[Codes], Floats]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate, its standard error and its interval; the ends are infinite where the denominator may be zero."""

    estimate: float
    error: float
    low: float
    high: float


def linear_in(ratios: Sequence[Ratio], reference: Reference) -> Linearized:
    """Numerators and denominators, one after the other: they are linear in the shares of records."""
    functions = [each for ratio in ratios for each in (ratio.numerator, ratio.denominator) if each is not None]

    def evaluate(codes: Codes) -> Floats:
        return np.stack([function(codes) for function in functions], axis=1)

    scales = [size for ratio in ratios for size in (ratio.scale, 1.0)[: 1 + (ratio.denominator is not None)]]
    values = evaluate(reference.codes)
    return Linearized(
        values=reference.union @ values,
        by_fit=reference.weights @ values,
        influence=evaluate,
        scale=np.array(scales),
    )


def terms(ratios: Sequence[Ratio]) -> list[tuple[int, int | None]]:
    """Where the numerator and the denominator of each ratio stand in `linear_in`."""
    found: list[tuple[int, int | None]] = []
    at = 0
    for ratio in ratios:
        found.append((at, None if ratio.denominator is None else at + 1))
        at += 1 if ratio.denominator is None else 2
    return found


def gradient(values: Floats, place: tuple[int, int | None]) -> Floats:
    """The gradient of a ratio by all terms, shape (q,)."""
    slope = np.zeros(values.size)
    top, bottom = place
    if bottom is None:
        slope[top] = 1.0
        return slope
    below = _apart(float(values[bottom]))
    slope[top], slope[bottom] = 1 / below, -values[top] / below**2
    return slope


def value(values: Floats, place: tuple[int, int | None]) -> float:
    """The ratio itself."""
    top, bottom = place
    return float(values[top]) if bottom is None else float(values[top]) / _apart(float(values[bottom]))


def _apart(number: float) -> float:
    """A share that something is divided by: never zero. An interval tells that it may be."""
    return number if abs(number) > _LEAST else _LEAST


def fieller(values: Floats, covariance: Floats, place: tuple[int, int | None], quantile: float) -> Interval:
    """The interval of a ratio N / D: all t with (N - t D)^2 <= z^2 Var(N - t D).

    Infinite where D itself is within z standard errors of zero: then every ratio may be the true one.

    >>> found = fieller(np.array([5.0, 10.0]), np.diag([0.01, 0.04]), (0, 1), 1.96)
    >>> round(found.low, 4), round(found.high, 4)
    (0.473, 0.5285)
    """
    top, bottom = place
    estimate, slope = value(values, place), gradient(values, place)
    error = math.sqrt(max(float(slope @ covariance @ slope), 0.0))
    if bottom is None:
        return Interval(
            estimate=estimate, error=error, low=estimate - quantile * error, high=estimate + quantile * error
        )
    n, d = float(values[top]), float(values[bottom])
    nn, nd, dd = (float(covariance[pair]) for pair in ((top, top), (top, bottom), (bottom, bottom)))
    leading = d**2 - quantile**2 * dd
    if leading <= 0:
        return Interval(estimate=estimate, error=error, low=-math.inf, high=math.inf)
    middle = n * d - quantile**2 * nd
    root = math.sqrt(max(middle**2 - leading * (n**2 - quantile**2 * nn), 0.0))
    return Interval(estimate=estimate, error=error, low=(middle - root) / leading, high=(middle + root) / leading)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """A group of rows: its name, and for each attribute its levels as 0 and 1."""

    name: str
    levels: Mapping[int, Floats]


def answer_ratios(inquiry: Inquiry) -> Inference:
    """`mean(x)`, `share(predicate)`, `share(x)`: of all rows, or by groups; and differences from the first group."""
    ratios = asked_ratios(inquiry)
    if 2 * len(ratios) * max(len(inquiry.reference.codes), math.prod(inquiry.effects.sizes[:2])) > _MOST_NUMBERS:
        raise QueryError("these are too many groups of too many levels at once. Ask about fewer of them, with where.")
    found = inquiry.one_step(linear_in(ratios, inquiry.reference))
    figures = figures_of(inquiry, ratios, found)
    unclear = [ratio.label for ratio, clear in zip(ratios, _clear(inquiry, ratios, found), strict=True) if not clear]
    if unclear:
        listed = "; ".join(unclear[:6]) + (" and others" if len(unclear) > 6 else "")
        inquiry.cautions.append(f"too few rows to tell from noise, so nothing is known: {listed}.")
    return inquiry.inference(_stated(inquiry), figures)


def asked_ratios(inquiry: Inquiry) -> list[Ratio]:
    """What is asked of every group, group after group."""
    return [ratio for group in _groups(inquiry) for ratio in _ratios(inquiry, group)]


def figures_of(inquiry: Inquiry, ratios: Sequence[Ratio], found: OneStep) -> list[Figure]:
    """The figures of these ratios, or of their differences from the first group."""
    places = terms(ratios)
    covariance = found.covariance(population=inquiry.population)
    if not inquiry.asked.difference:
        figures = []
        for ratio, place in zip(ratios, places, strict=True):
            held = fieller(found.values, covariance, place, inquiry.quantile)
            slope = gradient(found.values, place)
            figures.append(inquiry.figure(ratio.label, held.estimate, slope, found, interval=(held.low, held.high)))
        return figures
    each = len(ratios) // math.prod(inquiry.model.schema.attributes[i].n_levels for i in inquiry.asked.by)
    clear, figures = _clear(inquiry, ratios, found), []
    for number in range(each, len(ratios)):
        base = number % each
        estimate = value(found.values, places[number]) - value(found.values, places[base])
        slope = gradient(found.values, places[number]) - gradient(found.values, places[base])
        label = f"{ratios[number].label} less {ratios[base].label}"
        known = clear[number] and clear[base]
        ends = None if known else (-math.inf, math.inf)
        figures.append(inquiry.figure(label, estimate, slope, found, interval=ends, tested=known))
    return figures


def _clear(inquiry: Inquiry, ratios: Sequence[Ratio], found: OneStep) -> list[bool]:
    """Whether each ratio's denominator can be told from zero."""
    errors = np.sqrt(np.maximum(np.diag(found.covariance(population=inquiry.population)), 0.0))
    return [below is None or bool(found.values[below] > inquiry.quantile * errors[below]) for _, below in terms(ratios)]


def _stated(inquiry: Inquiry) -> str:
    asked, names = inquiry.asked, inquiry.model.schema.names
    if asked.kind == "share":
        what = f"share of rows with {asked.event_text}"
    else:
        what = f"{'mean' if asked.kind == 'mean' else 'shares'} of {names[asked.names[0]]}"
    by = " by " + ", ".join(names[i] for i in asked.by) if asked.by else ""
    return f"{'difference of ' if asked.difference else ''}{what}{by}"


def _groups(inquiry: Inquiry) -> list[_Group]:
    schema, by = inquiry.model.schema, inquiry.asked.by
    sizes = [schema.attributes[i].n_levels for i in by]
    each = schema.attributes[inquiry.asked.names[0]].n_levels if inquiry.asked.kind == "shares" else 1
    if math.prod(sizes) * each > _MOST_FIGURES:
        raise QueryError(
            f"at most {_MOST_FIGURES:,} figures are given at once, got {math.prod(sizes) * each:,}. Ask about fewer "
            "groups, with where."
        )
    groups = []
    for levels in product(*(range(size) for size in sizes)):
        chosen = list(zip(by, levels, strict=True))
        name = ", ".join(f"{schema.names[i]} = {schema.attributes[i].levels[k]}" for i, k in chosen)
        held = {i: (np.arange(schema.attributes[i].n_levels) == k).astype(np.float64) for i, k in chosen}
        groups.append(_Group(name=name, levels=held))
    return groups


def _ratios(inquiry: Inquiry, group: _Group) -> list[Ratio]:
    """What is asked of one group."""
    asked = inquiry.asked
    everyone = not group.levels and asked.given is None

    def within(codes: Codes) -> Floats:
        held = inquiry.holds(asked.given, codes)
        for attribute, levels in group.levels.items():
            held = held * inquiry.column(codes, attribute, levels)
        return held

    def share(event: Expression, label: str) -> Ratio:
        def numerator(codes: Codes) -> Floats:
            return within(codes) * inquiry.holds(event, codes)

        return Ratio(label=label, numerator=numerator, denominator=None if everyone else within)

    if asked.event is not None:
        return [share(asked.event, group.name or "share")]
    attribute = inquiry.model.schema.attributes[asked.names[0]]
    if asked.kind == "shares":
        after = f", {group.name}" if group.name else ""
        return [
            share(
                Atom(attribute=asked.names[0], levels=np.arange(attribute.n_levels) == code),
                f"{attribute.name} = {level}{after}",
            )
            for code, level in enumerate(attribute.levels)
        ]
    own = inquiry.scores(asked.names[0])

    def total(codes: Codes) -> Floats:
        return within(codes) * inquiry.column(codes, asked.names[0], own.filled)

    def known(codes: Codes) -> Floats:
        return within(codes) * inquiry.column(codes, asked.names[0], own.known)

    whole = everyone and bool(own.known.all())
    scale = float(np.abs(own.filled).max())
    return [Ratio(label=group.name or "mean", numerator=total, denominator=None if whole else known, scale=scale)]
