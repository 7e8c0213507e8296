"""Points and special values: where they stand among the levels, and what is refused."""

from __future__ import annotations

import pytest

from sklar.errors import SchemaError
from sklar.public.schema import Schema
from tests.public import one


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


_INTEGER = "integer\nedges = [0, 10, 20]\n"


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
            "real\nedges = [0, 1e17]\npoints = [1e16]",
            "points must be smaller than 2**53 in size, got 1e+16. Leave it in its bin.",
        ),
        (
            'date\nedges = ["2000-01-01", "2001-01-01"]\npoints = [5]',
            "points of a date must be ISO texts ('1990-01-31'), got 5.",
        ),
        ('integer\nlow = 0\nhigh = 9\nbins = 2\ndomain = "private"\npoints = [1]', 'domain = "private" is found'),
        (_INTEGER + "special = 5", "special must list texts or numbers, got 5. Write special = ['N', -9]."),
        (_INTEGER + "special = [true]", "special must list texts or numbers, got True. Write special = ['N', -9]."),
        (_INTEGER + 'special = [" "]', "special must not list an empty text, which is missing. Use missing = ''."),
        (_INTEGER + 'special = ["N", "N"]', "special values must differ, got 'N' twice. Remove one."),
        (_INTEGER + 'special = [-9, "-9.0"]', "special values must differ, got '-9' twice. Remove one."),
        (_INTEGER + "special = [0.5]", "special numbers must be whole numbers smaller than 2**53 in size, got 0.5."),
        (
            'real\nedges = [0, 1]\nspecial = ["inf"]',
            "special numbers must be finite numbers smaller than 2**53 in size, got 'inf'.",
        ),
        (
            "real\nedges = [0, 1]\nspecial = [nan]",
            "special numbers must be finite numbers smaller than 2**53 in size, got nan.",
        ),
        ('boolean\nspecial = ["No"]', "special must not list a text for true or false, got 'No'. Use other texts."),
        (
            'categorical\nvalues = ["a", "N"]\nspecial = ["N"]',
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
            "integer\nedges = [0, 2, 9]\npoints = [0]\nspecial = [1]",
            "the bin [0, 2) holds nothing but points and special values, so it would stay empty. "
            "Remove an edge, or leave them in their bin.",
        ),
        (
            "real\nedges = [0, 5e-324, 9]\npoints = [0]",
            "the bin [0.0, 5e-324) holds nothing but points and special values, so it would stay empty. "
            "Remove an edge, or leave them in their bin.",
        ),
        (
            'real\nedges = [1, 1.0000001192092896, 9]\npoints = [1]\noutput = "float32"',
            "the bin [1.0, 1.0000001192092896) holds nothing but points and special values, so it would stay empty. "
            "Remove an edge, or leave them in their bin.",
        ),
        (
            'datetime\nedges = ["2000-01-01T00:00:00", "2000-01-01T00:00:01"]\npoints = ["2000-01-01"]',
            "the bin [2000-01-01T00:00:00, 2000-01-01T00:00:01) holds nothing but points and special values, so it "
            "would stay empty. Remove an edge, or leave them in their bin.",
        ),
        (
            _INTEGER + 'special = ["N"]\noutput = "int32"',
            "output 'int32' does not hold the special text 'N'; use string.",
        ),
        (_INTEGER + 'special = [-9]\noutput = "uint8"', "output 'uint8' holds 0 to 255 only."),
        (
            'real\nedges = [0, 1]\npoints = [0.1]\noutput = "float32"',
            "output 'float32' does not hold 0.1 exactly; use float64.",
        ),
        (
            'real\nedges = [0, 1]\nspecial = [-0.125]\noutput = "decimal(5, 2)"',
            "output 'decimal(5, 2)' needs edges of at most 2 digits after the point.",
        ),
        (
            'real\nedges = [0, 1]\nspecial = [1000]\noutput = "decimal(5, 2)"',
            "output 'decimal(5, 2)' holds 5 digits and no more.",
        ),
        ('categorical\nvalues = [1]\nspecial = ["N"]\noutput = "int8"', "output 'int8' holds whole numbers only"),
        ('boolean\nspecial = ["N/A"]\noutput = "bool"', "output 'bool' does not hold the special text 'N/A'"),
        (_INTEGER + "step = 0", "step must be a positive number, got 0. Write step = 100, or step = 0.01."),
        (_INTEGER + "step = true", "step must be a positive number, got True. Write step = 100, or step = 0.01."),
        (_INTEGER + "step = 0.5", "step of a integer must be whole, got 0.5. Use 1 or more."),
        (_INTEGER + "step = 4", "edges and points must be multiples of the step of 4, got 10. Move it."),
        (_INTEGER + "step = 5\npoints = [7]", "edges and points must be multiples of the step of 5, got 7. Move it."),
        (
            "real\nedges = [0, 0.25]\nstep = 0.1",
            "edges and points must be multiples of the step of 0.1, got 0.25. Move it.",
        ),
        ("real\nedges = [0, 1e300]\nstep = 2.5", "step must not be that fine, got 2.5. Leave it out."),
        (
            'real\nedges = [0, 1]\nstep = 0.01\noutput = "decimal(5, 1)"',
            "output 'decimal(5, 1)' needs edges of at most 1 digits after the point.",
        ),
        (
            'duration\nedges = ["0:00", "1:00"]\nstep = 0.5\noutput = "duration[s]"',
            "output 'duration[s]' needs edges of whole s.",
        ),
        (
            'duration\nedges = ["0:00", "3000000:00"]\noutput = "duration[ns]"',
            "output 'duration[ns]' holds 292 years only.",
        ),
        ('boolean\ntexts = "N"', "texts must be those of false and true, got 'N'. Write texts = ['N', 'Y']."),
        ('boolean\ntexts = ["N", "N"]', "texts must differ, without blanks around them, got ['N', 'N']. Correct"),
        ('boolean\ntexts = ["N", " Y"]', "texts must differ, without blanks around them, got ['N', ' Y']. Correct"),
        (
            'boolean\ntexts = ["True", "x"]',
            "texts must be those of false and then true, got ['True', 'x']. Turn them around.",
        ),
        ('boolean\ntexts = ["N", "Y"]\nmissing = "Y"', "levels must differ, got 'Y' twice. Remove or rename one."),
        (
            'boolean\ntexts = ["N", "Y"]\nspecial = ["false"]',
            "special must not list a text for true or false, got 'false'. Use other texts.",
        ),
        (
            'boolean\ntexts = ["N", "Y"]\noutput = "int8"',
            "output 'int8' does not hold the texts N and Y; use string or bool.",
        ),
        (
            'date\nedges = ["2000-01-01", "2001-01-01"]\nformat = "%m/%Y"',
            "format must tell a day, a month and a year, and no time, in the letters of strptime, got '%m/%Y'. "
            "Write '%d.%m.%Y'.",
        ),
        (
            'datetime\nedges = ["2000-01-01", "2001-01-01"]\nformat = "%d.%m.%Y %I:%M"',
            "format must tell a day, a month, a year and one of 24 hours, in the letters of strptime, got "
            "'%d.%m.%Y %I:%M'. Write '%d.%m.%Y %H:%M'.",
        ),
        (
            'datetime\nedges = ["2000-01-01", "2000-01-01T00:00:30"]\nformat = "%d.%m.%Y %H:%M"',
            "edges and points must be multiples of what '%d.%m.%Y %H:%M' tells, got 2000-01-01T00:00:30. Move it.",
        ),
        (
            'time\nedges = ["0:00", "24:00"]\nformat = "%H:%M"\nstep = 30',
            "the step must be one that '%H:%M' can tell. Use a larger one.",
        ),
        (
            'time\nedges = ["0:00", "24:00"]\nspecial = ["24:00"]',
            "special must not list the end of the day, got '24:00'. Use another text.",
        ),
        ("time\nedges = [0, 24]", "edges of a time must be texts such as '13:30:00', got 0."),
        ('duration\nedges = ["P1M", "P2M"]', "edges of a duration must be texts such as '1:30:00', got 'P1M'."),
        ('yearmonth\nedges = ["2020-13", "2021-01"]', "edges of a yearmonth must be texts such as '1990-01', got"),
        ("year\nedges = [2020.5, 2021]", "edges of a year must be whole and below 2**63, got 2020.5. Use real."),
        ('year\nedges = [2020, 2021]\noutput = "date32"', "output 'date32' does not hold a year; use one of"),
        ('categorical\nvalues = ["a"]\nordered = 1', "ordered must be true or false, got 1."),
        (
            'date\nedges = ["2000-01-01", "2001-01-01"]\nformat = "%d.%m.%Y"\nspecial = ["1999-12-31", "31.12.1999"]',
            "special values must differ, got 1999-12-31 twice. Remove one.",
        ),
    ],
)
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        one(body)
    assert str(refused.value).startswith(f"attribute 'age': {message}")


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
