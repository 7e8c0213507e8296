"""Valid inference from a released model: means, shares, correlations, regressions and tests, at no privacy cost.

Tests that treat synthetic rows as if they were real reject true hypotheses far too often: these rows carry the noise of
the release and what the model makes of it, and do not say so. Noise scales are public, so an answer from the noisy
tables can say it (docs/inference.md, docs/method.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.infer.inquiry import Declared, Figure, Inference, Inquiry, Target
from sklar.answer.infer.ratios import answer_ratios
from sklar.answer.infer.regression import answer_correlation, answer_formula, answer_independence
from sklar.answer.infer.syntax import read
from sklar.answer.predicate import QueryError

if TYPE_CHECKING:
    from sklar.files.model import Model

__all__ = ["Declared", "Figure", "Inference", "Target", "infer"]

_ANSWERS = {
    "mean": answer_ratios,
    "share": answer_ratios,
    "shares": answer_ratios,
    "corr": answer_correlation,
    "independent": answer_independence,
    "formula": answer_formula,
}


def infer(
    model: Model,
    question: str,
    *,
    level: float = DEFAULT_LEVEL,
    target: str | None = None,
    scores: Mapping[str, Declared] | None = None,
) -> Inference:
    """The answer to a question, with a standard error and an interval that account for the release's noise.

    `target` is "population", the one that the rows were drawn from, or "table", the confidential table itself; a
    population by default, but for releases that count several rows of each person. `scores` says by attribute what
    levels stand for: "midpoint", or a number for each level.
    """
    return answer_to(ask(model, question, level=level, target=target, scores=scores))


def ask(
    model: Model,
    question: str,
    *,
    level: float = DEFAULT_LEVEL,
    target: str | None = None,
    scores: Mapping[str, Declared] | None = None,
) -> Inquiry:
    """The question, read and checked, with what was measured of its attributes."""
    if model.dummies:
        raise QueryError(
            "inference is about records, and this model draws the paper's 0/1 columns. Fit another to the same noisy "
            "tables, at no cost: sklar.fit_tables(model.measured).infer(...)."
        )
    declared = dict(scores or {})
    unknown = [name for name in declared if name not in model.schema.names]
    if unknown:
        raise QueryError(f"scores are given for '{unknown[0]}', which is no attribute of the schema. Correct its name.")
    statistic, about = read(question, model.schema), _target(model, target)
    return Inquiry(model, statistic, level=level, target=about, declared=declared)


def answer_to(inquiry: Inquiry) -> Inference:
    """The answer to a question that was asked."""
    return _ANSWERS[inquiry.asked.kind](inquiry)


def _target(model: Model, target: str | None) -> Target:
    certificate = model.certificate
    several = certificate.count == "rows" and certificate.rows > 1
    if target not in (None, "population", "table"):
        raise QueryError(f"the target must be 'population' or 'table', got '{target}'.")
    if target == "population" and several:
        raise QueryError(
            "a population is inferred from independent rows, and this release counts several rows of each person. Ask "
            "about the target 'table'."
        )
    return "table" if target == "table" or several else "population"
