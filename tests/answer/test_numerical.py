"""Statistics that users write: the numerical influence function against algebra, refusals, and what is not smooth."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.answer.effects import Floats
from sklar.answer.infer import infer
from sklar.answer.predicate import QueryError
from sklar.errors import ModelError
from sklar.files.model import Model
from tests.answer.test_infer import SCHEMA, exactly, frame

Function = Callable[[Any, Any], Any]


@pytest.fixture(scope="module")
def model() -> Model:
    return sklar.fit(frame(6000), SCHEMA, epsilon=4.0)


def mean_age(table: Any, weights: Floats) -> float:
    """Over rows that have an age."""
    ages = table["age"].to_numpy().astype(float)
    return float(np.average(ages[~np.isnan(ages)], weights=weights[~np.isnan(ages)]))


def slopes(table: pl.DataFrame, weights: Floats) -> dict[str, float]:
    x = np.stack([np.ones(table.height), table["sex"] == "Male", table["region"] == "South"], axis=1)
    found = np.linalg.solve((x * weights[:, None]).T @ x, x.T @ (weights * table["owns"].to_numpy()))
    return dict(zip(["(intercept)", "male", "south"], found, strict=True))


def cube(table: pl.DataFrame, weights: Floats) -> float:
    """The share of rows with three properties: of it, pairs tell a part."""
    own = (table["sex"] == "Male") & (table["owns"] == 1) & (table["region"] == "South")
    return float(np.average(own.to_numpy(), weights=weights))


def test_it_finds_what_algebra_finds(model: Model) -> None:
    """Estimates, and all parts of their errors: of a ratio, a regression on two attributes, a share of three."""
    scores: Any = {"age": "midpoint", "owns": {"false": 0, "true": 1}}
    regions = {level: float(level == "South") for level in SCHEMA.attribute("region").levels}
    questions: list[tuple[Function, str, list[str], dict[str, Any]]] = [
        (mean_age, "mean(age)", ["age"], scores),
        (slopes, "owns ~ sex + region", ["sex", "region", "owns"], {**scores, "region": regions}),
        (cube, "share(sex = 'Male' and owns = true and region = 'South')", ["sex", "region", "owns"], {}),
    ]
    for (function, question, columns, said), target in itertools.product(questions, ("table", "population")):
        used = {name: each for name, each in said.items() if name != "region"}
        found = model.infer(function, columns=columns, target=target, scores=used).figures
        true = infer(model, question, target=target, scores=said).figures
        assert len(found) == len(true)
        for ours, theirs in zip(found, true, strict=True):
            assert ours.estimate == pytest.approx(theirs.estimate, rel=0.02, abs=2e-3)
            # 60 tables tell the variance of what was not measured to a fifth or so.
            # The projection leaves out what the model has no rows of.
            near = 0.2 if function is cube else 0.12
            for part in ("noise_error", "sampling_error", "standard_error"):
                own, other = (getattr(each, part) or 0.0 for each in (ours, theirs))
                assert own == pytest.approx(other, rel=near), (question, part)
            assert ours.measured == pytest.approx(theirs.measured, abs=0.25)
    # Where numbers lie inside their bins is part of the error here too.
    shaped = (model.infer(mean_age, columns=["age"]), infer(model, "mean(age)"))
    assert shaped[0].figures[0].model_error == pytest.approx(shaped[1].figures[0].model_error, rel=0.05)
    assert shaped[0].figures[0].model_error > 0.03
    assert [each.name for each in model.infer(slopes, columns=["sex", "region", "owns"]).figures][1] == "male"


def test_exact_tables_give_exact_answers(model: Model) -> None:
    """The derivative alone, without noise: a mean over a group, which two tables tell."""

    def men(table: pl.DataFrame, weights: Floats) -> list[float]:
        own = weights * (table["sex"] == "Male").to_numpy()
        return [float(np.average(table["owns"], weights=own)), float(own.sum() / weights.sum())]

    rows = frame(6000)
    men_own = rows.filter(pl.col("sex") == "Male")["owns"].mean()
    found = exactly(model).infer(men, columns=["sex", "owns"], target="table")
    assert [each.name for each in found.figures] == ["men 1", "men 2"]
    assert found.figures[0].estimate == pytest.approx(men_own, abs=2e-3)
    assert found.figures[1].estimate == pytest.approx((rows["sex"] == "Male").mean(), abs=1e-6)
    assert found.statistic == "Men of sex, owns"


def test_what_is_not_smooth_has_no_interval_and_says_so(model: Model) -> None:
    def step(table: pl.DataFrame, weights: Floats) -> float:
        """A median that jumps from one bin's mean to the next."""
        ages = table["age"].fill_null(0).to_numpy()
        order = np.argsort(ages)
        return float(ages[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])

    def kinked(table: pl.DataFrame, weights: Floats) -> float:
        return abs(float(np.average(table["sex"] == "Male", weights=weights)) - center)

    found = model.infer(step, columns=["age"], scores={"age": "midpoint"})
    assert found.figures[0].low is None
    assert found.cautions[0].startswith("not smooth enough at this noise: step. On tables drawn from the model")
    share = model.infer("share(sex = 'Male')").figures[0]
    # At the kink, by the model; and far from it.
    source = SCHEMA.names.index("sex")
    center = float(model.copula.margins()[SCHEMA.cells.levels(source)][1])
    assert model.infer(kinked, columns=["sex"]).cautions
    center = 0.0
    assert model.infer(kinked, columns=["sex"]).cautions == ()
    assert model.infer(kinked, columns=["sex"]).figures[0].standard_error == pytest.approx(
        share.standard_error, rel=0.01
    )


def test_a_package_that_takes_weights_finds_what_the_formula_does(model: Model) -> None:
    linear = pytest.importorskip("sklearn.linear_model")

    def logit(table: pl.DataFrame, weights: Floats) -> dict[str, float]:
        """Rows of no weight have no part; of the others each counts as often as it weighs."""
        own, x = weights > 0, table.select(male=pl.col("sex") == "Male").to_numpy().astype(float)
        fitted = linear.LogisticRegression(C=np.inf, tol=1e-9, solver="newton-cholesky")
        fitted.fit(x[own], table["owns"].to_numpy()[own], sample_weight=weights[own])
        return {"(intercept)": fitted.intercept_[0], "sex = Male": fitted.coef_[0, 0]}

    found, true = (each.figures for each in (model.infer(logit, columns=["sex", "owns"]), infer(model, "owns ~ sex")))
    for ours, theirs in zip(found, true, strict=True):
        assert ours.name == theirs.name
        assert ours.estimate == pytest.approx(theirs.estimate, abs=0.1 * theirs.standard_error)
        assert ours.standard_error == pytest.approx(theirs.standard_error, rel=0.05)


def test_functions_that_are_no_statistic_of_weighted_rows_are_refused(model: Model) -> None:
    generator = np.random.default_rng(1)
    cases: list[tuple[str, Function]] = [
        ("must depend on its weights, and gave the same", lambda table, _: table["age"].mean()),
        ("must return the same for the same table", lambda *_: generator.random()),
        ("must not depend on the order or the number", lambda table, weights: weights.sum() / len(table)),
        ("must not depend on the order or the number", lambda _, weights: weights[:3].sum()),
        ("must return finite numbers, got {'function'", lambda *_: float("nan")),
        ("must take any table of its columns, and raised KeyError", lambda *_: dict[str, float]()["x"]),
        ("must take any table of its columns, and raised", lambda table, _: table["weight"].sum()),
        ("must return numbers, got 'a text'", lambda *_: "a text"),
        ("a statistic is of at most 100 numbers", lambda table, weights: 101 * [mean_age(table, weights)]),
    ]
    for message, function in cases:
        with pytest.raises(QueryError, match=message.replace("{", r"\{")):
            model.infer(function, columns=["age"])
    wrong: list[Any] = [[], ["age", "age"], ["nothing"], "age"]
    for columns in wrong:
        with pytest.raises(QueryError, match="columns must list different attributes of the schema"):
            model.infer(mean_age, columns=columns)
    with pytest.raises(ModelError, match="columns are for a function"):
        model.infer("mean(age)", columns=["age"])


def test_the_table_has_nulls_where_there_is_no_value(model: Model) -> None:
    seen: list[pl.DataFrame] = []

    def look(table: pl.DataFrame, weights: Floats) -> float:
        seen.append(table)
        assert weights.sum() == pytest.approx(6000)
        return mean_age(table, weights)

    one = model.infer(look, columns=["age", "region", "owns"])
    assert seen[0]["age"].null_count() > 0
    assert set(seen[0]["owns"]) == {0.0, 1.0}
    assert {"North", "other"} <= set(seen[0]["region"])
    assert any("'age' is no number (missing, special) are null in the function's table" in each for each in one.notes)
    other = sklar.infer(model, mean_age, columns=["age"])
    assert one.figures[0].estimate == pytest.approx(other.figures[0].estimate, rel=0.02)


def test_many_columns_are_drawn_from_the_model(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ["sex", "region", "owns"]
    listed = model.infer(slopes, columns=columns).figures
    monkeypatch.setattr("sklar.answer.infer.onestep.MOST_LISTED", 0)
    for drawn, own in zip(model.infer(slopes, columns=columns).figures, listed, strict=True):
        # 100,000 draws, of rows whose slopes have a standard error of 0.013 / sqrt(100,000 / 6,000); five of them.
        assert drawn.estimate == pytest.approx(own.estimate, abs=0.016)
        # Cells that were not drawn say nothing: noise is then larger by as much as the release's tables leave to them.
        assert drawn.standard_error == pytest.approx(own.standard_error, rel=0.6)
