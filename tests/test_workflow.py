"""The whole workflow in Python: the commands as functions, paths or objects for every argument, results that show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.answer.predicate import QueryError
from sklar.cli import cli
from sklar.errors import BudgetError, ModelError, OutputError, SchemaError
from sklar.files.model import Model
from sklar.public.schema import Schema
from tests.conftest import output_of, refuses

TEXT = """
[table]
name = "people"
[attributes]
age = {type = "integer", edges = [0, 15, 20, 40, 90]}
sex = {type = "categorical", values = ["Female", "Male"], missing = "?"}
role = {type = "categorical", values = ["Wife", "Husband", "Single"]}
[[rules]]
forbid = {sex = "Male", role = "Wife"}
"""


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    generator = np.random.default_rng(2)
    age, sex = generator.integers(0, 90, 600), generator.integers(0, 2, 600)
    role = np.array(["Wife", "Husband", "Single"])[np.where(generator.random(600) < 0.5, 2, sex)]
    return pl.DataFrame({"age": age, "sex": np.array(["Female", "Male"])[sex], "role": role})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, table: pl.DataFrame) -> Path:
    """A table, its schema and a model as files."""
    folder = tmp_path_factory.mktemp("people")
    table.write_csv(folder / "people.csv")
    (folder / "people.toml").write_text(TEXT)
    sklar.fit(table, folder / "people.toml", epsilon=20.0).save(folder / "people.sklar")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return sklar.load(folder / "people.sklar")


def test_a_schema_is_given_by_value_by_path_or_as_a_model(folder: Path, model: Model, table: pl.DataFrame) -> None:
    for schema in (model.schema, folder / "people.toml", str(folder / "people.sklar"), model):
        assert Schema.of(schema) == model.schema
        assert sklar.forecast(schema, rows=600, epsilon=4.0, delta=1e-6).budget.delta == 1e-6
    report = folder / "e.html"
    found = sklar.evaluate(folder / "people.csv", model.sample(), folder / "people.sklar", report=report)
    assert found.real_rows == 600
    assert "PRIVATE" in report.read_text()
    assert sklar.check(model, table).values is not None
    with pytest.raises(SchemaError, match="a schema must be a Schema, the path of one, or a model, got dict"):
        Schema.of({})  # type: ignore[arg-type]
    broken = folder / "broken.zip"
    broken.write_bytes((folder / "people.sklar").read_bytes()[:-30] + b"PK\5\6" + bytes(18))
    refuses("is not a usable model: its zip must have at most", Schema.load, broken, error=SchemaError)


def test_what_is_stated_twice_is_refused(table: pl.DataFrame, folder: Path) -> None:
    budget = sklar.Budget(epsilon=1.0)
    for settings, message in [
        ({"budget": budget, "delta": 1e-9}, "a budget states its delta itself. Give it with an epsilon only."),
        ({"epsilon": 1.0, "method": sklar.Method(), "dummies": True}, "a Method states preset and dummies itself."),
        ({"epsilon": 1.0, "preset": "papers"}, "preset must be 'paper' or left out, got 'papers'."),
    ]:
        with pytest.raises(BudgetError) as refused:
            sklar.fit(table, folder / "people.toml", **settings)  # type: ignore[arg-type]
        assert message in str(refused.value)


def test_settings_of_a_fit_are_those_of_the_command() -> None:
    paper = sklar.Method.of(None, preset="paper")
    assert (paper.name, paper.paper) == ("binary", True)
    assert paper.budget_of(None, 1.0).composition == "advanced"
    assert paper.budget_of(None, 1.0, mechanism="gaussian").composition == "tight"
    assert sklar.Method.of(None, dummies=True).dummies
    assert sklar.Method.of(None).budget_of(None, 1.0, neighbors="add-remove").neighbors == "add-remove"


def test_a_draft_goes_to_a_file_with_its_private_page(folder: Path, tmp_path: Path) -> None:
    found = sklar.draft(folder / "people.csv", out=tmp_path / "d.toml")
    assert found.schema.name == "people"
    assert sklar.Schema.load(tmp_path / "d.toml") == found.schema
    assert "PRIVATE" in (tmp_path / "d.PRIVATE.html").read_text()
    rights = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert rights == {"d.toml": 0o600, "d.PRIVATE.html": 0o600}
    refuses("must end in", sklar.draft, folder / "people.csv", out=tmp_path / "d.txt", error=OutputError)


def test_a_check_says_what_the_command_says(folder: Path, table: pl.DataFrame) -> None:
    found = sklar.check(folder / "people.toml", table)
    shown = output_of(cli, "schema", "check", folder / "people.toml", folder / "people.csv", "--quiet")
    assert shown.splitlines() == [f"{folder / 'people.toml'}: {found.lines()[0]}", *found.lines()[1:]]
    assert found.to_polars()["listed"].sum() == 1800
    assert found.rows_that_break == (0,)
    assert sklar.check(folder / "people.toml").to_polars().columns == ["attribute", "type", "levels"]


def test_answers_reports_and_verifications_take_models_and_paths(folder: Path, model: Model, tmp_path: Path) -> None:
    path = folder / "people.sklar"
    one, other = sklar.query(model, "sex = 'Male'"), sklar.query(str(path), "sex = 'Male'")
    assert one == other == model.query("sex = 'Male'")
    page = sklar.report(path, out=tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == page.html
    assert "iframe" in page._repr_html_()
    assert sklar.verify(model).passed
    assert sklar.verify(path).passed
    assert sklar.verify(model).to_polars()["passed"].all()


def test_results_show_themselves_in_a_line_and_as_a_card(model: Model, table: pl.DataFrame) -> None:
    forecast = sklar.forecast(model, rows=600, epsilon=4.0)
    shown: list[Any] = [model, model.certificate, forecast, model.estimate("sex"), model.query("sex = 'Male'")]
    shown += [sklar.check(model, table), sklar.evaluate(table, table, model), sklar.verify(model)]
    for each in shown:
        assert len(repr(each)) < 300
        assert "\n" not in repr(each)
        card = each._repr_html_()
        assert card.startswith("<div")
        assert len(card) < 12_000
    assert model.infer("share(sex = 'Male')")._repr_html_().startswith("<div")
    for each in (model.measured, model.copula, model.schema, sklar.draft(table)):
        assert len(repr(each)) < 300
    assert repr(model) == (
        f"Model('people', 600 rows, 3 attributes, 10 levels; {model.settings['kind']}; epsilon=20, delta=9.32e-10)"
    )


def test_tabular_results_are_frames(model: Model) -> None:
    table = model.estimate("sex", "role")
    assert table.to_polars().height == 9
    assert table.to_pandas()["count"].tolist() == table.counts.ravel().tolist()
    third = sum(each.tables for each in model.certificate.measurements if each.order > 2)
    assert model.certificate.to_polars()["tables"].sum() == 3 + 3 + 3 + 2 + third
    assert sklar.forecast(model, rows=600, epsilon=4.0).to_pandas().shape == (3, 5)


def test_plots_need_no_display(model: Model) -> None:
    pytest.importorskip("matplotlib")
    assert sklar.forecast(model, rows=600, epsilon=4.0).plot().axes


def test_rows_under_a_condition(model: Model, folder: Path, tmp_path: Path) -> None:
    found = model.sample(500, given={"age": (17, 30), "role": ["Wife", "Single"]}, seed=3)
    assert found.height == 500
    assert found["age"].is_between(17, 29).all()
    assert set(found["role"]) == {"Wife", "Single"}
    assert not ((found["sex"] == "Male") & (found["role"] == "Wife")).any()
    assert model.sample(500, given="17 <= age < 30 and role in (Wife, Single)", seed=3).columns == found.columns
    assert model.sample(5, given={"sex": None}, seed=1)["sex"].null_count() == 5
    out = tmp_path / "women.csv"
    text = "sex = 'Female' and age >= 30 and age < 45"
    shown = output_of(cli, "sample", folder / "people.sklar", "--given", text, "--rows", 40, "--seed", 1, "--out", out)
    assert f"40 synthetic rows, all with {text}, in {out} (seed 1)." in shown
    drawn = pl.read_csv(out)
    assert drawn["age"].is_between(30, 44).all()
    assert (drawn["sex"] == "Female").all()
    assert model.complete(pl.DataFrame({"role": ["Wife", None]}), seed=1)["sex"][0] == "Female"


def test_given_is_refused_where_it_has_no_meaning(table: pl.DataFrame) -> None:
    schema = Schema.from_toml('attributes.sex = {type="categorical", values=["Female", "Male"]}')
    dummies = sklar.fit(table.select("sex"), schema, epsilon=9.0, dummies=True)
    refused = r"is about records, and this model draws dummies\. Fit it without dummies"
    refuses(refused, dummies.sample, 1, given="sex = Male", error=ModelError)
    refuses(refused, dummies.complete, table.select("sex"), error=ModelError)
    spark = ("--given", "sex = Male", "--out", "x.parquet", "--engine", "spark")
    shown = output_of(cli, "sample", "m.sklar", *spark, code=2)
    assert "--given draws rows on this machine. Leave out --engine." in shown


def test_the_binary_copula_draws_until_the_condition_holds(table: pl.DataFrame, folder: Path) -> None:
    model = sklar.fit(table, folder / "people.toml", epsilon=9.0, method="binary")
    found = model.sample(200, given={"age": (17, 30)}, seed=1)
    assert found["age"].is_between(17, 29).all()
    with pytest.raises(ModelError, match="complete needs a model with components, and this one is 'binary'"):
        model.complete(pl.DataFrame({"age": [3]}))


def test_a_query_that_cuts_a_bin_has_bounds_and_says_so(model: Model, folder: Path) -> None:
    found, whole, less = (model.query(f"age < {age}") for age in (18, 20, 15))
    assert found.split == ("age [15, 20)",)
    estimates = [each.estimate or 0.0 for each in (less, found, whole)]
    # Of some 33 rows in the bin: noise of a standard error of 2 makes them negative once in 1e60 releases.
    assert estimates == sorted(estimates)
    assert (whole.split, whole.bounds, found.bounds) == ((), False, True)
    assert (less.low or 0.0) - 20 < (found.low or 0.0) < (found.high or 0.0) < (whole.high or 0.0) + 20
    told = "CAUTION: age [15, 20): where in these bins the question's border lies was not measured"
    assert told in "\n".join(found.lines())
    three = model.query("age < 18 and sex = 'Male' and role = 'Single'")
    assert three.bounds
    assert three.split == found.split
    # One place answers, in every form; a mean of the rows has bounds, too.
    share = model.infer("share(age < 18)", target="table").figures[0]
    assert [share.low, share.high] == pytest.approx([(end or 0.0) / model.n_rows for end in (found.low, found.high)])
    assert model.infer("share(sex = 'Male') where age < 18").figures[0].bounds
    assert '"age [15, 20)"' in output_of(cli, "query", folder / "people.sklar", "age = 17", "--json")
    refuses("cuts the bin", output_of, cli, "query", folder / "people.sklar", "age < 18", "--exact", error=QueryError)


def test_weights_shift_the_budget(folder: Path, table: pl.DataFrame, model: Model) -> None:
    text = TEXT.replace('values = ["Wife"', 'weight = 4, values = ["Wife"')
    weighted = Schema.from_toml(text + '[[pairs]]\nattributes = ["sex", "age"]\nweight = 2.0\n')
    assert Schema.from_toml(weighted.to_toml()) == weighted
    assert Schema.from_dict(weighted.to_dict()) == weighted
    assert weighted.digest != model.schema.digest
    assert weighted.importance == (1.0, 1.0, 4.0, 2.0, 4.0, 4.0)
    assert model.schema.importance is None
    before, after = (sklar.forecast(each, rows=600, epsilon=1.0) for each in (model.schema, weighted))
    assert after.one_way_sd[2] < before.one_way_sd[2]
    assert after.one_way_sd[0] > before.one_way_sd[0]
    assert after.to_columns()["weight"] == [1.0, 1.0, 4.0]
    for settings in ({"epsilon": 1.0}, {"epsilon": 1.0, "method": "binary"}):
        released = sklar.fit(table, weighted, **settings)
        assert sklar.verify(released, refit=settings == {"epsilon": 1.0}).passed
        one_way = released.measured.blocks[0].scales
        assert np.isclose(one_way[0] / one_way[2], 2.0, rtol=1e-3)
    with pytest.raises(BudgetError, match="weights in the schema go with Gaussian noise, got mechanism 'laplace'"):
        sklar.forecast(weighted, sklar.Budget(epsilon=1.0, mechanism="laplace"), rows=600)
