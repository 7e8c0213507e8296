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
        assert [each.real[0] for each in found.figures] == pytest.approx(true, rel=1e-6), question
        own = model.infer(question)
        assert [each.infer[0] for each in found.figures] == [each.estimate for each in own.figures]
        assert (found.statistic, found.cautions) == (own.statistic, own.cautions)
    # The standard error of a mean, by a bootstrap of 200 tables: to 30%, six standard errors of it.
    mean = sklar.compare(rows, model, "mean(age)", level=0.9).figures[0]
    assert mean.real[2] - mean.real[1] == pytest.approx(2 * 1.645 * known.std() / np.sqrt(known.size), rel=0.3)
    assert mean.held == "yes"
    assert mean.synthetic[0] == pytest.approx(mean.real[0], abs=1.0)


def test_rows_with_a_value_of_no_level_are_left_out_and_counted(model: Model) -> None:
    rows = frame(3000)
    odd = rows.with_columns(
        sex=pl.when(pl.int_range(pl.len()) < 5).then(pl.lit("?")).otherwise(pl.col("sex").cast(str))
    )
    found = sklar.compare(odd, model, "share(sex)")
    assert (found.real_rows, found.left_out) == (2995, 5)
    assert "5 rows with a value of no level are left out" in found.lines()[0]
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
    assert "sex = Male over sex = Female" in shown
    assert f"PRIVATE as well: {tmp_path / 'plot.png'}" in shown
    assert (tmp_path / "plot.png").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(output_of(cli, *asked, "--json"))
    assert told["notice"] == NOTICE
    assert told["figures"][0]["held"] in ("yes", "no")
    made = sklar.compare(tmp_path / "real.csv", model, "share(region)")
    assert repr(made).endswith(NOTICE)
    assert NOTICE[:40] in made._repr_html_()
    assert made.to_polars().columns[:4] == ["name", "real", "real_low", "real_high"]
    assert len(made.plot().axes[0].get_yticklabels()) == 5
