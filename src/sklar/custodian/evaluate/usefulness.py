"""What analysts do next: train on synthetic rows, test on real ones, against training on real ones. Private."""

from __future__ import annotations

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
    real: object, synthetic: object, test: object, schema: Schema, *, target: str, max_rows: int = MAX_TRAINING_ROWS
) -> tuple[Score, ...]:
    """Accuracy and AUC on real test rows of learners trained on real and on synthetic rows.

    Logistic regression sees one-hot levels; gradient-boosted trees see codes, ordinal where the attribute is binned and
    categorical otherwise. At most `max_rows` training rows are used, a random sample with a fixed seed. Rows without a
    level of the target are left out; of dummies that set several levels of an attribute, the first counts.
    """
    require("sklearn", what="training on synthetic rows", package="scikit-learn", extra="learn")
    from threadpoolctl import threadpool_limits

    where = schema.names.index(schema.attribute(target).name)
    tested = _sample(test, schema, where, max_rows)
    scores = []
    for name, data in (("real rows", real), ("synthetic rows", synthetic)):
        trained = _sample(data, schema, where, max_rows)
        levels = np.unique(trained[where])
        for learner, model in _learners(schema, where).items():
            chances = np.zeros((tested.shape[1], int(schema.sizes[where])))
            chances[:, levels] = 1.0
            # More threads gain little on tables this small, and slow down a busy machine a hundredfold.
            with threadpool_limits(1):
                if levels.size > 1:
                    model.fit(np.delete(trained, where, axis=0).T, trained[where])
                    chances[:, levels] = model.predict_proba(np.delete(tested, where, axis=0).T)
            figures = dict(zip(("accuracy", "auc"), _judge(tested[where], chances), strict=True))
            scores.append(Score(target=target, trained_on=name, learner=learner, rows=trained.shape[1], **figures))
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


def _learners(schema: Schema, where: int) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

    others = [attribute for index, attribute in enumerate(schema.attributes) if index != where]
    levels = [np.arange(each.n_levels) for each in others]
    nominal = [each.categorical and not each.ordered and each.n_levels <= _MAX_CATEGORIES for each in others]
    # Code -1, which is no level, sets no column, and is a missing value to trees.
    encoder = OneHotEncoder(categories=levels, handle_unknown="ignore")
    missing = FunctionTransformer(lambda codes: np.where(codes < 0, np.nan, codes))
    trees = HistGradientBoostingClassifier(categorical_features=nominal, random_state=_SEED)
    return {
        "logistic regression": make_pipeline(encoder, LogisticRegression(max_iter=2000)),
        "boosted trees": make_pipeline(missing, trees),
    }


def _judge(truth: NDArray[np.int32], chances: NDArray[np.float64]) -> tuple[float, float]:
    from sklearn.metrics import roc_auc_score

    accuracy = float(np.mean(chances.argmax(axis=1) == truth))
    levels = [level for level in range(chances.shape[1]) if 0 < np.count_nonzero(truth == level) < truth.size]
    aucs = [roc_auc_score(truth == level, chances[:, level]) for level in levels]
    return accuracy, float(np.mean(aucs)) if aucs else 0.5
