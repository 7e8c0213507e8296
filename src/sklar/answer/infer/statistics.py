"""The statistics that can be asked for, linearized around the fitted model.

Shares and means, of all rows or of groups, are ratios of linear functionals: the share of a group is one, and so is the
mean of a number that some rows do not have. Both its terms are noisy. Its interval is Fieller's (1954), the set of t
for which numerator - t x denominator is within its error of zero.

Correlations and regressions are of first order around the model. A row with a missing value of any attribute in
question is left out, as statistical packages do. A linear regression solves E[x (y - x'b)] = 0; with A = E[x x'] the
influence function of b is A^-1 x (y - x'b), a product of two sums over attributes, so a sum of functions of pairs: all
of it was measured. A logistic regression has A = E[p (1 - p) x x'] and A^-1 x (y - p), of which x p is a function of
all regressors together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from sklar.answer.effects import Codes, Floats, Subset, normal_quantile
from sklar.answer.infer.inquiry import SPREAD, Figure, Inference, Inquiry, Interval, unit_of
from sklar.answer.infer.numerical import Weighed, figures_of_weighed, linearize_weighed, listed_records
from sklar.answer.infer.onestep import (
    MOST_LISTED,
    Linearized,
    OneStep,
    Reference,
    applied,
    grid,
    noise_covariance,
    parts,
)
from sklar.answer.infer.words import FAMILIES, Factor, Measure, Product, is_plain, shown
from sklar.answer.predicate import QueryError
from sklar.public.outputs import grain

RecordFunction = Callable[[Codes], Floats]

_MOST_FIGURES = 1_000
# Functions of records that are held at once: 400 MB.
_MOST_NUMBERS = 50_000_000
_LEAST = 1e-12
# The smallest eigenvalue of the moment matrix must stand so many of its standard errors above zero.
CLEAR = 4.0
# Categories with fewer standard errors of rows than this are taken together.
CLEAR_LEVEL = 8.0
_NEWTON = 30
_ERRORS = ("standard_error", "noise_error", "sampling_error", "model_error")
# The covariance of an interaction is one square matrix of so many contrasts.
_MOST_CONTRASTS = 3_000
_DETERMINED = "the regressors must not determine one another, and by the model they do. Leave one of them out."
_SEPARATED = (
    "a logistic regression needs an outcome that the regressors leave open, and by the model they decide it, or one "
    "another. Leave one of them out."
)


class Ratio(NamedTuple):
    """The mean of one function of records over that of another, or over all rows; `scale` is the largest numerator.

    `inside` is the numerator's variance by where in their bins numbers lie.
    """

    label: str
    numerator: RecordFunction
    denominator: RecordFunction | None
    scale: float
    inside: float = 0.0


def linear_in(ratios: Sequence[Ratio], reference: Reference) -> Linearized:
    """Numerators and denominators, one after the other: they are linear in the shares of records."""
    terms = [term for one in ratios for term in ((one.numerator, one.scale, one.inside), (one.denominator, 1.0, 0.0))]
    functions = [function for function, *_ in terms if function is not None]
    scales, inside = np.array([figures for function, *figures in terms if function is not None]).T

    def evaluate(codes: Codes) -> Floats:
        return np.stack([function(codes) for function in functions], axis=1)

    values = evaluate(reference.codes)
    means, by_fit = reference.union @ values, reference.weights @ values
    return Linearized(values=means, by_fit=by_fit, influence=evaluate, scale=scales, inside=inside)


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
    ratios = asked_ratios(inquiry)
    if 2 * len(ratios) * max(len(inquiry.reference.codes), math.prod(inquiry.effects.sizes[:2])) > _MOST_NUMBERS:
        raise QueryError("these are too many groups of too many levels at once. Ask about fewer of them, with where.")
    figures = figures_of(inquiry, ratios, inquiry.one_step(linear_in(ratios, inquiry.reference)))
    return inquiry.inference(title_of(inquiry), figures)


def title_of(inquiry: Inquiry) -> str:
    """What is asked, in words."""
    asked, names = inquiry.asked, inquiry.model.schema.names
    what = f"{asked.compared} of " if asked.compared else ""
    what += " over ".join(measure.text for measure in asked.measures)
    what += "".join(f" limited to {limits}" for limits in inquiry.limits.values())
    by = " by " + ", ".join(names[i] for i in asked.by) if asked.by else ""
    return what + by + ("" if asked.weight is None else f" weighted by {names[asked.weight]}")


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
    inquiry.caution_few(unclear)
    if not inquiry.asked.compared:
        return [
            inquiry.figure(ratio.label, estimate, slope, step, ends=interval, bounds=partial(bounds_of, inquiry, ratio))
            for ratio, (estimate, slope, interval, _) in zip(ratios, found, strict=True)
        ]
    each, figures = len(ratios) // math.prod(inquiry.model.schema.attributes[i].n_levels for i in inquiry.asked.by), []
    for number in range(each, len(ratios)):
        (here, slope, _, clear), (there, base_slope, _, base_clear) = found[number], found[number % each]
        label, known = f"{ratios[number].label} less {ratios[number % each].label}", clear and base_clear
        ends = None if known else (-math.inf, math.inf)
        figures.append(inquiry.figure(label, here - there, slope - base_slope, step, ends=ends, tested=known))
    return figures


def bounds_of(inquiry: Inquiry, ratio: Ratio) -> Interval:
    """What the noisy two-way tables leave open of a ratio, whatever larger tables are; None where it is too much work.

    The mean of a function is at least that of its least value over all other attributes, given two of them, and at most
    that of the largest: means of functions of one pair, which are known up to noise. Of all pairs the best count, all
    at once with probability `level` (Bonferroni). Of a conjunction the upper one is Frechet's bound, widened.
    """
    effects, pairs = inquiry.effects, list(combinations(range(len(inquiry.where)), 2))
    if math.prod(effects.sizes) > MOST_LISTED or not {*combinations(inquiry.where, 2)} <= {*effects.by_set}:
        return None
    codes, reach = grid(effects.sizes), normal_quantile(1 - (1 - inquiry.level) / (4 * len(pairs)))

    def ends(function: RecordFunction) -> tuple[float, float]:
        table, found = function(codes).reshape(effects.sizes), []
        for i, j in pairs:
            others = tuple(axis for axis in range(table.ndim) if axis not in (i, j))
            both = np.stack([table.min(axis=others), table.max(axis=others)])
            coefficients = parts({(inquiry.where[i], inquiry.where[j]): both})
            means = both.mean(axis=(1, 2)) + applied(coefficients, effects.by_set)
            noise = np.diag(noise_covariance(coefficients, effects))
            # A function's variance is at most a quarter of its squared range.
            sampling = inquiry.population * np.ptp(both, axis=(1, 2)) ** 2 / (4 * effects.n_rows)
            found.append(means + reach * np.sqrt(noise + sampling) * [-1, 1])
        lows, highs = np.transpose(found)
        return float(max(lows.max(), table.min())), float(min(highs.min(), table.max()))

    (low, high), (least, most) = ends(ratio.numerator), ends(ratio.denominator) if ratio.denominator else (1.0, 1.0)
    error = inquiry.quantile * math.sqrt(ratio.inside)
    if least <= 0:
        return None
    return min((low - error) / least, (low - error) / most), max((high + error) / least, (high + error) / most)


def asked_ratios(inquiry: Inquiry) -> list[Ratio]:
    """What is asked of every group, group after group: of rows with these levels of some attributes."""
    asked, attributes, groups = inquiry.asked, inquiry.model.schema.attributes, list(groups_of(inquiry))
    measure = asked.measures[0]

    def column(index: int, values: Floats) -> RecordFunction:
        return lambda codes: np.asarray(values[inquiry.levels(codes, index)])

    def level(index: int, code: int) -> RecordFunction:
        return column(index, np.eye(1, attributes[index].n_levels, code)[0])

    def multiplied(terms: Sequence[RecordFunction]) -> RecordFunction:
        return lambda codes: math.prod((term(codes) for term in terms), start=np.ones(len(codes)))

    ratios, everyone = [], not asked.by and asked.given is None
    for name, group in groups:
        within: list[RecordFunction] = [partial(inquiry.holds, asked.given), *(level(i, code) for i, code in group)]
        below, scale, inside = [] if everyone else within, 1.0, 0.0
        if measure.event is not None:
            tops: dict[str, RecordFunction] = {name or "share": partial(inquiry.holds, measure.event)}
        elif measure.levels is not None:
            index, after = measure.levels, f", {name}" if name else ""
            of, levels = attributes[index].name, attributes[index].levels
            tops = {f"{of} = {each}{after}": level(index, code) for code, each in enumerate(levels)}
        else:
            index = measure.products[0][0].attribute
            scores = inquiry.scores(index)
            tops, scale = {name or "mean": column(index, scores.filled)}, float(np.abs(scores.filled).max())
            inside = inquiry.inside(index, multiplied(within))
            if not everyone or not scores.known.all():
                below = [*within, column(index, scores.known)]
        bottom = multiplied(below) if below else None
        ratios += [Ratio(label, multiplied([*within, top]), bottom, scale, inside) for label, top in tops.items()]
    return ratios


def groups_of(inquiry: Inquiry) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """The groups that are asked about: each one's name, and its level of each attribute."""
    asked, attributes = inquiry.asked, inquiry.model.schema.attributes
    sizes = [attributes[i].n_levels for i in asked.by]
    levels = asked.measures[0].levels
    number = math.prod(sizes) * (1 if levels is None else attributes[levels].n_levels)
    if number > _MOST_FIGURES:
        raise QueryError(
            f"at most {_MOST_FIGURES:,} figures are given at once, got {number:,}. Ask about fewer groups, with where."
        )
    for codes in product(*(range(size) for size in sizes)):
        group = list(zip(asked.by, codes, strict=True))
        yield ", ".join(f"{attributes[i].name} = {attributes[i].levels[code]}" for i, code in group), group


def _masks(inquiry: Inquiry, groups: Sequence[tuple[str, list[tuple[int, int]]]], codes: Codes) -> list[Floats]:
    """The weights of records in each group."""
    kept = inquiry.kept(codes)
    return [math.prod((inquiry.levels(codes, i) == code for i, code in group), start=kept) for _, group in groups]


def answer_measures(inquiry: Inquiry) -> Inference:
    """Any other measure, or two divided, by groups or not: by their numerical influence function."""
    records, names = listed_records(inquiry), list[str]()

    def prepare() -> Weighed:
        names[:], statistic = weigh(inquiry, records.codes)
        return statistic

    step, curves = linearize_weighed(inquiry, records, prepare)
    tested = inquiry.asked.compared == "difference" or inquiry.asked.measures[0].word == "corr"
    figures = figures_of_weighed(inquiry, names, step, curves, tested=tested and len(inquiry.asked.measures) == 1)
    return inquiry.inference(title_of(inquiry), figures)


def weigh(inquiry: Inquiry, codes: Codes) -> tuple[list[str], Weighed]:
    """The figures that a question asks for, and their values as a function of the weights of records."""
    if inquiry.asked.kind == "formula":
        design = design_of(inquiry)
        coefficients, scale = coefficients_of(design, codes), np.exp if inquiry.asked.compared else np.asarray
        return ["(intercept)", *design.names], lambda weights: scale(coefficients(weights))
    asked, groups = inquiry.asked, list(groups_of(inquiry))
    masks = _masks(inquiry, groups, codes)
    measured = [_prepared(inquiry, measure, codes) for measure in asked.measures]
    names = [", ".join(filter(None, (label, name))) for name, _ in groups for label in measured[0]]
    each = len(measured[0])
    if asked.compared:
        joins = " less " if asked.compared == "difference" else " over "
        names = [name + joins + first for name, first in zip(names[each:], names[:each] * len(groups), strict=False)]

    def statistic(weights: Floats) -> Floats:
        tops, *bottoms = (np.array([one(weights * mask) for mask in masks for one in own.values()]) for own in measured)
        with np.errstate(all="ignore"):
            values = tops / bottoms[0] if bottoms else tops
            if asked.compared:
                first = np.tile(values[:each], len(groups) - 1)
                values = values[each:] - first if asked.compared == "difference" else values[each:] / first
        return np.asarray(values)

    return [name or asked.measures[0].text for name in names], statistic


def _prepared(inquiry: Inquiry, measure: Measure, codes: Codes) -> dict[str, Callable[[Floats], float]]:
    """A measure of records, as a function of their weights; of shares, one for each level."""
    if measure.levels is not None:
        own, attribute = inquiry.levels(codes, measure.levels), inquiry.model.schema.attributes[measure.levels]
        columns = {f"{attribute.name} = {name}": 1.0 * (own == code) for code, name in enumerate(attribute.levels)}
        return {name: partial(_measured, "share", column[None], 0 * column[None]) for name, column in columns.items()}
    if measure.event is not None:
        x = inquiry.holds(measure.event, codes)[None]
        return {"": partial(_measured, measure.word, x, 0 * x)}
    x, hidden = np.stack([inquiry.product(each, codes) for each in measure.products], axis=1)
    known = np.isfinite(x).all(axis=0)
    hidden *= inquiry.spread if measure.word == "corr" else 1 + SPREAD * inquiry.spread
    rows, part = inquiry.effects.n_rows, measure.part
    statistic = partial(_measured, measure.word, x[:, known], hidden[:, known], part=part, rows=rows)
    return {"": lambda weights: statistic(weights[known])}


def _measured(word: str, x: Floats, hidden: Floats, weights: Floats, part: float = 0.5, rows: int = 1) -> float:
    """A measure of columns, shape (k, records), with variances around them; NaN where no weight is left."""
    total = float(weights.sum())
    if word == "sum":
        return rows * float(weights @ x[0])
    if total <= 0:
        return math.nan
    if word == "corr":
        return correlate(x, hidden, weights, rows)
    mean = float(weights @ x[0]) / total
    if word in ("mean", "share"):
        return mean
    if word == "odds":
        return mean / (1 - mean) if mean < 1 else math.nan
    if word == "sd":
        return math.sqrt(float(weights @ ((x[0] - mean) ** 2 + hidden[0])) / total)
    order = np.argsort(x[0])
    upto = np.cumsum(weights[order]) / total
    return float(x[0][order][min(np.searchsorted(upto, part), order.size - 1)])


def correlate(columns: Floats, hidden: Floats, weights: Floats, rows: int) -> float:
    """The correlation of two columns, NaN where one does not vary; with what hidden variances around them may change.

    Means inside bins vary less than numbers, each by a factor R^2. The correlation of numbers lies between R R' and
    1 / (R R') of that of means: where they depend on nothing but their bins, and where on one another, linearly. And
    in so many rows it differs by chance.
    """
    total = float(weights.sum())
    centered = columns - (columns @ weights / total)[:, None]
    moments = (centered * weights) @ centered.T / total
    variances = np.diag(moments)
    if np.any(np.sqrt(variances) <= 1e-6 * np.abs(columns).max(axis=1)):
        return math.nan
    found, parts_ = float(moments[0, 1] / math.sqrt(math.prod(variances))), hidden @ weights / total / variances
    around = (centered[0] ** 2 + hidden[0]) * hidden[1] + centered[1] ** 2 * hidden[0]
    chance = float(weights @ around) / total / math.prod(variances) / (rows * total)
    return found + math.hypot(found * (math.sqrt(math.prod(1 + SPREAD * parts_)) - 1), math.sqrt(chance))


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

    here = influence(inquiry.reference.codes)
    step = inquiry.one_step(
        Linearized(values=inquiry.reference.union @ here, by_fit=inquiry.reference.weights @ here, influence=influence)
    )
    errors = np.sqrt(np.maximum(np.diag(step.covariance(population=inquiry.population)), 1e-300))
    figures, few = [], []
    for number, (name, _) in enumerate(groups):
        own = slice(number * cuts.size, (number + 1) * cuts.size)
        *above, held = step.values[own]
        *reach, clear = inquiry.quantile * errors[own]
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
        figures.append(inquiry.figure(name or measure.text, estimate, slope, step, ends=known))
    inquiry.caution_few(few)
    return inquiry.inference(title_of(inquiry), figures)


def _ends(inquiry: Inquiry, index: int) -> tuple[Floats, Floats]:
    """Between which numbers each level lies, NaN where it has none."""
    attribute, values = inquiry.model.schema.attributes[index], inquiry.scores(index).values
    if not attribute.binned or isinstance(inquiry.declared.get(attribute.name), Mapping):
        return values, values
    lows, highs = values.copy(), values.copy()
    edges = np.asarray(attribute.edges, dtype=np.float64)
    unit, _ = unit_of(attribute)
    lows[attribute.bin_codes] = edges[:-1] / unit
    highs[attribute.bin_codes] = np.maximum(edges[1:] - float(grain(attribute) or 0), edges[:-1]) / unit
    return lows, highs


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
        raise QueryError(
            f"a test of independence compares at most {most:,} contrasts, got {degrees:,}. Use fewer levels."
        )
    if pair not in inquiry.effects.by_set:
        raise QueryError("the model holds no two-way tables, so independence cannot be tested.")
    step = inquiry.one_step(interaction(inquiry.reference, pair, partial(inquiry.holds, inquiry.asked.given)))
    inquiry.notes += [
        f"'{name}' was not measured; tested is '{schema.determined[name]}', which determines it"
        for name in (schema.names[i] for i in inquiry.asked.names)
        if name in schema.determined
    ]
    return inquiry.inference(f"independence of {names.replace(chr(39), '')}", test=inquiry.test(step))


def interaction(reference: Reference, pair: Subset, within: RecordFunction) -> Linearized:
    """The shares of cells of two attributes less the products of their margins' shares, for all levels but the first.

    With p and q the margins of records `within`, psi is (1_x - p) (1_y - q), less its mean, over the share of them.
    """
    axes = [reference.where.index(i) for i in pair]

    def levels(codes: Codes) -> list[Floats]:
        return [np.eye(reference.sizes[axis])[codes[:, axis], 1:] for axis in axes]

    def shares(weights: Floats) -> tuple[Floats, ...]:
        kept, (one, other) = weights * within(reference.codes), levels(reference.codes)
        p, q, share = kept @ one, kept @ other, np.maximum(kept.sum(), _LEAST)
        return p / share, q / share, share, (kept * one.T @ other / share - np.outer(p, q) / share**2).ravel()

    p, q, share, at = shares(reference.union)

    def influence(codes: Codes) -> Floats:
        one, other = levels(codes)
        apart = ((one - p)[:, :, None] * (other - q)[:, None, :]).reshape(len(codes), -1)
        return np.asarray((apart - at) * (within(codes) / share)[:, None])

    by_fit = np.stack([shares(weights)[-1] for weights in reference.weights])
    return Linearized(values=at, by_fit=by_fit, influence=influence)


def answer_formula(inquiry: Inquiry) -> Inference:
    """`y ~ x + z`: a linear, logistic or Poisson regression; `ratio of` one: its coefficients as ratios."""
    asked, design = inquiry.asked, design_of(inquiry)
    of, on = asked.measures[0].attributes, {factor.attribute for term in asked.terms for factor in term}
    pairs = {tuple(sorted({inquiry.source(i), inquiry.source(j)})) for i in of for j in on}
    if not pairs <= set(inquiry.effects.by_set):
        raise QueryError("a regression needs two-way tables, and the model holds none. Ask for means or shares.")
    clear = clearness(design)
    if clear < CLEAR:
        raise QueryError(
            f"the smallest eigenvalue of the regressors' moment matrix must be at least {CLEAR:g} of its standard "
            f"errors, got {clear:.1f}: noise hides how the regressors vary together. Name fewer regressors, or use a "
            "release with a larger epsilon."
        )
    records = listed_records(inquiry)
    step, curves = linearize_weighed(
        inquiry, records, lambda: coefficients_of(design, records.codes), influence=influence_of_formula(design)
    )
    first, *others = figures_of_weighed(inquiry, ["(intercept)", *design.names], step, curves, tested=True)
    figures = [replace(first, p_value=None), *others]
    joint, at = {}, 1
    for product_, term in zip(asked.terms, design.terms, strict=True):
        if len(term.names) > 1 and all(each.low is not None for each in figures[at : at + len(term.names)]):
            joint[shown(product_, inquiry.model.schema)] = inquiry.test(step, slice(at, at + len(term.names)))
        at += len(term.names)
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
    ratio = math.exp(min(figure.estimate, 500.0))
    ends = {end: None if (at := getattr(figure, end)) is None else math.exp(min(at, 500.0)) for end in ("low", "high")}
    errors = {each: None if (error := getattr(figure, each)) is None else ratio * error for each in _ERRORS}
    return replace(figure, estimate=ratio, **ends, **errors)


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
        over = outcome.event.traced(schema).attributes
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
        raise QueryError(
            f"an outcome must be a number or have two values, and '{attribute.name}' has {values:,}. Ask about one of "
            f"them: {attribute.name} = '{attribute.levels[0]}' ~ ..."
        )
    meant = np.where(np.arange(attribute.n_levels) < values, np.arange(attribute.n_levels) == 1, np.nan)
    index, name = product_[0].attribute, f"{attribute.name} = {attribute.levels[1]}"
    return Term((name,), lambda codes: meant[inquiry.levels(codes, index)][:, None]), "logistic"


def _number(inquiry: Inquiry, product_: Product) -> Term:
    return Term((shown(product_, inquiry.model.schema),), lambda codes: inquiry.product(product_, codes)[0][:, None])


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


def solve(records: Records, weights: Floats, family: str) -> tuple[Floats, Floats]:
    """Coefficients, shape (q,), and A^-1, shape (q, q), by Newton's method: one step of it in a linear regression."""
    x, y, kept = records
    weights = weights * kept
    linear = family == "linear"
    solution = np.zeros(x.shape[1])
    if family == "Poisson":
        if np.any(y[kept > 0] < 0):
            raise QueryError("a Poisson regression is of numbers that are not negative. Use ols.")
        middle = (y + weights @ y / max(float(weights.sum()), 1e-300)) / 2
        solution = solve(Records(x, np.log(np.maximum(middle, 1e-9)), kept), weights, "linear")[0]
    for _ in range(_NEWTON):
        p, slope = _mean(x @ solution, family)
        moments = (x * (weights * slope)[:, None]).T @ x
        scale = np.sqrt(np.maximum(np.diag(moments), 1e-300))
        values, vectors = np.linalg.eigh(moments / np.outer(scale, scale))
        if values[0] < 1e-9:
            raise QueryError(_DETERMINED if linear else _SEPARATED)
        inverse = np.asarray((vectors / values) @ vectors.T / np.outer(scale, scale))
        step = inverse @ (x.T @ (weights * (y - p)))
        solution = solution + (step if linear else np.clip(step, -5.0, 5.0))
        if linear or np.abs(step).max() < 1e-9 * (1 + np.abs(solution).max()):
            return solution, inverse
    raise QueryError(_SEPARATED)


def coefficients_of(design: Design, codes: Codes) -> Weighed:
    """The coefficients of a regression as a function of the weights of records."""
    records = design.records(codes)
    return lambda weights: solve(records, weights, design.family)[0]


def influence_of_formula(design: Design) -> RecordFunction:
    """The influence function of the coefficients of a regression at the model."""
    inquiry = design.inquiry
    reference = inquiry.reference
    solution, inverse = solve(design.records(reference.codes), reference.union, design.family)

    def influence(codes: Codes) -> Floats:
        x, y, kept = design.records(codes)
        psi = (x * (kept * (y - _mean(x @ solution, design.family)[0]))[:, None]) @ inverse
        return np.asarray(psi)

    return influence


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

    here = square(reference.codes)
    step = design.inquiry.one_step(
        Linearized(values=reference.union @ here, by_fit=reference.weights @ here, influence=square)
    )
    return float(step.values[0] / max(math.sqrt(step.noise[0, 0]), 1e-300))
