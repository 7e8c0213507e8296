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


def check_choice(folder: Path) -> list[Comparison]:
    """Two towns, one of which is listed: one row more must not decide which."""
    scores = []
    for many, few in (("Bern", "Rome"), ("Rome", "Bern")):
        path = write(pl.DataFrame({"town": [many] * 2_001 + [few] * 2_000}), folder / f"{many}.csv")
        listed = [measure(path, _TOWN, _BUDGET, method=PAPER).schema.attribute("town").values for _ in range(_RUNS)]
        scores.append(np.array([1.0 if values == ("Bern",) else -1.0 for values in listed]))
    return [judge_guesses("the only town that is listed", _BUDGET, (scores[0], scores[1]), 0.1)]
