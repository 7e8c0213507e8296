"""Texts that are written plainly, read all at once by polars.

They are those that `axis.parse_edge` and polars read alike: a text has one meaning, whatever stands beside it.
"""

from __future__ import annotations

import polars as pl

from sklar.public.clock import plain_pattern

# What Python and polars read alike: numbers that 64 bits hold exactly, years that Python has, seconds that exist.
_PLAINLY = {
    "integer": r"^-?[0-9]{1,15}$",
    "real": r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$",
    "date": r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$",
    "datetime": r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-2][0-9]:[0-5][0-9]:[0-5][0-9]$",
    "time": r"^([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])$",
    "duration": r"^([0-9]{1,5}):([0-5][0-9]):([0-5][0-9])$",
    "year": r"^[0-9]{1,4}$",
    "yearmonth": r"^([1-9][0-9]{3})-(0[1-9]|1[0-2])$",
}


def plainly_written(texts: pl.Series, kind: str, written: str | None) -> pl.Series:
    """Numbers on the axis of this kind that texts stand for, null for all but the plainest."""
    pattern = _PLAINLY[kind] if written is None else plain_pattern(written)
    if pattern is None or (written is not None and kind not in ("date", "datetime")):
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(texts))
    plain = (
        texts.to_frame("text").select(pl.when(pl.col("text").str.contains(pattern)).then(pl.col("text"))).to_series()
    )
    if kind in ("integer", "year"):
        return plain.cast(pl.Int64, strict=False)
    if kind == "real":
        return plain.cast(pl.Float64, strict=False)
    if kind in ("time", "duration", "yearmonth"):
        first, second, third = (pl.col("text").str.extract(pattern, group).cast(pl.Int64) for group in (1, 2, 3))
        counted = first * 12 + second - 1 if kind == "yearmonth" else (first * 3_600 + second * 60 + third) * 1_000_000
        return plain.to_frame("text").select(counted).to_series()
    if kind == "date":
        return plain.str.to_date(written or "%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Int64)
    moments = plain if written is not None else plain.str.replace("T", " ", literal=True)
    return moments.str.to_datetime(written or "%Y-%m-%d %H:%M:%S", strict=False, time_unit="us").cast(pl.Int64)
