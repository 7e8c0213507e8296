"""How near a release comes to the real rows: queries, errors, plots. For the custodian's eyes only.

Everything here sees the real rows without noise, and says so on every output. The release path never imports it.

>>> import polars as pl
>>> from sklar import Schema
>>> schema = Schema.from_toml('''
... [attributes.smoker]
... type = "boolean"
... ''')
>>> real, synthetic = pl.DataFrame({"smoker": [True, True, False]}), pl.DataFrame({"smoker": [True, False, False]})
>>> evaluate(real, synthetic, schema).result("one-way").errors.best(100).average
1.0
"""

from __future__ import annotations

from sklar.custodian.evaluate.compare import NOTICE, Evaluation, Result, compare, evaluate
from sklar.custodian.evaluate.errors import Best, Errors
from sklar.custodian.evaluate.plots import plot
from sklar.custodian.evaluate.queries import MAX_TRIPLES, Answers, Triples, answer, choose_triples
from sklar.custodian.evaluate.usefulness import Score, usefulness
from sklar.errors import MissingExtraError

__all__ = [
    "MAX_TRIPLES",
    "NOTICE",
    "Answers",
    "Best",
    "Errors",
    "Evaluation",
    "MissingExtraError",
    "Result",
    "Score",
    "Triples",
    "answer",
    "choose_triples",
    "compare",
    "evaluate",
    "plot",
    "usefulness",
]
