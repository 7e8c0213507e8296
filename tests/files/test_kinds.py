"""Every kind of attribute, out to each library and file and back: the codes are what they were, the types as stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sklar.draw.decode import Decoder
from sklar.files.write import to_library, write_frames
from sklar.public.schema import Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source

SCHEMA = Schema.from_toml(
    """
[attributes]
clock = {type = "time", edges = ["0:00", "6:00", "18:00", "24:00"], points = ["12:00"], missing = ""}
coarse = {type = "time", edges = ["0:00", "12:00", "24:00"], output = "time32[s]"}
took = {type = "duration", edges = ["-1:00:00", "0:00", "0:00:01.5", "100:00:00"], points = ["0:00"], missing = ""}
waited = {type = "duration", edges = ["0:00", "1:00", "2:00"], special = ["never"]}
since = {type = "year", edges = [1900, 1990, 1991, 2000], special = [9999], output = "int16"}
month = {type = "yearmonth", edges = ["1999-06", "2000-01", "2001-01"], missing = "?"}
first = {type = "yearmonth", edges = ["1999-06", "2000-01", "2001-01"], output = "date32"}
born = {type = "date", edges = ["1900-01-01", "1912-04-14", "2000-01-01"], format = "%d.%m.%Y", missing = ""}
flag = {type = "boolean", texts = ["N", "Y"], missing = ""}
gain = {type = "integer", edges = [0, 1000, 100000], points = [0], step = 100, special = ["N", -9], missing = ""}
rate = {type = "real", edges = [0, 0.5, 1], points = [0], step = 0.01, special = [9.99]}
size = {type = "categorical", values = ["S", "M", "L"], ordered = true, special = ["-"], missing = ""}
[attributes.seen]
type = "datetime"
edges = ["2000-01-01", "2000-06-01T12:30", "2001-01-01"]
format = "%d/%m/%Y %H:%M"
output = "timestamp[ms]"
"""
)
ROWS = 120
CODES = np.stack([np.random.default_rng(7).integers(0, size, ROWS) for size in SCHEMA.sizes]).astype(np.int32)
FRAME = Decoder(SCHEMA).decode(CODES, np.random.default_rng(1))


def codes_of(data: Any) -> Any:
    source = open_source(data)
    return np.concatenate([encode(part, SCHEMA) for part in source.batches(SCHEMA.names)], axis=1)


@pytest.mark.parametrize("library", ["polars", "pandas", "arrow"])
def test_a_library_gives_the_codes_back(library: str) -> None:
    assert np.array_equal(codes_of(to_library(FRAME, library, SCHEMA)), CODES)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".ndjson"])
def test_a_file_gives_the_codes_back(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    write_frames(path, FRAME.schema, [FRAME], SCHEMA)
    assert np.array_equal(codes_of(path), CODES)


def test_types_of_each_library() -> None:
    assert dict(FRAME.schema) == {
        "clock": pl.Time,
        "coarse": pl.Time,
        "took": pl.Duration("us"),
        "waited": pl.String,
        "since": pl.Int16,
        "month": pl.String,
        "first": pl.Date,
        "born": pl.String,
        "seen": pl.Datetime("ms"),
        "flag": pl.String,
        "gain": pl.String,
        "rate": pl.Float64,
        "size": pl.Enum(["S", "M", "L", "-"]),
    }
    table: Any = to_library(FRAME, "arrow", SCHEMA)
    assert [table.schema.field(name).type for name in ("clock", "coarse", "took", "size")] == [
        pa.time64("us"),
        pa.time32("s"),
        pa.duration("us"),
        pa.dictionary(pa.int32(), pa.string(), ordered=True),
    ]
    frame = to_library(FRAME, "pandas", SCHEMA)
    assert isinstance(frame, pd.DataFrame)
    assert str(frame["took"].dtype) == "timedelta64[us]"
    assert frame["size"].cat.ordered


def test_a_csv_holds_what_people_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_frames(path, FRAME.schema, [FRAME], SCHEMA)
    columns = {name: set(pl.read_csv(path, infer_schema=False, columns=[name])[name]) for name in SCHEMA.names}
    assert "12:00:00" in columns["clock"]
    assert "0:00:00.000000" in columns["took"]
    assert columns["flag"] == {"N", "Y", None}
    assert {"N", "-9", "0"} <= columns["gain"]
    assert all(text is None or text in ("N", "-9") or int(text) % 100 == 0 for text in columns["gain"])
    assert all(len(str(text).partition(".")[2]) <= 2 for text in columns["rate"])
    assert all(len(str(text).split(".")) == 3 or text is None for text in columns["born"])
    assert all(str(text)[2] == "/" and len(str(text)) == 16 for text in columns["seen"])


def test_months_of_pandas() -> None:
    periods = pd.DataFrame({"month": pd.PeriodIndex(["1999-12", "2000-06", None], freq="M")})
    schema = Schema(name="t", attributes=(SCHEMA.attribute("month"),))
    source = open_source(periods)
    (batch,) = source.batches(("month",))
    assert encode(batch, schema).tolist() == [[0, 1, 2]]
