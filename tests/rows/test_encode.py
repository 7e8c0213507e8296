"""Encoding: by the schema alone, value by value, for every Arrow type, without ever raising."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from operator import methodcaller

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
from sklar.public.axis import DAY, SECOND, days, microseconds
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import coder, encode, encode_column
from sklar.rows.streams import column_of
from tests.conftest import TEXTS, schemas

INT64 = st.integers(-(2**63), 2**63 - 1)
NOON = microseconds(dt.datetime(2000, 1, 1, 12))
ATTRIBUTES = (
    Attribute(name="text", kind="categorical", values=("a", "01", "1")),
    Attribute(name="folded", kind="categorical", values=("a", "1"), missing="?", other=True),
    Attribute(name="whole", kind="categorical", values=(1, 2, -3), missing="-9"),
    Attribute(name="flag", kind="boolean", missing="unknown"), Attribute(name="bare flag", kind="boolean"),
    Attribute(name="integer", kind="integer", edges=(0, 10, 20)),
    Attribute(name="strict", kind="integer", edges=(0, 10, 20), missing="-1", outside="missing"),
    Attribute(name="real", kind="real", edges=(0.0, 0.5, 1.0), missing="?"),
    Attribute(name="date", kind="date", edges=(0, 1, 20_000), missing="9999-12-31"),
    Attribute(name="datetime", kind="datetime", edges=(0, NOON, 2 * NOON), missing="?", outside="missing"),
    Attribute(name="hours", kind="integer", edges=(0, 10, 20), points=(0, 12, 15), special=("N", -9, 17), missing="?"),
    Attribute(name="share", kind="real", edges=(0.0, 0.5, 1.0), points=(0.0, 0.25, 1.0), special=("N", 99),
        outside="clip"),
    Attribute(name="day", kind="date", edges=(0, 10, 20), points=(0, 5), special=("9999-12-31", "never"), missing=""),
    Attribute(name="answer", kind="boolean", special=("N/A",), missing="?"),
    Attribute(name="rank", kind="categorical", values=(1, 2), special=(9, "N"), missing="?", other=True),
    Attribute(name="clock", kind="time", edges=(0, DAY // 2, DAY), points=(DAY // 2,), missing="?"),
    Attribute(name="span", kind="duration", edges=(0, 60 * SECOND, 3_600 * SECOND), points=(0,), missing=""),
    Attribute(name="year", kind="year", edges=(1990, 2000, 2010), special=(9999,), missing="?", outside="missing"),
    Attribute(name="month", kind="yearmonth", edges=(1990 * 12, 2000 * 12, 2001 * 12), missing="?"),
    Attribute(name="written", kind="date", edges=(0, 31, 365), format="%d.%m.%Y", special=("9999-12-31",), missing="?"),
    Attribute(name="moment", kind="datetime", edges=(0, DAY, 9 * DAY), format="%d.%m.%Y %H:%M", missing="?"),
    Attribute(name="numbered", kind="boolean", texts=("1", "2"), missing="?"),
    Attribute(name="coarse", kind="integer", edges=(0, 100, 300), points=(0,), step=100, missing="?"),
)  # fmt: skip


def of(name: str) -> Attribute:
    return next(attribute for attribute in ATTRIBUTES if attribute.name == name)


def encoded(column: pa.Array, attribute: Attribute) -> NDArray[np.int32]:
    """Codes of an Arrow column, which comes as it would from another library."""
    return encode_column(column_of(na.c_array(column)), attribute)


def codes(values: list[object], attribute: Attribute, kind: pa.DataType | None = None) -> list[int]:
    found: list[int] = encoded(pa.array(values, type=kind), attribute).tolist()
    return found


# Rules, text by text: the texts of each code.
RULES: dict[str, dict[int, list[str | None]]] = {
    "text": {0: ["a"], 1: ["01"], 2: ["1"], -1: ["A", " a", "1.0", "", None, "?"]},
    "folded": {0: ["a"], 1: ["1"], 2: ["?", "", None], 3: ["b", "other", "01", " "]},
    "whole": {0: ["1", "01", "1.0", "+1"], 1: [" 2 ", "2e0"], 2: ["-3"],
        3: ["-9", "-9.0", "", None, "1.5", "1_0", "x", "inf", "nan", "9" * 400, "9" * 5_000]},
    "flag": {0: ["false", "False", "F", "no", "N", "0"], 1: ["true", "True", "TRUE", "t", "yes", "Y", "1", " true "],
        2: ["unknown", "", " ", None, "maybe", "2"]},
    "bare flag": {0: ["false"], 1: ["true"], -1: ["", None, "maybe", "unknown"]},
    "integer": {0: ["0", "9", "9.99", "-1", "+5", "005", "-Infinity", "-" + "9" * 300],
        1: ["10", "19", "20", "1e3", " 12 ", "inf", "9" * 400],
        -1: ["nan", "1_000", "x", "", " ", None, "0x10", "1,5", "9" * 401]},
    "strict": {0: ["0"], 1: ["19.5"], 2: ["20", "-1", "-1.0", "-2", "inf", "x", "", None, "nan"]},
    "real": {0: ["0", "0.499", "-7"], 1: ["0.5", "1", "1.0", "1.01"], 2: ["?", "nan", "one"]},
    "date": {0: ["1970-01-01", "1969-12-31", "1970-01-01 23:59:59", " 1970-01-01 ", "1970-01-01T23:00-05:00"],
        1: ["1970-01-02", "19700102", "2500-01-01"], 2: ["9999-12-31", "", None, "01/02/1970", "1970-02-30", "5"]},
    "datetime": {0: ["1970-01-01", "2000-01-01T11:59:59.999999", "2000-01-01 13:30+02:00"],
        1: ["2000-01-01T12:00", "2000-01-01T12:00Z", "2000-01-01T11:00-01:00"],
        2: ["1969-12-31", "2999-01-01", "0001-01-01T00:00+10:00", "soon", "", None]},
    "hours": {0: ["0", "0.0"], 1: ["0.5", "9", "-8"], 2: ["10", "12.5", "99"], 3: ["12"], 4: ["15"], 5: ["N", " N "],
        6: ["-9", "-9.0"], 7: ["17", "17.0"], 8: ["?", "", None, "n", "nan"]},
    "share": {0: ["0", "-0.0"], 1: ["0.1", "-1"], 2: ["0.25", ".25"], 3: ["0.5", "1.5"], 4: ["1", "1.0"], 5: ["N"],
        6: ["99"], -1: ["x", "", None]},
    "day": {0: ["1970-01-01"], 1: ["1970-01-02"], 2: ["1970-01-06", "1970-01-06 12:00"], 3: ["1970-01-11"],
        4: ["9999-12-31"], 5: ["never"], 6: ["soon", ""]},
    "answer": {0: ["no"], 1: ["Y"], 2: ["N/A", " N/A"], 3: ["n/a", "?", ""]},
    "rank": {0: ["1"], 1: ["2.0"], 2: ["9", "9.0"], 3: ["N"], 4: ["?", ""], 5: ["3", " N"]},
    "clock": {0: ["00:00", "0:00:00", "12:30 am", " 11:59:59.999999 "], 1: ["12:00", "12:00 PM"],
        2: ["12:00:00.000001", "23:59", "24:00"], 3: ["12 PM", "25:00", "12:60", "noon", "", None, "13:00 pm"]},
    "span": {0: ["0:00:00", "PT0S", "0 days"], 1: ["0:00:59.9", "PT59.9S", "-0:00:01", "-PT1S", "-1 day, 23:59:59"],
        2: ["PT1M", "0:01", "0 days 00:30:00", "1:30:00", "P1DT1H", "1 day, 0:00:00"],
        3: ["P1Y", "90", "P", "PT", "", None, "long"]},
    "year": {0: ["1990", "1999.0"], 1: ["2009", "2005-06-07", "2005-06-07 12:00"], 2: ["9999"],
        3: ["2010", "x", "", "inf", "nan"]},
    "month": {0: ["1990-01", "1999-12", "1980-01"], 1: ["2000-01", "2000/1", "200012", "2000-06-07", "2030-01"],
        2: ["2000-13", "2000", "?", "", "0000-01"]},
    "written": {0: ["01.01.1970", "1.1.1970", "31.01.1970", "14.04.1912"], 1: ["01.02.1970", "1970-02-01"],
        2: ["9999-12-31", "31.12.9999"], 3: ["30.02.1970", "?", ""]},
    "moment": {0: ["01.01.1970 00:00", "1.1.1970 23:59"], 1: ["02.01.1970 00:00"],
        2: ["01.01.1970 25:00", "01.01.1970", ""]},
    "numbered": {0: ["1", "False"], 1: ["2", " 2 ", "true"], 2: ["yes", "0", "?", "1.0"]},
    "coarse": {0: ["0"], 1: ["1"], 2: ["100", "150"], 3: ["?"]},
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_texts(name: str) -> None:
    attribute, expected = of(name), {text: code for code, texts in RULES[name].items() for text in texts}
    assert {text: coder(attribute)(text) for text in expected} == expected
    texts = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    for kind in (*texts, pa.binary(), pa.large_binary(), pa.binary_view()):
        assert dict(zip(expected, codes([*expected], attribute, kind), strict=True)) == expected


# Rules, type by type.
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
