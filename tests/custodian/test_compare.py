"""The same analysis three times: real rows by their raw values, synthetic rows, and `infer`; and that it is private."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.answer.predicate import QueryError
from sklar.cli import cli
from sklar.custodian.evaluate import NOTICE
from sklar.files.model import Model
from tests.answer.test_infer import SCHEMA, frame
from tests.conftest import output_of


@pytest.fixture(scope="module")
def model() -> Model:
    return sklar.fit(frame(3000), SCHEMA, epsilon=8.0)


def test_real_rows_are_analyzed_by_their_raw_values(model: Model) -> None:
    rows = frame(3000)
    ages = rows["age"].cast(pl.Int64, strict=False).to_numpy().astype(float)
    weights = rows["weight"].to_numpy().astype(float)
    weights[weights == -1] = np.nan
    men = rows["sex"].to_numpy() == "Male"
    kept = ~np.isnan(ages) & ~np.isnan(weights)
    known = ages[~np.isnan(ages)]
    line = np.linalg.lstsq(np.stack([np.ones(kept.sum()), ages[kept], men[kept]], axis=1), weights[kept], rcond=None)[0]
    cases = {
        "mean(age)": [known.mean()],
        "sd(age) by sex": [np.nanstd(ages[~men]), np.nanstd(ages[men])],
        "median(age)": [np.sort(known)[(known.size + 1) // 2 - 1]],
        "corr(age, weight)": [np.corrcoef(ages[kept], weights[kept])[0, 1]],
        "ols(weight ~ age + sex)": line.tolist(),
        "share(owns = true) where age >= 40": [rows["owns"].to_numpy()[ages >= 40].mean()],
    }
    for question, true in cases.items():
        found = sklar.compare(rows, model, question)
        assert [each.estimate for each in found.real.figures] == pytest.approx(true, rel=1e-6), question
        assert found.inferred.to_dict() == model.infer(question, target="table").to_dict()
    # The standard error of a mean, by a bootstrap of 200 tables: to 30%, six standard errors of it.
    told = sklar.compare(rows, model, "mean(age)", level=0.9)
    mean = told.to_polars()
    assert mean["real_high"][0] - mean["real_low"][0] == pytest.approx(
        2 * 1.645 * known.std() / np.sqrt(known.size), rel=0.3
    )
    assert sklar.compare(rows, model, "mean(age)", level=1 - 1e-9).held == [True]
    assert mean["synthetic"][0] == pytest.approx(mean["real"][0], abs=1.0)


def test_rows_with_a_value_of_no_level_are_left_out_and_counted(model: Model) -> None:
    rows = frame(3000)
    odd = rows.with_columns(
        sex=pl.when(pl.int_range(pl.len()) < 5).then(pl.lit("?")).otherwise(pl.col("sex").cast(str))
    )
    found = sklar.compare(odd, model, "share(sex)")
    assert (found.real.n_rows, found.left_out) == (2995, 5)
    assert "  5 real rows with a value of no level are left out" in found.lines()
    assert sklar.compare(odd, model, "mean(age)").left_out == 0
    with pytest.raises(QueryError, match="no row has a level of each of these columns"):
        sklar.compare(odd.head(5), model, "share(sex)")
    with pytest.raises(QueryError, match="a test has no figures to compare"):
        sklar.compare(rows, model, "independent(age, sex)")


def test_it_is_private_in_every_interface(model: Model, tmp_path: Path) -> None:
    frame(3000).write_csv(tmp_path / "real.csv")
    model.save(tmp_path / "m.sklar")
    asked = ("compare", tmp_path / "real.csv", tmp_path / "m.sklar", "ratio of odds(owns = true) by sex")
    shown = output_of(cli, *asked, "--plot", tmp_path / "plot.png")
    assert NOTICE in shown
    assert shown.count("sex = Male over sex = Female") == 3
    assert "of 1 intervals of infer hold the real figure" in shown
    assert f"PRIVATE as well: {tmp_path / 'plot.png'}" in shown
    assert (tmp_path / "plot.png").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(output_of(cli, *asked, "--json"))
    assert told["notice"] == NOTICE
    assert told["held"][0] in (True, False)
    made = sklar.compare(tmp_path / "real.csv", model, "share(region)")
    assert repr(made).endswith(NOTICE)
    assert made.to_polars().columns[:4] == ["name", "real", "real_low", "real_high"]
    assert len(made.plot().axes[0].get_yticklabels()) == 5
