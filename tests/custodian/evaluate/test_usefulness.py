"""Train on synthetic, test on real."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest

from sklar.custodian.evaluate import _judge, _sample, evaluate, first_codes, usefulness
from sklar.errors import DataError
from sklar.generate import generate, schema_toml
from sklar.public.schema import Schema
from tests.custodian.evaluate.tables import SCHEMA, as_dummies, codes, dummies, records

sklearn = pytest.importorskip("sklearn")


def test_real_rows_of_another_draw_are_as_useful_and_shuffled_ones_are_not() -> None:
    schema = Schema.from_toml(schema_toml("census"))
    real, other, test = (pl.concat(generate("census", rows=3_000, seed=seed)[1]) for seed in (0, 1, 2))
    shuffled = other.with_columns(pl.col("employed").shuffle(seed=0))
    good, bad = (usefulness(real, table, test, schema, target="employed") for table in (other, shuffled))
    assert [score.trained_on for score in good] == ["real rows"] * 2 + ["synthetic rows"] * 2
    assert {score.learner for score in good} == {"logistic regression", "boosted trees"}
    for on_real, on_other, on_shuffled in zip(good[:2], good[2:], bad[2:], strict=True):
        assert on_real.auc > 0.65
        assert on_other.auc == pytest.approx(on_real.auc, abs=0.08)
        assert on_shuffled.auc < 0.6


def test_an_evaluation_with_a_target_shows_the_scores() -> None:
    evaluation = evaluate(records(200, 0), dummies(200, 1), SCHEMA, target="a", test=records(100, 2))
    assert len(evaluation.scores) == 4
    text = "\n".join(evaluation.lines())
    assert "Predicting 'a' on real test rows:" in text
    assert "logistic regression" in text
    assert len(evaluation.to_dict()["usefulness"]) == 4


def test_a_target_with_one_level_in_training_is_predicted_throughout_and_one_that_no_row_has_is_refused() -> None:
    synthetic = records(50).filter(pl.col("a") == "x")
    scores = usefulness(records(50), synthetic, records(60, 3), SCHEMA, target="a")[2:]
    share = float(np.mean(codes(60, 3)[0] == 0))
    assert all(score.accuracy == pytest.approx(share) and score.auc == 0.5 for score in scores)
    with pytest.raises(DataError, match="no row has a level of the target 'a'"):
        usefulness(records(5), records(5).with_columns(a=pl.lit("unlisted")), records(5), SCHEMA, target="a")


def test_auc_is_one_against_rest_averaged() -> None:
    truth = np.array([0, 0, 1, 1, 2, 2], dtype=np.int32)
    perfect = np.eye(3)[truth]
    assert _judge(truth, perfect) == (1.0, 1.0)
    # A level that is always given the same chance has AUC 1/2.
    flat = np.column_stack([perfect[:, 0], np.zeros(6), perfect[:, 2]])
    assert _judge(truth, flat)[1] == pytest.approx((1 + 0.5 + 1) / 3)
    assert _judge(np.zeros(4, dtype=np.int32), np.ones((4, 1))) == (1.0, 0.5)


def test_training_rows_are_a_bounded_sample_and_of_dummies_the_first_level_that_is_set_counts() -> None:
    assert _sample(records(500), SCHEMA, 0, 60).shape == (4, 60)
    assert _sample(records(50), SCHEMA, 0, 60).tolist() == codes(50).tolist()
    matrix = as_dummies(codes(30))
    assert first_codes(matrix, SCHEMA).tolist() == codes(30).tolist()
    matrix[:3] = False
    assert (first_codes(matrix, SCHEMA)[0] == -1).all()
    matrix[1:3] = True
    assert (first_codes(matrix, SCHEMA)[0] == 1).all()


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    message = r"^training on synthetic rows needs scikit-learn: pip install 'sklar\[learn\]'$"
    with pytest.raises(match=message):
        usefulness(records(9), records(9), records(9), SCHEMA, target="a")
