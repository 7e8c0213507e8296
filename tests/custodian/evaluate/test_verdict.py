"""Raw values compared by hand and with NumPy and SciPy; the overall line and the warnings that follow."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sklar.custodian.evaluate import NOTICE, Evaluation, evaluate, verdict
from sklar.custodian.evaluate.raw import MAX_TEXTS, MORE_TEXTS, RawTable
from sklar.draw.decode import Decoder
from sklar.public.schema import Attribute, AttributeKind, Schema
from sklar.rows.encode import encode
from tests.custodian.evaluate.tables import SCHEMA, dummies, records


def look(frame: pl.DataFrame, kind: AttributeKind = "real", parts: int = 1, max_rows: int = 1 << 16) -> RawTable:
    attributes = tuple(Attribute(name=name, kind=kind, edges=(0, 1)) for name in frame.columns)
    raw = RawTable(Schema(name="t", attributes=attributes), max_rows=max_rows)
    for part in np.array_split(np.arange(frame.height), parts):
        raw.add(frame[part.tolist()])
    return raw.done()


def score(real: Sequence[object], synthetic: Sequence[object], kind: AttributeKind = "integer") -> verdict.Numbers:
    columns = (look(pl.DataFrame({"x": values}), kind).columns[0] for values in (real, synthetic))
    numbers = verdict.compare_numbers(*columns)
    assert numbers is not None
    return numbers


def test_scores_by_hand() -> None:
    numbers = score([0, 0, 0, 4], [0, 4, 4, 4])
    assert (numbers.ks, numbers.ks_error) == (0.5, 0)
    # Half of the rows move by 4; the real standard deviation is sqrt(3).
    assert numbers.wasserstein == pytest.approx(2 / np.sqrt(3))
    assert (numbers.real.mean, numbers.synthetic.mean) == (1, 3)
    assert numbers.real.sd == pytest.approx(np.sqrt(3))
    assert numbers.real.percentiles(verdict.PERCENTILES) == [0, 0, 0, 0, 0, 4, 4]
    assert numbers.to_dict()["real"]["quantiles"]["50"] == 0
    constant = score([5, 5], [6, 6])
    assert (constant.wasserstein, constant.ks) == (None, 1)


def test_heaps_stand_out_in_either_table() -> None:
    real, synthetic = [40] * 50 + [*range(20, 70)], [25] * 25 + [*range(20, 70)] + [*range(20, 45)]
    heaps = score(real, synthetic).heaps
    assert [(heap.what, heap.real, heap.synthetic) for heap in heaps] == [("40", 0.51, 0.02), ("25", 0.01, 0.27)]
    assert verdict.standing_out(np.array([10, 10, 30, 10, 10])).tolist() == [False, False, True, False, False]
    assert not verdict.standing_out(np.array([10, 20, 29, 20, 10])).any()
    # Too rare, and the only one.
    assert not verdict.standing_out(np.array([9, 1, 5000, 4000])[:0:-1])[-1]
    assert verdict.standing_out(np.array([7])).tolist() == [True]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        # Zeros are left out.
        ("integer", [0, 0, 100, 200, 305, 1000],
         {"multiples of 5": 1, "multiples of 10": 0.75, "multiples of 100": 0.75, "multiples of 1,000": 0.25}),
        ("real", [0.25, 1.5, 3.0, 20.0], {"multiples of 0.01": 1, "multiples of 0.1": 0.75, "whole numbers": 0.5}),
        ("date", [dt.date(2020, 1, 1), dt.date(2020, 5, 1), dt.date(2020, 5, 2), dt.date(1960, 3, 1)],
         {"first days of months": 0.75, "first days of years": 0.25}),
        ("datetime", [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 3, 30), dt.datetime(2020, 1, 1, 3, 5),
                      dt.datetime(2020, 1, 1, 3, 7, 1)],
         {"whole minutes": 0.75, "multiples of 5 minutes": 0.75, "multiples of 15 minutes": 0.5,
          "multiples of 30 minutes": 0.5, "whole hours": 0.25, "midnights": 0.25}),
    ],
)  # fmt: skip
def test_rounding_by_kind(kind: AttributeKind, values: list[object], expected: dict[str, float]) -> None:
    found = {share.what: share.real for share in score(values, values, kind).rounding}
    assert {name: found[name] for name in expected} == expected


def numbers_with_gaps(rows: int = 400) -> pl.DataFrame:
    generator = np.random.default_rng(1)
    base = generator.normal(size=rows)
    frame = pl.DataFrame(
        {"a": base, "b": np.exp(base + generator.normal(size=rows)), "c": 1.7e15 + 1e9 * base, "d": np.ones(rows)}
    )
    return frame.with_columns(a=pl.when(pl.int_range(rows) % 10 != 0).then(pl.col("a")))


def test_correlations_are_those_of_the_rows_that_have_both() -> None:
    frame = numbers_with_gaps()
    found = look(frame, parts=3)
    both = frame.drop_nulls().to_numpy()
    assert found.pearson[0, 1] == pytest.approx(np.corrcoef(both[:, 0], both[:, 1])[0, 1])
    assert found.pearson[1, 2] == pytest.approx(np.corrcoef(frame["b"], frame["c"])[0, 1])
    assert found.spearman[1, 2] == pytest.approx(stats.spearmanr(frame["b"], frame["c"]).statistic)
    assert found.spearman[0, 1] == pytest.approx(stats.spearmanr(both[:, 0], both[:, 1]).statistic, abs=0.01)
    assert np.isnan(found.pearson[3]).all()
    assert np.isnan(found.spearman[3]).all()
    assert found.sampled == 400


def test_a_sample_of_rows_is_enough_for_ranks() -> None:
    frame = numbers_with_gaps(4_000).select("b", "c")
    whole, part = look(frame, parts=5), look(frame, parts=5, max_rows=1_000)
    assert part.sampled == 1_000
    # Six standard errors; the seed is fixed.
    assert part.spearman[0, 1] == pytest.approx(whole.spearman[0, 1], abs=6 / np.sqrt(1_000))
    assert part.pearson[0, 1] == whole.pearson[0, 1]


def test_differences_of_correlations_are_ranked() -> None:
    frame = numbers_with_gaps()
    found = verdict.Correlations.of(look(frame), look(frame.with_columns(pl.col("b").shuffle(seed=1))))
    assert found is not None
    assert {(i, j) for _, i, j in found.gaps()[:2]} == {(0, 1), (1, 2)}
    # A column that never varies has no correlation.
    assert len(found.gaps()) == 3
    assert found.to_dict()["pearson"]["real"][0][3] is None
    assert verdict.Correlations.of(look(frame.select("a")), look(frame.select("a"))) is None


def test_texts_among_numbers_are_shares_of_all_rows_and_do_not_fill_the_memory() -> None:
    columns = [look(pl.DataFrame({"x": list(values)}), "integer").columns[0] for values in ("1NN2", "11N?")]
    texts = verdict.compare_column(columns[0].attribute, 0.0, columns, (4, 4)).texts
    assert {each.what: (each.real, each.synthetic) for each in texts} == {"N": (0.5, 0.25), "?": (0, 0.25)}
    many = look(pl.DataFrame({"x": [f"text {number}" for number in range(3 * MAX_TEXTS)]}), "integer", parts=2)
    assert len(many.columns[0].texts) == MAX_TEXTS + 1
    assert many.columns[0].texts[MORE_TEXTS] == 2 * MAX_TEXTS


def test_figures_as_a_person_writes_them() -> None:
    amount, day, moment = (Attribute(name="x", kind=kind, edges=(0, 1)) for kind in ("integer", "date", "datetime"))
    assert [verdict.text(amount, value) for value in (0.0, 40.0, 38.5816, 1077.648, 189_778.4, -2.5, 1.5e-7, 3e20)] == [
        "0", "40", "38.582", "1,077.6", "189,778", "-2.5", "1.5e-07", "3e+20",
    ]  # fmt: skip
    assert (verdict.text(day, 31.2), verdict.width_text(day, 31.25)) == ("1970-02-01", "31.2 days")
    assert (verdict.width_text(moment, 86_400e6 * 3), verdict.width_text(moment, 1e5)) == ("3.0 days", "0.1 s")


# Zeros, and exactly 40 hours, are not levels of their own: they share a bin with other numbers.
MONEY = Schema(
    name="money",
    attributes=(
        Attribute(name="gain", kind="integer", edges=tuple(range(0, 100_001, 5_000))),
        Attribute(name="hours", kind="integer", edges=(0, 20, 38, 43, 60, 100)),
        Attribute(name="age", kind="integer", edges=tuple(range(17, 91))),
        Attribute(name="sex", kind="categorical", values=("F", "M")),
    ),
)


def people(rows: int, seed: int) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    some, usual = generator.random(rows) < 0.08, generator.random(rows) < 0.47
    return pl.DataFrame(
        {
            "gain": np.where(some, generator.integers(2_000, 100_000, rows), 0),
            "hours": np.where(usual, 40, generator.integers(5, 80, rows)),
            "age": generator.integers(17, 90, rows),
            "sex": generator.choice(["F", "M"], rows),
        }
    )


@pytest.fixture(scope="module")
def lost() -> Evaluation:
    """Every number is drawn anew within its bin, as a release draws them: no count of a bin is off."""
    real = people(2_000, 0)
    return evaluate(real, Decoder(MONEY).decode(encode(real, MONEY), np.random.default_rng(7)), MONEY)


def test_zeros_that_are_spread_over_a_bin_are_caught(lost: Evaluation) -> None:
    judged = lost.verdict
    assert lost.result("one-way").tv == 0
    assert (judged.worst_column, judged.unusable_numbers) == ("gain", ("gain", "hours"))
    assert judged.worst_distance > 0.9
    assert judged.line == (
        f"Worst column: gain, KS {judged.worst_distance:.3f}; 2 of 3 numbers have KS above 0.1: "
        "do not use them as numbers (gain, hours)."
    )
    warnings = {column.name: column.warnings for column in lost.columns}
    zeros = (people(2_000, 0)["gain"] == 0).sum() / 2_000
    assert f"exactly 0: 0.0% for {zeros:.1%}" in warnings["gain"]
    assert any(warning.startswith("exactly 40:") for warning in warnings["hours"])
    assert warnings["age"] == warnings["sex"] == ()
    lines = lost.lines()
    assert any(line.startswith("Overall. Worst column: gain, KS 0.9") for line in lines)
    assert any(line.startswith("gain: KS 0.9") for line in lines)
    assert max(map(len, lines)) <= 100


def test_real_rows_of_another_draw_have_no_warning() -> None:
    found = evaluate(people(4_000, 0), people(4_000, 1), MONEY)
    assert [column.warnings for column in found.columns] == [()] * 4
    assert found.verdict.line.endswith("no number has KS above 0.1.")
    assert found.verdict.unusable_numbers == found.verdict.columns_with_warnings == ()


def test_everything_is_in_the_json(lost: Evaluation) -> None:
    document = json.loads(json.dumps(lost.to_dict(), allow_nan=False))
    assert (document["notice"], document["valid_share"]) == (NOTICE, 1.0)
    first = document["results"][0]
    assert [best["percent"] for best in first["best"]] == [95, 99, 100]
    assert first["cdf"]["share"][-1] == 1.0
    assert len(first["cdf"]["error"]) == len(first["cdf"]["share"])
    assert document["overall"]["worst_column"] == "gain"
    assert document["overall"]["thresholds"] == verdict.THRESHOLDS
    gain = document["columns"][0]
    assert set(gain["numbers"]) == {"ks", "ks_error", "wasserstein", "real", "synthetic", "heaps", "rounding"}
    assert gain["numbers"]["heaps"][0]["what"] == "0"
    assert gain["missing"] == {"real": 0, "synthetic": 0}
    assert document["correlations"]["columns"] == ["gain", "hours", "age"]
    assert len(document["correlations"]["spearman"]["synthetic"]) == 3
    assert document["columns"][3]["numbers"] is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (pl.col("age") + 3, "mean "),
        ((pl.col("age") - 50) * 1.2 + 50, "standard deviation "),
        (pl.when(pl.int_range(pl.len()) % 10 < 1).then(pl.col("age")), "missing: 90.0% for 0.0%"),
        (pl.when(pl.int_range(pl.len()) % 10 < 1).then(pl.lit("N")).otherwise(pl.col("age").cast(pl.String)),
         "text 'N': 10.0% for 0.0%"),
        (pl.col("age") // 5 * 5 + 2, "multiples of 5: 0.0% for "),
        (pl.lit("none"), "only one of the tables has numbers, or neither"),
    ],
)  # fmt: skip
def test_every_warning(changed: pl.Expr, message: str) -> None:
    real = people(2_000, 0)
    age = evaluate(real, real.with_columns(age=changed), MONEY).columns[2]
    assert any(warning.startswith(message) for warning in age.warnings)


def test_categories_correlations_and_few_rows_are_in_the_line() -> None:
    real = people(2_000, 0).with_columns(age=pl.col("hours").clip(17, 89))
    other = real.with_columns(pl.col("age").shuffle(seed=1), sex=pl.lit("F"))
    line = evaluate(real, other, MONEY).verdict.line
    assert "; 1 category has total variation above 0.1 (sex)" in line
    assert "; a correlation is off by 1." in line
    assert line.endswith("(hours, age).")
    few = evaluate(records(90), records(90, 1), SCHEMA).verdict
    assert few.chance_ks == pytest.approx(1.63 * np.sqrt(2 / 90))
    assert "with this few rows chance alone makes KS up to 0.24" in few.line


def test_dummies_have_levels_alone() -> None:
    found = evaluate(records(90), dummies(90), SCHEMA)
    assert all(column.missing is None and column.numbers is None for column in found.columns)
    assert "total variation" in found.verdict.line
    assert "Raw values of numbers are not compared: dummies have none." in found.lines()
    assert found.to_dict()["correlations"] is None


def test_what_was_seen_is_not_printed(lost: Evaluation) -> None:
    numbers = lost.columns[0].numbers
    assert numbers is not None
    for each in (lost.verdict, lost.correlations, lost.columns[0], numbers, numbers.real, numbers.heaps[0]):
        assert re.fullmatch(r"<[\w.]+ object at 0x[0-9a-f]+>", repr(each))
