"""Counts with error bars, and answers to predicates: post-processing of the noisy tables, at no privacy cost.

Both are what `infer` says of the table's rows: shares by the effects of all noisy tables, whose noise is known, times
the number of rows. Intervals cover the release's noise; what else they cover, and what not, each answer says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.effects import Floats, normal_quantile, pool_effects, subsets
from sklar.answer.infer.inquiry import Inquiry
from sklar.answer.infer.onestep import MOST_LISTED, grid
from sklar.answer.infer.statistics import answer_measures
from sklar.answer.infer.words import read_predicate
from sklar.answer.predicate import QueryError, cut_bins, lift
from sklar.budget.certificate import Measured
from sklar.draw.repair import sample_codes
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.wording import said

if TYPE_CHECKING:
    from sklar.files.model import Model

# Rows of dummies that are counted, and their seed.
_MOST_DRAWN, _SEED = 1_000_000, 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Estimate(Tabular):
    """A one- or two-way table of unbiased estimates with intervals; one cut at zero would spoil sums and averages."""

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    counts: Floats
    standard_errors: Floats
    low: Floats
    high: Floats
    level: float

    def __post_init__(self) -> None:
        for array in (self.counts, self.standard_errors, self.low, self.high):
            array.setflags(write=False)

    def __repr__(self) -> str:
        shape = " x ".join(f"{size:,}" for size in self.counts.shape)
        error = float(np.sqrt(np.mean(self.standard_errors**2)))
        return f"Estimate({' x '.join(self.names)}: {shape} counts, standard error {error:,.1f}; see .to_polars())"

    def _repr_html_(self) -> str:
        facts = {"intervals": f"{self.level:.4g} confidence", "cost": "none: post-processing"}
        return html_card(f"Counts of {' x '.join(self.names)}", facts, self.to_columns())

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each cell: its levels, count, standard error and interval."""
        places = np.indices(self.counts.shape).reshape(self.counts.ndim, -1)
        axes = zip(self.names, self.levels, places, strict=True)
        figures = {"count": self.counts, "standard_error": self.standard_errors, "low": self.low, "high": self.high}
        return {name: [levels[code] for code in place] for name, levels, place in axes} | {
            title: figure.ravel().tolist() for title, figure in figures.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(Tabular):
    """How many rows satisfy a predicate: by the noisy tables, with error bars, or None, and by the synthetic rows.

    It is of `n_rows` rows. `low` and `high` are an interval, or `bounds` that noisy tables leave. Where rows of each
    person are `counted` that were chosen at random, they include `choosing_error`, a bound on the standard error that
    choosing adds to a number of people. `split` are bins that the predicate cuts, and where it asks
    beyond what a search found of numbers at most `beyond_most` rows may lie there.
    """

    predicate: str
    attributes: tuple[str, ...]
    n_rows: int
    level: float
    estimate: float | None = None
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    bounds: bool = False
    measured: float
    synthetic: float
    synthetic_by: str
    counted: str = "rows"
    choosing_error: float | None = None
    split: tuple[str, ...] = ()
    beyond_most: float | None = None
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line: the count and its interval."""
        names = ("predicate", "estimate", "standard_error", "low", "high", "bounds", "synthetic")
        return {name: [getattr(self, name)] for name in names}

    def __repr__(self) -> str:
        _, facts = self._facts()
        figures = "; ".join(f"{name} {fact}" for name, fact in facts.items())
        return f"Answer({self.predicate}, of {self.n_rows:,}: {figures})"

    def _repr_html_(self) -> str:
        title, facts = self._facts()
        return html_card(title, facts, verdict=self.cautions, notes=self.notes)

    def _facts(self) -> tuple[str, dict[str, str]]:
        """What was counted, and the figures."""
        what = "Rows" if self.counted == "rows" else f"{self.counted.capitalize()},"
        facts = {"estimate": "none"}
        if self.low is not None and self.high is not None:
            facts = {"estimate": f"{self.estimate:,.0f}, standard error {self.standard_error:,.1f}"}
            ends = "bounds" if self.bounds else f"{100 * self.level:.4g}% interval"
            facts[ends] = f"{self.low:,.0f} to {self.high:,.0f}"
        facts["measured"] = f"{100 * self.measured:.0f}%"
        facts["synthetic rows"] = f"{self.synthetic:,.0f} ({self.synthetic_by})"
        return f"{what} with {self.predicate}, of {self.n_rows:,}", facts

    def lines(self) -> list[str]:
        """For a person to read."""
        title, facts = self._facts()
        lines = [f"{title}:", *(f"  {name:<16}{fact}" for name, fact in facts.items())]
        lines += [f"  note: {note}" for note in self.notes]
        return lines + [f"  CAUTION: {caution}" for caution in self.cautions]


def estimate(measured: Measured, *names: str, level: float = DEFAULT_LEVEL) -> Estimate:
    """The noisy table of one or two attributes by all tables' effects, with standard errors and intervals.

    Every row is taken to have a level of every attribute, as all answers take it.
    """
    schema, reach = measured.schema.whole or measured.schema, normal_quantile(level)
    if len(names) not in (1, 2) or len(set(names)) != len(names):
        raise QueryError(said("answer.tables", number=len(names), got=", ".join(names) or "none"))
    attributes = [schema.attribute(name) for name in names]
    sources = [schema.sources[schema.names.index(name)] for name in names]
    effects = pool_effects(measured, sorted({source for source, _ in sources}))
    if effects.where not in effects.by_set:
        raise QueryError("the model holds no two-way tables. Ask about one attribute.")
    # Where each measured cell stands in the table asked for; a cell of it may be the sum of several, or of none.
    place = np.ix_(*(np.arange(size) for size in effects.sizes))
    into = tuple(np.broadcast_arrays(*(own[place[effects.where.index(source)]] for source, own in sources)))
    shape, n = tuple(each.n_levels for each in attributes), effects.n_rows

    def summed(values: Floats) -> Floats:
        table = np.zeros(shape)
        np.add.at(table, into, values)
        return table

    # How many of the levels of each measured attribute a cell is of: the squares of the centered part of its indicator
    # sum to k (1 - k / s), and its mean is k / s.
    numbers: list[Any] = [summed(np.ones(effects.sizes))] * len(effects.where)
    if len(effects.where) == len(names):
        levels = [np.bincount(own, minlength=size) for (_, own), size in zip(sources, shape, strict=True)]
        grids = dict(zip((source for source, _ in sources), np.ix_(*levels), strict=True))
        numbers = [grids[i] for i in effects.where]
    parts = [(k * (1 - k / size), (k / size) ** 2) for k, size in zip(numbers, effects.sizes, strict=True)]
    shares, variances = summed(np.full(effects.sizes, 1 / math.prod(effects.sizes))), np.zeros(shape)
    linear = np.zeros(shape)
    for subset in subsets(effects.where):
        others = tuple(axis for axis, i in enumerate(effects.where) if i not in subset)
        effect, size = effects.by_set[subset], math.prod(effects.sizes[axis] for axis in others)
        linear += summed(np.broadcast_to(np.expand_dims(effect.values, others), effects.sizes) / size)
        variances += effect.variance * math.prod(each[axis in others] for axis, each in enumerate(parts))
    # What is beside the effects is a part of the number of rows, whose noise is independent of theirs.
    variances = n**2 * variances + shares**2 * effects.n_rows_variance
    counts, errors = n * (shares + linear), np.sqrt(variances)
    return Estimate(
        names=names,
        levels=tuple(each.levels for each in attributes),
        counts=counts,
        standard_errors=errors,
        low=counts - reach * errors,
        high=counts + reach * errors,
        level=level,
    )


def answer(model: Model, predicate: str, *, level: float = DEFAULT_LEVEL, exact: bool = False) -> Answer:
    """How many rows satisfy a predicate, with error bars where it was measured; `exact` refuses one that cuts a bin."""
    schema, certificate = model.schema, model.certificate
    asked = read_predicate(predicate, schema, exact=exact or model.dummies)
    inquiry = Inquiry(model, asked, level=level, target="table", counting=True)
    found = answer_measures(inquiry)
    (figure,), n, event = found.figures, inquiry.effects.n_rows, asked.measures[0].event
    counts: dict[str, Any] = {}
    if figure.low is not None and figure.high is not None:
        # The noise of the number of rows, where that is measured, moves a count as much as it is of all cells.
        whole = math.prod(inquiry.effects.sizes)
        part = float(inquiry.holds(event, grid(inquiry.effects.sizes)).mean()) if whole <= MOST_LISTED else 0.0
        change = inquiry.effects.n_rows_variance / n**2 * (part**2 - (figure.estimate - part) ** 2)
        scale = n * math.sqrt(max(1 + change / max(figure.standard_error**2, 1e-300), 0.0))
        counts = {"estimate": n * figure.estimate, "standard_error": scale * figure.standard_error}
        ends = {"low": figure.low, "high": figure.high}
        counts |= {end: counts["estimate"] + scale * (at - figure.estimate) for end, at in ends.items()}
        if certificate.by_chance and figure.sampling_error is not None:
            counts["choosing_error"] = n * figure.sampling_error
    reference = inquiry.reference
    held = inquiry.averaged(lambda codes: inquiry.holds(event, codes)[:, None])(reference.codes)[:, 0]
    share, by = float(reference.union @ held), "the model's exact expectation"
    if reference.drawn is not None:
        by = f"counted in {reference.drawn:,} drawn rows"
    if model.dummies and event is not None:
        # Rows of dummies may have any number of an attribute's levels.
        blocks = sample_codes(model.copula, min(model.n_rows, _MOST_DRAWN), _SEED)
        bits, offsets = np.concatenate(list(blocks), axis=1).view(np.bool_), model.measured_schema.offsets
        tree = lift(event, inquiry.finer).traced(inquiry.finer.schema)
        here = tree.evaluate(lambda leaf: bits[offsets[leaf.attribute] :][: leaf.levels.size][leaf.levels].any(axis=0))
        share, by = float(here.mean()), f"counted in {here.size:,} drawn rows"
    return Answer(
        predicate=asked.text,
        attributes=tuple(schema.names[i] for i in sorted(asked.attributes)),
        n_rows=n,
        level=level,
        bounds=figure.bounds,
        measured=figure.measured,
        synthetic=n * share,
        synthetic_by=by,
        counted=certificate.counted,
        split=cut_bins(schema, asked.cuts),
        beyond_most=sum(inquiry.beyond.values()) if inquiry.beyond else None,
        notes=tuple(note for note in found.notes if not note.startswith("counted are")),
        cautions=found.cautions,
        **counts,
    )
