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

from sklar.custodian.evaluate.compare import NOTICE as NOTICE
from sklar.custodian.evaluate.compare import Evaluation as Evaluation
from sklar.custodian.evaluate.compare import Result as Result
from sklar.custodian.evaluate.compare import compare as compare
from sklar.custodian.evaluate.compare import evaluate as evaluate
from sklar.custodian.evaluate.conjunctions import MAX_TRIPLES as MAX_TRIPLES
from sklar.custodian.evaluate.conjunctions import Answers as Answers
from sklar.custodian.evaluate.conjunctions import Errors as Errors
from sklar.custodian.evaluate.conjunctions import TripleQueries as TripleQueries
from sklar.custodian.evaluate.conjunctions import answer as answer
from sklar.custodian.evaluate.conjunctions import choose_triples as choose_triples
from sklar.custodian.evaluate.figures import plot as plot
from sklar.custodian.evaluate.usefulness import usefulness as usefulness
