"""Schemas: what parses and comes back from TOML, how levels are ordered, what is derived, and how text is written."""

from __future__ import annotations

import codecs
import copy
import hashlib
import json
import tomllib
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sklar
from sklar.answer.report.publish import find
from sklar.custodian.evaluate.conjunctions import choose_triples
from sklar.errors import BudgetError, SchemaError
from sklar.kernel.cells import Cells
from sklar.kernel.theorems import Budget
from sklar.public.axis import parse_number
from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Person, Reading, budget_for, codec_of, describe_reading
from sklar.trust.verify.refit import refit_checks
from tests.conftest import refuses, schemas
from tests.public import READ, one

DERIVED = ("allowed", "determined", "digest", "dummy_names", "measured", "cells", "names", "private_domains", "sources")


def ruled() -> Schema:
    """A schema in which one attribute is determined and one combination is forbidden."""
    return Schema.from_toml(
        """
        [attributes]
        age = { type = "integer", edges = [0, 18, 65, 99] }
        band = { type = "categorical", values = ["young", "old"] }
        works = { type = "boolean", missing = "?" }
        [[rules]]
        attribute = "band"
        determined_by = "age"
        map = { "[0, 18)" = "young", "[18, 65)" = "old", "[65, 99)" = "old" }
        [[rules]]
        forbid = { band = "young", works = true }
        """
    )


@pytest.mark.parametrize("name", DERIVED)
def test_derived_values_are_computed_once(name: str) -> None:
    schema = ruled()
    assert getattr(schema, name) is getattr(schema, name)
    # Two small numbers that are equal are one object: the next line asks where it is kept.
    assert name in schema.__dict__
    assert schema.attributes[0].levels is schema.attributes[0].levels


def arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    """All arrays within a derived value."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return [array for part in parts for array in arrays(part)]


def test_derived_arrays_and_mappings_cannot_be_changed() -> None:
    schema = ruled()
    derived = [array for name in DERIVED for array in arrays(getattr(schema, name))]
    # One forbidden pair, and where three attributes come from; cells are tested on their own.
    assert len(derived) == 4
    assert not any(array.flags.writeable for array in (*derived, schema.attributes[0].bin_codes))
    for mapping in (schema.allowed, schema.determined):
        with pytest.raises(TypeError):
            mapping["age"] = "works"  # type: ignore[index]
    # For a name that is no field, slotted dataclasses of Python 3.11 raise TypeError.
    with pytest.raises((FrozenInstanceError, TypeError)):
        schema.cells = Cells([1])


@pytest.mark.parametrize("module", ["pickle", "cloudpickle", "pyspark.cloudpickle"])
def test_equality_hashes_and_pickles_see_the_fields_alone(module: str) -> None:
    serializer = pytest.importorskip(module)
    fresh, used = ruled(), ruled()
    for name in DERIVED:
        getattr(used, name)
    assert used == fresh
    assert hash(used) == hash(fresh)
    assert repr(used) == repr(fresh)
    assert len(serializer.dumps(used)) == len(serializer.dumps(fresh))
    for twin in (serializer.loads(serializer.dumps(used)), copy.copy(used), copy.deepcopy(used), replace(used)):
        assert twin == used
        assert not twin.__dict__
        assert twin.offsets.tolist() == used.offsets.tolist()
        assert not twin.offsets.flags.writeable


def test_digest_is_of_the_content_not_the_layout() -> None:
    plain = Schema.from_toml('[table]\nname = "t"\n[attributes.a]\ntype = "integer"\nedges = [0, 1, 2]\nmissing = "?"')
    inline = "attributes.a = { missing = '?', type = 'integer', low = 0, high = 2, bins = 2 }\ntable.name = 't' # x"
    assert Schema.from_toml(inline).digest == plain.digest
    # Written in model files: it may not change between versions.
    assert plain.digest == "aed106c88a21615c24ecc9685c904f8511fe2fce378d56dfe090c587941ee631"
    assert plain.to_dict()["attributes"]["a"] == {"type": "integer", "edges": [0, 1, 2], "missing": "?"}
    changes = [('name = "t"', 'name = "u"'), ("attributes.a", "attributes.b"), ('"integer"', '"real"')]
    changes += [("1, 2]", "1, 3]"), ('"?"', '""'), ('"?"', '"?"\noutside = "missing"'), ('"?"', '"?"\noutput = "int8"')]
    changes += [('name = "t"', f'name = "t"\n{keys}') for keys in ('person = "id"\ncount = "people"', "decimal = ','")]
    digests = {Schema.from_toml(plain.to_toml().replace(before, after)).digest for before, after in changes}
    assert len(digests | {plain.digest}) == len(changes) + 1


WAITING = """
[attributes]
a = { type = "boolean", reviewed = false }
b = { type = "boolean" }
c = { type = "categorical", values = ["x"], reviewed = false }
"""
UNSAID = (
    "reviewed must say where these entries come from: {}. Give 'public' (public knowledge) or 'rows' (read from the "
    "rows, at your risk), for all of them or for each by its name."
)


def test_whoever_reviews_in_python_says_where_entries_come_from_before_a_release() -> None:
    schema = Schema.from_toml(WAITING)
    refusals: dict[str, Callable[[], object]] = {
        UNSAID.format("a, c"): schema.reviewed,
        UNSAID.format("c"): lambda: schema.reviewed({"a": "public"}),
        "provenance of 'a' must be 'public' or 'rows', got 'hearsay'.": lambda: schema.reviewed("hearsay"),  # type: ignore[arg-type]
        "the schema has no attribute 'd'. It has: a, b, c.": lambda: schema.reviewed(dict.fromkeys("acd", "rows")),
        "these entries are not reviewed: a, c. A domain read from the rows tells who is in them, which no noise "
        "repairs. Answer the questions of sklar schema review S.toml; or compare each entry with public knowledge (a "
        "code book, a legal limit), correct it, and remove its line reviewed = false.": schema.require_reviewed,
    }
    for message, call in refusals.items():
        with pytest.raises(SchemaError) as refused:
            call()
        assert str(refused.value) == message
    both = schema.reviewed({"a": "public", "c": "rows"})
    both.require_reviewed()
    assert [each.provenance for each in both.attributes] == ["public", None, "rows"]
    assert (both.read_from_rows, both.attribute("c").known_from) == (("c",), "rows")
    assert Schema.from_toml(both.to_toml()) == both
    # Nothing waits, so nothing is asked.
    assert both.reviewed() == both


def test_what_holds_all_pairs_of_levels_as_a_square_refuses_too_many() -> None:
    wide = Schema.from_toml("[attributes.a]\ntype = 'integer'\nlow = 0\nhigh = 20001\nbins = 20001")
    model: Any = SimpleNamespace(measured_schema=wide)
    uses: dict[str, Callable[[], object]] = {
        "method 'binary'": lambda: sklar.measure("nowhere.csv", wide, Budget(epsilon=1.0), method="binary"),
        "a report": lambda: find(model),
        "an evaluation": lambda: choose_triples(wide),
        "verify --refit": lambda: refit_checks(model),
    }
    for what, use in uses.items():
        with pytest.raises(SchemaError) as refused:
            use()
        assert str(refused.value) == (
            f"{what} holds a number for every pair of levels at once and takes at most 20000 levels, got 20001. "
            "Do without it, or use wider bins."
        )


def test_a_schema_has_the_levels_of_its_attributes_in_order_and_its_measured_part_is_read_like_it() -> None:
    schema = replace(ruled(), reading=Reading(delimiter=";"), person=Person(column="id", count="people"))
    assert schema.measured.names == ("age", "works")
    assert (schema.measured.reading, schema.measured.person) == (schema.reading, schema.person)
    assert (schema.n_attributes, schema.n_levels) == (3, 8)
    assert (schema.sizes.tolist(), schema.offsets.tolist()) == ([3, 2, 3], [0, 3, 5, 8])
    assert schema.dummy_names[2:6] == ("age=[65, 99)", "band=young", "band=old", "works=false")


@pytest.mark.parametrize(("entry", "levels"), READ["levels"])
def test_levels_are_named_as_people_write_them_in_their_order(entry: str, levels: str) -> None:
    attribute = one(entry)
    assert " | ".join(attribute.levels) == levels
    assert attribute.missing_code == (None if attribute.missing is None else attribute.n_levels - 1 - attribute.other)
    assert attribute.other_code == (attribute.n_levels - 1 if attribute.other else None)


@given(schema=schemas())
@settings(max_examples=60, deadline=None)
def test_toml_and_dict_give_the_schema_back(schema: Schema) -> None:
    for back in (Schema.from_toml(schema.to_toml()), Schema.from_dict(schema.to_dict())):
        assert (back, back.digest) == (schema, schema.digest)
    assert len(set(schema.dummy_names)) == schema.n_levels
    assert all(len(attribute.levels) == attribute.n_levels for attribute in schema.attributes)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    refuses(f"^schema file '{path}' does not exist. Check the path.$", Schema.load, path, error=SchemaError)
    path.write_bytes(b"[attributes.a\xff]")
    for unreadable in (path, tmp_path):
        refuses(r"cannot be read: .* It must be a UTF-8 text file\.", Schema.load, unreadable, error=SchemaError)
    path.write_text('[attributes."é"]\ntype = "boolean"', encoding="utf-8")
    assert Schema.load(str(path)).names == ("é",)


@pytest.mark.parametrize(("start", "filler", "repeats", "message"), [
    (b"", b"[],", 1 << 24, "its description is larger than any model's"),
    (b'{"schema": [', b"[],", 1 << 20, "its description holds more than 300,000 values"),
    (b'{"schema": 1}', b" ", 1 << 20, "is neither a schema nor a model"),
    (b"[", b"0]", 1, "its description is not a Sklar model's"),
    (b"[", b"", 0, r"is damaged \(JSONDecodeError\)"),
])  # fmt: skip
def test_a_hostile_model_file_is_refused_within_bounded_memory(
    tmp_path: Path, start: bytes, filler: bytes, repeats: int, message: str
) -> None:
    path = tmp_path / "bomb.sklar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.json", start + filler * repeats)
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    try:
        refuses(message, Schema.of, path, error=SchemaError)
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


def test_codes_of_points_bins_and_special_values() -> None:
    hours = one('integer\nedges = [0, 40, 60]\npoints = [50, 0, 40, 45]\nspecial = ["N", "-9"]\nmissing = "?"')
    assert (hours.points, hours.special) == ((0, 40, 45, 50), ("N", -9))
    assert (hours.n_bins, hours.n_values, hours.n_levels, hours.missing_code) == (2, 6, 9, 8)
    assert (hours.bin_codes.tolist(), hours.point_codes.tolist()) == ([1, 3], [0, 2, 4, 5])
    assert list(hours.special_codes) == [6, 7]
    assert hours.apart == (-9, 0, 40, 45, 50)


@pytest.mark.parametrize("body", [entry for entry, _ in READ["written"]])
def test_what_is_read_is_written(body: str) -> None:
    text = Schema(name="t", attributes=(one(body),)).to_toml()
    kind, keys = body.replace(" ; ", "\n").split("\n", 1)
    assert text == f'[table]\nname = "t"\n\n[attributes.age]\ntype = "{kind}"\n{keys}\n'


ATTRIBUTE = '[attributes.a]\ntype = "categorical"\nvalues = ["x", "y"]\n'
EVERY = Path(__file__).with_name("table.toml").read_text()


def test_every_key_of_a_table_is_read_and_written_back() -> None:
    schema = Schema.from_toml(EVERY + ATTRIBUTE)
    written = Reading(delimiter=";", decimal=",", thousands=".", encoding="latin-1", quote="'")
    assert schema.reading == replace(written, columns=("a", "b c"), nulls=("NA", "?"))
    assert not schema.reading.header
    assert schema.to_toml().startswith(EVERY)
    assert Schema.from_toml(schema.to_toml()) == schema == Schema.from_dict(json.loads(json.dumps(schema.to_dict())))


def test_a_schema_that_says_nothing_has_the_digest_that_it_had() -> None:
    schema = Schema.from_toml(ATTRIBUTE)
    assert (schema.reading, describe_reading(PLAIN)) == (PLAIN, {})
    document = {"table": {"name": "table"}, "attributes": {"a": {"type": "categorical", "values": ["x", "y"]}}}
    assert schema.to_dict() == document
    assert schema.digest == hashlib.sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()
    plain = '[table]\ndecimal = "."\nencoding = "UTF8"\nquote = "\\""\nheader = true\nnulls = []\n'
    assert Schema.from_toml(plain + ATTRIBUTE) == schema


def test_numbers_in_plain_writing() -> None:
    """By the decimal sign and the one between thousands: texts, and what Python shall read."""
    for each in tomllib.loads(Path(__file__).with_name("writings.toml").read_text())["writings"]:
        texts = each.pop("texts")
        assert {text: Reading(**each).plain(text) for text in texts} == texts


@given(text=st.text("0123456789.,' e+-\u00a0x", max_size=12))
@settings(deadline=None)
def test_no_text_is_read_as_a_number_that_its_writing_does_not_have(text: str) -> None:
    """Beside a decimal comma a point is none: what Python then reads comes from the comma alone."""
    found = parse_number(Reading(decimal=",").plain(text).strip())
    swapped = text.translate(str.maketrans(".,", ",.")).strip()
    assert found == parse_number(swapped)


def test_encodings_are_those_that_turn_any_bytes_into_text() -> None:
    assert codec_of("latin-1") == "iso8859-1"
    assert codec_of("Windows-1252") == "cp1252"
    assert codec_of("utf-8-sig") == "utf-8"
    assert [codec_of(name) for name in ("hex", "undefined", "punycode", "nothing such")] == [None] * 4
    for name in ("utf-8", "latin-1", "cp1252", "utf-16-le", "utf-16-be", "utf-32", "shift_jis", "gb18030", "koi8-r"):
        assert codecs.lookup(codec_of(name) or "").name


def test_a_person_is_read_and_written_back() -> None:
    eight = Person(column="id", count="rows", rows_per_person=8, null_ids="drop")
    assert Schema.from_toml(ATTRIBUTE).person is None
    for keys, person in (
        ("", Person(column="id", count="people")),
        ('rows_per_person = 8\nnull_ids = "drop"\n', eight),
    ):
        schema = Schema.from_toml(f'[table]\nperson = "id"\ncount = "{person.count}"\n{keys}{ATTRIBUTE}')
        assert schema.person == person
        assert Schema.from_toml(schema.to_toml()) == Schema.from_dict(schema.to_dict()) == schema


def test_the_schema_decides_for_whom_a_budget_is() -> None:
    plain, eight = Budget(epsilon=1.0), Person(column="id", count="rows", rows_per_person=8)
    assert budget_for(None, plain) == plain
    assert budget_for(eight, plain).rows_per_person == 8
    assert budget_for(Person(column="id", count="people"), plain).rows_per_person == 1
    assert budget_for(eight, Budget(epsilon=1.0, rows_per_person=8)).rows_per_person == 8
    for person, says in ((eight, "rows_per_person = 8"), (None, "that a row is a person")):
        with pytest.raises(BudgetError, match=f"people with up to 4 rows, and the schema says {says}"):
            budget_for(person, Budget(epsilon=1.0, rows_per_person=4))


def test_a_target_is_public_and_checked() -> None:
    columns = "".join(f"[attributes.{name}]\ntype = 'integer'\nedges = [0, 1, 2, 3]\n" for name in "abc")
    rule = "[[rules]]\nattribute = 'c'\ndetermined_by = 'b'\nmap = {'0' = 0, '1' = 0, '2' = 1}\n"
    one = Schema.from_toml(f"[table]\ntarget = 'b'\n{columns}")
    assert (one.target, one.targets) == (("b",), (1,))
    assert one.importance == (1.0, 1.0, 1.0, 2.0, 1.0, 2.0)
    two = Schema.from_toml(f"[table]\ntarget = ['c', 'a']\n{columns}")
    assert (two.targets, two.importance) == ((0, 2), (1.0, 1.0, 1.0, 2.0, 2.0, 2.0))
    for schema in (one, two, one.aimed()):
        assert Schema.from_toml(schema.to_toml()) == schema
        assert Schema.from_dict(schema.to_dict()).digest == schema.digest
    assert len({one.digest, two.digest, one.aimed().digest}) == 3
    with pytest.raises(SchemaError, match=r"a rule determines 'c', which is not measured. Name 'b' instead"):
        Schema.from_toml(f"[table]\ntarget = 'c'\n{columns}{rule}")
    assert Schema.from_toml(f"[table]\ntarget = 'b'\n{columns}{rule}").measured.targets == (1,)
