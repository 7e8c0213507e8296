"""Attacks on the search for private domains: the noise of what it measures, and which categories a release lists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.budget.ladder import ladder_of, next_cells
from sklar.budget.method import PAPER
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.audit.guesses import judge_guesses
from sklar.trust.audit.noise import Odd, odd_noise
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.tables import write

_TOWN = Schema(
    name="audit",
    attributes=(Attribute(name="town", kind="categorical", other=True, domain="private", at_most=1),),
)
# Towns of many rows, towns at the threshold, and amounts between wide bounds.
_BOTH = Schema(
    name="audit",
    attributes=(
        Attribute(name="town", kind="categorical", other=True, domain="private", at_most=100),
        Attribute(name="amount", kind="integer", edges=(0, 5_000), domain="private", at_most=5),
    ),
)
_BUDGET = Budget(epsilon=1.0)
_RUNS = 60
_EDGE = 40
# Amounts that many rows have: at both bounds, beyond them, and between.
_HEAPS = (0, 1, 17, 2_500, 4_999, 5_000, 10**12, -1)


def check_searches(folder: Path) -> Comparison:
    """What a search lets out: the noise of every table that it measured, and what reached its threshold."""
    path, generator = folder / "search.parquet", np.random.default_rng()
    amounts = np.concatenate([np.repeat(_HEAPS, 500), generator.integers(0, 5_000, 4_000)])
    start = pl.DataFrame({"town": ["Bern"] * 5_000 + ["Rome"] * 3_000, "amount": amounts})
    threshold = measure(write(start, path), _BOTH, _BUDGET, method=PAPER).certificate.domains[0].threshold or 0
    edge = pl.DataFrame({"town": [f"edge{i}" for i in range(_EDGE)] * threshold})
    frame = pl.concat([start, edge.with_columns(amount=pl.int_range(edge.height, dtype=pl.Int64) % 7)])
    write(frame, path)
    drawn = [measure(path, _BOTH, _BUDGET, method=PAPER) for _ in range(_RUNS)]
    wrong = [*_odd_towns(threshold, drawn), *_odd_amounts(frame["amount"].to_numpy(), drawn)]
    return Comparison(
        part="search",
        tried=f"{len(drawn)} searches of one file, for {_EDGE + 2} towns and an amount: the noise of every table that "
        "was measured, and which towns were listed.",
        found="Every table has noise, and no town below the threshold is listed."
        if not wrong
        else f"Found: {wrong[0].words}.",
        sees="It sees a table, a cell or a common town without noise or counted twice, and a threshold off by one.",
        passed=not wrong,
        claimed=0.0,
        measured=float(len(wrong)),
        trials=len(drawn),
        p_value=wrong[0].p_value if wrong else None,
    )


def _odd_towns(threshold: int, drawn: list[Measured]) -> list[Odd]:
    """The noise of common towns, and towns that are listed below the threshold."""
    towns = [dict(answer) for each in drawn if isinstance(answer := each.answers[0], Mapping)]
    noise = np.array([[each.get("Bern", 0) - 5_000, each.get("Rome", 0) - 3_000] for each in towns])
    below = any(count < threshold for each in towns for count in each.values())
    found = odd_noise(noise / drawn[0].certificate.domains[0].scale, noise, np.ones(2, dtype=np.int64))
    return [*found, *([Odd("a town below the threshold", 0.0)] if below else [])]


def _odd_amounts(amounts: NDArray[np.int64], drawn: list[Measured]) -> list[Odd]:
    """The noise of all tables of amounts. Their cells are public: they follow from the bounds and earlier tables."""
    ladder = ladder_of(_BOTH.attribute("amount"))
    units = np.clip(amounts, ladder.low, ladder.high - 1)
    found: list[Odd] = []
    for at, finding in enumerate(drawn[0].certificate.domains[1:], start=1):
        answers = [answer for each in drawn if not isinstance(answer := each.answers[at], Mapping)]
        for table in range(finding.tables):
            noise = []
            for answer in answers:
                if finding.of == "rounding":
                    exact = np.bincount(ladder.rounding_cells(units), minlength=ladder.rounding_size)
                else:
                    exact = np.histogram(units, next_cells(ladder, answer[:table], finding.scale)[-1] - 0.5)[0]
                noise.append(answer[table] - exact)
            # Where every run has other cells, all are taken together.
            alike = len({each.size for each in noise}) == 1
            own = np.array(noise) if alike else np.concatenate(noise)[:, None]
            found += odd_noise(own / finding.scale, own, np.ones(own.shape[1], dtype=np.int64))
    return found


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
