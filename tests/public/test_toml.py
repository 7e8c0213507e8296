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
        [attributes.sex]
        type = "categorical"
        values = ["F", "M"]
        missing = "?"
        other = true
        [attributes.grade]
        type = "categorical"
        values = [3, 1, 2]
        [attributes.citizen]
        type = "boolean"
        missing = ""
        [attributes.age]
        type = "integer"
        edges = [0, 18, 19, 120]
        [attributes.income]
        type = "real"
        low = 0
        high = 1.0
        bins = 2
        missing = "NA"
        outside = "missing"
        [attributes.born]
        type = "date"
        edges = [1969-12-31, "1970-01-02"]
        [attributes.seen]
        type = "datetime"
        edges = ["1970-01-01T00:01", 1970-01-01T01:02:00+01:00, 1970-01-02]
        reviewed = false
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


NUMERIC = "bins, description, domain, edges, high, labels, low, missing, output, outside, points, provenance, reviewed"
NUMERIC += ", spacing, special, step, title, type, unit, weight"
KINDS = "categorical, boolean, integer, real, date, datetime, time, duration, year, yearmonth"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('type = "text"', f"type must be one of {KINDS}, got 'text'."),
        ("values = ['a']", f"type must be one of {KINDS}, got None."),
        ("type = ['real']", f"type must be one of {KINDS}, got ['real']."),
        (
            'boolean\nvalues = ["a"]',
            "unknown key 'values'. Known keys are description, labels, missing, output, provenance, reviewed, special, "
            "texts, title, type, unit, weight.",
        ),
        (
            'categorical\nvalues = ["a"]\nedges = [1]',
            "unknown key 'edges'. Known keys are "
            "at_most, description, domain, labels, missing, ordered, other, output, provenance, reviewed, special, "
            "title, type, unit, values, weight.",
        ),
        ("real\nedges = [0, 1]\nother = true", f"unknown key 'other'. Known keys are {NUMERIC}."),
        ("categorical", "values must list the categories, got None. Write values = ['a', 'b']."),
        ("categorical\nvalues = []", "values must list the categories, got []. Write values = ['a', 'b']."),
        ('categorical\nvalues = "a"', "values must list the categories, got 'a'. Write values = ['a', 'b']."),
        ('categorical\nvalues = ["a", 1]', "values must be all texts or all whole numbers, got 1. Quote it."),
        ('categorical\nvalues = [1, "a"]', "values must be all texts or all whole numbers, got 'a'. Quote it."),
        ("categorical\nvalues = [1.5, 2.5]", "values must be all texts or all whole numbers, got 1.5. Quote it."),
        ("categorical\nvalues = [true, false]", "values must be all texts or all whole numbers, got True. Quote it."),
        (
            "categorical\nvalues = [1, 9223372036854775808]",
            "whole numbers must fit in 64 bits, got 9223372036854775808. Quote all values.",
        ),
        ('categorical\nvalues = ["a", "a"]', "levels must differ, got 'a' twice. Remove or rename one."),
        ("categorical\nvalues = [1, 1]", "levels must differ, got '1' twice. Remove or rename one."),
        ('categorical\nvalues = ["a", "?"]\nmissing = "?"', "levels must differ, got '?' twice. Remove or rename one."),
        (
            'categorical\nvalues = ["a", "other"]\nother = true',
            "levels must differ, got 'other' twice. Remove or rename one.",
        ),
        (
            'categorical\nvalues = ["a"]\nmissing = "other"\nother = true',
            "levels must differ, got 'other' twice. Remove or rename one.",
        ),
        (
            'categorical\nvalues = ["a", ""]\nmissing = ""',
            "values must not list '' beside missing, which takes empty texts. Remove one.",
        ),
        ('categorical\nvalues = ["a"]\nother = 1', "other must be true or false, got 1."),
        (
            'boolean\nprovenance = "hearsay"',
            "provenance must be 'public' (public knowledge) or 'rows' (read from the rows), got 'hearsay'.",
        ),
        ('boolean\nreviewed = "no"', "reviewed must be true or false, got 'no'."),
        ("boolean\nmissing = 9", "missing must be the text that stands for a missing value, got 9."),
        ('boolean\nmissing = "N"', "missing must not be a text for true or false, got 'N'. Use another text."),
        ("integer\nedges = [0, 40, 40]", "edges must increase, got 40 after 40. Remove one."),
        ("real\nedges = [0, 2.5, 1]", "edges must increase, got 1.0 after 2.5. Remove one."),
        (
            'date\nedges = ["1990-01-01", "1980-01-01"]',
            "edges must increase, got 1980-01-01 after 1990-01-01. Remove one.",
        ),
        (
            'datetime\nedges = ["1990-01-01T10:00", "1990-01-01T10:00Z"]',
            "edges must increase, got 1990-01-01T10:00:00 after 1990-01-01T10:00:00. Remove one.",
        ),
        ("integer\nedges = [1]", "edges must list at least two numbers or dates, got [1]."),
        ("integer\nedges = 5", "edges must list at least two numbers or dates, got 5."),
        ("integer\nedges = [0, 1]\nlow = 0", "give either edges or low, high and bins, not both. Remove low."),
        ("integer", "needs edges = [...], or low, high and bins. Add them from public knowledge."),
        ("integer\nlow = 0\nhigh = 9", "needs edges = [...], or low, high and bins. Add them from public knowledge."),
        ("real\nlow = 0\nhigh = 9\nbins = 0", "bins must be a whole number from 1 to 40000, got 0."),
        (
            "real\nlow = 0\nhigh = 9\nbins = 1000000000000",
            "bins must be a whole number from 1 to 40000, got 1000000000000.",
        ),
        ("real\nlow = 0\nhigh = 9\nbins = true", "bins must be a whole number from 1 to 40000, got True."),
        ("real\nlow = 9\nhigh = 9\nbins = 2", "low must be below high, got 9 and 9."),
        ("integer\nlow = 0\nhigh = 3\nbins = 4", "4 bins do not fit between 0 and 3. Use fewer."),
        ("real\nedges = [0, inf]", "edges must be finite numbers, got inf."),
        ("real\nedges = [nan, 1]", "edges must be finite numbers, got nan."),
        ('real\nedges = [0, "1"]', "edges must be finite numbers, got '1'."),
        ("integer\nedges = [false, 1]", "edges must be finite numbers, got False."),
        (f"real\nedges = [0, 1{'0' * 309}]", f"edges must be finite numbers, got 1{'0' * 309}."),
        ("integer\nedges = [0, 1.5]", "edges of an integer must be whole and below 2**63, got 1.5. Use real."),
        (
            "integer\nedges = [0, 9223372036854775808]",
            "edges of an integer must be whole and below 2**63, got 9223372036854775808. Use real.",
        ),
        (
            'date\nedges = ["1990-01-01", "1990-02-30"]',
            "edges of a date must be ISO texts ('1990-01-31'), got '1990-02-30'.",
        ),
        ("date\nedges = [1990, 2000]", "edges of a date must be ISO texts ('1990-01-31'), got 1990."),
        ('datetime\nedges = ["soon", "later"]', "edges of a datetime must be ISO texts ('1990-01-31'), got 'soon'."),
        ('integer\nedges = [0, 1]\noutside = "drop"', "outside must be 'clip' or 'missing', got 'drop'."),
        (
            'integer\nedges = [0, 1]\noutside = "missing"',
            "outside = 'missing' needs a missing level. Add missing = '' or another text.",
        ),
        (
            'integer\nedges = [0, 9]\nmissing = "0"',
            "missing must not lie within the edges, got '0'. Move the edges past it.",
        ),
        (
            'date\nedges = ["1900-01-01", "2000-01-01"]\nmissing = "1900-01-01"',
            "missing must not lie within the edges, got '1900-01-01'. Move the edges past it.",
        ),
    ],
)
def test_an_entry_is_refused_by_name_requirement_value_and_remedy(body: str, message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        one(body)
    assert str(refused.value) == f"attribute 'age': {message}"


@pytest.mark.parametrize("edge", ["1990-01-31T12:00:00", 1990, "0001-01-01T00:00:00+10:00"])
def test_an_edge_that_is_no_day_or_out_of_range_is_refused(edge: object) -> None:
    kind = "datetime" if "+" in str(edge) else "date"
    with pytest.raises(SchemaError, match=f"^attribute 'a': edges of a {kind} must be ISO texts"):
        Schema.from_dict({"attributes": {"a": {"type": kind, "edges": [edge, "2000-01-01"]}}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schema lists no attributes. Add [attributes.NAME] for each column to release."),
        ("[attributes]", "the schema lists no attributes. Add [attributes.NAME] for each column to release."),
        ("attributes = 3", "the schema lists no attributes. Add [attributes.NAME] for each column to release."),
        ("[atributes.a]", "schema: unknown key 'atributes'. Known keys are attributes, pairs, rules, table."),
        ("table = 3", "[table] must be a table of settings. Write [table] and name = '...' below it."),
        (
            "[table]\nunit = 'x'",
            "[table]: unknown key 'unit'. Known keys are columns, count, decimal, delimiter, description, encoding, "
            "header, name, null_ids, nulls, person, quote, rows_per_person, thousands, title.",
        ),
        ("[table]\nname = ''", "[table] name must be a text that is not empty, got ''."),
        ("[table]\nname = 7", "[table] name must be a text that is not empty, got 7."),
        (
            "[attributes.'']\ntype = 'boolean'",
            "an attribute's name must not be empty. Give [attributes.NAME] the name of its column.",
        ),
        (
            "[attributes]\nage = 'integer'",
            "attribute 'age': must be a table, got 'integer'. Write [attributes.age] and its keys below it.",
        ),
        (
            "[attributes.a]\ntype = 'categorical'\nvalues = ['b=c']\n"
            "[attributes.'a=b']\ntype = 'categorical'\nvalues = ['c']",
            "dummy columns must differ in name, got 'a=b=c' twice. Rename an attribute or value.",
        ),
        (
            "[attributes.small]\ntype = 'boolean'\n"
            "[attributes.large]\ntype = 'integer'\nlow = 0\nhigh = 40000\nbins = 40000",
            "the schema must have at most 40000 levels in all, got 40002; the largest attribute is 'large' with 40000. "
            "Use wider bins, or list fewer values and other = true.",
        ),
        (
            "\n".join(f"[attributes.a{i}]\ntype = 'categorical'\nvalues = ['x']" for i in range(10_001)),
            "the schema must have at most 10000 attributes, got 10001. Leave out those that nobody asks for, or "
            "release groups of them by themselves, each at its own cost.",
        ),
        (
            "[attributes.b]\ntype = 'boolean'\n"
            "[attributes.x]\ntype = 'integer'\nlow = 0\nhigh = 10001\nbins = 10001\n"
            "[attributes.y]\ntype = 'integer'\nlow = 0\nhigh = 10000\nbins = 10000",
            "two attributes must have at most 100000000 pairs of levels, got 10000 and 10001 levels. Use wider bins, "
            "or list fewer values and other = true.",
        ),
    ],
)
def test_a_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.from_toml(text)
    assert str(refused.value) == message


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
