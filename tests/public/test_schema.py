"""Schema values: how levels are ordered, what is derived from the fields and when, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sklar
from sklar.answer.report.publish import find
from sklar.custodian.evaluate.conjunctions import choose_triples
from sklar.errors import SchemaError
from sklar.kernel.cells import Cells
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.trust.verify.refit import check_copula

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


def test_missing_comes_before_other_and_both_after_the_values() -> None:
    both = Attribute(name="a", kind="categorical", values=("b", "a"), missing="?", other=True)
    assert both.levels == ("b", "a", "?", "other")
    assert (both.n_values, both.n_levels, both.missing_code, both.other_code) == (2, 4, 2, 3)
    only_other = Attribute(name="a", kind="categorical", values=("b", "a"), other=True)
    assert (only_other.missing_code, only_other.other_code) == (None, 2)
    neither = Attribute(name="a", kind="boolean")
    assert (neither.missing_code, neither.other_code) == (None, None)


@pytest.mark.parametrize("name", DERIVED)
def test_derived_values_are_computed_once(name: str) -> None:
    schema = ruled()
    assert getattr(schema, name) is getattr(schema, name)
    # Two small numbers that are equal are one object: the next line asks where it is kept.
    kept = {"measured": "_measured"}.get(name, name)
    assert kept in schema.__dict__


def test_levels_are_named_once() -> None:
    attribute = ruled().attributes[0]
    assert attribute.levels is attribute.levels
    assert {"levels"} <= set(attribute.__dict__)


def arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    """All arrays within a derived value."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return [array for part in parts for array in arrays(part)]


def test_derived_arrays_and_mappings_cannot_be_changed() -> None:
    schema = ruled()
    found = [array for name in DERIVED for array in arrays(getattr(schema, name))]
    # One forbidden pair, and where three attributes come from; cells are tested on their own.
    assert len(found) == 4
    for array in found:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
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
    for twin in (serializer.loads(serializer.dumps(used)), copy.copy(used), copy.deepcopy(used)):
        assert twin == used
        assert not twin.__dict__
        assert twin.offsets.tolist() == used.offsets.tolist()
        assert not twin.offsets.flags.writeable


def test_a_changed_copy_has_derived_values_of_its_own() -> None:
    schema = ruled()
    assert schema.offsets.tolist() == [0, 3, 5, 8]
    shorter = replace(schema, attributes=schema.attributes[:1], rules=())
    assert shorter.offsets.tolist() == [0, 3]
    assert shorter.digest != schema.digest
    assert shorter.measured is shorter
    levels = schema.attributes[0].levels
    assert replace(schema.attributes[0], missing="?").levels == (*levels, "?")


def test_digest_is_of_the_content_not_the_layout() -> None:
    plain = Schema.from_toml('[table]\nname = "t"\n[attributes.a]\ntype = "integer"\nedges = [0, 1, 2]\nmissing = "?"')
    inline = Schema.from_toml(
        "attributes.a = { missing = '?', type = 'integer', low = 0, high = 2, bins = 2 }\ntable.name = 't' # a comment"
    )
    assert inline.digest == plain.digest
    # Written in model files: it may not change between versions.
    assert plain.digest == "aed106c88a21615c24ecc9685c904f8511fe2fce378d56dfe090c587941ee631"
    text = plain.to_toml()
    for before, after in (
        ('name = "t"', 'name = "u"'),
        ("attributes.a", "attributes.b"),
        ('"integer"', '"real"'),
        ("1, 2]", "1, 3]"),
        ('"?"', '""'),
        ('"?"', '"?"\noutside = "missing"'),
    ):
        other = text.replace(before, after)
        assert other != text
        assert Schema.from_toml(other).digest != plain.digest


def test_unreviewed_entries_are_named_with_the_reason() -> None:
    schema = Schema.from_toml(
        "[attributes.a]\ntype = 'boolean'\nreviewed = false\n[attributes.b]\ntype = 'boolean'\n"
        "[attributes.c]\ntype = 'boolean'\nreviewed = false"
    )
    with pytest.raises(SchemaError) as refused:
        schema.require_reviewed()
    assert str(refused.value) == (
        "these entries are not reviewed: a, c. A domain read from the rows tells who is in them, which no noise "
        "repairs. Answer the questions of sklar schema review S.toml; or compare each entry with public knowledge (a "
        "code book, a legal limit), correct it, and remove its line reviewed = false."
    )


def test_whoever_reviews_in_python_says_where_entries_come_from() -> None:
    schema = Schema.from_toml(
        "[attributes.a]\ntype = 'boolean'\nreviewed = false\n[attributes.b]\ntype = 'boolean'\n"
        "[attributes.c]\ntype = 'categorical'\nvalues = ['x']\nreviewed = false"
    )
    for unsaid in ({}, {"given": {"a": "public"}}):
        with pytest.raises(SchemaError) as refused:
            schema.reviewed(*unsaid.values())  # type: ignore[arg-type]
        assert str(refused.value) == (
            f"reviewed must say where these entries come from: {'c' if unsaid else 'a, c'}. Give 'public' (public "
            "knowledge) or 'rows' (read from the rows, at your risk), for all of them or for each by its name."
        )
    for wrong, message in (
        ("hearsay", "provenance of 'a' must be 'public' or 'rows', got 'hearsay'."),
        ({"a": "public", "c": "rows", "d": "rows"}, "the schema has no attribute 'd'. It has: a, b, c."),
    ):
        with pytest.raises(SchemaError) as refused:
            schema.reviewed(wrong)  # type: ignore[arg-type]
        assert str(refused.value) == message
    both = schema.reviewed({"a": "public", "c": "rows"})
    both.require_reviewed()
    assert [each.provenance for each in both.attributes] == ["public", None, "rows"]
    assert (both.read_from_rows, both.attributes[2].known_from) == (("c",), "rows")
    assert Schema.from_toml(both.to_toml()) == both
    # Nothing waits, so nothing is asked.
    assert both.reviewed() == both


def test_attributes_are_found_by_name() -> None:
    schema = Schema.from_toml("[attributes.a]\ntype = 'boolean'\n[attributes.b]\ntype = 'boolean'")
    assert schema.attribute("b") is schema.attributes[1]
    with pytest.raises(SchemaError) as refused:
        schema.attribute("c")
    assert str(refused.value) == "the schema has no attribute 'c'. It has: a, b."


def test_what_holds_all_pairs_of_levels_as_a_square_refuses_too_many() -> None:
    wide = Schema.from_toml("[attributes.a]\ntype = 'integer'\nlow = 0\nhigh = 20001\nbins = 20001")
    model: Any = SimpleNamespace(measured_schema=wide)
    uses: dict[str, Callable[[], object]] = {
        "method 'binary'": lambda: sklar.measure("nowhere.csv", wide, Budget(epsilon=1.0), method="binary"),
        "a report": lambda: find(model),
        "an evaluation": lambda: choose_triples(wide),
        "verify --refit": lambda: check_copula(model),
    }
    for what, use in uses.items():
        with pytest.raises(SchemaError) as refused:
            use()
        assert str(refused.value) == (
            f"{what} holds a number for every pair of levels at once and takes at most 20000 levels, got 20001. "
            "Do without it, or use wider bins."
        )
