"""A table in the shape of the paper's Hospital: 9 attributes (1,201 levels), 8 of them facts about a hospital.

The directory of hospitals is invented, public and the same for every seed. The rows are every pair of a hospital and a
survey measure, once, in an order that the seed decides; a table longer than that goes round again in a new order.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl

from sklar.generate.blueprint import Blueprint

# Chosen so that all levels add up to the paper's 1,201, in the proportions of the real directory:
# 184 ids + 180 names + 183 addresses + 145 cities + 4 states + 168 ZIP codes + 97 counties and none + 184 phones + 55.
HOSPITALS = 184
_CITIES = 145
_ZIP_CODES = 168
_STATES = ("AV", "BE", "CY", "DU")
_STATE_ENDS = (27, 72, 108, _CITIES)  # where one state's cities end and the next one's begin
_NO_COUNTY = (1, 31, 61, 91)  # cities that share a county with the city before them, so that no county is lost
_NAMESAKES = {58: 3, 91: 40, 120: 15, 140: 77}  # hospitals of one name in different cities, as chains have
_SAME_CAMPUS = {183: 114}  # and at one address

_STEMS = (
    *("ALDER", "BARROW", "CALD", "DARN", "ELM", "FARN", "GRAN", "HOLM", "IVER", "JARR", "KELL", "LANG", "MARL"),
    *("NOR", "OAK", "PEN", "QUAR", "RAVEN", "SELK", "THORN", "ULL", "VARN", "WEST", "YAR", "ZELL"),
)
_ENDS = ("BURY", "COMBE", "DALE", "FORD", "HAVEN", "LEY", "MERE", "STEAD", "WICK", "WORTH")
_KINDS = ("COMMUNITY HOSPITAL", "GENERAL HOSPITAL", "MEDICAL CENTER", "MEMORIAL HOSPITAL", "REGIONAL MEDICAL CENTER")
_STREETS = ("BRIDGE ROAD", "CHURCH STREET", "HOSPITAL DRIVE", "MAIN STREET, SUITE 1", "MILL LANE", "NORTH AVENUE")
_TOPICS = (
    *("CLEAN", "QUIET", "NURSES", "DOCTORS", "STAFF", "PAIN"),
    *("MEDICINES", "DISCHARGE", "CARE", "RATING", "RECOMMEND"),
)
_ANSWERS = ("ALWAYS", "USUALLY", "NEVER", "LINEAR_SCORE", "STAR_RATING")
_MEASURES = pl.Series("Measure ID", [f"H_{topic}_{answer}" for topic in _TOPICS for answer in _ANSWERS])


def _place(index: int) -> str:
    """The index-th of 250 invented place names; neighbours in the list do not look alike."""
    index = index * 83 % 250
    return _STEMS[index % 25] + _ENDS[index // 25]


@cache
def directory() -> pl.DataFrame:
    """All hospitals, a line each, the same for every seed; a county of None is not known."""
    return pl.DataFrame(list(map(_hospital, range(HOSPITALS))))


def _hospital(index: int) -> dict[str, str | None]:
    # Every city has a hospital, every third city a second one, and most second ones a ZIP code of their own.
    city = _city(index)
    state = next(k for k, end in enumerate(_STATE_ENDS) if city < end)
    named, housed = _NAMESAKES.get(index, index), _SAME_CAMPUS.get(index, index)
    return {
        "Provider ID": f"{state + 1:02d}{1 + 3 * index:04d}",
        "Hospital Name": f"{_place(_city(named))} {_KINDS[(_city(named) + 2 * (named >= _CITIES)) % len(_KINDS)]}",
        "Address": f"{100 + 7 * housed} {_STREETS[housed % len(_STREETS)]}",
        "City": _place(city),
        "State": _STATES[state],
        "ZIP Code": f"{1001 + 2 * city + (_CITIES <= index < _ZIP_CODES) + 20_000 * state:05d}",
        # Two counties for every three cities, named like places that are no city.
        "County Name": None if city in _NO_COUNTY else _place(_CITIES + city * 2 // 3),
        "Phone Number": f"{201 + 100 * state}555{1000 + 41 * index:04d}",
    }


def _city(index: int) -> int:
    return index if index < _CITIES else (index - _CITIES) * 3


def _draw(rng: np.random.Generator, _first: int) -> pl.DataFrame:
    hospital, measure = np.divmod(rng.permutation(HOSPITALS * len(_MEASURES)), len(_MEASURES))
    return directory()[hospital].with_columns(_MEASURES.gather(measure))


@cache
def table() -> Blueprint:
    """Hospital and its public schema: the whole directory is public, so every value of it is listed."""
    lists = [*directory().iter_columns(), _MEASURES]
    attributes = {
        each.name: {"type": "categorical", "values": sorted(set(each.drop_nulls()))}
        | ({"missing": ""} if each.null_count() else {})
        for each in lists
    }
    columns = pl.Schema(dict.fromkeys(attributes, pl.String()))
    rows = HOSPITALS * len(_MEASURES)
    return Blueprint(stream=2, block_rows=rows, attributes=attributes, columns=columns, draw=_draw)
