"""Tables with known losses: each is called bad for the right reason, and what is not lost is to be used."""

from __future__ import annotations

import datetime as dt
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from scipy import stats

import sklar
from sklar.cli import cli
from sklar.custodian.evaluate import Evaluation, dependence, evaluate
from sklar.custodian.evaluate.dependence import PairFit, associate
from sklar.custodian.evaluate.raw import RawTable
from sklar.custodian.evaluate.verdict import ColumnFit
from sklar.public.schema import Schema

SCHEMA = Schema.load(Path(__file__).with_name("raw.toml"))
ROWS = 4_000
HOUR = pl.col("at").dt.truncate("1d")


def table(seed: int = 0, rows: int = ROWS) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    city = generator.choice(6, rows, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
    days, hours, minutes = (generator.integers(0, end, rows) for end in (364, 6, 60))
    start = dt.datetime(2020, 1, 1)
    return pl.DataFrame(
        {
            "zip": [f"{code}" for code in 10_000 + generator.integers(0, 40, rows)],
            "city": np.array(list("ABCDEF"))[city],
            "cost": np.where(generator.random(rows) < 0.05, generator.lognormal(9, 2, rows).round(), 0).astype(int),
            "pay": generator.lognormal(10 + 0.3 * city, 0.25).round(2),
            "at": [
                start + dt.timedelta(days=int(day), hours=7 + int(hour), minutes=int(minute))
                for day, hour, minute in zip(days, hours, minutes, strict=True)
            ],
            "smoker": generator.random(rows) < 0.3,
            "name": [f"person {row}" for row in range(rows)],
        }
    )


REAL = table()


def judged(found: Evaluation) -> list[ColumnFit | PairFit]:
    return [*found.columns, *found.pairs]


def verdicts(found: Evaluation) -> dict[str, str]:
    return {each.name: each.verdict for each in judged(found) if each.reasons}


def test_a_copy_and_another_draw_are_to_be_used() -> None:
    for other in (REAL, table(1)):
        found = evaluate(REAL, other, SCHEMA, test=table(2))
        assert verdicts(found) == {}
        assert found.score is not None
        assert found.score.overall > 90
        assert found.score.ends.startswith("100: real test rows; 0:")
        assert found.left_out == ("name",)
        assert "Not in the release: name." in found.lines()


@pytest.mark.parametrize(
    ("changed", "name", "figure", "words", "most"),
    [
        ({"zip": pl.lit("other")}, "zip", "values", "0.0% of the rows keep their value, 0 of 40 values are left", 90),
        ({"pay": pl.col("pay").shuffle(seed=1)}, "city and pay", "group medians", "medians of pay by city: ", 50),
        ({"at": HOUR + pl.duration(minutes=pl.int_range(ROWS) % 1_440)}, "at", "hour of the day", "hour ", 90),
        ({"at": pl.col("at").dt.truncate("1w")}, "at", "weekday", "weekday: ", 90),
        ({"cost": pl.col("cost").clip(0, 199)}, "cost", "tail", "the largest is 199 for ", 90),
        ({"cost": pl.when(pl.int_range(ROWS) == 9).then(4e10).otherwise("cost")}, "cost", "mean", "mean ", 90),
        ({"smoker": pl.lit("")}, "smoker", "missing", "missing: 100.0% for 0.0%", 90),
        ({"smoker": pl.col("city") == "A"}, "city and smoker", "association", "association 1.00 for ", 90),
    ],
)  # fmt: skip
def test_known_losses_are_named(changed: dict[str, pl.Expr], name: str, figure: str, words: str, most: float) -> None:
    found = evaluate(REAL, REAL.with_columns(**changed), SCHEMA)
    bad = {each.name: each for each in judged(found) if each.reasons}
    assert bad[name].verdict == "do not use"
    assert any(why.figure == figure and why.words.startswith(words) for why in bad[name].reasons)
    # Nothing else is blamed: pairs have a reason of their own only where the changed column is one of theirs.
    assert all(set(changed) & set(each.split(" and ")) for each in bad)
    assert found.worst[0][1].verdict == "do not use"
    assert found.to_polars().columns == ["column", "verdict", "why"]
    assert found.score is not None
    assert found.score.line in found._repr_html_()
    assert found.score is not None
    assert found.score.overall < most
    # A pair is never better than its columns.
    poor = {each.name for each in found.columns if each.verdict == "do not use"}
    assert all(pair.verdict == "do not use" for pair in found.pairs if poor & set(pair.columns))


def test_group_medians_are_told_by_the_group() -> None:
    found = evaluate(REAL, REAL.with_columns(pl.col("pay").shuffle(seed=1)), SCHEMA)
    pair = next(each for each in found.pairs if each.columns == ("city", "pay"))
    group = pair.groups[0]
    true = REAL.filter(city=group.group)["pay"]
    assert (group.mean[0], group.median[0]) == pytest.approx((true.mean(), true.median()))
    assert group.median[1] == pytest.approx(REAL["pay"].median(), rel=0.1)
    assert pair.association[0] > 0.8
    assert pair.association[1] == pytest.approx(0, abs=0.06)


def test_independent_columns_and_hopeless_tables_score_nothing() -> None:
    apart = pl.DataFrame([REAL[name].shuffle(seed=place) for place, name in enumerate(REAL.columns)])
    found = evaluate(REAL, apart, SCHEMA)
    assert found.score is not None
    assert found.score.columns > 95
    assert found.score.overall < 10
    assert verdicts(found) == {"city and pay": "do not use"}
    nothing = REAL.with_columns(zip=pl.lit("other"), city=pl.lit("other"), cost=199, pay=pl.int_range(ROWS) * 50.0)
    nothing = nothing.with_columns(at=pl.lit(dt.datetime(2020, 1, 1)), smoker=True)
    found = evaluate(REAL, nothing, SCHEMA)
    assert found.score is not None
    assert found.score.overall == 0
    assert {each.verdict for each in judged(found)} == {"do not use"}
    assert len(found.worst) == 10


@pytest.mark.parametrize("rows", [5, 12, 40])
def test_tables_too_small_to_tell_say_so(rows: int) -> None:
    for seed in range(5):
        found = evaluate(table(seed, rows), table(seed + 9, rows), SCHEMA)
        assert {each.verdict for each in found.columns} == {"with care"}
        assert all(any("too few" in why.words for why in each.reasons) for each in found.columns)
        assert found.score is not None
        assert found.score.line.endswith("So few rows leave it largely to chance.")


def test_associations_are_those_of_scipy_without_the_bias_of_chance() -> None:
    generator = np.random.default_rng(4)
    one, noise = generator.normal(size=500), generator.normal(size=500)
    first, second = generator.integers(0, 3, 500), generator.integers(0, 4, 500)
    ranks = [stats.rankdata(each) for each in (one, one + noise, noise)]
    near = associate(ranks[0], ranks[1], grouped=(False, False))
    assert near == pytest.approx(stats.spearmanr(one, one + noise).statistic)
    codes, other = first.astype(float), np.where(generator.random(500) < 0.7, first, second).astype(float)
    table = np.array([[((codes == i) & (other == j)).sum() for j in np.unique(other)] for i in np.unique(codes)])
    square = stats.chi2_contingency(table, correction=False).statistic / 500 - 2 * 3 / 499
    assert associate(codes, other, grouped=(True, True)) == pytest.approx(np.sqrt(square / (3 - 2**2 / 499 - 1)))
    shifted = stats.rankdata(one + codes)
    within = sum(((shifted[codes == code] - shifted[codes == code].mean()) ** 2).sum() for code in range(3))
    ratio = 1 - within / ((shifted - shifted.mean()) ** 2).sum() * 499 / 497
    assert associate(codes, shifted, grouped=(True, False)) == pytest.approx(np.sqrt(ratio))
    assert associate(shifted, codes, grouped=(False, True)) == pytest.approx(np.sqrt(ratio))
    # What does not vary, or is too little, goes with nothing; a row without a number is left out.
    for lone in (np.ones(500), np.full(500, np.nan), np.r_[1.0, 2.0, np.full(498, np.nan)]):
        assert associate(lone, ranks[0], grouped=(False, False)) == 0
    gone = np.where(np.arange(500) < 250, np.nan, ranks[0])
    assert associate(gone, ranks[0], grouped=(False, False)) == pytest.approx(1)


def test_wide_and_long_tables_are_sampled_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependence, "MAX_PAIRS", 4)
    found = evaluate(REAL, table(1), SCHEMA)
    assert len({pair.columns for pair in found.pairs}) == 4
    assert all(SCHEMA.names.index(one) < SCHEMA.names.index(two) for one, two in (pair.columns for pair in found.pairs))
    monkeypatch.undo()
    every = [pair.columns for pair in evaluate(REAL, table(1), SCHEMA).pairs]
    assert every == list(combinations(SCHEMA.names, 2))
    assert found.compared == "4 of 15, at random, on 4,000 of 4,000 real and 4,000 of 4,000 synthetic rows"
    raw = RawTable(SCHEMA, max_rows=100)
    for _ in range(3):
        raw.add(REAL.select(SCHEMA.names))
    assert raw.done().rows.shape == (6, 100)
    assert raw.n_rows == 12_000


def test_the_command_takes_test_rows_without_a_target(tmp_path: Path) -> None:
    for name, seed in (("real", 0), ("synthetic", 1), ("test", 2)):
        table(seed, 300).write_csv(tmp_path / f"{name}.csv")
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    real, synthetic, test, schema = (
        str(tmp_path / each) for each in ("real.csv", "synthetic.csv", "test.csv", "s.toml")
    )
    done = CliRunner().invoke(cli, ["evaluate", real, synthetic, "--schema", schema, "--test", test])
    assert done.exit_code == 0, done.output
    assert "100: real test rows" in done.stdout


def test_days_of_the_week_have_no_quantiles() -> None:
    """Four rows in a hundred moved from Sunday to Saturday: the 95% quantile moves by a day, and nothing is lost."""
    schema = sklar.Schema.from_toml(
        '[attributes."d.date"]\ntype = "date"\npart_of = "d"\nedges = ["2000-01-01", "2000-02-01"]\n'
        '[attributes."d.weekday"]\ntype = "weekday"\npart_of = "d"\n'
    )
    saturday, sunday = dt.date(2000, 1, 1), dt.date(2000, 1, 2)
    real, moved = ({"d": [saturday] * (4_000 - number) + [sunday] * number} for number in (280, 120))
    found = sklar.evaluate(pl.DataFrame(real), pl.DataFrame(moved), schema)
    (day,) = (each for each in found.columns if each.name == "d.weekday")
    assert (day.verdict, day.reasons) == ("use", ())
