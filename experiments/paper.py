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
