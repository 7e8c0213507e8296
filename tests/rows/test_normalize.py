"""Batches in plain writing: every type of text, by the rule of the schema alone; nothing raises."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Reading
from sklar.rows.source import normalizer

ATTRIBUTES = """
[attributes.x]
type = "real"
edges = [0, 10, 20]
missing = "9,99"
special = ["0,5", -1]
[attributes.n]
type = "categorical"
values = [1000, 2]
[attributes.t]
type = "categorical"
values = ["1,5", "a"]
[attributes.d]
type = "date"
edges = ["2000-01-01", "2001-01-01"]
"""
SCHEMA = Schema.from_toml('[table]\ndecimal = ","\nthousands = "."\nnulls = ["NA", "1,7"]\n' + ATTRIBUTES)
TEXTS = ["1.234,5", "9,99", "NA", "1,7", "1.5", "N", None, "", "0,5", "-1,0"]
PLAINLY = ["1234.5", "9,99", None, None, "1,5", "N", None, "", "0,5", "-1.0"]


def normalized(column: pl.Series, name: str = "x", schema: Schema = SCHEMA) -> list[object]:
    normalize = normalizer(schema.reading, schema)
    assert normalize is not None
    return normalize(pl.DataFrame([column.alias(name)])).to_series().to_list()


@pytest.mark.parametrize("kind", [pl.String, pl.Binary, pl.Categorical, pl.Object, "bytes"])
def test_texts_of_every_type(kind: object) -> None:
    if kind == "bytes":
        values = [None if text is None else text.encode() for text in TEXTS]
        assert normalized(pl.Series(values, dtype=pl.Object))[:3] == ["1234.5", b"9,99", None]
        return
    column = pl.Series(TEXTS, dtype=pl.Object) if kind == pl.Object else pl.Series(TEXTS).cast(kind)  # type: ignore[arg-type]
    assert normalized(column) == PLAINLY


def test_only_columns_of_numbers_have_their_numbers_rewritten() -> None:
    assert normalized(pl.Series(["1.000", "2,0"]), "n") == ["1000", "2.0"]
    assert normalized(pl.Series(["1,5", "NA"]), "t") == ["1,5", None]
    assert normalized(pl.Series(["01.02.2000", "NA"]), "d") == ["01.02.2000", None]
    assert normalized(pl.Series([1.5, None])) == [1.5, None]


def test_bytes_that_are_not_text_are_replaced() -> None:
    assert normalized(pl.Series([b"1,5", b"\xff1,5", b"NA", None], dtype=pl.Binary)) == ["1.5", "\ufffd1,5", None, None]


def test_objects_that_are_not_text_stay_what_they_are() -> None:
    values = [1.5, [1], object(), True]
    assert normalized(pl.Series(values, dtype=pl.Object)) == values


def test_a_plain_table_is_not_touched() -> None:
    assert normalizer(PLAIN, SCHEMA) is None
    assert normalizer(Reading(delimiter=";", encoding="latin-1"), SCHEMA) is None
    assert normalizer(Reading(decimal=","), None) is None
    assert normalizer(Reading(decimal=","), Schema(name="t", attributes=SCHEMA.attributes[2:])) is None


@given(
    texts=st.lists(st.text("0123456789.,' e+-\u00a0\u2019x\n\u0661", max_size=12) | st.none(), max_size=8),
    decimal=st.sampled_from(".,"),
    thousands=st.sampled_from([None, ".", ",", " ", "'"]),
)
def test_polars_agrees_with_python(texts: list[str | None], decimal: str, thousands: str | None) -> None:
    reading = Reading(decimal=decimal, thousands=None if thousands == decimal else thousands, nulls=("1",))
    normalize = normalizer(reading, SCHEMA)
    assert normalize is not None
    found = normalize(pl.DataFrame({"x": pl.Series(texts, dtype=pl.String)}))["x"].to_list()
    kept = (None, "1", "9,99", "0,5")
    plain = [text if text in kept or not reading.rewrites_numbers else reading.plain(str(text)) for text in texts]
    assert found == [None if text == "1" else text for text in plain]
