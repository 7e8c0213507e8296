"""One question to one model: what was measured of its attributes, what the model says, and how figures are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sklar.answer.infer.effects import Floats, Subset, misfit, pool_effects
from sklar.answer.infer.independence import WaldTest
from sklar.answer.infer.onestep import Linearized, OneStep, one_step
from sklar.answer.infer.question import Question
from sklar.answer.infer.reference import refer
from sklar.answer.infer.result import Figure, Inference, Target
from sklar.answer.infer.scores import Declared, Scores, score
from sklar.answer.predicate import Atom, Expression, QueryError, attributes_of, evaluate, traced
from sklar.draw.shapes import Shape

if TYPE_CHECKING:
    from sklar.files.model import Model

Codes = NDArray[np.int64]

# Below this share of its influence function a statistic is to a good part the model's guess.
MEASURED = 0.95
# Totals of complete rows differ from their number by noise alone; so many standard errors are not noise.
_INCOMPLETE = 5.0
# An interval this many times as wide as that of the rows themselves is told.
_WIDE = 3.0


class Inquiry:
    """Looks things up for a question, and collects what has to be said beside its figures.

    Attributes of a question are those of the whole schema. Records are codes of the measured attributes `where`, shape
    (records, attributes): what a rule determines is a function of the attribute that determines it.
    """

    def __init__(
        self, model: Model, asked: Question, *, level: float, target: Target, declared: Mapping[str, Declared]
    ) -> None:
        self.model, self.asked, self.level, self.target = model, asked, level, target
        self.declared = declared
        self.population = target == "population"
        self.quantile = NormalDist().inv_cdf(0.5 + level / 2)
        named = {*asked.names, *asked.by, *asked.outcome}
        for predicate in (asked.event, asked.given):
            named |= set() if predicate is None else set(attributes_of(predicate))
        self.where: Subset = tuple(sorted({self.source(i) for i in named}))
        self.effects = pool_effects(model.measured, self.where)
        self.reference = refer(model.copula, model.settings, self.where)
        self.notes: list[str] = []
        self.cautions: list[str] = []
        self._scored: dict[int, Scores] = {}
        # Shapes of all numbers are fitted together.
        self._known_shapes: Mapping[str, Shape] | None = None

    def source(self, attribute: int) -> int:
        """The measured attribute that decides an attribute's level."""
        return self.model.schema.sources[attribute][0]

    def over_source(self, attribute: int, values: Floats) -> Floats:
        """A function of an attribute's levels as one of the levels of its source; levels are the first axis."""
        return np.asarray(values[self.model.schema.sources[attribute][1]])

    def column(self, codes: Codes, attribute: int, values: Floats) -> Floats:
        """A function of an attribute's levels on records."""
        return self.over_source(attribute, values)[codes[:, self.where.index(self.source(attribute))]]

    def holds(self, predicate: Expression | None, codes: Codes) -> Floats:
        """1 for records that satisfy a predicate, else 0."""
        if predicate is None:
            return np.ones(len(codes))

        def atom(leaf: Atom) -> NDArray[np.bool_]:
            return np.asarray(leaf.levels[codes[:, self.where.index(leaf.attribute)]])

        return evaluate(traced(predicate, self.model.schema), atom).astype(np.float64)

    def scores(self, attribute: int) -> Scores:
        """What an attribute's levels stand for; the answer will say so."""
        if attribute not in self._scored:
            own = self.model.schema.attributes[attribute]
            found = self._scored[attribute] = score(self._shapes, own, self.declared)
            if found.by not in ("0 and 1", "the numbers themselves"):
                self.notes.append(f"'{own.name}' is known by its levels; their scores are {found.by}")
            if not found.known.all():
                self.notes.append(f"rows in which '{own.name}' is no number (missing, special) are left out")
        return self._scored[attribute]

    def _shapes(self) -> Mapping[str, Shape]:
        if self._known_shapes is None:
            self._known_shapes = self.model.shapes
        return self._known_shapes

    def one_step(self, linear: Linearized) -> OneStep:
        """The one-step estimates of these statistics."""
        return one_step(self.effects, self.reference, linear)

    def figure(
        self,
        name: str,
        estimate: float,
        slope: Floats,
        found: OneStep,
        *,
        interval: tuple[float, float] | None = None,
        tested: bool = False,
    ) -> Figure:
        """A figure whose gradient by the one-step estimates is `slope`, shape (q,)."""

        def error(covariance: Floats) -> float:
            return math.sqrt(max(float(slope @ covariance @ slope), 0.0))

        whole = error(found.covariance(population=self.population))
        if interval is None:
            interval = estimate - self.quantile * whole, estimate + self.quantile * whole
        low, high = (each if math.isfinite(each) else None for each in interval)
        return Figure(
            name=name,
            estimate=estimate,
            standard_error=whole,
            low=low,
            high=high,
            measured=found.measured(slope),
            noise_error=error(found.noise),
            sampling_error=error(found.sampling) if self.population else None,
            model_error=error(found.model),
            p_value=math.erfc(abs(estimate) / whole / math.sqrt(2)) if tested and whole > 0 else None,
        )

    def inference(self, statistic: str, figures: Sequence[Figure] = (), test: WaldTest | None = None) -> Inference:
        """The answer, with everything that has to be said beside it."""
        self._judge(figures)
        self._state_facts()
        given = f" where {self.asked.given_text}" if self.asked.given is not None else ""
        return Inference(
            question=self.asked.text,
            statistic=statistic[:1].upper() + statistic[1:] + given,
            target=self.target,
            level=self.level,
            n_rows=self.effects.n_rows,
            figures=tuple(figures),
            test=test,
            notes=tuple(self.notes),
            cautions=tuple(dict.fromkeys(self.cautions)),
        )

    def _judge(self, figures: Sequence[Figure]) -> None:
        least = min((figure.measured for figure in figures if figure.low is not None), default=1.0)
        fits = len(self.reference.weights)
        if least < MEASURED:
            told = f"only {100 * least:.0f}% of this was measured; the rest is what the model makes of it"
            if fits < 4:
                told += ", and it has too few fits to say how well. Do not rely on it"
            else:
                told += ". Its fits disagree by what the standard error includes, but they may be wrong together"
            self.cautions.append(told + ".")
        sampled = [figure for figure in figures if figure.low is not None and figure.sampling_error]
        wide = max((figure.standard_error / (figure.sampling_error or 1.0) for figure in sampled), default=0.0)
        if wide > _WIDE:
            self.notes.append(
                f"the release's noise makes the widest interval {wide:,.0f} times as wide as the rows themselves would"
            )

    def _state_facts(self) -> None:
        """What the reader must know of the release."""
        certificate, schema = self.model.certificate, self.model.measured_schema
        if certificate.count is not None:
            self.notes.append(f"counted are {certificate.counted}")
        if certificate.mechanism == "laplace":
            self.notes.append("intervals take Laplace noise for normal, which sums of many cells are")
        if certificate.claimed_by is not None:
            self.notes.append("noise scales are what the caller claimed, not checked")
        open_ended = [each.name for each in schema.attributes if each.missing is None and not each.other]
        if misfit(self.model.measured, self.where) > _INCOMPLETE:
            self.cautions.append(
                "the tables of these attributes do not add up to the number of rows: many rows have no level of them. "
                "Figures are off by up to their share."
            )
        elif open_ended and certificate.public_rows is not None:
            self.notes.append("every row is taken to have a level of every attribute")


def require_level(level: float) -> None:
    """Refuse what is no level of confidence."""
    if not 0 < level < 1:
        raise QueryError(f"the confidence level must lie strictly between 0 and 1, got {level}. Try 0.95.")
