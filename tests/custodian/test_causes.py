"""Why values are lost: the key of the schema that would mend it is named."""

from __future__ import annotations

from collections import Counter

import pytest

from sklar.custodian.causes import likely_cause
from sklar.public.reading import Reading
from sklar.public.schema import Attribute

DATE = Attribute(name="d", kind="date", edges=(-20_000, 0, 20_000))
MOMENT = Attribute(name="d", kind="datetime", edges=(0, 10**15))
NUMBER = Attribute(name="x", kind="real", edges=(0.0, 10.0, 100.0))
CODES = Attribute(name="c", kind="categorical", values=("Private", "01"))
FLAG = Attribute(name="f", kind="boolean")


@pytest.mark.parametrize(
    ("attribute", "texts", "cause"),
    [
        (DATE, ["14.04.1912", "15.04.1912", "x"], 'add format = "%d.%m.%Y".'),
        (DATE, ["03/04/1912", "05/06/1912"], 'add format = "%d/%m/%Y" or "%m/%d/%Y".'),
        (DATE, ["03/24/1912", "05/26/1912"], 'add format = "%m/%d/%Y".'),
        (MOMENT, ["14.04.1912 23:40", "15.04.1912 02:20"], 'add format = "%d.%m.%Y %H:%M".'),
        (NUMBER, ["1,5", "22,75"], 'They are numbers in another writing: set decimal = "," in [table].'),
        (NUMBER, ["1,234", "22,750"], 'They are numbers in another writing: set thousands = "," in [table].'),
        (NUMBER, ["1.234,5"], 'They are numbers in another writing: set decimal = "," and thousands = "." in [table].'),
        (NUMBER, ["500", "1000"], "numbers above the last edge, 100.0: check the unit, or state wider edges."),
        (NUMBER, ["-500", "-1"], "numbers below the first edge, 0.0: check the unit, or state wider edges."),
        (NUMBER, ["N", "N", "7x"], "'N', '7x': list them as special, or as nulls in [table] where they mean no value."),
        (NUMBER, [None, "", "N"], 'add missing = "".'),
        (CODES, [" Private", "private", "1"], "in capitals, spaces or leading zeros: ' Private' for 'Private'."),
        (CODES, ["zz", "yy"], "'zz', 'yy': list them as values, or as special where they mean something else."),
        (CODES, ["K\ufffdln"], "They hold bytes that are not utf-8 text: set encoding in [table]."),
        (FLAG, ["ja", "nein"], "They are 'ja', 'nein': add texts = [the one for false, the one for true]."),
        (CODES, [str(i) for i in range(100, 120)], "The column does not seem to be what the schema describes"),
    ],
)
def test_a_likely_cause(attribute: Attribute, texts: list[str | None], cause: str) -> None:
    assert cause in likely_cause(attribute, Reading(), Counter(texts))


def test_a_decimal_point_beside_a_decimal_comma() -> None:
    reading = Reading(decimal=",")
    texts = Counter([reading.plain(text) for text in ("1.5", "2.5")])
    assert likely_cause(NUMBER, reading, Counter[str | None](texts)) == (
        'They are numbers with a decimal point: remove decimal = "," from [table].'
    )
