"""One question to one model: what its levels stand for, and the judged answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.condition import limits_of, shown_limits
from sklar.answer.effects import Codes, Floats, Subset, normal_quantile, pool_effects
from sklar.answer.infer.inside import DESIGN, RUNS, Declared, Inside, Scores, inside_of, score
from sklar.answer.infer.onestep import MOST_LISTED, OneStep, one_step, refer
from sklar.answer.infer.words import FUNCTIONS, QUANTILES, Product, Statistic, read_question
from sklar.answer.predicate import Expression, QueryError, cut_bins, lift
from sklar.fitting.density import rows_beyond
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.wording import said
from sklar.public.schema import Attribute, divide_schema

if TYPE_CHECKING:
    from sklar.files.model import Model

Target = Literal["population", "table"]
Interval: TypeAlias = tuple[float, float] | None
RecordFunction = Callable[[Codes], Floats]

# Below this share of its influence function a statistic is to a good part the model's guess.
MEASURED = 0.95
# An interval this many times as wide as that of the rows themselves is pointed out.
_WIDE = 3.0
# How far the mean inside a bin of some rows may lie from that of the others, as a part of its width.
_APART = 0.1
# By how much what shapes say inside bins may be wrong, as a part of what it changes.
_SPREAD = 0.75
# What shapes say is cautioned about where that is more than so many of the errors that tables state.
_CODED = 3.0
# Of a figure whose interval is so much of its possible values nearly nothing is known.
_NEARLY_ALL = 0.9
# A small move of numbers, as a part of their bins.
_STEP = 1e-3


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
    about: str = ""
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
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}

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
            interval = "none"
            if figure.low is not None and figure.high is not None:
                interval = f"{figure.low:,.{digits}f} to {figure.high:,.{digits}f}" + " (bounds)" * figure.bounds
                error = "" if figure.bounds else f"{figure.standard_error:,.{digits}f}"
            tested = "" if figure.p_value is None else f"{figure.p_value:.2g}"
            estimate, measured = f"{figure.estimate:,.{digits}f}", f"{100 * figure.measured:.0f}%"
            rows.append([figure.name, estimate, error, interval, measured, tested])
        return [row[:-1] for row in rows] if all(figure.p_value is None for figure in self.figures) else rows


class Unknown(NamedTuple):
    """What is not known inside bins does to q statistics: what shapes `changed`, shape (q,), a covariance, (q, q), what
    is `curved` below and above, (2, q), and how far shares of cut bins may put them `off`.
    """

    changed: Floats
    covariance: Floats
    curved: Floats
    off: Floats


class Inquiry:
    """A question to a model. Records are codes of the measured attributes `where`, shape (records, attributes).

    What it tells of records depends on its state: the `run` in which numbers inside bins are looked at (None: at their
    means), numbers `moved` by parts of their bins, and the `bound` to which shares of cut bins may go: (-1, 1) with
    numbers in them at their lower ends, or (-2, 2) at the upper ones.
    """

    def __init__(
        self,
        model: Model,
        question: str | Statistic,
        *,
        level: float = DEFAULT_LEVEL,
        target: str | None = None,
        scores: Mapping[str, Declared] | None = None,
        counting: bool = False,
    ) -> None:
        """Read and check a question: about the "population" that rows were drawn from, or the "table" itself.

        By default a population, but for releases that count several rows of each person. `counting` answers for a
        copula without components, of which only counts of one or two attributes are known.
        """
        schema, certificate = model.schema, model.certificate
        several = certificate.count == "rows" and certificate.rows > 1
        self.declared = dict(scores or {})
        self.asked = asked = read_question(question, schema) if isinstance(question, str) else question
        sums = any(measure.word == "sum" for measure in asked.measures)
        refused = {
            "no_components": model.copula.components() is None and not counting,
            "no_scored": not set(self.declared) <= set(schema.names),
            "no_target": target not in (None, "population", "table"),
            "several_rows": target == "population" and several,
            "sum_of_rows": target == "population" and sums,
        }
        for reason in (reason for reason, holds in refused.items() if holds):
            raise QueryError(said(f"answer.{reason}", names=sorted(set(self.declared) - set(schema.names)), got=target))
        self.target: Target = "table" if target == "table" or several or sums else "population"
        self.model, self.level, self.quantile = model, level, normal_quantile(level)
        # Which of a person's rows are counted is chance, too: of a sum over people its variance is at most that of as
        # many independent rows, also where several rows of a person are chosen, without replacement.
        self.population = self.target == "population" or certificate.by_chance
        self.where: Subset = tuple(sorted({self.source(i) for i in asked.attributes}))
        self.effects = pool_effects(model.measured, self.where)
        self.reference = refer(model.copula, model.settings, self.where)
        self.notes: list[str] = []
        self.cautions: list[str] = []
        self.limits: dict[str, str] = {}
        self.limited: dict[str, tuple[float, float]] = {}
        self.finer = divide_schema(schema, {name: sorted(own) for name, own in asked.cuts.items()})
        self.run: int | None = None
        self.moved: dict[int, Any] = {}
        self.bound = 0
        # Numbers at the means of their bins, as where too many records have slices of their own.
        self.flat = len(self.reference.codes) > MOST_LISTED // (RUNS if asked.kind == "function" else 1)
        self._ranks: dict[int, int] = {}
        self._scored: dict[int, Scores] = {}
        self._inside = cache(self._look_inside)
        self._tilts = cache(self._tilted)
        # Shapes of all numbers are fitted together.
        self._shapes = cache(lambda: model.shapes)
        for name in asked.cuts:
            self._ranks[schema.names.index(name)] = len(self._ranks)
        # By attribute: the most rows that may lie beyond what a search found of it, where the question asks of these.
        self.beyond: dict[int, float] = {}
        for name, numbers in asked.borders.items():
            self._reach_beyond(name, numbers)

    def source(self, attribute: int) -> int:
        """The measured attribute that decides an attribute's level."""
        return self.model.schema.sources[attribute][0]

    def levels(self, codes: Codes, attribute: int) -> Codes:
        """An attribute's level on records."""
        source, levels = self.model.schema.sources[attribute]
        return np.asarray(levels[codes[:, self.where.index(source)]])

    def is_number(self, attribute: Attribute) -> bool:
        """Whether an attribute enters a formula as one number: an axis, a truth value, or declared scores."""
        return attribute.binned or attribute.boolean or attribute.name in self.declared

    def _look_inside(self, attribute: int) -> Inside:
        own, finer = (schema.attributes[attribute] for schema in (self.model.schema, self.finer.schema))
        return inside_of(own, finer, self.finer.parts[attribute], self._shapes().get(own.name))

    def _limits(self, name: str) -> str | None:
        """The limits of what a search found of a number, which an answer names; None where it has none."""
        own = self.model.schema.attribute(name)
        if own.domain != "found" or not (limits := limits_of(self.model, own, self._shapes())):
            return None
        self.limited[name] = limits
        shown = self.limits[name] = shown_limits(own, limits)
        return shown

    def scores(self, attribute: int) -> Scores:
        """What an attribute's levels stand for; the answer will say so."""
        if attribute not in self._scored:
            own = self.model.schema.attributes[attribute]
            scores = score(own, self.declared.get(own.name), lambda: self._inside(attribute))
            self._scored[attribute] = scores
            if scores.inside is not None:
                self._ranks.setdefault(attribute, len(self._ranks))
            if scores.by not in ("0 and 1", "the numbers themselves"):
                self.notes.append(f"'{own.name}' is known by its levels; their scores are {scores.by}")
            if np.isnan(scores.values).any():
                fate = "null in the function's table" if self.asked.kind == "function" else "left out"
                self.notes.append(f"rows in which '{own.name}' is no number (missing, special) are {fate}")
            if own.name not in self.declared and (shown := self._limits(own.name)):
                self.cautions.append(said("answer.limited", name=own.name, limits=shown))
        return self._scored[attribute]

    def _slices(self, attribute: int, run: int) -> int:
        """Which slice of its bins an attribute has in a run."""
        return int(DESIGN[self._ranks[attribute] % len(DESIGN), run])

    def numbers(self, attribute: int, codes: Codes) -> Floats:
        """The number of each record, NaN where it has none."""
        values, _, inside = self.scores(attribute)
        if inside is not None:
            if self.run is not None:
                values = np.where(inside.widths > 0, inside.points[:, self._slices(attribute, self.run)], values)
            by = self.moved.get(attribute, 0.0)
            values = values + by * inside.widths
            if np.ndim(by):
                values = np.fmin(np.fmax(values, inside.lows[:, 0]), inside.highs[:, -1])
            if self.bound and self.model.schema.names[attribute] in self.asked.cuts:
                ends = inside.lows[:, 0] if abs(self.bound) == 1 else inside.highs[:, -1]
                values = np.where(inside.widths > 0, ends, values)
        return np.asarray(values[self.levels(codes, attribute)])

    def product(self, product: Product, codes: Codes) -> Floats:
        """The same of a product of functions of attributes."""
        value: Any = 1.0
        for function, attribute in product:
            own = self.numbers(attribute, codes)
            with np.errstate(all="ignore"):
                found = FUNCTIONS[function](own)
            if np.any(np.isfinite(own) & ~np.isfinite(found)):
                name = self.model.schema.names[attribute]
                self.cautions.append(f"rows in which {function}({name}) has no value are left out.")
            value = value * found
        return np.where(np.isfinite(value), value, np.nan)

    def range(self, product: Product) -> tuple[float, float]:
        """Between which values a product lies, whatever numbers of bins are."""
        low, high = 1.0, 1.0
        for function, attribute in product:
            values, _, inside = self.scores(attribute)
            known = [values] if inside is None else [values, inside.lows.ravel(), inside.highs.ravel()]
            ends = np.array([reach(np.concatenate(known)) for reach in (np.nanmin, np.nanmax)])
            with np.errstate(all="ignore"):
                corners = np.outer([low, high], np.nan_to_num(FUNCTIONS[function](ends), nan=-np.inf))
            low, high = float(corners.min()), float(corners.max())
            if function == "log" and inside is not None and np.nanmin(inside.lows) <= 0:
                reaching = np.nonzero(inside.lows[:, 0] <= 0)[0]
                levels, union = self.levels(self.reference.codes, attribute), self.reference.union
                part = float(np.isin(levels, reaching) @ union)
                self.cautions.append(said("answer.log_zero", name=self.model.schema.names[attribute], part=100 * part))
        return low, high

    def holds(self, predicate: Expression | None, codes: Codes) -> Floats:
        """The share of each record that satisfies a predicate: 0 or 1 but where it cuts bins."""
        if predicate is None:
            return np.ones(len(codes))
        tree = lift(predicate, self.finer).traced(self.finer.schema)
        columns, names = dict(zip(self.where, codes.T, strict=True)), self.model.schema.names
        cut = [i for i in self._ranks if names[i] in self.asked.cuts and self.source(i) in tree.attributes]

        def held(slices: Sequence[int]) -> Floats:
            chosen = zip(cut, slices, strict=True)
            parts = {self.source(i): self._inside(i).parts[self.levels(codes, i), k] for i, k in chosen}
            return tree.holds(columns | parts).astype(np.float64)

        if self.bound:
            return self._ends(predicate, codes, cut, held)[self.bound > 0]
        if not cut or self.run is not None:
            return held([self._slices(i, self.run or 0) for i in cut])
        shares, whole = np.zeros(len(codes)), np.zeros(len(codes))
        for run in range(RUNS):
            slices = [self._slices(i, run) for i in cut]
            masses = [self._inside(i).masses[self.levels(codes, i), k] for i, k in zip(cut, slices, strict=True)]
            weights = np.prod(masses, axis=0)
            shares, whole = shares + weights * held(slices), whole + weights
        return np.asarray(shares / whole)

    def _ends(
        self, predicate: Expression, codes: Codes, cut: Sequence[int], held: Callable[[Sequence[int]], Floats]
    ) -> tuple[Floats, Floats]:
        """The least and the largest share of each record that may satisfy a predicate, whatever lies inside bins."""
        if len(cut) > 2:
            raise QueryError(said("answer.many_cut", got=len(cut)))
        every = np.stack([held(slices) for slices in product(range(RUNS), repeat=len(cut))])
        low, high = every.min(axis=0), every.max(axis=0)
        for i in cut if len(cut) == 1 else ():
            inside, levels = self._inside(i), self.levels(codes, i)
            for level in np.unique(levels[low < high]):
                rows = np.flatnonzero((levels == level) & (low < high))
                patterns, which = np.unique(every[:, rows], axis=1, return_inverse=True)
                ends = np.array([inside.shares(level, pattern, self.quantile) for pattern in patterns.T])
                low[rows], high[rows] = ends[which.ravel()].T
        state = self.bound, self.run
        self.bound, self.run = 0, None
        middle = self.holds(predicate, codes)
        self.bound, self.run = state
        for i, most in self.beyond.items():
            # Of rows beyond all numbers that a search saw nothing is known but how many there are at most.
            values, levels = self._inside(i).means, self.levels(codes, i)
            for level in {int(np.nanargmin(values)), int(np.nanargmax(values))}:
                rows = levels == level
                share = min(most / max(self.effects.n_rows * float(self.reference.union @ rows), 1e-300), 1.0)
                sure = rows & ((middle < 1e-9) | (middle > 1 - 1e-9))
                low[sure], high[sure] = np.maximum(middle[sure] - share, 0), np.minimum(middle[sure] + share, 1)
        return np.minimum(low, middle), np.maximum(high, middle)

    def _reach_beyond(self, name: str, numbers: Sequence[float]) -> None:
        """Note how many rows may lie beyond the limits of a number that a search found, where a question asks of them.

        Levels at the ends hold rows beyond. The search's tables counted them: so many, and some standard errors more.
        """
        attribute = self.model.schema.attribute(name)
        if attribute.domain != "found":
            return
        low, high = limits_of(self.model, attribute, self._shapes()) or (-math.inf, math.inf)
        within = max([-math.inf, *(n for n in numbers if n < low)]), min([math.inf, *(n for n in numbers if n > high)])
        if within == (-math.inf, math.inf):
            return
        counted, n = rows_beyond(self.model.measured, name, *within), self.effects.n_rows
        most = n if counted is None else min(max(counted[0], 0.0) + self.quantile * counted[1], n)
        self.beyond[self.model.schema.names.index(name)] = most
        limits = self.limits[name] = shown_limits(attribute, (low, high))
        self.cautions.append(said("answer.beyond", name=name, limits=limits, most=most))

    def kept(self, codes: Codes) -> Floats:
        """The weight of each record by what the question weighs by; 0 where it has none, or is not asked about."""
        held = self.holds(self.asked.given, codes)
        if self.asked.weight is None:
            return held
        weights = np.nan_to_num(self.numbers(self.asked.weight, codes), nan=0.0)
        if np.any(weights < 0):
            raise QueryError(said("answer.negative_weights", name=self.model.schema.names[self.asked.weight]))
        return held * weights

    def runs(self, codes: Codes) -> Iterator[Floats]:
        """Run after run, the weight of each record: how much of it has the numbers of this run."""
        if self.flat or not self._ranks:
            yield np.ones(len(codes))
            return
        for run in range(RUNS):
            self.run, weights = run, np.full(len(codes), 1 / RUNS)
            for i in self._ranks:
                inside, levels, at = self._inside(i), self.levels(codes, i), self._slices(i, run)
                weights = weights * (RUNS * inside.masses[levels, at])
                if len(codes) == len(self.reference.codes):
                    weights = weights * (
                        1 + self._tilts(i) * np.nan_to_num(inside.points[:, at] - inside.means)[levels]
                    )
            yield weights
        self.run = None

    def averaged(self, function: RecordFunction) -> RecordFunction:
        """The mean of a function of records over where in their bins numbers lie, shape (records, q)."""

        def evaluate(codes: Codes) -> Floats:
            total: Any = 0.0
            for weights in self.runs(codes):
                total = total + weights[:, None] * function(codes)
            return np.asarray(total)

        return evaluate

    def rising(self, attribute: int, values: Floats) -> Floats:
        """How functions of listed records, shape (records, q), rise with a number, by means of bins next to each other;
        0 where records are drawn, and where a rule sets the number.
        """
        own, reference, found = self.model.schema.attributes[attribute], self.reference, np.zeros_like(values)
        inside, axis = self._inside(attribute), self.where.index(self.source(attribute))
        bins = own.bin_codes[np.argsort(inside.means[own.bin_codes], kind="stable")]
        bins = bins[np.diff(inside.means[bins], prepend=-np.inf) > 0]
        if reference.drawn is None and bins.size > 1 and reference.sizes[axis] == own.n_levels:
            table, into = (np.moveaxis(each.reshape(*reference.sizes, -1), axis, 0) for each in (values, found))
            into[bins] = np.gradient(table[bins], inside.means[bins], axis=0)
        return found

    def _tilted(self, attribute: int) -> Floats:
        """How much more often a record has larger numbers of its bin, as a part per unit, by the model: as the share of
        the other columns' levels rises from bin to bin.
        """
        inside, levels = self._inside(attribute), self.levels(self.reference.codes, attribute)
        whole = np.bincount(levels, self.reference.union, inside.means.size)
        given = self.reference.union / np.maximum(whole, 1e-300)[levels]
        reach = np.nan_to_num(np.abs(inside.points - inside.means[:, None]).max(axis=1))
        most = np.where(reach > 0, 1 / np.maximum(reach, 1e-300), 0.0)[levels]
        return np.clip(self.rising(attribute, given[:, None])[:, 0] / np.maximum(given, 1e-300), -most, most)

    def unknown(self, evaluate: Callable[[], Floats], influence: RecordFunction) -> Unknown:
        """What is not known inside bins, and what it does to statistics, shape (q,), near the model.

        The errors of bins' means are independent; what a statistic makes of them beyond its slope is that of moving all
        means of a number as far as their errors reach. Numbers in a bin may depend on other columns: of the rows for
        which a statistic rises more with them than for others, they may be higher by `_APART` of its width. And where
        in bins numbers of these rows lie is chance.
        """
        codes, weights = self.reference.codes, self.reference.union
        start, here, changed = evaluate(), influence(codes), np.zeros(1)
        if not self.flat:
            self.flat = True
            changed = start - evaluate()
            self.flat = False
        total = np.outer(changed, changed) * _SPREAD**2 + np.zeros((start.size, start.size))
        curved = np.zeros((2, start.size))
        for i, (values, _, inside) in list(self._scored.items()):
            if inside is None:
                continue
            self.moved = {i: _STEP}
            # Not at the top: counts are asked without it.
            from scipy.sparse import csr_array

            slopes = (influence(codes) - here) / _STEP
            self.moved = {}
            levels, rows = self.levels(codes, i), np.arange(len(codes))
            by_level = csr_array((weights, (levels, rows)), shape=(values.size, rows.size))
            widths, sums = np.where(inside.widths > 0, inside.widths, np.inf), by_level @ slopes
            means = (sums / np.maximum(by_level.sum(axis=1), 1e-300)[:, None])[levels]
            apart = _APART / 2 * (by_level @ np.abs(slopes - means))
            around = slopes - (0.0 if self.target == "population" else means)
            chance = (weights * (inside.hidden / widths**2)[levels]) @ around**2 / self.effects.n_rows
            off = sums * (inside.errors / widths)[:, None]
            total += np.diag(np.sum(apart**2, axis=0) + chance) + off.T @ off
            room = (np.stack([inside.lows[:, 0], inside.highs[:, -1]]) - inside.means) / widths
            for reach in (-self.quantile, self.quantile):
                move = np.nan_to_num(np.clip(reach * inside.errors / widths, *room))
                self.moved = {i: move}
                more = np.nan_to_num(evaluate() - start) - move @ sums
                curved = np.maximum(curved, np.stack([-more, more]))
            self.moved = {}
        none = np.zeros(start.size)
        return Unknown(none + changed, total, curved, none + self.cut_off(influence))

    def cut_off(self, function: RecordFunction) -> Floats | float:
        """How far means over records of a function of shares of cut bins may be off, shape (q,)."""
        if not self.asked.cuts and not self.beyond:
            return 0.0
        codes, ends = self.reference.codes, []
        here = function(codes)
        for self.bound in (-1, 1, -2, 2):
            ends.append(np.abs(function(codes) - here))
        self.bound = 0
        return np.asarray(self.reference.union @ np.max(ends, axis=0))

    def one_step(self, values: Floats, influence: RecordFunction, scale: Floats | None = None) -> OneStep:
        """The one-step estimates of statistics with these values and influence functions at the model."""
        return one_step(self.effects, self.reference, values, influence, scale)

    def linear(self, function: RecordFunction) -> OneStep:
        """The estimates of means over records of a function, shape (records, q)."""
        own = self.averaged(function)
        here = own(self.reference.codes)
        return self.one_step(self.reference.union @ here, own, np.abs(here).max(axis=0))

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
        unknown: Unknown | None = None,
        at: int = 0,
        possible: tuple[float, float] = (-math.inf, math.inf),
    ) -> Figure:
        """A figure whose gradient by the one-step estimates is `slope`, shape (q,), and whose `ends` are those by them.

        What is `unknown` inside bins makes its interval wider. Where too little of it was measured, no error says how
        wrong the model may be: it has `bounds`, or none.
        """

        def error(covariance: Floats) -> float:
            return math.sqrt(max(float(slope @ covariance @ slope), 0.0))

        alone, measured = error(step.covariance(population=self.population)), step.measured(slope)
        hidden = changed = off = below = above = 0.0
        if unknown is not None:
            below, above = unknown.curved[:, at].tolist()
            hidden, off = unknown.covariance[at, at] ** 0.5, float(unknown.off[at])
            changed = max(abs(unknown.changed[at]), below, above)
        low, high = ends or (estimate - self.quantile * alone, estimate + self.quantile * alone)
        whole, known = math.hypot(alone, hidden), measured >= MEASURED
        low = estimate - math.hypot(estimate - low, self.quantile * hidden) - below - off
        high = estimate + math.hypot(high - estimate, self.quantile * hidden) + above + off
        held = (low, high) if known else bounds() or (-math.inf, math.inf)
        if np.isfinite(held).all():
            if changed > _CODED * alone:
                self.cautions.append(
                    said("answer.inside", name=name, changed=changed, errors=changed / max(alone, 1e-300))
                )
            least, most = possible
            outside = max(least - estimate, estimate - most)
            if outside > whole / 2 or min(held[1], most) - max(held[0], least) > _NEARLY_ALL * (most - least):
                self.cautions.append(said("answer.impossible", name=name, got=estimate, low=least, high=most))
            held = min(max(held[0], least), most), max(min(held[1], most), least)
        found = bool(np.isfinite(held).all())
        tested = tested and known and whole > 0 and off == 0
        return Figure(
            name=name,
            estimate=estimate,
            standard_error=whole,
            low=held[0] if found else None,
            high=held[1] if found else None,
            measured=measured,
            noise_error=error(step.noise),
            sampling_error=error(step.sampling) if self.population else None,
            model_error=math.hypot(error(step.model), hidden),
            p_value=math.erfc(abs(estimate) / whole / math.sqrt(2)) if tested else None,
            bounds=found and (not known or off > 0),
        )

    def test(self, values: Floats, covariance: Floats, measured: float) -> WaldTest | None:
        """Whether all of these are zero, by Wald's test: chi-square with as many degrees of freedom as they have; none
        where too little of them was measured.
        """
        from scipy.special import chdtrc

        if measured < MEASURED:
            self.cautions.append(said("answer.untested", measured=100 * measured))
            return None
        roots, vectors = np.linalg.eigh(covariance)
        clear = roots > 1e-9 * roots.max()
        statistic, degrees = float(np.sum((values @ vectors)[clear] ** 2 / roots[clear])), int(clear.sum())
        return WaldTest(statistic=statistic, degrees=degrees, p_value=float(chdtrc(degrees, statistic)))

    def caution_few(self, unclear: Sequence[str]) -> None:
        """Say of which groups nothing is known."""
        if unclear:
            listed = "; ".join(unclear[:6]) + (" and others" if len(unclear) > 6 else "")
            self.cautions.append(f"too few rows to tell from noise, so nothing is known: {listed}.")

    def _hidden(self, attribute: int) -> float:
        """The part of a number's variance that lies inside its bins."""
        values, inside = self._scored[attribute].values, self._inside(attribute)
        shares = np.bincount(self.levels(self.reference.codes, attribute), self.reference.union, values.size)
        hidden = float(shares @ inside.hidden)
        between = float(np.cov(np.nan_to_num(values), aweights=shares * np.isfinite(values), ddof=0))
        return hidden / max(hidden + between, 1e-300)

    def inference(
        self,
        statistic: str,
        figures: Sequence[Figure] = (),
        test: WaldTest | None = None,
        joint: Mapping[str, WaldTest] | None = None,
    ) -> Inference:
        """The answer, with everything that has to be said beside it."""
        certificate, attributes = self.model.certificate, self.model.measured_schema.attributes
        bounded = [figure for figure in figures if figure.low is not None and not figure.bounds]
        least = min((figure.measured for figure in figures), default=1.0)
        if least < MEASURED:
            self.cautions.append(said("answer.unmeasured", measured=100 * least))
        binned = [i for i, own in self._scored.items() if own.inside is not None]
        quantiles = any(measure.word in QUANTILES for measure in self.asked.measures)
        for i in binned if self.flat and not quantiles else ():
            self.cautions.append(said("answer.flat", part=100 * self._hidden(i), name=self.model.schema.names[i]))
        if self.asked.cuts:
            self.cautions.append(said("answer.cut", named=", ".join(cut_bins(self.model.schema, self.asked.cuts))))
        if certificate.by_chance:
            self.cautions.append(said("answer.some_rows", most=certificate.rows_per_person or 1))
        if self.effects.lost:
            listed = ", ".join(f"'{attributes[i].name}'" for i in self.effects.lost)
            self.cautions.append(said("answer.lost_rows", listed=listed, n=self.effects.n_rows))
        taken = certificate.public_rows is not None and not all(each.exhaustive for each in attributes)
        wide = max((each.standard_error / each.sampling_error for each in bounded if each.sampling_error), default=0.0)
        chance = "sampling" if self.target == "population" else "the choice of rows of people"
        inside = "where numbers lie inside their bins"
        has = {"the release's noise": True, chance: self.population, inside: binned and not self.flat}
        covered = [each for each, applies in has.items() if applies]
        excluded = f", but not {inside}" if binned and self.flat else ""
        notes = {
            f"intervals cover {' and '.join(covered)}{excluded}": bool(bounded),
            "bounds cover the release's noise, and whatever was not measured": any(each.bounds for each in figures),
            said("answer.wide", times=wide): wide > _WIDE,
            f"counted are {certificate.counted}": certificate.count not in (None, "everyone"),
            "intervals take Laplace noise for normal, which sums of many cells are": certificate.mechanism == "laplace",
            "every row is taken to have a level of every attribute": taken and not self.effects.lost,
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
            about=said(f"answer.about_{certificate.count or 'table' if self.target == 'table' else 'population'}"),
            unit="rows" if certificate.tokens is None else "people",
        )
