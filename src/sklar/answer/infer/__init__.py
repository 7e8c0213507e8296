"""Valid inference from a released model, at no privacy cost (docs/inference.md).

Synthetic rows carry the noise of the release and what the model makes of it: tests that treat them as real reject true
hypotheses far too often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklar.answer.infer.inquiry import Figure, Inference, Inquiry, Target
from sklar.answer.infer.inside import Declared
from sklar.answer.infer.numerical import infer_function
from sklar.answer.infer.statistics import answer_formula, answer_independence, answer_measures, answer_quantiles
from sklar.answer.infer.words import QUANTILES

if TYPE_CHECKING:
    from sklar.files.model import Model

__all__ = ["Declared", "Figure", "Inference", "Target", "infer", "infer_function"]


def infer(model: Model, question: str, **settings: Any) -> Inference:
    """The answer to a question, with errors and intervals that account for noise; settings are those of `Inquiry`."""
    return answer_to(Inquiry(model, question, **settings))


def answer_to(inquiry: Inquiry) -> Inference:
    """The answer to a question that was asked."""
    asked = inquiry.asked
    if asked.kind == "formula":
        return answer_formula(inquiry)
    if asked.kind == "independent":
        return answer_independence(inquiry)
    return answer_quantiles(inquiry) if asked.measures[0].word in QUANTILES else answer_measures(inquiry)
