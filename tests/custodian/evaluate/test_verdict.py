"""The overall line and the warnings: the release of the issue is caught, a good one is not."""

from __future__ import annotations

import json
import re

import numpy as np
import polars as pl
import pytest

from sklar.custodian.evaluate import evaluate
from sklar.custodian.evaluate.verdict import THRESHOLDS
from sklar.draw.decode import Decoder
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import encode
from tests.custodian.evaluate.tables import SCHEMA, dummies, records

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
    some = generator.random(rows) < 0.08
    usual = generator.random(rows) < 0.47
    return pl.DataFrame(
        {
            "gain": np.where(some, generator.integers(2_000, 100_000, rows), 0),
            "hours": np.where(usual, 40, generator.integers(5, 80, rows)),
            "age": generator.integers(17, 90, rows),
            "sex": generator.choice(["F", "M"], rows),
        }
    )


def spread(real: pl.DataFrame, schema: Schema = MONEY) -> pl.DataFrame:
    """The same rows with every number drawn anew within its bin, as a release draws them: no count of a bin is off."""
    return Decoder(schema).decode(encode(real, schema), np.random.default_rng(7))


def test_zeros_that_are_spread_over_a_bin_are_caught() -> None:
    real = people(4_000, 0)
    found = evaluate(real, spread(real), MONEY)
    assert found.result("one-way").tv == 0
    verdict = found.verdict
    assert verdict is not None
    assert verdict.worst == "gain"
    assert verdict.distance > 0.9
    assert verdict.unusable == ("gain", "hours")
    assert verdict.line == (
        f"Worst column: gain, KS {verdict.distance:.3f}; 2 of 3 numbers have KS above 0.1: do not use them as numbers "
        "(gain, hours)."
    )
    warnings = {column.name: column.warnings for column in found.columns}
    zeros = (real["gain"] == 0).sum() / real.height
    assert f"exactly 0: 0.0% for {zeros:.1%}" in warnings["gain"]
    assert any(warning.startswith("exactly 40:") for warning in warnings["hours"])
    assert warnings["age"] == warnings["sex"] == ()
    lines = found.lines()
    assert any(line.startswith("Overall. Worst column: gain, KS 0.9") for line in lines)
    assert any(line.startswith("gain: KS 0.9") for line in lines)
    assert max(map(len, lines)) <= 100


def test_real_rows_of_another_draw_have_no_warning() -> None:
    found = evaluate(people(4_000, 0), people(4_000, 1), MONEY)
    assert [column.warnings for column in found.columns] == [()] * 4
    assert found.verdict is not None
    assert found.verdict.line.endswith("no number has KS above 0.1.")
    assert found.verdict.unusable == found.verdict.warned == ()


def test_everything_is_in_the_json() -> None:
    real = people(500, 0)
    document = json.loads(json.dumps(evaluate(real, spread(real), MONEY).to_dict(), allow_nan=False))
    assert document["overall"]["worst_column"] == "gain"
    assert document["overall"]["thresholds"] == THRESHOLDS
    gain = next(column for column in document["columns"] if column["name"] == "gain")
    assert set(gain["numbers"]) == {"ks", "ks_error", "wasserstein", "real", "synthetic", "heaps", "rounding"}
    assert gain["numbers"]["heaps"][0]["what"] == "0"
    assert gain["missing"] == {"real": 0, "synthetic": 0}
    assert document["correlations"]["columns"] == ["gain", "hours", "age"]
    assert len(document["correlations"]["spearman"]["synthetic"]) == 3
    assert document["columns"][3]["numbers"] is None


def change(real: pl.DataFrame, **changed: pl.Expr) -> tuple[str, ...]:
    found = evaluate(real, real.with_columns(**changed), MONEY)
    assert found.verdict is not None
    return next(column.warnings for column in found.columns if column.name in changed)


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
    assert any(warning.startswith(message) for warning in change(people(2_000, 0), age=changed))


def test_categories_and_correlations_are_in_the_line() -> None:
    real = people(2_000, 0).with_columns(age=pl.col("hours").clip(17, 89))
    other = real.with_columns(pl.col("age").shuffle(seed=1), sex=pl.lit("F"))
    found = evaluate(real, other, MONEY).verdict
    assert found is not None
    assert "; 1 category has total variation above 0.1 (sex)" in found.line
    assert "; a correlation is off by 1." in found.line
    assert found.line.endswith("(hours, age).")


def test_few_rows_are_said_to_be_few() -> None:
    verdict = evaluate(records(90), records(90, 1), SCHEMA).verdict
    assert verdict is not None
    assert verdict.chance == pytest.approx(1.63 * np.sqrt(2 / 90))
    assert "with this few rows chance alone makes KS up to 0.24" in verdict.line


def test_dummies_have_levels_alone() -> None:
    found = evaluate(records(90), dummies(90), SCHEMA)
    assert found.looked is None
    assert found.verdict is not None
    assert "total variation" in found.verdict.line
    assert "Raw values of numbers are not compared: dummies have none." in found.lines()
    assert found.to_dict()["correlations"] is None


def test_what_was_seen_is_not_printed() -> None:
    real = people(200, 0)
    found = evaluate(real, spread(real), MONEY)
    assert "looked" not in repr(found)
    numbers = found.columns[0].numbers
    assert numbers is not None
    for each in (found.verdict, found.correlations, found.columns[0], numbers, numbers.real, numbers.heaps[0]):
        assert re.fullmatch(r"<[\w.]+ object at 0x[0-9a-f]+>", repr(each))
