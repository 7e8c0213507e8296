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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklar.answer.effects import Codes, Floats, Subset, normal_quantile
from sklar.answer.infer.inquiry import Figure, Inference, Inquiry, Interval
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
from sklar.answer.predicate import QueryError

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
    asked, names, ratios = inquiry.asked, inquiry.model.schema.names, asked_ratios(inquiry)
    if 2 * len(ratios) * max(len(inquiry.reference.codes), math.prod(inquiry.effects.sizes[:2])) > _MOST_NUMBERS:
        raise QueryError("these are too many groups of too many levels at once. Ask about fewer of them, with where.")
    figures = figures_of(inquiry, ratios, inquiry.one_step(linear_in(ratios, inquiry.reference)))
    kinds = {"share": f"share of rows with {asked.event_text}", "mean": "mean of ", "shares": "shares of "}
    what = ("difference of " if asked.difference else "") + kinds[asked.kind] + "".join(names[i] for i in asked.names)
    what += "".join(f" limited to {limits}" for limits in inquiry.limits.values())
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
    asked, attributes = inquiry.asked, inquiry.model.schema.attributes
    sizes = [attributes[i].n_levels for i in asked.by]
    number = math.prod(sizes) * (attributes[asked.names[0]].n_levels if asked.kind == "shares" else 1)
    if number > _MOST_FIGURES:
        raise QueryError(
            f"at most {_MOST_FIGURES:,} figures are given at once, got {number:,}. Ask about fewer groups, with where."
        )

    def column(index: int, values: Floats) -> RecordFunction:
        return lambda codes: np.asarray(values[inquiry.levels(codes, index)])

    def level(index: int, code: int) -> RecordFunction:
        return column(index, np.eye(1, attributes[index].n_levels, code)[0])

    def multiplied(terms: Sequence[RecordFunction]) -> RecordFunction:
        return lambda codes: math.prod((term(codes) for term in terms), start=np.ones(len(codes)))

    ratios, everyone = [], not asked.by and asked.given is None
    for codes in product(*(range(size) for size in sizes)):
        group = list(zip(asked.by, codes, strict=True))
        name = ", ".join(f"{attributes[i].name} = {attributes[i].levels[code]}" for i, code in group)
        within: list[RecordFunction] = [partial(inquiry.holds, asked.given), *(level(i, code) for i, code in group)]
        below, scale, inside = [] if everyone else within, 1.0, 0.0
        if asked.event is not None:
            tops: dict[str, RecordFunction] = {name or "share": partial(inquiry.holds, asked.event)}
        elif asked.kind == "shares":
            (index,), after = asked.names, f", {name}" if name else ""
            of, levels = attributes[index].name, attributes[index].levels
            tops = {f"{of} = {each}{after}": level(index, code) for code, each in enumerate(levels)}
        else:
            (index,), scores = asked.names, inquiry.scores(asked.names[0])
            tops, scale = {name or "mean": column(index, scores.filled)}, float(np.abs(scores.filled).max())
            inside = inquiry.inside(index, multiplied(within))
            if not everyone or not scores.known.all():
                below = [*within, column(index, scores.known)]
        bottom = multiplied(below) if below else None
        ratios += [Ratio(label, multiplied([*within, top]), bottom, scale, inside) for label, top in tops.items()]
    return ratios


def answer_correlation(inquiry: Inquiry) -> Inference:
    """`corr(x, y)`, over rows that have both."""
    records, names = listed_records(inquiry), [inquiry.model.schema.names[i] for i in inquiry.asked.names]

    def prepare() -> Weighed:
        kept, columns = inquiry.holds(inquiry.asked.given, records.codes), list[Floats]()
        for index in inquiry.asked.names:
            scores, levels = inquiry.scores(index), inquiry.levels(records.codes, index)
            kept, columns = kept * scores.known[levels], [*columns, scores.filled[levels]]
        return lambda weights: correlate(np.stack(columns), weights * kept)

    step, curved = linearize_weighed(inquiry, records, prepare)
    figures = figures_of_weighed(inquiry, ["correlation"], step, curved, tested=True)
    return inquiry.inference(f"correlation of {names[0]} and {names[1]}", figures)


def correlate(columns: Floats, weights: Floats) -> Floats:
    """The correlation of two columns, shape (1,)."""
    total = float(weights.sum())
    if total <= 0:
        raise QueryError("the model leaves no rows with both values. Ask about more rows.")
    centered = columns - (columns @ weights / total)[:, None]
    moments = (centered * weights) @ centered.T
    sds = np.sqrt(np.diag(moments))
    if np.any(sds <= 1e-6 * math.sqrt(total) * np.abs(columns).max(axis=1)):
        raise QueryError("a correlation needs two numbers that vary, and by the model one does not. Ask about another.")
    return np.array([moments[0, 1] / math.prod(sds)])


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
    """`y ~ x + z`: a linear regression of a number, a logistic one of what has two values or is a predicate."""
    asked, schema = inquiry.asked, inquiry.model.schema
    outcome, said, logistic = _outcome(inquiry)
    regressors = tuple(_regressor(inquiry, i) for i in asked.names)
    tied = [i for i in asked.names if inquiry.source(i) == inquiry.source(outcome.attribute)]
    if tied:
        raise QueryError(f"the outcome is decided by '{schema.names[tied[0]]}' or decides it. Leave that name out.")
    pairs = {tuple(sorted({*map(inquiry.source, (outcome.attribute, term.attribute))})) for term in regressors}
    if not pairs <= set(inquiry.effects.by_set):
        raise QueryError("a regression needs two-way tables, and the model holds none. Ask for means or shares.")
    design = Design(inquiry, outcome, regressors)
    clear = clearness(design)
    if clear < CLEAR:
        raise QueryError(
            f"the smallest eigenvalue of the regressors' moment matrix must be at least {CLEAR:g} of its standard "
            f"errors, got {clear:.1f}: noise hides how the regressors vary together. Name fewer regressors, or use a "
            "release with a larger epsilon."
        )
    step = inquiry.one_step(linearize(design, logistic=logistic))
    slopes, named = np.eye(step.values.size), ["(intercept)", *(name for term in regressors for name in term.names)]
    figures = [
        inquiry.figure(name, float(value), slope, step, tested=number > 0)
        for number, (name, value, slope) in enumerate(zip(named, step.values, slopes, strict=True))
    ]
    if not design.complete:
        inquiry.notes.append("rows in which one of these attributes is missing are left out")
    kind = "logistic regression of the log odds of" if logistic else "linear regression of"
    names = ", ".join(schema.names[i] for i in asked.names)
    return inquiry.inference(f"{kind} {said} on {names}", figures)


def _outcome(inquiry: Inquiry) -> tuple[Term, str, bool]:
    """The outcome's term, in words, and whether it is a yes or no."""
    asked, schema = inquiry.asked, inquiry.model.schema
    if asked.event is not None:
        over = asked.event.traced(schema).attributes
        if len(over) > 1:
            raise QueryError(f"an outcome is a predicate about one attribute, got one of {len(over)}. Ask about one.")
        (index,) = asked.event.attributes
        held = asked.event.holds({index: np.arange(schema.attributes[index].n_levels)})[:, None]
        return Term(index, held, ("",), np.ones(len(held))), asked.event_text, True
    (index,) = asked.outcome
    attribute = schema.attributes[index]
    if inquiry.is_number(attribute) and (not attribute.boolean or attribute.name in inquiry.declared):
        return _number(inquiry, index), attribute.name, False
    values = attribute.n_values
    if values != 2:
        raise QueryError(
            f"an outcome must be a number or have two values, and '{attribute.name}' has {values:,}. Ask about one of "
            f"them: {attribute.name} = '{attribute.levels[0]}' ~ ..."
        )
    levels = np.arange(attribute.n_levels)
    return (
        Term(index, (levels == 1)[:, None], (attribute.name,), levels < values),
        f"{attribute.name} = {attribute.levels[1]}",
        True,
    )


def _number(inquiry: Inquiry, index: int) -> Term:
    own = inquiry.scores(index)
    return Term(index, own.filled[:, None], (inquiry.model.schema.names[index],), own.known)


def _regressor(inquiry: Inquiry, index: int) -> Term:
    """A number as one column, categories as one column each, but for the first.

    Categories with too few rows have one column together; where even that has too few, they count as the first.
    """
    schema, eye = inquiry.model.schema, np.eye(inquiry.model.schema.attributes[index].n_levels)
    attribute, (source, levels) = schema.attributes[index], schema.sources[index]
    if inquiry.is_number(attribute):
        return _number(inquiry, index)
    known = np.arange(attribute.n_levels) != (-1 if attribute.missing_code is None else attribute.missing_code)
    margin = inquiry.effects.by_set[(source,)]
    shares = np.bincount(levels, 1 / margin.values.size + margin.values, attribute.n_levels)
    least = CLEAR_LEVEL * math.sqrt(margin.variance)
    clear, rare = (np.flatnonzero(known & held).tolist() for held in (shares >= least, shares < least))
    dropped = bool(rare) and float(shares[rare].sum()) < least * math.sqrt(len(rare))
    own = {attribute.levels[k]: eye[k] for k in clear[1:]}
    if rare and not dropped:
        name = attribute.levels[rare[0]] if len(rare) == 1 else f"{len(rare)} rare levels"
        own[name] = eye[rare].sum(axis=0)
    if not clear or not own:
        raise QueryError("a regressor needs two categories with far more rows than noise. Leave it out.")
    note = f"'{attribute.name}' is compared with '{attribute.levels[clear[0]]}'"
    if rare:
        listed = ", ".join(attribute.levels[k] for k in rare[:6]) + (" and others" if len(rare) > 6 else "")
        note += f"; too rare for a coefficient of their own: {listed}"
        note += ", counted as that level" if dropped else ", taken together" if len(rare) > 1 else ""
    inquiry.notes.append(note)
    names = tuple(f"{attribute.name} = {name}" for name in own)
    return Term(index, np.stack(list(own.values()), axis=1), names, known)


class Term(NamedTuple):
    """One attribute's columns, shape (levels, k), with names; 0 where `known` is 0, for levels without a value."""

    attribute: int
    columns: NDArray[Any]
    names: tuple[str, ...]
    known: NDArray[Any]


class Records(NamedTuple):
    """The columns of a regression on records: the design matrix, the outcome, and 1 for records that take part."""

    x: Floats
    y: Floats
    kept: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A regression that a question asks for: its outcome (one column) and regressors."""

    inquiry: Inquiry
    outcome: Term
    regressors: tuple[Term, ...]

    @property
    def complete(self) -> bool:
        """Whether no attribute is missing in any row."""
        return all(term.known.all() for term in (self.outcome, *self.regressors))

    def records(self, codes: Codes) -> Records:
        """The columns for these codes, shape (records, attributes)."""
        kept, columns = self.inquiry.holds(self.inquiry.asked.given, codes), [np.ones((len(codes), 1))]
        for term in (*self.regressors, self.outcome):
            own = self.inquiry.levels(codes, term.attribute)
            kept = kept * term.known[own]
            columns.append(term.columns[own].astype(np.float64))
        return Records(np.concatenate(columns[:-1], axis=1), columns[-1][:, 0], kept)


def solve(records: Records, weights: Floats, start: Floats | None = None, *, logistic: bool) -> tuple[Floats, Floats]:
    """Coefficients, shape (q,), and A^-1, shape (q, q), by Newton's method: one step of it in a linear regression."""
    x, y, kept = records
    weights = weights * kept
    solution = start if logistic and start is not None else np.zeros(x.shape[1])
    for _ in range(_NEWTON):
        p = _logistic(x @ solution) if logistic else x @ solution
        moments = (x * (weights * p * (1 - p) if logistic else weights)[:, None]).T @ x
        scale = np.sqrt(np.maximum(np.diag(moments), 1e-300))
        values, vectors = np.linalg.eigh(moments / np.outer(scale, scale))
        if values[0] < 1e-9:
            raise QueryError(_SEPARATED if logistic else _DETERMINED)
        inverse = np.asarray((vectors / values) @ vectors.T / np.outer(scale, scale))
        step = inverse @ (x.T @ (weights * (y - p)))
        solution = solution + (np.clip(step, -5.0, 5.0) if logistic else step)
        if not logistic or np.abs(step).max() < 1e-9 * (1 + np.abs(solution).max()):
            return solution, inverse
    raise QueryError(_SEPARATED)


def _logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -500, 500))))


def linearize(design: Design, *, logistic: bool) -> Linearized:
    """The coefficients of a regression near the model."""
    reference = design.inquiry.reference
    records = design.records(reference.codes)
    solution, inverse = solve(records, reference.union, logistic=logistic)
    by_fit = np.stack([solve(records, weights, solution, logistic=logistic)[0] for weights in reference.weights])

    def predicted(x: Floats) -> Floats:
        return _logistic(x @ solution) if logistic else np.asarray(x @ solution)

    def influence(codes: Codes) -> Floats:
        x, y, kept = design.records(codes)
        return np.asarray((x * (kept * (y - predicted(x)))[:, None]) @ inverse)

    return Linearized(values=solution, by_fit=by_fit, influence=influence)


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
