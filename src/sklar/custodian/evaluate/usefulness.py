"""What analysts do next: train on synthetic rows, test on real ones, against training on real ones. Private."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.custodian.evaluate.conjunctions import read
from sklar.custodian.evaluate.raw import RowSample
from sklar.errors import DataError
from sklar.machine.extras import require
from sklar.public.schema import Schema

# Enough for both learners to stop improving on tables of this kind, and a bound on memory.
MAX_TRAINING_ROWS = 100_000
_SEED = 2020

# Trees can split at most this many categories.
_MAX_CATEGORIES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One learner trained on one table, tested on real rows. AUC is one-vs-rest, averaged over the target's levels."""

    target: str
    trained_on: str
    learner: str
    rows: int
    accuracy: float
    auc: float

    def cells(self) -> tuple[str, ...]:
        """A row of a table."""
        return (self.trained_on, self.learner, f"{self.rows:,}", f"{self.accuracy:.3f}", f"{self.auc:.3f}")


def usefulness(
    real: object,
    synthetic: object,
    test: object,
    schema: Schema,
    *,
    target: str,
    max_rows: int = MAX_TRAINING_ROWS,
) -> tuple[Score, ...]:
    """Accuracy and AUC on real test rows of learners trained on real and on synthetic rows.

    Logistic regression sees one-hot levels; gradient-boosted trees see codes, ordinal where the attribute is binned and
    categorical otherwise. At most `max_rows` training rows are used, a random sample with a fixed seed. Rows without a
    level of the target are left out; of dummies that set several levels of an attribute, the first counts.
    """
    require("sklearn", what="training on synthetic rows", package="scikit-learn", extra="learn")
    where = schema.names.index(schema.attribute(target).name)
    tested = _sample(test, schema, where, max_rows)
    scores = []
    for name, data in (("real rows", real), ("synthetic rows", synthetic)):
        trained = _sample(data, schema, where, max_rows)
        for learner, predict in (("logistic regression", _logistic), ("boosted trees", _trees)):
            accuracy, auc = _judge(tested[where], _chances(trained, tested, schema, where, predict))
            rows = trained.shape[1]
            score = Score(target=target, trained_on=name, learner=learner, rows=rows, accuracy=accuracy, auc=auc)
            scores.append(score)
    return tuple(scores)


def _sample(data: object, schema: Schema, where: int, wanted: int) -> NDArray[np.int32]:
    """Codes of at most `wanted` random rows that have a target, shape (m, rows), from one pass over the table."""
    form, batches = read(data, schema)
    sample = RowSample(schema.n_attributes, wanted, np.int32)
    for block in batches:
        codes = block if form == "records" else first_codes(block, schema)
        sample.add(codes[:, codes[where] >= 0])
    if sample.rows.shape[1] == 0:
        raise DataError(f"no row has a level of the target '{schema.names[where]}'. Choose another target.")
    return sample.rows


def first_codes(dummies: NDArray[np.bool_], schema: Schema) -> NDArray[np.int32]:
    """For each row of dummies, shape (d, rows), the first level of each attribute that is set, or -1; (m, rows)."""
    codes = np.empty((schema.n_attributes, dummies.shape[1]), dtype=np.int32)
    for index, (start, size) in enumerate(zip(schema.offsets, schema.sizes, strict=False)):
        block = dummies[start : start + size]
        codes[index] = np.where(block.any(axis=0), block.argmax(axis=0), -1)
    return codes


def _chances(
    trained: NDArray[np.int32],
    tested: NDArray[np.int32],
    schema: Schema,
    where: int,
    predict: Callable[..., tuple[Any, Any]],
) -> NDArray[np.float64]:
    """Predicted probabilities of the target's levels, shape (rows, levels)."""
    chances = np.zeros((tested.shape[1], int(schema.sizes[where])))
    levels, predicted = np.unique(trained[where]), 1.0
    if levels.size > 1:
        levels, predicted = predict(trained, tested, schema, where)
    chances[:, levels] = predicted
    return chances


def _logistic(trained: NDArray[np.int32], tested: NDArray[np.int32], schema: Schema, where: int) -> tuple[Any, Any]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=2000)
    model.fit(_one_hot(trained, schema, where), trained[where])
    return model.classes_, model.predict_proba(_one_hot(tested, schema, where))


def _one_hot(codes: NDArray[np.int32], schema: Schema, where: int) -> Any:
    from scipy.sparse import csr_array

    here = codes >= 0
    here[where] = False
    columns = (codes + schema.offsets[:-1, None]).T[here.T]
    starts = np.concatenate([[0], np.cumsum(here.sum(axis=0))])
    shape = (codes.shape[1], schema.n_levels)
    return csr_array((np.ones(columns.size), columns, starts), shape=shape)


def _trees(trained: NDArray[np.int32], tested: NDArray[np.int32], schema: Schema, where: int) -> tuple[Any, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    nominal = [
        attribute.categorical and not attribute.ordered and attribute.n_levels <= _MAX_CATEGORIES
        for index, attribute in enumerate(schema.attributes)
        if index != where
    ]
    model = HistGradientBoostingClassifier(categorical_features=nominal, random_state=_SEED)
    # On tables this small more threads gain little, and on a busy machine they wait for each other a hundred times as
    # long as they work.
    with threadpool_limits(1):
        model.fit(_codes(trained, where), trained[where])
        return model.classes_, model.predict_proba(_codes(tested, where))


def _codes(codes: NDArray[np.int32], where: int) -> NDArray[np.float64]:
    features = np.delete(codes, where, axis=0).T.astype(np.float64)
    features[features < 0] = np.nan
    return features


def _judge(truth: NDArray[np.int32], chances: NDArray[np.float64]) -> tuple[float, float]:
    from sklearn.metrics import roc_auc_score

    accuracy = float(np.mean(chances.argmax(axis=1) == truth))
    levels = [level for level in range(chances.shape[1]) if 0 < np.count_nonzero(truth == level) < truth.size]
    aucs = [roc_auc_score(truth == level, chances[:, level]) for level in levels]
    return accuracy, float(np.mean(aucs)) if aucs else 0.5
