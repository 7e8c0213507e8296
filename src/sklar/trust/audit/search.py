"""Attacks on the search for private domains: which categories a release lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from sklar.budget.method import PAPER
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.audit.guesses import judge_guesses
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.tables import write

_TOWN = Schema(
    name="audit",
    attributes=(Attribute(name="town", kind="categorical", other=True, domain="private", at_most=1),),
)
_BUDGET = Budget(epsilon=1.0)
_RUNS = 60


def check_threshold(folder: Path) -> Comparison:
    """The chance that a town of one row is listed, summed term by term, against the one that is paid for."""
    path = write(pl.DataFrame({"town": ["Bern"] * 50}), folder / "threshold.csv")
    (finding,) = measure(path, _TOWN, _BUDGET, method=PAPER).certificate.domains
    far = int(40 * finding.scale)
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * finding.scale**2))
    # Largest first would lose the small ones.
    chance = float(weights[far + (finding.threshold or 0) - 1 :][::-1].sum() / weights.sum())
    return Comparison(
        part="threshold",
        tried=f"the threshold of {finding.threshold} rows from which a town is listed, under noise of scale "
        f"{finding.scale:.4g}: how likely a town of one row is listed.",
        found=f"With a chance of {chance:.3g}; {finding.lost_delta:.3g} is paid for.",
        sees="It sees a threshold that is one too low for what is paid.",
        passed=chance <= finding.lost_delta <= _BUDGET.delta,
        claimed=finding.lost_delta,
        measured=chance,
        trials=1,
    )


def check_choice(folder: Path) -> list[Comparison]:
    """Two towns, one of which is listed: one row more must not decide which."""
    scores = []
    for many, few in (("Bern", "Rome"), ("Rome", "Bern")):
        path = write(pl.DataFrame({"town": [many] * 2_001 + [few] * 2_000}), folder / f"{many}.csv")
        listed = [measure(path, _TOWN, _BUDGET, method=PAPER).schema.attribute("town").values for _ in range(_RUNS)]
        scores.append(np.array([1.0 if values == ("Bern",) else -1.0 for values in listed]))
    return [judge_guesses("the only town that is listed", _BUDGET, (scores[0], scores[1]), 0.1)]
