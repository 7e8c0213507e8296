"""What a column costs, and how well its counts will come out: forecasts, remembered while the studio runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from sklar.answer.report.render import percent
from sklar.budget.forecast import GRADES, TWICE, Forecast, band, forecast, grade, with_few, within
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema

DELTA = 2.0**-30
# How many pairs of columns the remembered forecasts may have together: 16 bytes each.
_MOST_PAIRS = 1 << 23
# Beyond this many levels a forecast takes longer than a page may: the column's part in it is not computed.
_MOST_LEVELS, _MOST_NAMED = 3_000, 6
# Of a column's pairs, the share that may be mostly noise for it to be usable.
_MOST_NOISY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Foreseen:
    """A forecast, the pairs that are mostly noise before all others, and how many such pairs each column has."""

    forecast: Forecast
    noisiest: tuple[tuple[str, str], ...]
    by_column: NDArray[np.int64]


# The last used stands last.
_kept: dict[tuple[str, float, int], Foreseen] = {}
_lock = Lock()


@lru_cache(maxsize=16)
def parsed(text: str) -> Schema:
    """The schema that a file states, read once: two thousand columns take a tenth of a second."""
    return Schema.from_toml(text)


def foresee(schema: Schema, epsilon: float, rows: int) -> Foreseen:
    """The forecast of a release, computed once for each schema, epsilon and number of rows."""
    key = (schema.digest, epsilon, rows)
    with _lock:
        foreseen = _kept.pop(key, None)
    if foreseen is None:
        outlook = forecast(schema, Budget(epsilon=epsilon, delta=DELTA), rows=rows)
        (first, second), m = outlook.schema.cells.pairs, outlook.schema.n_attributes
        names, noisy = outlook.schema.names, outlook.noisy
        foreseen = Foreseen(
            forecast=outlook,
            noisiest=tuple((names[first[at]], names[second[at]]) for at in noisy[:6]),
            by_column=np.bincount(first[noisy], minlength=m) + np.bincount(second[noisy], minlength=m),
        )
    with _lock:
        _kept[key] = foreseen
        while len(_kept) > 1 and sum(each.forecast.pair_sd.size for each in _kept.values()) > _MOST_PAIRS:
            del _kept[next(iter(_kept))]
    return foreseen


def column_noise(schema: Schema, name: str, epsilon: float, rows: int) -> tuple[str, str]:
    """What counts of a column will be good for, if searches find few categories, and how far one may be off."""
    foreseen = foresee(with_few(schema), epsilon, rows)
    outlook = foreseen.forecast
    place, pairs = outlook.schema.names.index(name), max(outlook.schema.n_attributes - 1, 1)
    error, levels = float(outlook.one_way_sd[place]), outlook.schema.attributes[place].n_levels
    own, noisy = grade(np.array([error]), np.array([levels]), rows), float(foreseen.by_column[place]) / pairs
    # Where its own counts survive, pairs that do not leave it usable in part.
    return GRADES[1][1] if own == GRADES[0][1] and noisy > _MOST_NOISY else own, within(error)


def column_cost(schema: Schema, name: str, epsilon: float, rows: int | None) -> tuple[str, ...]:
    """What a column costs, in sentences."""
    if rows is None:
        return ("What it costs is known when the rows have been read: their number decides.",)
    if name in schema.determined:
        return (f"Costs nothing: a rule says that {schema.determined[name]} determines it.",)
    cases = [foresee(each, epsilon, rows) for each in (schema, with_few(schema))]
    measured = cases[0].forecast.schema
    place = measured.names.index(name)
    errors = [float(each.forecast.one_way_sd[place]) for each in cases]
    sentences = [
        f"{measured.attributes[place].n_levels:,} levels. At epsilon {epsilon:.3g} the count of one comes out within "
        f"{band(errors)} rows ({percent(min(TWICE * max(errors) / rows, 1.0))} of the table), 19 times out of 20."
    ]
    noisy = [int(each.by_column[place]) for each in cases]
    if max(noisy):
        pairs = measured.n_attributes - 1
        remedy = "wider bins would help" if measured.attributes[place].edges else "merge rare categories"
        remedy = "fewer columns would help" if measured.attributes[place].n_levels <= 2 else remedy
        sentences.append(f"{band(noisy, '{:,.0f}'.format)} of its {pairs:,} two-way tables are mostly noise: {remedy}.")
    return tuple(sentences)


def remedy(schema: Schema, epsilon: float, rows: int) -> str:
    """Which columns to leave out for counts of two columns to be usable, in a sentence; nothing where none would do."""
    foreseen = foresee(with_few(schema), epsilon, rows)
    measured, lost = foreseen.forecast.schema, foreseen.forecast.needs
    if measured.n_levels > _MOST_LEVELS:
        return ""
    # The neediest columns first, then those with most levels.
    order = sorted(measured.attributes, key=lambda each: (-max(lost[each.name][1], 1.0), -each.n_levels))
    least, most = 0, len(order) - 1
    while least < most - 1:
        middle = (least + most) // 2
        kept = replace(measured, attributes=tuple(order[middle:]), rules=(), target=(), whole=None)
        least, most = (least, middle) if foresee(kept, epsilon, rows).forecast.support == "two" else (middle, most)
    left = [each.name for each in order[:most]]
    if most >= len(order) - 1:
        return ""
    if len(left) > _MOST_NAMED:
        return f"A release of the {len(order) - most} columns with fewest levels would be usable for two columns."
    return f"Without {', '.join(left)}, a release would be usable for two columns."
