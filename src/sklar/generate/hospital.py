"""A table in the shape of the paper's Hospital: 9 attributes (1,201 levels), 8 of them facts about a hospital.

The directory of hospitals is invented, public and the same for every seed. The rows are every pair of a hospital and a
survey measure, once, in an order that the seed decides; a table longer than that goes round again in a new order.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import polars as pl

from sklar.generate.blueprint import Blueprint

# Its levels add up to the paper's 1,201, in the proportions of the real directory: 184 ids, 180 names, 183 addresses,
# 145 cities, 4 states, 168 ZIP codes, 97 counties and none, 184 phone numbers, and 55 measures. Every city has a
# hospital, every third one a second; some share a name, as chains do, or an address.
HOSPITALS = 184

_TOPICS = (
    *("CLEAN", "QUIET", "NURSES", "DOCTORS", "STAFF", "PAIN"),
    *("MEDICINES", "DISCHARGE", "CARE", "RATING", "RECOMMEND"),
)
_ANSWERS = ("ALWAYS", "USUALLY", "NEVER", "LINEAR_SCORE", "STAR_RATING")
_MEASURES = pl.Series("Measure ID", [f"H_{topic}_{answer}" for topic in _TOPICS for answer in _ANSWERS])


@cache
def directory() -> pl.DataFrame:
    """All hospitals, a line each, the same for every seed; a county of None is not known."""
    return pl.read_csv((files("sklar.generate") / "hospital.csv").read_bytes(), infer_schema=False)


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
