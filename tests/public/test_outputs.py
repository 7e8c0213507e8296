"""Column types by public knowledge: what is understood, what is refused, and that a domain's ends always fit."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sklar.draw.decode import column_type
from sklar.errors import SchemaError
from sklar.public.importers.arrow import column_types
from sklar.public.outputs import arrow_type, parse_output, polars_type
from sklar.public.schema import Schema
from tests.draw.test_decode import decode_column
from tests.public import one


@pytest.mark.parametrize(
    ("text", "kind", "nearest"),
    [
        ("bool", pa.bool_(), pl.Boolean()),
        ("int8", pa.int8(), pl.Int8()),
        ("uint64", pa.uint64(), pl.UInt64()),
        ("float32", pa.float32(), pl.Float32()),
        ("float64", pa.float64(), pl.Float64()),
        ("decimal(10, 2)", pa.decimal128(10, 2), pl.Decimal(10, 2)),
        ("string", pa.string(), pl.String()),
        ("date32", pa.date32(), pl.Date()),
        ("date64", pa.date64(), pl.Date()),
        ("timestamp[s]", pa.timestamp("s"), pl.Datetime("ms")),
        ("timestamp[ns]", pa.timestamp("ns"), pl.Datetime("ns")),
        ("timestamp[us, tz=Europe/Berlin]", pa.timestamp("us", "Europe/Berlin"), pl.Datetime("us", "Europe/Berlin")),
        ("timestamp[us, tz=+02:00]", pa.timestamp("us", "+02:00"), pl.Datetime("us", "Etc/GMT-2")),
        ("timestamp[us, tz=+05:30]", pa.timestamp("us", "+05:30"), pl.Datetime("us", "UTC")),
    ],
)
def test_a_text_its_arrow_type_and_the_nearest_of_polars(text: str, kind: pa.DataType, nearest: pl.DataType) -> None:
    output = parse_output(text)
    assert output is not None
    assert str(output) == text
    assert arrow_type(output) == kind
    assert column_types(pa.schema([("x", kind)]))["x"].output == text
    assert polars_type(output) == nearest


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('values = ["b", "a"]\noutput = "category"', pl.Categorical()),
        ('values = ["b", "a"]\noutput = "ordered category"', pl.Enum(["b", "a"])),
        ('values = [2, 1]\noutput = "category"', pl.Int64()),
        ('values = [2, 1]\noutput = "ordered category"', pl.Enum(["2", "1"])),
        ('values = [2, 1]\nother = true\noutput = "ordered category"', pl.Enum(["2", "1", "other"])),
        ('values = [2, 1]\nother = true\noutput = "category"', pl.Categorical()),
    ],
)
def test_categories_in_polars(body: str, kind: pl.DataType) -> None:
    attribute = one(f'categorical\nmissing = "?"\n{body}')
    drawn = decode_column(np.arange(attribute.n_levels), attribute, np.random.default_rng(0))
    assert column_type(attribute) == drawn.dtype == kind
    assert drawn.null_count() == 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "category"),
        (pa.dictionary(pa.int8(), pa.string(), ordered=True), "ordered category"),
        (pa.binary(), None),
        (pa.float16(), None),
        (pa.decimal256(50, 2), None),
        (pa.list_(pa.int8()), None),
        (pa.duration("s"), "duration[s]"),
        (pa.time32("ms"), "time32[ms]"),
        (pa.month_day_nano_interval(), None),
    ],
)
def test_other_arrow_types(kind: pa.DataType, text: str | None) -> None:
    assert column_types(pa.schema([("x", kind)]))["x"].output == text


@pytest.mark.parametrize("text", ["", "int", "decimal(39, 2)", "decimal(2, 3)", "decimal(0, 0)", "timestamp", "object"])
def test_texts_that_are_no_type(text: str) -> None:
    assert parse_output(text) is None
    with pytest.raises(SchemaError, match="attribute 'age': output must be a column type such as 'int32'"):
        one(f'boolean\noutput = "{text}"')


@pytest.mark.parametrize(
    "body",
    [
        'integer\nedges = [-128, 0, 128]\noutput = "int8"',
        'integer\nedges = [0, 255, 256]\noutput = "uint8"',
        'integer\nedges = [-9223372036854775807, 0, 9223372036854775807]\noutput = "int64"',
        'real\nedges = [-999.9, 0, 1000]\noutput = "decimal(4, 1)"',
        'real\nedges = [-3e38, 0.1, 0.10000001, 3e38]\noutput = "float32"',
        'date\nedges = ["1678-01-01", "2000-01-01", "2262-01-01"]\noutput = "timestamp[ns, tz=Asia/Tokyo]"',
        'datetime\nedges = ["0001-01-01", "9999-12-31T23:59:59.999999"]\noutput = "timestamp[us, tz=UTC]"',
    ],
)
def test_every_bin_of_an_accepted_type_can_be_drawn(body: str) -> None:
    attribute = one(body)
    codes = np.repeat(np.arange(attribute.n_values, dtype=np.int32), 300)
    values = decode_column(codes, attribute, np.random.default_rng(3))
    assert values.dtype == column_type(attribute)
    assert values.null_count() == 0


def test_a_category_lists_all_public_values_in_their_order() -> None:
    attribute = one('categorical\nvalues = ["low", "high"]\nmissing = "?"\nother = true\noutput = "ordered category"')
    drawn = decode_column(np.array([1, 2, 3], dtype=np.int32), attribute, np.random.default_rng(0))
    assert drawn.dtype == pl.Enum(["low", "high", "other"])
    assert drawn.to_list() == ["high", None, "other"]


def test_decimals_are_exact_and_even_over_their_units() -> None:
    attribute = one('real\nedges = [-0.02, 0.01]\nmissing = ""\noutput = "decimal(3, 2)"')
    codes = np.array([0] * 200 + [1], dtype=np.int32)
    drawn = decode_column(codes, attribute, np.random.default_rng(0)).to_list()
    # 200 draws miss one of three units with probability 3 * (2/3)**200 < 1e-34.
    assert {str(value) for value in drawn} == {"-0.02", "-0.01", "0.00", "None"}


def test_the_output_is_part_of_the_schema() -> None:
    schema = Schema.from_toml('[attributes.x]\ntype = "boolean"\noutput = "int8"')
    assert 'output = "int8"' in schema.to_toml()
    assert Schema.from_toml(schema.to_toml()) == schema
    assert schema.digest != Schema.from_toml('[attributes.x]\ntype = "boolean"').digest
