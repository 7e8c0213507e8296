"""What the paper printed, to stand beside what we measure: docs/results/others.json, which names its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

OTHERS = Path(__file__).resolve().parents[1] / "docs" / "results" / "others.json"
_PAPER: dict[str, Any] = json.loads(OTHERS.read_text(encoding="utf-8"))["paper"]

# Average and maximum absolute error of the best 95%, 99% and 100% of the queries.
ERRORS = _PAPER["errors"]

# cop (no noise), maximum error of the best 99% of the queries.
COP_99 = _PAPER["cop_99"]

# dpc on Adult, average and maximum over all queries.
SWEEP = {float(epsilon): errors for epsilon, errors in _PAPER["sweep"].items()}

# Hospital: pairs of dummies of distinct attributes, and those with |r| >= 0.5.
PAIRS, CORRELATED_PAIRS = _PAPER["pairs"], _PAPER["correlated_pairs"]

# Rows, attributes, dummies and time on 10 cores of an Intel Xeon E5-2660 at 2.6 GHz with 128 GB.
TIMES = _PAPER["times"]

# The copula through numbers, 400 rows: counts of the three pairs that occur, by map of the second attribute.
THROUGH_NUMBERS, PRINTED_PEARSON = _PAPER["through_numbers"], _PAPER["printed_pearson"]

# What the paper says of its own copy of Hospital, and of Adult's time.
HOSPITAL_DUMMIES = TIMES["hospital"][2]


def seconds_of(printed: str) -> float:
    """A time as the paper prints it, in seconds.

    >>> seconds_of("6 min 47 s"), seconds_of("2 h 30 min")
    (407.0, 9000.0)
    """
    words = printed.split()
    units = {"h": 3600.0, "min": 60.0, "s": 1.0}
    return sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
