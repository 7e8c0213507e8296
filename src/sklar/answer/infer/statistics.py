"""The statistics that can be asked for, as functions of means that noisy tables tell, or linearized around the model.
The derivation: docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from sklar.answer.effects import Codes, Floats, Subset, normal_quantile
from sklar.answer.infer.inquiry import Figure, Inference, Inquiry, Interval, RecordFunction
from sklar.answer.infer.inside import inside_of, unit_of
from sklar.answer.infer.onestep import MOST_LISTED, Reference, grid, means_of
from sklar.answer.infer.words import FAMILIES, QUANTILES, Factor, Measure, Product, is_plain, shown
from sklar.answer.predicate import QueryError, lift
from sklar.machine.wording import said

# A statistic of weights on records, shape (records,): q numbers.
Weighed = Callable[[Floats], Floats]

_MOST_FIGURES = 1_000
# Functions of records that are held at once: 400 MB.
_MOST_NUMBERS = 50_000_000
_LEAST = 1e-12
# The smallest eigenvalue of the moment matrix must stand so many of its standard errors above zero.
CLEAR = 4.0
# Categories with fewer standard errors of rows than this are taken together.
CLEAR_LEVEL = 8.0
_NEWTON = 30
# The covariance of an interaction is one square matrix of so many contrasts.
_MOST_CONTRASTS = 3_000
# Steps to an end of an ellipsoid's range, and those of derivatives, in standard errors.
_ROUNDS, _NEAR = 12, 1e-3
# One-step estimates of a regression, each around the one before, until they move less than this many standard errors.
_REPEATED, _NEAR_ENOUGH = 12, 0.1
_ERRORS = ("standard_error", "noise_error", "sampling_error", "model_error")
_ANY = (-math.inf, math.inf)


class Word(NamedTuple):
    """A measure as a function of means, shape (k, figures), which of them it divides by, and its possible values."""

    value: Callable[[Floats], Floats]
    below: tuple[int, ...]
    possible: tuple[float, float]


def _ratio(means: Floats) -> Floats:
    return np.asarray(means[0] / means[1])


def _deviation(means: Floats) -> Floats:
    square, mean, all_ = means
    return np.asarray(np.sqrt(np.maximum(square / all_ - (mean / all_) ** 2, 0.0)))


def _correlation(means: Floats) -> Floats:
    both, one, other, x, y, all_ = means
    return np.asarray((both * all_ - x * y) / np.sqrt((one * all_ - x**2) * (other * all_ - y**2)))


_WORDS = {
    "mean": Word(_ratio, (1,), _ANY),
    "share": Word(_ratio, (1,), (0.0, 1.0)),
    "odds": Word(_ratio, (1,), (0.0, math.inf)),
    "sum": Word(lambda means: means[0], (), _ANY),
    "sd": Word(_deviation, (2,), (0.0, math.inf)),
    "corr": Word(_correlation, (5,), (-1.0, 1.0)),
}


class Moments(NamedTuple):
    """Figures, as functions of means of `columns` over records: figure f is the word's value of the means `at[f]`."""

    names: list[str]
    columns: RecordFunction
    at: Codes
    word: Word


def moments_of(inquiry: Inquiry) -> Moments:
    """The measure that a question asks for, or two that it divides, of every group, or compared with the first."""
    asked, groups = inquiry.asked, list(groups_of(inquiry))
    own = [_moments_of(inquiry, measure) for measure in asked.measures]
    (names, _, at, word), width = own[0], sum(int(each.at.max()) + 1 for each in own)
    if len(own) > 1:
        at, word = np.hstack([at, own[1].at + int(at.max()) + 1]), _joined(word, own[1].word, at.shape[1], "ratio")
    each = len(names)
    labels = [", ".join(filter(None, (label, name))) for name, _ in groups for label in names]
    places = np.concatenate([at + width * number for number in range(len(groups))])
    if asked.compared:
        joins = " less " if asked.compared == "difference" else " over "
        labels = [label + joins + labels[number % each] for number, label in enumerate(labels)][each:]
        places = np.hstack([places, np.tile(places[:each], (len(groups), 1))])[each:]
        word = _joined(word, word, at.shape[1], asked.compared)

    def columns(codes: Codes) -> Floats:
        block = np.hstack([one.columns(codes) for one in own])
        return np.hstack([mask[:, None] * block for mask in _masks(inquiry, groups, codes)])

    return Moments([label or asked.measures[0].text for label in labels], columns, places, word)


def _joined(one: Word, other: Word, size: int, how: str) -> Word:
    """One measure of `size` means over another one, or less it."""
    (low, high), (least, most) = one.possible, other.possible
    if how == "difference":
        below = (*one.below, *(size + each for each in other.below))
        value = lambda means: one.value(means[:size]) - other.value(means[size:])  # noqa: E731
        return Word(value, below, (low - most, high - least))
    below = (*one.below, size, *(size + each for each in other.below))
    value = lambda means: one.value(means[:size]) / other.value(means[size:])  # noqa: E731
    return Word(value, below, (0.0, math.inf) if min(low, least) >= 0 else _ANY)


def _moments_of(inquiry: Inquiry, measure: Measure) -> Moments:
    """A measure of all records."""
    word = _WORDS[measure.word]
    if measure.levels is not None:
        index, attribute = measure.levels, inquiry.model.schema.attributes[measure.levels]
        names, size = [f"{attribute.name} = {level}" for level in attribute.levels], attribute.n_levels
        eye = np.column_stack([np.eye(size), np.ones(size)])
        at = np.column_stack([np.arange(size), np.full(size, size)])
        return Moments(names, lambda codes: eye[inquiry.levels(codes, index)], at, word)
    if measure.event is not None:

        def shares(codes: Codes) -> Floats:
            held = inquiry.holds(measure.event, codes)
            return np.column_stack([held, 1 - held if measure.word == "odds" else np.ones(len(codes))])

        return Moments([""], shares, np.array([[0, 1]]), word)
    low, high = inquiry.range(measure.products[0])
    if measure.word in ("mean", "sum"):
        n = inquiry.effects.n_rows if measure.word == "sum" else 1
        possible = (low, high) if n == 1 else (n * min(low, 0.0), n * max(high, 0.0))
        word = word._replace(possible=possible)

    def columns(codes: Codes) -> Floats:
        values = np.stack([inquiry.product(each, codes) for each in measure.products])
        known = np.isfinite(values).all(axis=0)
        if measure.word in ("mean", "sum"):
            return np.column_stack([n * np.where(known, values[0], 0.0), known])[:, :size]
        # Nearer to zero squares have more digits.
        x = np.where(known, values - centers[:, None], 0.0)
        powers = [x[0] * x[1], x[0] ** 2, x[1] ** 2, x[0], x[1]] if len(x) > 1 else [x[0] ** 2, x[0]]
        return np.column_stack([*powers, known])

    here = np.stack([inquiry.product(each, inquiry.reference.codes) for each in measure.products])
    centers = np.nanmean(np.where(np.isfinite(here).any(axis=1, keepdims=True), here, 0.0), axis=1)
    size = {"mean": 2, "sum": 1, "sd": 3, "corr": 6}[measure.word]
    return Moments([""], columns, np.arange(size)[None], word)


def gradient(value: Callable[[Floats], Floats], at: Floats, errors: Floats) -> Floats:
    """The slopes of figures by their means, shape (figures, k), at `at`."""
    slopes = np.zeros_like(at)
    for place in range(at.shape[1]):
        moved = np.zeros_like(at)
        moved[:, place] = _NEAR * errors[:, place] + 1e-7 * np.abs(at[:, place]) + _LEAST
        slopes[:, place] = (value((at + moved).T) - value((at - moved).T)) / (2 * moved[:, place])
    return np.where(np.isfinite(slopes), slopes, 0.0)


def reached(word: Word, at: Floats, covariance: Floats, quantile: float) -> Floats:
    """The least and the largest value of figures over the ellipsoids of `quantile` standard errors around their means,
    shape (figures, 2); infinite where what is divided by may be zero there, as then any value may be true.
    """
    errors = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0))
    below = list(word.below)
    clear = np.all(np.abs(at[:, below]) > quantile * errors[:, below], axis=1)
    ends = np.tile(word.value(at.T)[:, None], 2)
    for sign in (-1, 1):
        place = at
        for _ in range(_ROUNDS):
            moved = np.einsum("fij,fj->fi", covariance, gradient(word.value, place, errors))
            lengths = np.sqrt(np.maximum(np.sum(moved * gradient(word.value, place, errors), axis=1), 1e-300))
            place, before = at + sign * quantile * moved / lengths[:, None], ends
            # Where denominators grow on the way, the farthest value lies inside.
            for part in (0.25, 0.5, 0.75, 1.0):
                found = word.value((at + part * (place - at)).T)
                ends = np.stack([np.minimum(ends[:, 0], found), np.maximum(ends[:, 1], found)], axis=1)
            if np.all(np.abs(ends - before) <= 1e-6 * np.ptp(ends, axis=1)[:, None]):
                break
    known = clear & np.isfinite(ends).all(axis=1)
    return np.where(known[:, None], ends, np.array([-math.inf, math.inf]))


def answer_measures(inquiry: Inquiry) -> Inference:
    """A measure, or two divided, by groups or not, and compared or not."""
    asked, reference = inquiry.asked, inquiry.reference
    moments = moments_of(inquiry)
    size = int(moments.at.max()) + 1
    if size * max(len(reference.codes), math.prod(inquiry.effects.sizes[:2])) > _MOST_NUMBERS:
        raise QueryError("these are too many groups of too many levels at once. Ask about fewer of them, with where.")
    step, word = inquiry.linear(moments.columns), moments.word

    def evaluate() -> Floats:
        means = reference.union @ inquiry.averaged(moments.columns)(reference.codes)
        with np.errstate(all="ignore"):
            return word.value(means[moments.at].T)

    at, covariance = step.values[moments.at], step.covariance(population=inquiry.population)
    inner = covariance[moments.at[:, :, None], moments.at[:, None, :]]
    with np.errstate(all="ignore"):
        values = word.value(at.T)
        slopes = gradient(word.value, at, np.sqrt(np.maximum(np.diagonal(inner, axis1=1, axis2=2), 0.0)))
        ends = reached(word, at, inner, inquiry.quantile)
    clear = np.asarray(np.isfinite(ends).all(axis=1))
    inquiry.caution_few([name for name, known in zip(moments.names, clear, strict=True) if not known])
    # Nothing but the model says what groups are that noise hides.
    estimates = np.where(clear, values, np.nan_to_num(evaluate()))

    def moved(codes: Codes) -> Floats:
        columns, terms = moments.columns(codes), zip(moments.at.T, slopes.T, strict=True)
        return np.asarray(sum(columns[:, own] * slope for own, slope in terms))

    figured = inquiry.averaged(moved)
    unknown = inquiry.unknown(evaluate, figured)
    # A ratio whose denominator is off by a part of itself moves by so much more than its slope says.
    parts = (np.zeros(size) + inquiry.cut_off(inquiry.averaged(moments.columns))) / np.maximum(
        np.abs(step.values), _LEAST
    )
    rests = 1 - parts[moments.at[:, list(word.below)]].max(axis=1, initial=0.0)
    unknown = unknown._replace(off=np.where(rests > 0, unknown.off / np.maximum(rests, _LEAST), np.inf))
    reach = inquiry.quantile * np.sqrt(np.diag(unknown.covariance))
    tested = asked.compared == "difference" or asked.measures[0].word == "corr"
    figures = []
    for number, name in enumerate(moments.names):
        own = moments.at[number]
        simple = word.value is _ratio and moments.at.shape[1] == 2
        function = inquiry.averaged(lambda codes, own=own: moments.columns(codes)[:, own])  # type: ignore[misc]
        figures.append(
            inquiry.figure(
                name,
                float(estimates[number]),
                slopes[number],
                step.of(own),
                ends=(float(ends[number, 0]), float(ends[number, 1])),
                tested=tested and len(asked.measures) == 1,
                bounds=partial(bounds_of, inquiry, function, reach[number]) if simple else lambda: None,
                unknown=unknown,
                at=number,
                possible=word.possible,
            )
        )
    return inquiry.inference(title_of(inquiry), figures)


def title_of(inquiry: Inquiry) -> str:
    """What is asked, in words."""
    asked, names = inquiry.asked, inquiry.model.schema.names
    what = f"{asked.compared} of " if asked.compared else ""
    what += " over ".join(measure.text for measure in asked.measures)
    what += "".join(f" limited to {limits}" for limits in inquiry.limits.values())
    by = " by " + ", ".join(names[i] for i in asked.by) if asked.by else ""
    return what + by + ("" if asked.weight is None else f" weighted by {names[asked.weight]}")


def bounds_of(inquiry: Inquiry, function: RecordFunction, reach_inside: float) -> Interval:
    """What the noisy two-way tables leave open of the ratio of two means, whatever larger tables are; None where it is
    too much work. `function` is of records, shape (records, 2), and `reach_inside` how far bins reach to either side.

    The mean of a function is at least that of its least value over all other attributes, given two of them, and at most
    that of the largest: means of functions of one pair, which are known up to noise. Of all pairs the best count, all
    at once with probability `level` (Bonferroni). Of a conjunction the upper one is Frechet's bound, widened.
    """
    effects, pairs = inquiry.effects, list(combinations(range(len(inquiry.where)), 2))
    if math.prod(effects.sizes) > MOST_LISTED or not {*combinations(inquiry.where, 2)} <= {*effects.by_set}:
        return None
    reach = normal_quantile(1 - (1 - inquiry.level) / (4 * len(pairs)))
    top, bottom = function(grid(effects.sizes)).T.reshape(2, *effects.sizes)

    def ends(table: Floats) -> tuple[float, float]:
        found = []
        for i, j in pairs:
            others = tuple(axis for axis in range(table.ndim) if axis not in (i, j))
            both = np.stack([table.min(axis=others), table.max(axis=others)])
            means, noise = means_of({(inquiry.where[i], inquiry.where[j]): both}, effects)
            # A function's variance is at most a quarter of its squared range.
            sampling = inquiry.population * np.ptp(both, axis=(1, 2)) ** 2 / (4 * effects.n_rows)
            found.append(means + reach * np.sqrt(np.diag(noise) + sampling) * [-1, 1])
        lows, highs = np.transpose(found)
        return float(max(lows.max(), table.min())), float(min(highs.min(), table.max()))

    (low, high), (least, most) = ends(top), ends(bottom)
    if least <= 0:
        return None
    return min(low / least, low / most) - reach_inside, max(high / least, high / most) + reach_inside


def groups_of(inquiry: Inquiry) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """The groups that are asked about: each one's name, and its level of each attribute."""
    asked, attributes = inquiry.asked, inquiry.model.schema.attributes
    sizes = [attributes[i].n_levels for i in asked.by]
    levels = asked.measures[0].levels
    number = math.prod(sizes) * (1 if levels is None else attributes[levels].n_levels)
    if number > _MOST_FIGURES:
        raise QueryError(said("answer.many_figures", most=_MOST_FIGURES, got=number))
    for codes in product(*(range(size) for size in sizes)):
        group = list(zip(asked.by, codes, strict=True))
        yield ", ".join(f"{attributes[i].name} = {attributes[i].levels[code]}" for i, code in group), group


def _masks(inquiry: Inquiry, groups: Sequence[tuple[str, list[tuple[int, int]]]], codes: Codes) -> list[Floats]:
    """The weights of records in each group."""
    kept = inquiry.kept(codes)
    return [math.prod((inquiry.levels(codes, i) == code for i, code in group), start=kept) for _, group in groups]


def weigh(inquiry: Inquiry, codes: Codes) -> tuple[list[str], Weighed]:
    """The figures that a question asks for, and their values as a function of the weights of records."""
    asked = inquiry.asked
    if asked.kind == "formula":
        design = design_of(inquiry)
        coefficients, scale = coefficients_of(design, codes), np.exp if asked.compared else np.asarray
        return ["(intercept)", *design.names], lambda weights: scale(coefficients(weights))
    if asked.measures[0].word not in QUANTILES:
        moments = moments_of(inquiry)
        columns = inquiry.averaged(moments.columns)(codes)
        return moments.names, lambda weights: moments.word.value((weights @ columns)[moments.at].T)
    groups, values = list(groups_of(inquiry)), inquiry.product(asked.measures[0].products[0], codes)
    order, masks = np.argsort(values)[: np.isfinite(values).sum()], _masks(inquiry, groups, codes)

    def quantiles(weights: Floats) -> Floats:
        upto = [np.cumsum((weights * mask)[order]) for mask in masks]
        places = [np.searchsorted(each, asked.measures[0].part * each[-1]) for each in upto]
        return values[order][np.minimum(places, order.size - 1)]

    return [name or asked.measures[0].text for name, _ in groups], quantiles


def answer_quantiles(inquiry: Inquiry) -> Inference:
    """Quantiles of a number, by groups or not: where the share of rows below is what is asked, up to its error.

    The share of rows below an edge is known whatever lies inside bins, so an interval ends at edges (Woodruff 1952).
    """
    measure, groups = inquiry.asked.measures[0], list(groups_of(inquiry))
    ((_, index),), part = measure.products[0], measure.part
    lows, highs = _ends(inquiry, index)
    apart = [not np.any((lows < high) & (high < highs)) for high in highs]
    cuts = np.unique(highs[np.isfinite(highs) & apart])
    steps = np.where(np.isfinite(highs), np.searchsorted(cuts, highs), -1)
    lows = np.array([lows[steps == k].min() for k in range(cuts.size)])

    def influence(codes: Codes) -> Floats:
        """Rows up to each cut less `part` of all that have a number, then these, group after group."""
        own, terms = steps[inquiry.levels(codes, index)], list[Floats]()
        for mask in _masks(inquiry, groups, codes):
            terms += [mask * (own >= 0) * ((own <= k) - part) for k in range(cuts.size - 1)] + [mask * (own >= 0)]
        return np.stack(terms, axis=1)

    step = inquiry.one_step(inquiry.reference.union @ influence(inquiry.reference.codes), influence)
    errors = np.sqrt(np.maximum(np.diag(step.covariance(population=inquiry.population)), 1e-300))
    reaches = inquiry.quantile * errors + inquiry.cut_off(influence)
    figures, few = [], []
    for number, (name, _) in enumerate(groups):
        own = slice(number * cuts.size, (number + 1) * cuts.size)
        *above, held = step.values[own]
        *reach, clear = reaches[own]
        passed = np.maximum.accumulate([-part * held, *above, (1 - part) * held])
        k = int(np.clip(np.searchsorted(passed[1:], 0.0), 0, cuts.size - 1))
        inside = np.clip(-passed[k] / max(passed[k + 1] - passed[k], 1e-300), 0.0, 1.0)
        low = next((i for i, each in enumerate(np.add(above, reach)) if each >= 0), cuts.size - 1)
        high = max((i + 1 for i, each in enumerate(np.subtract(above, reach)) if each < 0), default=0)
        ends = lows[min(low, k)], cuts[max(high, k)]
        few += [name or measure.text] if held <= clear else []
        slope, at = np.zeros(step.values.size), own.start + min(k, cuts.size - 2)
        slope[at] = (ends[1] - ends[0]) / (2 * inquiry.quantile * errors[at])
        estimate = float(lows[k] + inside * (cuts[k] - lows[k]))
        known = ends if held > clear else (-math.inf, math.inf)
        figure = inquiry.figure(name or measure.text, estimate, slope, step, ends=known)
        figures.append(replace(figure, bounds=bool(inquiry.asked.cuts) and figure.low is not None))
    inquiry.caution_few(few)
    return inquiry.inference(title_of(inquiry), figures)


def _ends(inquiry: Inquiry, index: int) -> tuple[Floats, Floats]:
    """Between which numbers each level lies, NaN where it has none."""
    attribute, (values, _, inside) = inquiry.model.schema.attributes[index], inquiry.scores(index)
    if not attribute.binned or isinstance(inquiry.declared.get(attribute.name), Mapping):
        return values, values
    inside = inside or inside_of(attribute, attribute, np.arange(attribute.n_levels), None)
    limits = np.array(inquiry.limited.get(attribute.name, _ANY)) / unit_of(attribute)[0]
    lows, highs = (np.clip(each, *limits) for each in (inside.lows[:, 0], inside.highs[:, -1]))
    return np.where(np.isnan(lows), values, lows), np.where(np.isnan(highs), values, highs)


def answer_independence(inquiry: Inquiry) -> Inference:
    """`independent(x, y)`."""
    schema, pair = inquiry.model.schema, tuple(sorted({inquiry.source(i) for i in inquiry.asked.names}))
    names = " and ".join(f"'{schema.names[i]}'" for i in inquiry.asked.names)
    if len(pair) < 2:
        raise QueryError(f"{names} must be measured apart, and a rule determines one by the other. Name another.")
    sizes = [inquiry.reference.sizes[inquiry.where.index(i)] for i in pair]
    if min(sizes) < 2:
        raise QueryError(f"{names} must have two levels or more each, to depend on each other. Name another.")
    degrees = math.prod(size - 1 for size in sizes)
    if degrees > (most := min(_MOST_CONTRASTS, _MOST_NUMBERS // len(inquiry.reference.codes))):
        raise QueryError(said("answer.many_contrasts", most=most, got=degrees))
    if pair not in inquiry.effects.by_set:
        raise QueryError("the model holds no two-way tables, so independence cannot be tested.")
    within = partial(inquiry.holds, inquiry.asked.given)
    step = inquiry.one_step(*interaction(inquiry.reference, pair, within))
    inquiry.notes += [
        f"'{name}' was not measured; tested is '{schema.determined[name]}', which determines it"
        for name in (schema.names[i] for i in inquiry.asked.names)
        if name in schema.determined
    ]
    test = inquiry.test(step.values, step.covariance(population=inquiry.population), step.part_measured())
    return inquiry.inference(f"independence of {names.replace(chr(39), '')}", test=test)


def interaction(reference: Reference, pair: Subset, within: RecordFunction) -> tuple[Floats, RecordFunction]:
    """The shares of cells of two attributes less the products of their margins' shares, for all levels but the first.

    And their influence function: with p and q the margins of records `within`, it is (1_x - p) (1_y - q), less its
    mean, over the share of them.
    """
    axes = [reference.where.index(i) for i in pair]

    def levels(codes: Codes) -> list[Floats]:
        return [np.eye(reference.sizes[axis])[codes[:, axis], 1:] for axis in axes]

    kept, (one, other) = reference.union * within(reference.codes), levels(reference.codes)
    share = max(float(kept.sum()), _LEAST)
    p, q = kept @ one / share, kept @ other / share
    at = (kept * one.T @ other / share - np.outer(p, q)).ravel()

    def influence(codes: Codes) -> Floats:
        one, other = levels(codes)
        apart = ((one - p)[:, :, None] * (other - q)[:, None, :]).reshape(len(codes), -1)
        return np.asarray((apart - at) * (within(codes) / share)[:, None])

    return at, influence


def answer_formula(inquiry: Inquiry) -> Inference:
    """`y ~ x + z`: a linear, logistic or Poisson regression; `ratio of` one: its coefficients as ratios."""
    asked, design = inquiry.asked, design_of(inquiry)
    of, on = asked.measures[0].attributes, {factor.attribute for term in asked.terms for factor in term}
    pairs = {tuple(sorted({inquiry.source(i), inquiry.source(j)})) for i in of for j in on}
    if not pairs <= set(inquiry.effects.by_set):
        raise QueryError("a regression needs two-way tables, and the model holds none. Ask for means or shares.")
    clear = clearness(design)
    if clear < CLEAR:
        raise QueryError(said("answer.unclear", least=CLEAR, got=clear))
    reference = inquiry.reference
    values = coefficients_of(design, reference.codes)(reference.union)
    for _ in range(_REPEATED):
        influence, before = influence_of_formula(design, values), values
        step = inquiry.one_step(before + reference.union @ influence(reference.codes), influence)
        values, errors = step.values, np.sqrt(np.diag(step.covariance(population=inquiry.population)))
        if np.all(np.abs(values - before) <= _NEAR_ENOUGH * errors):
            break
    else:
        raise QueryError(said("answer.unsettled"))
    unknown = inquiry.unknown(lambda: coefficients_of(design, reference.codes)(reference.union), influence)
    held = float(reference.union @ inquiry.kept(reference.codes))
    rest = 1 - float(np.max(inquiry.cut_off(lambda codes: inquiry.kept(codes)[:, None]))) / max(held, _LEAST)
    unknown = unknown._replace(off=unknown.off / rest if rest > 0 else unknown.off + np.inf)
    figures = [
        inquiry.figure(
            name, float(step.values[at]), np.eye(values.size)[at], step, tested=at > 0, unknown=unknown, at=at
        )
        for at, name in enumerate(["(intercept)", *design.names])
    ]
    joint, start = dict[str, Any](), 1
    whole = step.covariance(population=inquiry.population) + unknown.covariance
    for product_, term in zip(asked.terms, design.terms, strict=True):
        own = slice(start, start + len(term.names))
        start = own.stop
        if len(term.names) > 1 and all(each.low is not None and not each.bounds for each in figures[own]):
            test = inquiry.test(step.values[own], whole[own, own], step.part_measured(own))
            joint |= {} if test is None else {shown(product_, inquiry.model.schema): test}
    if np.isnan(design.columns(inquiry.reference.codes)).any():
        inquiry.notes.append("rows in which one of these attributes is missing are left out")
    kinds = {"logistic": "of the log odds of", "Poisson": "of the log of the mean of", "linear": "of"}
    ratios = ""
    if asked.compared:
        ratios = "odds ratios of the " if design.family == "logistic" else "rate ratios of the "
        # Tested were coefficients, against zero.
        figures = [exponential(figure) for figure in figures]
    terms = ", ".join(shown(each, inquiry.model.schema) for each in asked.terms)
    what = f"{ratios}{design.family} regression {kinds[design.family]} {design.outcome.names[0]} on {terms}"
    weight = "" if asked.weight is None else f" weighted by {inquiry.model.schema.names[asked.weight]}"
    return inquiry.inference(what + weight, figures, joint=joint)


def exponential(figure: Figure) -> Figure:
    """The ratio that a coefficient says: ends are moved with it, errors to first order."""
    ratio, ends = math.exp(min(figure.estimate, 500.0)), ("low", "high")
    moved: dict[str, Any] = {
        end: at if at is None else math.exp(min(at, 500.0)) for end in ends for at in [getattr(figure, end)]
    }
    moved |= {each: at if at is None else ratio * at for each in _ERRORS for at in [getattr(figure, each)]}
    return replace(figure, estimate=ratio, **moved)


class Term(NamedTuple):
    """Columns of records, shape (records, k), NaN where they have no value, and their names."""

    names: tuple[str, ...]
    columns: RecordFunction


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A regression that a question asks for: its outcome (one column), the terms of its regressors, its family."""

    inquiry: Inquiry
    outcome: Term
    terms: tuple[Term, ...]
    family: str

    @property
    def names(self) -> list[str]:
        """Of all columns but the intercept's."""
        return [name for term in self.terms for name in term.names]

    def columns(self, codes: Codes) -> Floats:
        """Regressors, then the outcome."""
        return np.concatenate([term.columns(codes) for term in (*self.terms, self.outcome)], axis=1)

    def records(self, codes: Codes) -> Records:
        """What a regression sees of these codes, shape (records, attributes)."""
        columns = self.columns(codes)
        known = np.asarray(np.isfinite(columns).all(axis=1))
        columns = np.where(known[:, None], columns, 0.0)
        x = np.column_stack([np.ones(len(codes)), columns[:, :-1]])
        return Records(x, columns[:, -1], known * self.inquiry.kept(codes))


class Records(NamedTuple):
    """The columns of a regression on records: the design matrix, the outcome, and the weight of each in it."""

    x: Floats
    y: Floats
    kept: Floats


def design_of(inquiry: Inquiry) -> Design:
    """The regression that is asked for."""
    asked, schema = inquiry.asked, inquiry.model.schema
    outcome, family = _outcome(inquiry)
    if asked.compared and family == "linear":
        raise QueryError("a linear regression has no ratios, only logistic and Poisson ones. Remove 'ratio of'.")
    decided = {inquiry.source(i) for i in asked.measures[0].attributes}
    for i in (factor.attribute for term in asked.terms for factor in term):
        if inquiry.source(i) in decided:
            raise QueryError(f"the outcome is decided by '{schema.names[i]}' or decides it. Leave that name out.")
    return Design(inquiry, outcome, tuple(_term(inquiry, term) for term in asked.terms), family)


def _outcome(inquiry: Inquiry) -> tuple[Term, str]:
    """The outcome, its name in words, and the family."""
    asked, schema = inquiry.asked, inquiry.model.schema
    outcome, family = asked.measures[0], FAMILIES.get(asked.family, "")
    if outcome.event is not None:
        over = lift(outcome.event, inquiry.finer).traced(inquiry.finer.schema).attributes
        if len(over) > 1:
            raise QueryError(f"an outcome is a predicate about one attribute, got one of {len(over)}. Ask about one.")
        return Term((outcome.text,), lambda codes: inquiry.holds(outcome.event, codes)[:, None]), family or "logistic"
    (product_,) = outcome.products
    attribute = schema.attributes[product_[0].attribute]
    number = inquiry.is_number(attribute) or not is_plain(product_)
    if number and (family not in ("", "logistic") or not attribute.boolean or attribute.name in inquiry.declared):
        if family == "logistic":
            raise QueryError(f"a logistic regression is of a yes or no, and '{attribute.name}' is a number. Use ols.")
        return _number(inquiry, product_), family or "linear"
    values = attribute.n_values
    if values != 2 or family not in ("", "logistic"):
        raise QueryError(said("answer.no_outcome", name=attribute.name, number=values, level=attribute.levels[0]))
    meant = np.where(np.arange(attribute.n_levels) < values, np.arange(attribute.n_levels) == 1, np.nan)
    index, name = product_[0].attribute, f"{attribute.name} = {attribute.levels[1]}"
    return Term((name,), lambda codes: meant[inquiry.levels(codes, index)][:, None]), "logistic"


def _number(inquiry: Inquiry, product_: Product) -> Term:
    return Term((shown(product_, inquiry.model.schema),), lambda codes: inquiry.product(product_, codes)[:, None])


def _term(inquiry: Inquiry, product_: Product) -> Term:
    """Numbers as one column, their product; categories as their own columns; beside others, all products of columns."""
    attributes = inquiry.model.schema.attributes
    blocks = []
    numbers = tuple(
        f for f in product_ if f.function != "C" and (f.function or inquiry.is_number(attributes[f.attribute]))
    )
    blocks += [_number(inquiry, numbers)] if numbers else []
    blocks += [_categories(inquiry, factor) for factor in product_ if factor not in numbers]

    def columns(codes: Codes) -> Floats:
        found = np.ones((len(codes), 1))
        for block in blocks:
            found = (found[:, :, None] * block.columns(codes)[:, None, :]).reshape(len(codes), -1)
        return found

    return Term(tuple(":".join(names) for names in product(*(block.names for block in blocks))), columns)


def _categories(inquiry: Inquiry, factor: Factor) -> Term:
    """One column each, but for the first.

    Categories with too few rows have one column together; where even that has too few, they count as the first.
    """
    schema, index = inquiry.model.schema, factor.attribute
    attribute, (source, levels) = schema.attributes[index], schema.sources[index]
    eye = np.eye(attribute.n_levels)
    if attribute.missing_code is not None:
        eye[attribute.missing_code] = np.nan
    known = np.isfinite(np.diag(eye))
    margin = inquiry.effects.by_set[(source,)]
    shares = np.bincount(levels, 1 / margin.values.size + margin.values, attribute.n_levels)
    least = CLEAR_LEVEL * math.sqrt(margin.variance)
    clear, rare = (np.flatnonzero(known & held).tolist() for held in (shares >= least, shares < least))
    dropped = bool(rare) and float(shares[rare].sum()) < least * math.sqrt(len(rare))
    own = {attribute.levels[k]: eye[:, k] for k in clear[1:]}
    if rare and not dropped:
        name = attribute.levels[rare[0]] if len(rare) == 1 else f"{len(rare)} rare levels"
        own[name] = eye[:, rare].sum(axis=1)
    if not clear or not own:
        raise QueryError("a regressor needs two categories with far more rows than noise. Leave it out.")
    note = f"'{attribute.name}' is compared with '{attribute.levels[clear[0]]}'"
    if rare:
        listed = ", ".join(attribute.levels[k] for k in rare[:6]) + (" and others" if len(rare) > 6 else "")
        note += f"; too rare for a coefficient of their own: {listed}"
        note += ", counted as that level" if dropped else ", taken together" if len(rare) > 1 else ""
    inquiry.notes.append(note)
    table = np.stack(list(own.values()), axis=1)
    return Term(tuple(f"{attribute.name} = {name}" for name in own), lambda codes: table[inquiry.levels(codes, index)])


def _mean(x: Floats, family: str) -> tuple[Floats, Floats]:
    """The mean that a linear predictor says, and its derivative."""
    if family == "linear":
        return x, np.ones_like(x)
    if family == "Poisson":
        mean = np.exp(np.clip(x, -500, 500))
        return mean, mean
    p = 1 / (1 + np.exp(-np.clip(x, -500, 500)))
    return p, p * (1 - p)


def solve(records: Records, weights: Floats, family: str, names: Sequence[str] = ()) -> Floats:
    """Coefficients, shape (q,), by Newton's method: one step of it in a linear regression."""
    x, y, kept = records
    weights = weights * kept
    linear = family == "linear"
    solution = np.zeros(x.shape[1])
    if family == "Poisson":
        if np.any(y[kept > 0] < 0):
            raise QueryError("a Poisson regression is of numbers that are not negative. Use ols.")
        middle = (y + weights @ y / max(float(weights.sum()), 1e-300)) / 2
        solution = solve(Records(x, np.log(np.maximum(middle, 1e-9)), kept), weights, "linear")
    for _ in range(_NEWTON):
        p, slope = _mean(x @ solution, family)
        moments = (x * (weights * slope)[:, None]).T @ x
        scale = np.sqrt(np.maximum(np.diag(moments), 1e-300))
        values, vectors = np.linalg.eigh(moments / np.outer(scale, scale))
        if values[0] < 1e-9:
            raise QueryError(
                said("answer.determined" if linear else "answer.separated", names=_largest(vectors, names))
            )
        inverse = np.asarray((vectors / values) @ vectors.T / np.outer(scale, scale))
        step = inverse @ (x.T @ (weights * (y - p)))
        solution = solution + (step if linear else np.clip(step, -5.0, 5.0))
        if linear or np.abs(step).max() < 1e-9 * (1 + np.abs(solution).max()):
            return solution
    raise QueryError(said("answer.separated", names=_largest(vectors, names)))


def _largest(vectors: Floats, names: Sequence[str]) -> str:
    """The columns that are determined by one another most of all."""
    size = np.abs(vectors[:, 0])
    found = [name for name, each in zip(["the rest", *names], size, strict=False) if each > size.max() / 2]
    return " and ".join(f"'{name}'" for name in found[:4])


def coefficients_of(design: Design, codes: Codes) -> Weighed:
    """The coefficients of a regression as a function of the weights of records."""
    runs = [(design.records(codes), weights) for weights in design.inquiry.runs(codes)]
    x, y, kept = (np.concatenate(each) for each in zip(*(own for own, _ in runs), strict=True))
    records = Records(x, y, kept * np.concatenate([weights for _, weights in runs]))
    return lambda weights: solve(records, np.tile(weights, len(runs)), design.family, design.names)


def influence_of_formula(design: Design, solution: Floats) -> RecordFunction:
    """The influence function of the coefficients of a regression at the model, were they the solution."""
    inquiry, codes = design.inquiry, design.inquiry.reference.codes

    moments = np.zeros((solution.size, solution.size))
    for weights in inquiry.runs(codes):
        x, _, kept = design.records(codes)
        curved = inquiry.reference.union * weights * kept * _mean(x @ solution, design.family)[1]
        moments += (x * curved[:, None]).T @ x
    scale = np.sqrt(np.outer(np.diag(moments), np.diag(moments)))
    if not np.all(scale > 0) or np.linalg.cond(moments / scale) > 1e9:
        raise QueryError(said("answer.unsettled"))
    inverse = np.linalg.inv(moments)

    def influence(codes: Codes) -> Floats:
        x, y, kept = design.records(codes)
        return np.asarray((x * (kept * (y - _mean(x @ solution, design.family)[0]))[:, None]) @ inverse)

    return inquiry.averaged(influence)


def clearness(design: Design) -> float:
    """By how many standard errors of noise the smallest eigenvalue of the standardized regressors is above zero."""
    reference = design.inquiry.reference
    x, _, kept = design.records(reference.codes)
    weights = reference.union * kept
    center = weights @ x[:, 1:] / weights.sum()
    spread = np.sqrt(np.maximum(weights @ (x[:, 1:] - center) ** 2, 1e-12))
    standard = (x[:, 1:] - center) / spread
    smallest = np.linalg.eigh((standard * weights[:, None]).T @ standard)[1][:, 0]

    def square(codes: Codes) -> Floats:
        x, _, kept = design.records(codes)
        return np.asarray(kept * ((x[:, 1:] - center) / spread @ smallest) ** 2)[:, None]

    step = design.inquiry.linear(square)
    return float(step.values[0] / max(math.sqrt(step.noise[0, 0]), 1e-300))
