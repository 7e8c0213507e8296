"""Numbers and moments as the texts that a release holds: in columns of texts, and in CSV files."""

from __future__ import annotations

import re
from datetime import timedelta

import polars as pl

_SECONDS = "%Y-%m-%d %H:%M:%S"
_FRACTIONS = {"ms": "%.3f", "us": "%.6f", "ns": "%.9f"}


def float_texts(values: pl.Expr) -> pl.Expr:
    """The shortest texts that are read as these numbers again; whole numbers have no point.

    >>> pl.select(float_texts(pl.lit(pl.Series([0.0, 2.5, 1e300])))).to_series().to_list()
    ['0', '2.5', '1e+300']
    """
    return values.cast(pl.String).str.strip_suffix(".0")


def moment_texts(values: pl.Expr, kind: pl.Datetime, *, zone: str | None = None, seconds: bool = False) -> pl.Expr:
    """ISO texts of moments of this type, in the zone that the schema states; `seconds` leaves fractions out.

    >>> kind = pl.Datetime("ms", "UTC")
    >>> noon = pl.lit(43_200_000).cast(kind)
    >>> [pl.select(moment_texts(noon, kind, zone=zone, seconds=True)).item() for zone in ("UTC", "+05:30")]
    ['1970-01-01 12:00:00Z', '1970-01-01 17:30:00+0530']
    """
    shown = _SECONDS if seconds else _SECONDS + _FRACTIONS[kind.time_unit]
    if zone == "UTC":
        return values.dt.to_string(shown + "Z")
    offset = re.fullmatch(r"([+-])(\d\d):(\d\d)", zone or "")
    if offset:
        # polars does not know every offset; what it does not know is held in UTC.
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3])) * (-1 if offset[1] == "-" else 1)
        local = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None) + ahead
        return local.dt.to_string(f"{shown}{offset[1]}{offset[2]}{offset[3]}")
    return values.dt.to_string(shown if zone is None else shown + "%z")
