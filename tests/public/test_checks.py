"""Points and special values: where they stand among the levels, and what is refused."""

from __future__ import annotations

import pytest

from sklar.errors import SchemaError
from sklar.public.schema import Attribute, Schema


def one(body: str) -> Attribute:
    return Schema.from_toml(f"[attributes.age]\n{body}").attributes[0]


def test_points_stand_before_the_bin_that_they_begin_or_after_the_one_that_contains_them() -> None:
    hours = one('type = "integer"\nedges = [0, 40, 60]\npoints = [50, 0, 40, 45]\nspecial = ["N", -9]\nmissing = "?"')
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
    share = one('type = "real"\nedges = [0, 0.5, 1]\npoints = [0, 1]')
    assert share.levels == ("0.0", "(0.0, 0.5)", "[0.5, 1.0)", "1.0")


@pytest.mark.parametrize(
    ("body", "special", "levels"),
    [
        (
            'type = "categorical"\nvalues = ["a"]\nspecial = ["N", 9]\nother = true',
            ("N", "9"),
            ("a", "N", "9", "other"),
        ),
        ('type = "categorical"\nvalues = [1, 2]\nspecial = [9, "8", "N"]', (9, 8, "N"), ("1", "2", "9", "8", "N")),
        (
            'type = "boolean"\nspecial = ["N/A", 9]\nmissing = ""',
            ("N/A", "9"),
            ("false", "true", "N/A", "9", "(missing)"),
        ),
        ('type = "integer"\nedges = [0, 9]\nspecial = ["-9", 99.0, "N"]', (-9, 99, "N"), ("[0, 9)", "-9", "99", "N")),
        ('type = "real"\nedges = [0, 9]\nspecial = [-1, 99.5]', (-1, 99.5), ("[0.0, 9.0)", "-1", "99.5")),
        (
            'type = "date"\nedges = ["2000-01-01", "2001-01-01"]\nspecial = ["99991231", 9999-12-30, "never", -9]',
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


_INTEGER = 'type = "integer"\nedges = [0, 10, 20]\n'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_INTEGER + "points = 5", "points must list numbers within the edges, got 5. Write points = [0, 40]."),
        (_INTEGER + "points = []", "points must list numbers within the edges, got []. Write points = [0, 40]."),
        (_INTEGER + 'points = ["x"]', "points must be finite numbers, got 'x'."),
        (_INTEGER + "points = [5, 5]", "points must differ, got 5 twice. Remove one."),
        (
            _INTEGER + "points = [20]",
            "points must lie within the edges, got 20. Move the edges past it, or list it under special.",
        ),
        (
            'type = "real"\nedges = [0, 1e17]\npoints = [1e16]',
            "points must be smaller than 2**53 in size, got 1e+16. Leave it in its bin.",
        ),
        (
            'type = "date"\nedges = ["2000-01-01", "2001-01-01"]\npoints = [5]',
            "points of a date must be ISO texts such as '1990-01-31', got 5.",
        ),
        (
            'type = "integer"\nlow = 0\nhigh = 9\nbins = 2\ndomain = "private"\npoints = [1]',
            'domain = "private" is found',
        ),
        (_INTEGER + "special = 5", "special must list texts or numbers, got 5. Write special = ['N', -9]."),
        (_INTEGER + "special = [true]", "special must list texts or numbers, got True. Write special = ['N', -9]."),
        (_INTEGER + 'special = [" "]', "special must not list an empty text, which is missing. Use missing = ''."),
        (_INTEGER + 'special = ["N", "N"]', "special values must differ, got 'N' twice. Remove one."),
        (_INTEGER + 'special = [-9, "-9.0"]', "special values must differ, got '-9' twice. Remove one."),
        (
            _INTEGER + "special = [0.5]",
            "special numbers must be whole numbers smaller than 2**53 in size, got 0.5.",
        ),
        (
            'type = "real"\nedges = [0, 1]\nspecial = ["inf"]',
            "special numbers must be finite numbers smaller than 2**53 in size, got 'inf'.",
        ),
        (
            'type = "real"\nedges = [0, 1]\nspecial = [nan]',
            "special numbers must be finite numbers smaller than 2**53 in size, got nan.",
        ),
        (
            'type = "boolean"\nspecial = ["No"]',
            "special must not list a text for true or false, got 'No'. Use other texts.",
        ),
        (
            'type = "categorical"\nvalues = ["a", "N"]\nspecial = ["N"]',
            "'N' is listed under values and under special. Remove one.",
        ),
        (
            _INTEGER + 'special = ["N"]\nmissing = "N"',
            "'N' is listed under special and is the missing text too. Remove one.",
        ),
        (
            _INTEGER + 'special = [-1]\nmissing = "-1.0"',
            "'-1' is listed under special and is the missing text too. Remove one.",
        ),
        (_INTEGER + "special = [5]\npoints = [5]", "5 is listed under points and under special. Remove one."),
        (
            'type = "integer"\nedges = [0, 2, 9]\npoints = [0]\nspecial = [1]',
            "the bin [0, 2) holds nothing but points and special values, so it would stay empty. "
            "Remove an edge, or leave them in their bin.",
        ),
        (
            'type = "real"\nedges = [0, 5e-324, 9]\npoints = [0]',
            "the bin [0.0, 5e-324) holds nothing but points and special values, so it would stay empty. "
            "Remove an edge, or leave them in their bin.",
        ),
        (
            'type = "real"\nedges = [1, 1.0000001192092896, 9]\npoints = [1]\noutput = "float32"',
            "the bin [1.0, 1.0000001192092896) holds nothing but points and special values, so it would stay empty. "
            "Remove an edge, or leave them in their bin.",
        ),
        (
            'type = "datetime"\nedges = ["2000-01-01T00:00:00", "2000-01-01T00:00:01"]\npoints = ["2000-01-01"]',
            "the bin [2000-01-01T00:00:00, 2000-01-01T00:00:01) holds nothing but points and special values, so it "
            "would stay empty. Remove an edge, or leave them in their bin.",
        ),
        (
            _INTEGER + 'special = ["N"]\noutput = "int32"',
            "output 'int32' does not hold the special text 'N'; use string.",
        ),
        (_INTEGER + 'special = [-9]\noutput = "uint8"', "output 'uint8' holds 0 to 255 only."),
        (
            'type = "real"\nedges = [0, 1]\npoints = [0.1]\noutput = "float32"',
            "output 'float32' does not hold 0.1 exactly; use float64.",
        ),
        (
            'type = "real"\nedges = [0, 1]\nspecial = [-0.125]\noutput = "decimal(5, 2)"',
            "output 'decimal(5, 2)' needs edges of at most 2 digits after the point.",
        ),
        (
            'type = "real"\nedges = [0, 1]\nspecial = [1000]\noutput = "decimal(5, 2)"',
            "output 'decimal(5, 2)' holds 5 digits and no more.",
        ),
        (
            'type = "categorical"\nvalues = [1]\nspecial = ["N"]\noutput = "int8"',
            "output 'int8' holds whole numbers only",
        ),
        ('type = "boolean"\nspecial = ["N/A"]\noutput = "bool"', "output 'bool' does not hold the special text 'N/A'"),
    ],
)
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        one(body)
    assert str(refused.value).startswith(f"attribute 'age': {message}")
