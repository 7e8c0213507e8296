"""Schema files: what parses, what comes back from TOML, and what is refused in which words."""

from __future__ import annotations

import tracemalloc
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from sklar.errors import SchemaError
from sklar.public.schema import Attribute, Schema
from tests.conftest import schemas
from tests.public import one

MINUTE = 60_000_000


def edges(body: str) -> tuple[float, ...]:
    return one(body).edges


def test_every_type_parses() -> None:
    schema = Schema.from_toml(
        """
[table]
name = "people"
[attributes]
sex = {type = "categorical", values = ["F", "M"], missing = "?", other = true}
grade = {type = "categorical", values = [3, 1, 2]}
citizen = {type = "boolean", missing = ""}
age = {type = "integer", edges = [0, 18, 19, 120]}
income = {type = "real", low = 0, high = 1.0, bins = 2, missing = "NA", outside = "missing"}
born = {type = "date", edges = [1969-12-31, "1970-01-02"]}
seen.type = "datetime"
seen.edges = ["1970-01-01T00:01", 1970-01-01T01:02:00+01:00, 1970-01-02]
seen.reviewed = false
"""
    )
    assert schema.name == "people"
    assert schema.attributes == (
        Attribute(name="sex", kind="categorical", values=("F", "M"), missing="?", other=True),
        Attribute(name="grade", kind="categorical", values=(3, 1, 2)),
        Attribute(name="citizen", kind="boolean", missing=""),
        Attribute(name="age", kind="integer", edges=(0, 18, 19, 120)),
        Attribute(name="income", kind="real", edges=(0.0, 0.5, 1.0), missing="NA", outside="missing"),
        Attribute(name="born", kind="date", edges=(-1, 1)),
        Attribute(name="seen", kind="datetime", edges=(MINUTE, 2 * MINUTE, 1440 * MINUTE), reviewed=False),
    )
    assert schema.sizes.tolist() == [4, 3, 3, 3, 3, 1, 2]
    assert schema.offsets.tolist() == [0, 4, 7, 10, 13, 16, 17, 19]
    assert (schema.n_attributes, schema.n_levels) == (7, 19)
    assert schema.dummy_names == (
        *("sex=F", "sex=M", "sex=?", "sex=other"),
        *("grade=3", "grade=1", "grade=2"),
        *("citizen=false", "citizen=true", "citizen=(missing)"),
        *("age=[0, 18)", "age=18", "age=[19, 120)"),
        *("income=[0.0, 0.5)", "income=[0.5, 1.0)", "income=NA"),
        "born=[1969-12-31, 1970-01-02)",
        "seen=[1970-01-01T00:01:00, 1970-01-01T00:02:00)",
        "seen=[1970-01-01T00:02:00, 1970-01-02T00:00:00)",
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("integer\nlow = 0\nhigh = 10\nbins = 4", (0, 2, 5, 8, 10)),
        ("integer\nlow = -3\nhigh = 3\nbins = 6", (-3, -2, -1, 0, 1, 2, 3)),
        ("integer\nlow = 0\nhigh = 9007199254740993\nbins = 1", (0, 2**53 + 1)),
        ("real\nlow = 0.1\nhigh = 0.7\nbins = 3", (0.1, 0.3, 0.5, 0.7)),
        ("real\nlow = -1.7e308\nhigh = 1.7e308\nbins = 2", (-1.7e308, 0.0, 1.7e308)),
        ('date\nlow = "1970-01-01"\nhigh = "1970-01-05"\nbins = 2', (0, 2, 4)),
        ('datetime\nlow = "1970-01-01"\nhigh = "1970-01-01T00:04"\nbins = 2', (0, 2 * MINUTE, 4 * MINUTE)),
    ],
)
def test_low_high_and_bins_are_equal_steps_with_exact_ends(body: str, expected: tuple[float, ...]) -> None:
    assert edges(body) == expected


def test_far_datetimes_keep_their_full_hours() -> None:
    # Microseconds of the year 9000 are beyond what a float holds exactly.
    found = edges('datetime\nlow = "9000-01-01"\nhigh = "9000-01-02"\nbins = 24')
    assert {after - before for before, after in pairwise(found)} == {60 * MINUTE}


@given(schema=schemas())
@settings(max_examples=60, deadline=None)
def test_toml_and_dict_give_the_schema_back(schema: Schema) -> None:
    for back in (Schema.from_toml(schema.to_toml()), Schema.from_dict(schema.to_dict())):
        assert back == schema
        assert back.digest == schema.digest
        assert back.names == schema.names
        assert len(set(schema.dummy_names)) == schema.n_levels
        assert all(len(attribute.levels) == attribute.n_levels for attribute in schema.attributes)


@pytest.mark.parametrize("edge", ["1990-01-31T12:00:00", 1990, "0001-01-01T00:00:00+10:00"])
def test_an_edge_that_is_no_day_or_out_of_range_is_refused(edge: object) -> None:
    kind = "datetime" if "+" in str(edge) else "date"
    with pytest.raises(SchemaError, match=f"^attribute 'a': edges of a {kind} must be ISO texts"):
        Schema.from_dict({"attributes": {"a": {"type": kind, "edges": [edge, "2000-01-01"]}}})


@pytest.mark.parametrize("text", ["[attributes", "a = ", "[attributes.a]\n[attributes.a]", f"a = 1{'0' * 5000}"])
def test_text_that_is_not_toml_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match=r"^the schema is not valid TOML: .*\.$"):
        Schema.from_toml(text)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    with pytest.raises(SchemaError) as absent:
        Schema.load(path)
    assert str(absent.value) == f"schema file '{path}' does not exist. Check the path."
    path.write_bytes(b"[attributes.a\xff]")
    with pytest.raises(SchemaError, match=r"cannot be read: .* It must be a UTF-8 text file\."):
        Schema.load(path)
    with pytest.raises(SchemaError, match=r"cannot be read: .* It must be a UTF-8 text file\."):
        Schema.load(tmp_path)
    path.write_text('[attributes."é"]\ntype = "boolean"', encoding="utf-8")
    assert Schema.load(str(path)).names == ("é",)


@pytest.mark.parametrize(
    ("start", "filler", "repeats", "message"),
    [
        (b"", b"[],", 1 << 24, "its description is larger than any model's"),
        (b'{"schema": [', b"[],", 1 << 20, "its description holds more than 300,000 values"),
        (b'{"schema": 1}', b" ", 1 << 20, "is neither a schema nor a model of one table"),
        (b"[", b"0]", 1, "its description is not a Sklar model's"),
        (b"[", b"", 0, r"is damaged \(JSONDecodeError\)"),
    ],
)
def test_a_hostile_model_file_is_refused_within_bounded_memory(
    tmp_path: Path, start: bytes, filler: bytes, repeats: int, message: str
) -> None:
    path = tmp_path / "bomb.sklar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("model.json", "w") as file:
        file.write(start)
        for _ in range(max(repeats >> 16, 1)):
            file.write(filler * min(repeats, 1 << 16))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(SchemaError, match=message):
            Schema.of(path)
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


def test_points_stand_before_the_bin_that_they_begin_or_after_the_one_that_contains_them() -> None:
    hours = one('integer\nedges = [0, 40, 60]\npoints = [50, 0, 40, 45]\nspecial = ["N", -9]\nmissing = "?"')
    assert hours.points == (0, 40, 45, 50)
    assert hours.levels == ("0", "(0, 40)", "40", "(40, 60)", "45", "50", "N", "-9", "?")
    assert (hours.n_bins, hours.n_values, hours.n_levels) == (2, 6, 9)
    assert hours.bin_codes.tolist() == [1, 3]
    assert hours.point_codes.tolist() == [0, 2, 4, 5]
    assert list(hours.special_codes) == [6, 7]
    assert hours.missing_code == 8
    assert hours.apart == (-9, 0, 40, 45, 50)
    assert not hours.bin_codes.flags.writeable


def test_the_upper_edge_of_a_real_may_be_a_point() -> None:
    share = one("real\nedges = [0, 0.5, 1]\npoints = [0, 1]")
    assert share.levels == ("0.0", "(0.0, 0.5)", "[0.5, 1.0)", "1.0")


@pytest.mark.parametrize(
    ("body", "special", "levels"),
    [
        ('categorical\nvalues = ["a"]\nspecial = ["N", 9]\nother = true', ("N", "9"), ("a", "N", "9", "other")),
        ('categorical\nvalues = [1, 2]\nspecial = [9, "8", "N"]', (9, 8, "N"), ("1", "2", "9", "8", "N")),
        ('boolean\nspecial = ["N/A", 9]\nmissing = ""', ("N/A", "9"), ("false", "true", "N/A", "9", "(missing)")),
        ('integer\nedges = [0, 9]\nspecial = ["-9", 99.0, "N"]', (-9, 99, "N"), ("[0, 9)", "-9", "99", "N")),
        ("real\nedges = [0, 9]\nspecial = [-1, 99.5]", (-1, 99.5), ("[0.0, 9.0)", "-1", "99.5")),
        (
            'date\nedges = ["2000-01-01", "2001-01-01"]\nspecial = ["99991231", 9999-12-30, "never", -9]',
            ("9999-12-31", "9999-12-30", "never", "-9"),
            ("[2000-01-01, 2001-01-01)", "9999-12-31", "9999-12-30", "never", "-9"),
        ),
    ],
)
def test_special_values_are_numbers_where_the_column_holds_numbers(
    body: str, special: tuple[object, ...], levels: tuple[str, ...]
) -> None:
    attribute = one(body)
    assert attribute.special == special
    assert attribute.levels == levels
    schema = Schema(name="t", attributes=(attribute,))
    assert Schema.from_toml(schema.to_toml()).attributes == (attribute,)
    assert Schema.from_dict(schema.to_dict()).digest == schema.digest


def test_a_schema_without_them_has_the_digest_that_it_had() -> None:
    described = Schema.from_toml('[attributes.age]\ntype = "integer"\nedges = [0, 18, 65]\nmissing = "?"').to_dict()
    assert described["attributes"]["age"] == {"type": "integer", "edges": [0, 18, 65], "missing": "?"}


@pytest.mark.parametrize(
    "body",
    [
        'time\nedges = ["00:00:00", "12:30:00.500000", "24:00:00"]\npoints = ["12:00:00"]\nmissing = ""',
        'duration\nedges = ["-0:00:05", "0:00:00", "100:00:00"]\nstep = 5',
        'year\nedges = [1900, 2000, 2001]\nspecial = [9999]\noutput = "int16"',
        'yearmonth\nedges = ["2000-01", "2000-02", "2001-01"]\nformat = "%m/%Y"',
        'categorical\nvalues = ["low", "high"]\nordered = true',
        'boolean\ntexts = ["N", "Y"]',
        "real\nedges = [0.0, 10.0]\nstep = 0.01",
        'datetime\nedges = ["2000-01-01T00:00:00", "2001-01-01T00:00:00"]\nformat = "%d.%m.%Y %H:%M"',
    ],
)
def test_what_is_read_is_written(body: str) -> None:
    attribute = one(body)
    text = Schema(name="t", attributes=(attribute,)).to_toml()
    kind, keys = body.split("\n", 1)
    assert text == f'[table]\nname = "t"\n\n[attributes.age]\ntype = "{kind}"\n{keys}\n'
    assert Schema.from_toml(text).attributes == (attribute,)


def test_levels_of_new_kinds_are_named_as_people_write_them() -> None:
    assert one("year\nedges = [1990, 1991, 2000]").levels == ("1990", "[1991, 2000)")
    assert one('yearmonth\nedges = ["1990-12", "1991-01", "2000-01"]').levels == ("1990-12", "[1991-01, 2000-01)")
    assert one('time\nedges = ["6:00", 12:00:00, "24:00"]').levels[1] == "[12:00:00, 24:00:00)"
    assert one('duration\nedges = ["PT0S", "PT1H30M"]').levels == ("[0:00:00, 1:30:00)",)
    assert one('boolean\ntexts = ["N", "Y"]').levels == ("N", "Y")
