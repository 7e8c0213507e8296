"""Raw values compared by hand and with NumPy and SciPy; what is lost, and the verdicts and the score that follow."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

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
    assert (numbers.real.mean, numbers.synthetic.mean) == (1, 3)
    assert numbers.real.sd == pytest.approx(np.sqrt(3))
    assert numbers.real.percentiles(verdict.PERCENTILES) == [0, 0, 0, 0, 0, 4, 4]
    assert numbers.to_dict((4, 5))["real"]["quantiles"]["50"] == 0
    errors = numbers.to_dict((4, 5))
    # The mean is three times the real one; one row in five has no number.
    assert (errors["mean_error"], errors["total_error"]) == pytest.approx((2.0, 1.4))
    assert score([0, 0], [1, 2]).to_dict((2, 2))["mean_error"] is None
    assert score([5, 5], [6, 6]).ks == 1


def test_heaps_stand_out_in_either_table() -> None:
    real, synthetic = [40] * 50 + [*range(20, 70)], [25] * 25 + [*range(20, 70)] + [*range(20, 45)]
    heaps = score(real, synthetic).heaps
    assert [(heap.what, heap.real, heap.synthetic) for heap in heaps] == [("40", 0.51, 0.02), ("25", 0.01, 0.27)]
    assert verdict.standing_out(np.array([10, 10, 30, 10, 10])).tolist() == [False, False, True, False, False]
    assert not verdict.standing_out(np.array([10, 20, 29, 20, 10])).any()
    # Too rare, and the only one.
    assert not verdict.standing_out(np.array([9, 1, 5000, 4000])[:0:-1])[-1]
    assert verdict.standing_out(np.array([7])).tolist() == [True]


def test_texts_among_numbers_are_shares_of_all_rows_and_do_not_fill_the_memory() -> None:
    columns = [look(pl.DataFrame({"x": list(values)}), "integer").columns[0] for values in ("1NN2", "11N?")]
    texts = verdict.compare_column(columns[0].attribute, 0.0, columns, (4, 4)).texts
    assert {each.what: (each.real, each.synthetic) for each in texts} == {"N": (0.5, 0.25), "?": (0, 0.25)}
    many = look(pl.DataFrame({"x": [f"text {number}" for number in range(3 * MAX_TEXTS)]}), "integer", parts=2)
    assert len(many.columns[0].texts) == MAX_TEXTS + 1
    assert many.columns[0].texts[MORE_TEXTS] == 2 * MAX_TEXTS


def test_figures_as_a_person_writes_them() -> None:
    amount, day = (Attribute(name="x", kind=kind, edges=(0, 1)) for kind in ("integer", "date"))
    assert [verdict.text(amount, value) for value in (0.0, 40.0, 38.5816, 1077.648, 189_778.4, -2.5, 1.5e-7, 3e20)] == [
        "0", "40", "38.582", "1,077.6", "189,778", "-2.5", "1.5e-07", "3e+20",
    ]  # fmt: skip
    assert verdict.text(day, 31.2) == "1970-02-01"


MONEY = Schema.load(Path(__file__).with_name("money.toml"))


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
    assert lost.result("one-way").tv == 0
    assert [column.verdict for column in lost.columns] == ["do not use", "do not use", "use", "use"]
    assert [column.name for column in lost.ranked[:2]] == ["gain", "hours"]
    told = {column.name: {why.figure: why.words for why in column.reasons} for column in lost.columns}
    zeros = (people(2_000, 0)["gain"] == 0).sum() / 2_000
    assert told["gain"]["heap"] == f"exactly 0: 0.0% for {zeros:.1%}"
    assert told["gain"]["ks"].startswith("KS 0.9")
    assert told["hours"]["heap"].startswith("exactly 40:")
    assert told["age"] == told["sex"] == {}
    lines = lost.lines()
    assert "1. gain: do not use. exactly 0: 0.0% for" in "\n".join(lines)
    assert any(
        line.startswith("Columns: with care. 2 of 4 can be used, 2 cannot. The worst: gain, exactly 0")
        for line in lines
    )
    assert max(map(len, lines)) <= 100


def test_real_rows_of_another_draw_are_to_be_used() -> None:
    found = evaluate(people(4_000, 0), people(4_000, 1), MONEY)
    assert {column.verdict for column in found.columns} == {pair.verdict for pair in found.pairs} == {"use"}
    assert found.worst == []
    assert "Nothing is lost beyond chance and the limits." in found.lines()


def test_everything_is_in_the_json(lost: Evaluation) -> None:
    document = json.loads(json.dumps(lost.to_dict(), allow_nan=False))
    assert (document["notice"], document["valid_share"]) == (NOTICE, 1.0)
    first = document["results"][0]
    assert [best["percent"] for best in first["best"]] == [95, 99, 100]
    assert first["cdf"]["share"][-1] == 1.0
    assert len(first["cdf"]["error"]) == len(first["cdf"]["share"])
    assert document["worst"][0]["name"] == "gain"
    assert document["limits"]["ks"] == [0.05, 0.15]
    assert set(document["score"]) == {"overall", "columns", "dependence", "ends"}
    gain = document["columns"][0]
    assert set(gain["numbers"]) == {*("ks", "ks_error", "mean_error", "total_error", "real", "synthetic", "heaps")}
    assert gain["numbers"]["heaps"][0]["what"] == "0"
    assert gain["missing"] == {"real": 0, "synthetic": 0}
    assert [each["columns"] for each in document["pairs"]][:2] == [["gain", "hours"], ["gain", "age"]]
    assert set(document["pairs"][2]["groups"][0]) == {"group", "rows", "mean", "median", "off"}
    assert document["pairs_compared"] == "6, on 2,000 of 2,000 real and 2,000 of 2,000 synthetic rows"
    assert document["columns"][3]["values"]["survive"] == 1
    assert document["columns"][3]["numbers"] is None


@pytest.mark.parametrize(
    ("changed", "figure", "message"),
    [
        (pl.col("age") * 2, "mean", "mean "),
        (pl.col("age") + 30, "quantiles", "5% quantile "),
        (pl.when(pl.int_range(pl.len()) % 10 < 1).then(pl.col("age")), "missing", "missing: 90.0% for 0.0%"),
        (pl.when(pl.int_range(pl.len()) % 10 < 2).then(pl.lit("N")).otherwise(pl.col("age").cast(pl.String)),
         "missing", "text 'N': 20.0% for 0.0%"),
        (pl.lit("none"), "values", "only one of the tables has numbers, or neither"),
    ],
)  # fmt: skip
def test_every_reason(changed: pl.Expr, figure: str, message: str) -> None:
    real = people(2_000, 0)
    age = evaluate(real, real.with_columns(age=changed), MONEY).columns[2]
    assert any(why.figure == figure and why.words.startswith(message) for why in age.reasons)
    assert age.verdict != "use"


def test_dummies_have_levels_alone() -> None:
    found = evaluate(records(90), dummies(90), SCHEMA)
    assert all(column.missing is None and column.numbers is None for column in found.columns)
    assert "total variation of its levels" in found.columns[0].told
    assert "Raw values are not compared: dummies have none." in found.lines()
    assert (found.score, found.pairs, found.to_dict()["score"]) == (None, (), None)


def test_what_was_seen_is_not_printed(lost: Evaluation) -> None:
    numbers = lost.columns[0].numbers
    assert numbers is not None
    kept, pair = lost.columns[3].kept, lost.pairs[2]
    private = (
        lost.score,
        pair,
        pair.groups[0],
        kept,
        *lost.columns[0].reasons,
        numbers,
        numbers.real,
        numbers.heaps[0],
    )
    for each in (lost.columns[0], *private):
        assert re.fullmatch(r"<[\w.]+ object at 0x[0-9a-f]+>", repr(each))
