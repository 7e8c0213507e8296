"""Encoding: by the schema alone, value by value, for every Arrow type, without ever raising."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from operator import methodcaller
from pathlib import Path

import hypothesis.strategies as st
import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from numpy.typing import NDArray

from sklar.kernel.queries import NO_CELL
from sklar.public.attribute import Outside
from sklar.public.axis import days, microseconds
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import coder, encode, encode_column
from sklar.rows.streams import column_of
from tests.conftest import TEXTS, schemas

INT64 = st.integers(-(2**63), 2**63 - 1)
NOON = microseconds(dt.datetime(2000, 1, 1, 12))
STATED = tomllib.loads(Path(__file__).with_name("encoded.toml").read_text())
CODES = {name: entry.pop("codes") for name, entry in STATED.items()}
ATTRIBUTES = Schema.from_dict({"attributes": STATED}).attributes


def of(name: str) -> Attribute:
    return next(attribute for attribute in ATTRIBUTES if attribute.name == name)


def encoded(column: pa.Array, attribute: Attribute) -> NDArray[np.int32]:
    """Codes of an Arrow column, which comes as it would from another library."""
    return encode_column(column_of(na.c_array(column)), attribute)


def codes(values: list[object], attribute: Attribute, kind: pa.DataType | None = None) -> list[int]:
    found: list[int] = encoded(pa.array(values, type=kind), attribute).tolist()
    return found


@pytest.mark.parametrize("name", CODES)
def test_texts(name: str) -> None:
    attribute, stated = of(name), CODES[name]
    expected: dict[str | None, int] = {None: stated["null"]}
    for code, texts in stated["of"].items():
        whole = (re.sub(r"{9 x (\d+)}", lambda found: "9" * int(found[1]), text) for text in texts)
        expected |= dict.fromkeys(whole, int(code))
    assert {text: coder(attribute)(text) for text in expected} == expected
    texts = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    for kind in (*texts, pa.binary(), pa.large_binary(), pa.binary_view()):
        assert dict(zip(expected, codes([*expected], attribute, kind), strict=True)) == expected


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(6, 2), pa.decimal64(12, 2), pa.decimal128(30, 2), pa.decimal256(70, 2)]


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS, *DECIMALS], ids=str)
def test_numbers_of_every_width(kind: pa.DataType) -> None:
    convert = np.float16 if kind == pa.float16() else Decimal if pa.types.is_decimal(kind) else int
    values: list[object] = [*(convert(number) for number in (0, 9, 10, 19, 20, 100)), None]
    assert codes(values, of("integer"), kind) == [0, 0, 1, 1, 1, 1, -1]
    assert codes(values, of("strict"), kind) == [0, 0, 1, 1, 2, 2, 2]
    assert codes(values, of("real"), kind) == [0, 1, 1, 1, 1, 1, 2]
    small: list[object] = [*(convert(number) for number in (1, 2, 3)), None]
    if not pa.types.is_decimal(kind):
        # A decimal is written with its zeros, 1.00, where it is a text.
        assert codes(small, of("text"), kind) == [2, -1, -1, -1]
    assert codes(small, of("whole"), kind) == [0, 1, 3, 3]
    assert codes(small, of("flag"), kind) == [1, 2, 2, 2]


def test_numbers_at_the_ends_of_their_types() -> None:
    assert codes([2**64 - 1, 2**63, 0, None], of("strict"), pa.uint64()) == [2, 2, 0, 2]
    wide = Attribute(name="x", kind="real", edges=(0.0, 1e19, 2e19))
    assert codes([2**63, 15 * 10**18], wide, pa.uint64()) == [0, 1]
    exact = Attribute(name="x", kind="integer", edges=(0, 2**53, 2**53 + 1, 2**63 - 1))
    assert codes([2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1], exact, pa.int64()) == [0, 1, 2, 2]
    assert codes([str(2**53), str(2**53 + 1)], exact) == [1, 2]
    odd: list[object] = [float("nan"), float("inf"), -float("inf"), 1e308, -0.0, 1.0, None]
    assert codes(odd, of("real")) == [2, 1, 0, 1, 0, 1, 2]
    assert codes(odd, of("strict")) == [2, 2, 2, 2, 0, 0, 2]
    assert codes(odd, of("folded")) == [2, 3, 3, 3, 3, 1, 2]
    assert codes([-1, -1.0, -2.0], of("strict"), pa.float64()) == [2, 2, 2]


def test_the_last_bin_of_a_real_includes_its_upper_edge_and_that_of_an_integer_does_not() -> None:
    closed = Attribute(name="x", kind="real", edges=(0.0, 0.5, 1.0), missing="?", outside="missing")
    for values, kind in (([0, 1, 2], pa.int64()), ([0, 1, 2], pa.float64()), (["0", "1.0", "2"], pa.string())):
        assert codes([*values], closed, kind) == [0, 1, 2]
        half_open = Attribute(name="x", kind="integer", edges=(0, 1), missing="?", outside="missing")
        assert codes([*values], half_open, kind) == [0, 1, 1]


def test_a_number_equal_to_the_missing_text_is_missing_whatever_its_type() -> None:
    clipped = Attribute(name="x", kind="integer", edges=(0, 10), missing="-1")
    for kind in (pa.int8(), pa.float32(), pa.string(), pa.decimal128(5, 0)):
        values: list[object] = ["-1", "-2"] if kind == pa.string() else [-1, -2]
        assert codes(values, clipped, kind) == [1, 0]
    forever = dt.date(9999, 12, 31)
    assert codes([forever, dt.date(2600, 1, 1)], of("date")) == [2, 1]


@st.composite
def stepped(draw: st.DrawFn) -> Attribute:
    """Whole numbers in bins of any width, some of them points or special; a missing number beside the bins or none."""
    first = draw(st.integers(-(2**62), 2**62) | st.integers(-40, 40) | st.sampled_from([-(2**63) + 1, 2**63 - 60]))
    # The last two: bins wider than int64 can say.
    width = draw(st.sampled_from([1, 2, 7, 2**61, 2**63 - 1, 2**63]))
    steps = np.cumsum([0, *draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))]).astype(object)
    edges = tuple(int(edge) for edge in first + width * steps)
    assume(edges[-1] < 2**63)
    missing = draw(st.sampled_from([None, edges[0] - 1, edges[-1] + 1, edges[-1] + 5]))
    outside: Outside = "clip" if missing is None else draw(st.sampled_from(["clip", "missing"]))
    near = {draw(st.sampled_from(edges)) + by for by in draw(st.lists(st.integers(-1, 3), max_size=4))} - {missing}
    apart = sorted(number for number in near if edges[0] <= number < edges[-1])
    return Attribute(
        name="x", kind="integer", edges=edges, points=tuple(apart[::2]), special=tuple(apart[1::2]),
        missing=None if missing is None else str(missing), outside=outside,
    )  # fmt: skip


@given(attribute=stepped(), more=st.lists(INT64, max_size=3))
@settings(max_examples=100, deadline=None)
def test_many_numbers_are_looked_up_as_few_are_searched(attribute: Attribute, more: list[int]) -> None:
    near = [edge + by for edge in map(int, attribute.edges) for by in (-2, -1, 0, 1, 5)]
    values: list[object] = [*(number for number in near if abs(number) < 2**63), *more, -(2**63), 2**63 - 1, None]
    few = [codes([value], attribute, pa.int64())[0] for value in values]
    assert codes(values * 60, attribute, pa.int64()) == few * 60
    assert few == [coder(attribute)(value) for value in values]


def test_booleans() -> None:
    assert codes([True, False, None], of("flag")) == [1, 0, 2]
    assert codes([True, False, None], of("bare flag")) == [1, 0, -1]
    named = Attribute(name="x", kind="categorical", values=("true", "false"))
    assert codes([True, False, None], named) == [0, 1, -1]


def test_dates_and_times() -> None:
    day, noon = dt.date(2000, 1, 1), dt.datetime(2000, 1, 1, 12)
    for kind in (pa.date32(), pa.date64()):
        assert codes([day, dt.date(1970, 1, 1), dt.date(1900, 1, 1), None], of("date"), kind) == [1, 0, 0, 2]
        assert codes([day, dt.date(1900, 1, 1), None], of("datetime"), kind) == [0, 2, 2]
        named = Attribute(name="x", kind="categorical", values=("2000-01-01",))
        assert codes([day, None], named, kind) == [0, -1]
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "America/New_York", "+05:30", "No/Where"):
            kind = pa.timestamp(unit, zone)
            ticks = pa.array([microseconds(noon), microseconds(noon) - 1_000_000, -1_000_000, None])
            moments = ticks.cast(pa.timestamp("us")).cast(pa.timestamp(unit)).cast(pa.int64()).cast(kind)
            assert encoded(moments, of("datetime")).tolist() == [1, 0, 2, 2]
            assert encoded(moments, of("date")).tolist() == [1, 1, 0, 2]
            assert encoded(moments, of("text")).tolist() == [-1] * 4
            assert encoded(moments, of("integer")).tolist() == [-1] * 4
    beyond = pa.array([2**63 - 1, -(2**63) + 1, None])
    for unit in ("s", "ms", "us"):
        assert encoded(beyond.cast(pa.timestamp(unit)), of("date")).tolist() == [1, 0, 2]
        assert encoded(beyond.cast(pa.timestamp(unit)), of("datetime")).tolist() == [2, 2, 2]
    clipped = Attribute(name="x", kind="datetime", edges=(0, NOON))
    assert encoded(beyond.cast(pa.timestamp("s")), clipped).tolist() == [0, 0, -1]
    assert days(day) < 20_000


def test_nulls_of_dictionaries() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 3]), pa.array(["a", None, "1", "zzz"]))
    assert encoded(column, of("folded")).tolist() == [0, 2, 2, 1, 3]
    assert encoded(column, of("text")).tolist() == [0, -1, -1, 2, -1]
    numbers = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0], pa.uint8()), pa.array([1.0, None, float("nan")]))
    assert encoded(numbers, of("real")).tolist() == [2, 2, 2, 1]
    flags = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([True, None]))
    assert encoded(flags, of("flag")).tolist() == [1, 2, 2]


def test_extension_types_and_run_ends_are_seen_through() -> None:
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
    assert encoded(flags, of("flag")).tolist() == [1, 0, 2]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4], pa.int32()), pa.array(["a", None, "b"]))
    assert encoded(runs, of("folded")).tolist() == [0, 0, 2, 3]


# Whatever the type: no value raises, and a value's code is its own.


def odd_columns() -> Iterator[pa.Array]:
    far = pa.array([0, None, 2**63 - 1, -(2**63), 1])
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Asia/Tokyo", "No/Where"):
            yield far.cast(pa.timestamp(unit, zone))
        yield far.cast(pa.duration(unit))
    yield pa.array([0, None, 2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32())
    yield pa.Array.from_buffers(pa.date64(), 3, [None, pa.py_buffer(np.array([2**63 - 1, -(2**63), 5]))])
    yield pa.array([1, None], pa.int32()).cast(pa.time32("ms"))
    yield pa.array([1, None], pa.int64()).cast(pa.time64("ns"))
    yield pa.array([pa.MonthDayNano([1, 2, 3]), None])
    yield pa.array([np.float16("nan"), None, np.float16("inf"), np.float16(-1)], pa.float16())
    yield pa.array([Decimal("9" * 76), None, Decimal("-" + "9" * 76)], pa.decimal256(76, 0))
    yield pa.array([Decimal("1E+30"), None], pa.decimal128(5, -28))
    yield pa.array([Decimal("1.50"), None, Decimal(0)], pa.decimal32(5, 2))
    yield pa.array(["a", "7", "5", "15", None, "", "\0", "x" * 50_000, "NA", "1.234,5", "\U0001f600"])
    yield pa.array(["a", "7", "x" * 500, None]).cast(pa.string_view())
    yield pa.array([5, 2**64 - 1, None], pa.uint64())
    yield pa.array([5.0, float("nan"), float("inf"), -float("inf"), 1e308, -0.0, None])
    yield pa.array([b"a", None, b"\xff"], pa.binary(1))
    # Arrow does not check that texts are UTF-8 when they come from elsewhere.
    yield pa.Array.from_buffers(pa.string(), 3, pa.array([b"\xff\xfe", b"a", b""]).buffers())
    yield pa.nulls(3)
    yield pa.array([[1], None, []])
    yield pa.array([[1], None], pa.list_(pa.int64(), 1))
    yield pa.array([["a"], None], pa.list_view(pa.string()))
    yield pa.array([{"a": 1}, None])
    yield pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))
    kinds, places = pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32())
    yield pa.UnionArray.from_dense(kinds, places, [pa.array([1]), pa.array(["b"])])
    yield pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, None]))
    yield pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([[1], None]))
    yield pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.nulls(2))
    yield pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "a"]))
    yield pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["a", None]).dictionary_encode())
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16)))
    yield uuids
    yield pa.ExtensionArray.from_storage(pa.opaque(pa.uuid(), "x", "y"), uuids)


# An extension type inside another does not pass Arrow's C interface.
PASSING = [column for column in odd_columns() if "arrow.opaque" not in str(column.type)]


def assert_elementwise(column: pa.Array, attribute: Attribute) -> None:
    together = encoded(column, attribute)
    assert together.dtype == np.int32
    assert together.shape == (len(column),)
    assert together.min(initial=0) >= NO_CELL
    assert together.max(initial=-1) < attribute.n_levels
    assert encoded(column.slice(0, 0), attribute).shape == (0,)
    # A slice of one row carries no other row; an array built from it shares nothing.
    alone = [encoded(pa.concat_arrays([column.slice(row, 1)]), attribute)[0] for row in range(len(column))]
    assert together.tolist() == alone
    if len(column):
        turned = pa.concat_arrays([column.slice(1), column.slice(0, 1)])
        assert encoded(turned, attribute).tolist() == [*alone[1:], alone[0]]


@pytest.mark.parametrize("column", PASSING, ids=lambda column: str(column.type)[:40])
def test_no_arrow_type_raises_and_each_code_is_its_own(column: pa.Array) -> None:
    for attribute in ATTRIBUTES:
        assert_elementwise(column, attribute)


def typed() -> st.SearchStrategy[pa.Array]:
    def several(values: st.SearchStrategy[object], kind: pa.DataType) -> st.SearchStrategy[pa.Array]:
        return st.lists(st.none() | values, max_size=8).map(lambda drawn: pa.array(drawn, type=kind))

    numbers = ["1", "01", "1.0", "1e3", "nan", "-inf", "1_0", " 5 ", "0.1", "9" * 30, "true", "No"]
    some = st.sampled_from([*numbers, "PT1H", "1:30 pm", "2000-03", "N/A"])
    day_texts = st.datetimes().map(str) | st.dates().map(str) | st.dates().map(lambda day: f"{day:%d.%m.%Y}")
    texts = TEXTS | some | day_texts | st.times().map(str) | st.timedeltas().map(str)
    near = st.sampled_from([0.0, 0.5, 1.0, 10.0, 20.0, -1.0])
    widths = [(8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64())]
    unsigned = [(8, pa.uint8()), (64, pa.uint64())]
    moments = several(INT64 | st.integers(-5, 25), pa.int64())
    return st.one_of(
        several(texts, pa.string()),
        several(texts.map(str.encode) | st.binary(max_size=5), pa.binary()),
        *(several(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), kind) for bits, kind in widths),
        *(several(st.integers(0, 2**bits - 1), kind) for bits, kind in unsigned),
        several(st.floats(width=32) | near, pa.float32()),
        several(st.floats() | near, pa.float64()),
        several(st.decimals(-(10**18), 10**18, places=3), pa.decimal128(30, 3)),
        several(st.booleans(), pa.bool_()),
        *(moments.map(methodcaller("cast", pa.timestamp(unit))) for unit in ("s", "ms", "us", "ns")),
        several(st.integers(-(2**31), 2**31 - 1), pa.int32()).map(methodcaller("cast", pa.date32())),
        *(moments.map(methodcaller("cast", pa.duration(unit))) for unit in ("s", "ms", "us", "ns")),
        several(st.times(), pa.time64("us")),
        several(st.times().map(lambda time: time.replace(microsecond=0)), pa.time32("s")),
    )


@given(column=typed(), attribute=st.sampled_from(ATTRIBUTES))
@settings(max_examples=200, deadline=None)
def test_codes_are_elementwise(column: pa.Array, attribute: Attribute) -> None:
    assert_elementwise(column, attribute)


@given(schema=schemas(), texts=st.lists(st.none() | TEXTS, max_size=8))
@settings(max_examples=50, deadline=None)
def test_codes_are_within_the_domain_of_any_schema(schema: Schema, texts: list[str | None]) -> None:
    listed: list[str | None] = [level for attribute in schema.attributes for level in attribute.levels]
    column = pa.array(texts + listed, pa.string())
    read = column_of(na.c_array(column))
    found = encode(pl.DataFrame([read.alias(str(i)) for i in range(schema.n_attributes)]), schema)
    assert found.shape == (schema.n_attributes, len(column))
    assert found.min() >= NO_CELL
    assert np.all(found < schema.sizes[:, None])
    for attribute in schema.attributes:
        assert_elementwise(column, attribute)


@given(attribute=st.sampled_from(ATTRIBUTES), value=st.floats(allow_nan=False) | INT64)
@settings(max_examples=100, deadline=None)
def test_a_number_has_the_code_of_its_text(attribute: Attribute, value: float) -> None:
    text = repr(int(value)) if abs(value) != float("inf") and value == int(value) else repr(value)
    assert codes([value], attribute) == codes([text], attribute)


def written_plainly() -> st.SearchStrategy[str]:
    """Texts near the plainest ones: these are read all at once, the others one by one."""
    numbers = st.integers(0, 99).map("{:02}".format) | st.integers(0, 9).map(str)
    marks = st.sampled_from(["-", ".", ":", " ", "T", "/", ""])
    years = st.sampled_from(["1970", "1999", "2000", "0001", "9999"])
    parts = st.lists(numbers | years | marks, min_size=1, max_size=11).map("".join)
    dates = st.tuples(numbers, numbers, years).map(".".join) | st.tuples(years, numbers, numbers).map("-".join)
    return parts | dates | st.tuples(dates, st.tuples(numbers, numbers).map(":".join)).map(" ".join)


@given(texts=st.lists(written_plainly(), min_size=70, max_size=90, unique=True), attribute=st.sampled_from(ATTRIBUTES))
@settings(max_examples=50, deadline=None)
def test_many_texts_are_read_as_each_of_them_is(texts: list[str], attribute: Attribute) -> None:
    assert encode_column(pl.Series(texts), attribute).tolist() == [coder(attribute)(text) for text in texts]


def test_times_and_durations_of_every_unit() -> None:
    for unit, per in {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.items():
        whole, kind = (pa.int32(), pa.time32(unit)) if per <= 10**3 else (pa.int64(), pa.time64(unit))
        column = pa.array([0, 43_200 * per, 86_399 * per, None], whole).cast(kind)
        assert encoded(column, of("clock")).tolist() == [0, 1, 2, 3]
        column = pa.array([0, 59 * per, 60 * per, -5 * per, None], pa.int64()).cast(pa.duration(unit))
        assert encoded(column, of("span")).tolist() == [0, 1, 2, 1, 3]
    objects = pl.Series([dt.time(12), dt.timedelta(minutes=1), dt.date(1970, 2, 1), None], dtype=pl.Object)
    assert encode_column(objects, of("clock")).tolist() == [1, 0, 3, 3]
    assert encode_column(objects, of("span")).tolist() == [2, 2, 3, 3]
    assert encode_column(objects, of("written")).tolist() == [3, 3, 1, 3]


def test_days_are_in_their_year_and_month() -> None:
    column = pa.array([dt.date(1999, 12, 31), dt.date(2000, 1, 1), None])
    for each in (column, column.cast(pa.timestamp("ns")), column.cast(pa.date64())):
        assert encoded(each, of("year")).tolist() == [0, 1, 3]
        assert encoded(each, of("month")).tolist() == [0, 1, 2]


def test_encode_takes_columns_in_the_order_of_the_schema() -> None:
    schema = Schema(name="t", attributes=(of("integer"), of("flag")))
    batch = pl.DataFrame({"b": ["3", "11"], "a": [True, None]})
    assert encode(batch, schema).tolist() == [[0, 1], [1, 2]]
    assert encode(batch.slice(0, 0), schema).shape == (2, 0)
