"""One question to one model: what its levels stand for, and the judged answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.condition import limits_of, shown_limits
from sklar.answer.effects import Codes, Floats, Subset, misfit, normal_quantile, pool_effects
from sklar.answer.infer.onestep import Linearized, OneStep, one_step, refer
from sklar.answer.infer.words import FUNCTIONS, Product, Statistic, is_plain, read_question
from sklar.answer.predicate import Expression, QueryError
from sklar.draw.decode import Shape
from sklar.machine.notebook import Tabular, html_card
from sklar.public.outputs import grain
from sklar.public.schema import Attribute

if TYPE_CHECKING:
    from sklar.files.model import Model

Target = Literal["population", "table"]
Interval: TypeAlias = tuple[float, float] | None
# What the caller says of an attribute's scores: midpoints of bins, or a number for each level by its name.
Declared: TypeAlias = "Literal['midpoint'] | Mapping[str, float]"

# Below this share of its influence function a statistic is to a good part the model's guess.
MEASURED = 0.95
# Totals of complete rows differ from their number by noise alone; so many standard errors are not noise.
_INCOMPLETE = 5.0
# An interval this many times as wide as that of the rows themselves is pointed out.
_WIDE = 3.0
_ABOUT = {
    "population": "the population that the table came from",
    "table": "the table itself",
    "people": "the table's people, of each of whom one row was chosen at random",
    "rows": "the table's people, of each of whom rows were chosen at random up to the limit",
    "everyone": "the table itself",
    "events": "the table's people with events",
}
# What is lost inside bins is cautioned about from this part of a standard error on.
_CODED = 0.2
# How far the mean inside a bin of some rows may lie from that of the others, as a part of its width.
_APART = 0.1
# By how much the variance inside bins may differ from that of the fitted shape, as a part of it.
SPREAD = 0.75
# Axes that are shown in another unit: what one of it is on the axis, and its name.
_UNITS: dict[str, tuple[float, str]] = {
    "date": (1.0, "days since 1970-01-01"),
    "datetime": (1e6, "seconds since 1970-01-01"),
    "time": (1e6, "seconds since midnight"),
    "duration": (1e6, "seconds"),
    "yearmonth": (1.0, "months since the year 0"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """An estimate, its standard error and its interval, whose ends are None where it has none.

    `measured` is R^2 of its influence function: the share that noisy tables speak of, and not the model alone. Where
    that is too little for an interval, its ends are `bounds`, or none. The sampling error of a table is that of
    choosing rows of its people, at most.
    """

    name: str
    estimate: float
    standard_error: float
    low: float | None
    high: float | None
    measured: float
    noise_error: float
    sampling_error: float | None
    model_error: float
    p_value: float | None = None
    bounds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaldTest:
    """A test: its statistic, degrees of freedom and p-value."""

    statistic: float
    degrees: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Inference(Tabular):
    """The answer to a question: figures or a test, notes on how it was found, cautions on why not to rely on it.

    `limits` are the ends of what a search found of numbers, by attribute: the answer is about numbers limited to them.
    """

    question: str
    statistic: str
    target: Target
    level: float
    n_rows: int
    figures: tuple[Figure, ...] = ()
    test: WaldTest | None = None
    joint: Mapping[str, WaldTest] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    about: str = _ABOUT["population"]
    unit: str = "rows"

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        facts = {"about": f"{self.about}, {self.n_rows:,} {self.unit}"}
        columns: Mapping[str, Sequence[Any]] = self.to_columns()
        if self.figures:
            head, *rows = self._table()
            columns = {name or "figure": [row[at] for row in rows] for at, name in enumerate(head)}
        return html_card(self.statistic, facts, columns, verdict=self.cautions, notes=self.notes)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each figure, or one for the test."""
        rows = [asdict(figure) for figure in self.figures]
        if self.test is not None:
            rows = [{"name": self.question, **asdict(self.test)}]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def lines(self) -> list[str]:
        """For a person to read."""
        lines = [f"{self.statistic}, of {self.about} ({self.n_rows:,} {self.unit}):"]
        if self.test is not None:
            shown = f"{self.test.p_value:.3g}" if self.test.p_value >= 1e-4 else "below 0.0001"
            verdict = f"rejected at the level {1 - self.level:.4g}"
            if self.test.p_value >= 1 - self.level:
                verdict = f"not {verdict}; that does not prove it"
            lines += [
                f"  chi-square {self.test.statistic:,.1f}, {self.test.degrees:,} degrees of freedom, p-value {shown}",
                f"  independence is {verdict}",
            ]
        rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, *cells in rows if self.figures else ():
            padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            lines.append("  ".join(["", name.ljust(widths[0]), *padded]).rstrip())
        lines += [
            f"  {name} jointly: chi-square {each.statistic:,.1f}, {each.degrees} degrees of freedom, "
            f"p-value {each.p_value:.2g}"
            for name, each in self.joint.items()
        ]
        lines += [f"  note: {note}" for note in self.notes]
        return lines + [f"  CAUTION: {caution}" for caution in self.cautions]

    def _table(self) -> list[list[str]]:
        """A line of names, and one for each figure."""
        rows = [["", "estimate", "std. error", f"{100 * self.level:.4g}% interval", "measured", "p-value"]]
        for figure in self.figures:
            # Decimals that show two digits of a standard error.
            power = math.log10(figure.standard_error) if 0 < figure.standard_error < math.inf else -3
            digits, error = min(max(1 - math.floor(power), 0), 10), ""
            interval = "unbounded" if figure.measured >= MEASURED else "none"
            if figure.low is not None and figure.high is not None:
                interval = f"{figure.low:,.{digits}f} to {figure.high:,.{digits}f}" + " (bounds)" * figure.bounds
                error = "" if figure.bounds else f"{figure.standard_error:,.{digits}f}"
            tested = "" if figure.p_value is None else f"{figure.p_value:.2g}"
            estimate, measured = f"{figure.estimate:,.{digits}f}", f"{100 * figure.measured:.0f}%"
            rows.append([figure.name, estimate, error, interval, measured, tested])
        return [row[:-1] for row in rows] if all(figure.p_value is None for figure in self.figures) else rows


class Scores(NamedTuple):
    """The number that each level stands for, shape (levels,), NaN where it has none, and how these were set.

    `errors` are the standard errors of means inside bins, `widths` those of what is drawn there, and `hidden` the
    variances of numbers around these means.
    """

    values: Floats
    by: str
    errors: Floats | float = 0.0
    widths: Floats | float = 0.0
    hidden: Floats | float = 0.0

    @property
    def known(self) -> Floats:
        """1 for levels that have a score, else 0."""
        return np.where(np.isnan(self.values), 0.0, 1.0)

    @property
    def filled(self) -> Floats:
        """The scores, 0 where there is none."""
        return np.nan_to_num(self.values, nan=0.0)


def unit_of(attribute: Attribute) -> tuple[float, str]:
    """What one of the unit that a number is shown in is on its axis, and the unit's name."""
    return _UNITS.get(attribute.kind, (1.0, ""))


def score(attribute: Attribute, said: Declared | None, shapes: Callable[[], Mapping[str, Shape]]) -> Scores:
    """A number's own score, a truth value, what the caller declares, or the mean or midpoint inside a bin."""
    name = attribute.name
    values = np.full(attribute.n_levels, np.nan)
    if isinstance(said, Mapping):
        unknown = sorted(set(said) - set(attribute.levels))
        if unknown:
            raise QueryError(
                f"attribute '{name}' has no level '{unknown[0]}', got a score for it. "
                f"Its levels are {', '.join(attribute.levels[:12])}."
            )
        values[[attribute.levels.index(level) for level in said]] = list(said.values())
        return Scores(values=values, by="declared scores")
    if said not in (None, "midpoint"):
        raise QueryError(
            f"scores of '{name}' must be 'midpoint' or a number for each level, got {said!r}. "
            "Example: scores={'education': {'Bachelors': 13}}."
        )
    if not attribute.binned:
        numbers = [0, 1] if attribute.boolean else [value for value in attribute.values if isinstance(value, int)]
        if len(numbers) < len(attribute.values) or not numbers:
            raise QueryError(
                f"attribute '{name}' holds categories, which have no mean. Ask for a share, such as "
                f"share({name} = '{attribute.levels[0]}'), or declare scores."
            )
        values[: len(numbers)] = numbers
        return Scores(values=values, by="0 and 1" if attribute.boolean else "the numbers themselves")
    unit, named = unit_of(attribute)
    shape, step = None if said == "midpoint" else shapes().get(name), grain(attribute)
    edges = np.asarray(attribute.edges, dtype=np.float64)
    means = edges[:-1] + np.diff(edges) / 2
    if shape is not None and shape.means is not None:
        means = shape.means
    if step is not None:
        # Numbers are multiples of a grain: those of [20, 25) are 20 to 24.
        means = np.maximum(means - float(step) / 2, edges[:-1] if shape is None else edges[:-1][shape.bins])
    errors, widths, hidden = np.zeros((3, values.size))
    if shape is not None and shape.errors is not None:
        lows, highs = shape.ends
        widths[attribute.bin_codes] = np.maximum(highs - lows - float(step or 0), 0.0) / unit
        errors[attribute.bin_codes] = shape.errors / unit
        hidden[attribute.bin_codes] = shape.variances / unit**2
    values[attribute.bin_codes] = means / unit
    values[attribute.point_codes] = np.array(attribute.points, dtype=np.float64) / unit
    by = "midpoints of bins" if shape is None else "means of the fitted shape inside bins"
    if step is not None and np.all(np.diff(edges) <= float(step)):
        by = "the numbers themselves"
    said_by = by + (f", in {named}" if named else "")
    return Scores(values, said_by, errors, widths, hidden)


class Inquiry:
    """A question to a model. Records are codes of the measured attributes `where`, shape (records, attributes)."""

    def __init__(
        self,
        model: Model,
        question: str | Statistic,
        *,
        level: float = DEFAULT_LEVEL,
        target: str | None = None,
        scores: Mapping[str, Declared] | None = None,
    ) -> None:
        """Read and check a question: about the "population" that rows were drawn from, or the "table" itself.

        By default a population, but for releases that count several rows of each person.
        """
        several = model.certificate.count == "rows" and model.certificate.rows > 1
        self.declared = dict(scores or {})
        unknown = next((name for name in self.declared if name not in model.schema.names), None)
        if model.copula.components() is None:
            raise QueryError(
                "inference needs a model of whole attributes, and this one is the paper's copula over dummies. Fit "
                "another to the same noisy tables, at no cost: sklar.fit_tables(model.measured).infer(...)."
            )
        if unknown is not None:
            raise QueryError(
                f"scores are given for '{unknown}', which is no attribute of the schema. Correct its name."
            )
        if target not in (None, "population", "table"):
            raise QueryError(f"the target must be 'population' or 'table', got '{target}'.")
        if target == "population" and several:
            raise QueryError(
                "a population is inferred from independent rows, and this release counts several rows of each person. "
                "Ask about the target 'table'."
            )
        self.asked = asked = read_question(question, model.schema) if isinstance(question, str) else question
        sums = any(measure.word == "sum" for measure in asked.measures)
        if target == "population" and sums:
            raise QueryError("a sum is of the rows of a table. Ask about the target 'table', or for a mean.")
        self.target: Target = "table" if target == "table" or several or sums else "population"
        self.model, self.level, self.quantile = model, level, normal_quantile(level)
        # Which of a person's rows are counted is chance, too: of a sum over people its variance is at most that of as
        # many independent rows, also where several rows of a person are chosen, without replacement.
        self.population = self.target == "population" or model.certificate.by_chance
        self.where: Subset = tuple(sorted({self.source(i) for i in asked.attributes}))
        self.effects = pool_effects(model.measured, self.where)
        self.reference = refer(model.copula, model.settings, self.where)
        self.notes: list[str] = []
        self.cautions: list[str] = []
        self.limits: dict[str, str] = {}
        self._scored: dict[int, Scores] = {}
        # Whether what is not known of variances inside bins is added to a statistic.
        self.spread = False
        # Shapes of all numbers are fitted together.
        self._shapes = cache(lambda: model.shapes)

    def source(self, attribute: int) -> int:
        """The measured attribute that decides an attribute's level."""
        return self.model.schema.sources[attribute][0]

    def levels(self, codes: Codes, attribute: int) -> Codes:
        """An attribute's level on records."""
        source, levels = self.model.schema.sources[attribute]
        return np.asarray(levels[codes[:, self.where.index(source)]])

    def holds(self, predicate: Expression | None, codes: Codes) -> Floats:
        """1 for records that satisfy a predicate, else 0."""
        if predicate is None:
            return np.ones(len(codes))
        columns = dict(zip(self.where, codes.T, strict=True))
        return predicate.traced(self.model.schema).holds(columns).astype(np.float64)

    def is_number(self, attribute: Attribute) -> bool:
        """Whether an attribute enters a formula as one number: an axis, a truth value, or declared scores."""
        return attribute.binned or attribute.boolean or attribute.name in self.declared

    def scores(self, attribute: int) -> Scores:
        """What an attribute's levels stand for; the answer will say so."""
        if attribute not in self._scored:
            own = self.model.schema.attributes[attribute]
            scores = self._scored[attribute] = score(own, self.declared.get(own.name), self._shapes)
            if scores.by not in ("0 and 1", "the numbers themselves"):
                self.notes.append(f"'{own.name}' is known by its levels; their scores are {scores.by}")
            if not scores.known.all():
                fate = "null in the function's table" if self.asked.kind == "function" else "left out"
                self.notes.append(f"rows in which '{own.name}' is no number (missing, special) are {fate}")
            if own.name not in self.declared and (limits := limits_of(self.model, own, self._shapes())):
                shown = self.limits[own.name] = shown_limits(own, limits)
                self.cautions.append(
                    f"'{own.name}' is limited to {shown}, where the search saw rows: what lies beyond, if anything, "
                    "counts as if it lay at the end. For more, state edges in the schema that reach as far as rows may."
                )
        return self._scored[attribute]

    def numbers(self, attribute: int, codes: Codes) -> tuple[Floats, Floats]:
        """The number of each record, NaN where it has none, and the variance around it."""
        scores, levels = self.scores(attribute), self.levels(codes, attribute)
        return scores.values[levels], (np.zeros_like(scores.values) + scores.hidden)[levels]

    def product(self, product: Product, codes: Codes) -> tuple[Floats, Floats]:
        """The same of a product of functions of attributes; around it, where it is a number as it is."""
        value, hidden = np.ones(len(codes)), np.zeros(len(codes))
        for function, attribute in product:
            own, around = self.numbers(attribute, codes)
            with np.errstate(all="ignore"):
                found = FUNCTIONS[function](own)
            if np.any(np.isfinite(own) & ~np.isfinite(found)):
                name = self.model.schema.names[attribute]
                self.cautions.append(f"rows in which {function}({name}) has no value are left out.")
            value, hidden = value * found, around if is_plain(product) else hidden
        return np.where(np.isfinite(value), value, np.nan), hidden

    def kept(self, codes: Codes) -> Floats:
        """The weight of each record by what the question weighs by; 0 where it has none, or is not asked about."""
        held = self.holds(self.asked.given, codes)
        if self.asked.weight is None:
            return held
        weights = np.nan_to_num(self.numbers(self.asked.weight, codes)[0], nan=0.0)
        if np.any(weights < 0):
            name = self.model.schema.names[self.asked.weight]
            raise QueryError(f"weights must not be negative, and '{name}' has levels below zero. Weigh by another.")
        return held * weights

    def caution_few(self, unclear: Sequence[str]) -> None:
        """Say of which groups nothing is known."""
        if unclear:
            listed = "; ".join(unclear[:6]) + (" and others" if len(unclear) > 6 else "")
            self.cautions.append(f"too few rows to tell from noise, so nothing is known: {listed}.")

    def inside(self, attribute: int, within: Callable[[Codes], Floats]) -> float:
        """The variance that where numbers lie inside their bins adds to their sum over records `within`, by row.

        The errors of bins' means are independent. The mean of a part f of a bin's rows may differ from that of the
        rest by `_APART` of its width, and from that of all by 1 - f times as much.
        """
        scores, shares = self.scores(attribute), self._shares(attribute, within)
        others = 1 - shares / np.maximum(self._shares(attribute), 1e-300)
        return float(np.sum(shares**2 * (scores.errors**2 + (others * _APART * scores.widths) ** 2)))

    def shifts(self) -> Iterator[None]:
        """Turn after turn, the score of one level of a number is off by its standard error.

        Beside other columns a function may look at parts of a bin's rows, whose means differ (`inside`): as if all did.
        """
        apart = _APART if len(self.where) > 1 else 0.0
        for attribute, scores in list(self._scored.items()):
            errors = np.broadcast_to(np.hypot(scores.errors, apart * scores.widths), scores.values.shape)
            for level in np.flatnonzero(errors):
                self._scored[attribute] = scores._replace(values=scores.values + np.eye(errors.size)[level] * errors)
                yield
            self._scored[attribute] = scores
        self.spread = True
        yield
        self.spread = False

    def _shares(self, attribute: int, within: Callable[[Codes], Floats] | None = None) -> Floats:
        """The shares of an attribute's levels by the model, of records `within` or all."""
        codes, size = self.reference.codes, self.model.schema.attributes[attribute].n_levels
        weights = self.reference.union if within is None else self.reference.union * within(codes)
        return np.bincount(self.levels(codes, attribute), weights, size).astype(np.float64)

    def _hidden(self, attribute: int) -> float:
        """The part of a number's variance that lies inside its bins, as if it were even there."""
        scores = self._scored[attribute]
        shares, own = self._shares(attribute) * scores.known, scores.filled
        inside = float(shares @ (np.zeros_like(own) + scores.widths) ** 2) / 12
        return inside / max(inside + float(shares @ own**2 - (shares @ own) ** 2 / shares.sum()), 1e-300)

    def one_step(self, linear: Linearized) -> OneStep:
        """The one-step estimates of these statistics."""
        return one_step(self.effects, self.reference, linear)

    def figure(
        self,
        name: str,
        estimate: float,
        slope: Floats,
        step: OneStep,
        *,
        ends: Interval = None,
        tested: bool = False,
        bounds: Callable[[], Interval] = lambda: None,
    ) -> Figure:
        """A figure whose gradient by the one-step estimates is `slope`, shape (q,).

        Where too little of it was measured, no error says how wrong the model may be: it has `bounds`, or nothing.
        """

        def error(covariance: Floats) -> float:
            return math.sqrt(max(float(slope @ covariance @ slope), 0.0))

        whole, measured = error(step.covariance(population=self.population)), step.measured(slope)
        ends, known = ends or (estimate - self.quantile * whole, estimate + self.quantile * whole), measured >= MEASURED
        held = None if known else bounds()
        low, high = (each if math.isfinite(each) else None for each in (ends if known else held or (math.inf,) * 2))
        return Figure(
            name=name,
            estimate=estimate,
            standard_error=whole,
            low=low,
            high=high,
            measured=measured,
            noise_error=error(step.noise),
            sampling_error=error(step.sampling) if self.population else None,
            model_error=error(step.model),
            p_value=math.erfc(abs(estimate) / whole / math.sqrt(2)) if tested and known and whole > 0 else None,
            bounds=held is not None,
        )

    def test(self, step: OneStep, own: slice = slice(None)) -> WaldTest:
        """Whether all of these are zero, by Wald's test: chi-square with as many degrees of freedom as they have."""
        from scipy.special import chdtrc

        values, vectors = np.linalg.eigh(step.covariance(population=self.population)[own, own])
        clear = values > 1e-9 * values.max()
        statistic, degrees = float(np.sum((step.values[own] @ vectors)[clear] ** 2 / values[clear])), int(clear.sum())
        measured = 1 - np.trace(step.beyond[own, own]) / max(np.trace(step.influence[own, own]), 1e-300)
        if measured < MEASURED:
            self.cautions.append(f"only {measured:.0%} of what is tested was measured; the model says the rest")
        return WaldTest(statistic=statistic, degrees=degrees, p_value=float(chdtrc(degrees, statistic)))

    def inference(
        self,
        statistic: str,
        figures: Sequence[Figure] = (),
        test: WaldTest | None = None,
        joint: Mapping[str, WaldTest] | None = None,
    ) -> Inference:
        """The answer, with everything that has to be said beside it."""
        bounded = [figure for figure in figures if figure.low is not None and not figure.bounds]
        least = min((figure.measured for figure in figures), default=1.0)
        if least < MEASURED:
            self.cautions.append(
                f"only {100 * least:.0f}% of this was measured; the rest is what the model makes of it, and nothing "
                "says how wrong that may be. There is no interval, but bounds that the noisy tables leave, or nothing."
            )
        parts = {self.model.schema.names[i]: self._hidden(i) for i in self._scored}
        for name, part in parts.items() if self.asked.coded else ():
            if any(abs(each.estimate) * part > _CODED * each.standard_error for each in bounded):
                self.cautions.append(
                    f"about {100 * part:.2g}% of the variance of '{name}' lies inside its bins, whose numbers count as "
                    "equal here: the same of raw values may differ by about such a part."
                )
        apart = math.sqrt(math.prod(parts.values()))
        correlated = any(measure.word == "corr" for measure in self.asked.measures)
        if correlated and any(apart > each.standard_error for each in bounded):
            self.cautions.append(
                f"inside bins numbers may depend on one another in ways that no table shows: up to {apart:.2g} of the "
                "correlation. Narrower bins leave less."
            )
        if self.model.certificate.count == "rows":
            self.cautions.append(
                f"of each person at most {self.model.certificate.rows_per_person:,} rows count: where people with more "
                "rows differ, this is not the answer for all rows."
            )
        wide = max((each.standard_error / each.sampling_error for each in bounded if each.sampling_error), default=0.0)
        certificate, attributes = self.model.certificate, self.model.measured_schema.attributes
        lost = misfit(self.model.measured, self.where) > _INCOMPLETE
        if lost:
            self.cautions.append(
                "the tables of these attributes do not add up to the number of rows: many rows have no level of them. "
                "Figures are off by up to their share."
            )
        taken = not lost and certificate.public_rows is not None and not all(each.exhaustive for each in attributes)
        widest = f"the release's noise makes the widest interval {wide:,.0f} times as wide as the rows themselves would"
        function = "the means of " if self.asked.kind == "function" else ""
        inside, bins = (
            f"where {function}numbers lie inside their bins",
            any(np.any(own.errors) for own in self._scored.values()),
        )
        chance = "sampling" if self.target == "population" else "the choice of rows of people"
        covered = [each for each, has in ((chance, self.population), (inside, bins and not self.asked.coded)) if has]
        covers = " and ".join(["the release's noise", *covered]) + (
            f", but not {inside}" if bins and self.asked.coded else ""
        )
        notes = {
            f"intervals cover {covers}": bool(bounded),
            widest: wide > _WIDE,
            f"counted are {certificate.counted}": certificate.count not in (None, "everyone"),
            "intervals take Laplace noise for normal, which sums of many cells are": certificate.mechanism == "laplace",
            "every row is taken to have a level of every attribute": taken,
        }
        given = f" where {self.asked.given_text}" if self.asked.given is not None else ""
        return Inference(
            question=self.asked.text,
            statistic=statistic[:1].upper() + statistic[1:] + given,
            target=self.target,
            level=self.level,
            n_rows=self.effects.n_rows,
            figures=tuple(figures),
            test=test,
            joint=joint or {},
            notes=(*dict.fromkeys(self.notes), *(note for note, applies in notes.items() if applies)),
            cautions=tuple(dict.fromkeys(self.cautions)),
            limits=self.limits,
            about=_ABOUT[certificate.count or "table" if self.target == "table" else "population"],
            unit="rows" if certificate.tokens is None else "people",
        )
