"""What a column costs, and how well its counts will come out: forecasts, remembered while the studio runs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock

import numpy as np

from sklar.answer.report.render import percent
from sklar.budget.forecast import Forecast, forecast
from sklar.errors import SklarError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema

DELTA = 2.0**-30
_MOST = 64
# Beyond this many levels a forecast takes longer than a page may: the column's part in it is not computed.
_MOST_LEVELS = 3_000
_TWICE = 1.96

_kept: OrderedDict[tuple[str, float, int], Forecast] = OrderedDict()
_lock = Lock()


def foresee(schema: Schema, epsilon: float, rows: int) -> Forecast:
    """The forecast of a release, computed once for each schema, epsilon and number of rows."""
    key = (schema.digest, epsilon, rows)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = forecast(schema, Budget(epsilon=epsilon, delta=DELTA), rows=rows)
    with _lock:
        _kept[key] = found
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
    return found


def column_cost(schema: Schema, name: str, epsilon: float, rows: int, *, beside: bool = False) -> tuple[str, ...]:
    """What a column costs, in sentences; with `beside`, also what it takes from the other columns."""
    if name in schema.determined:
        return (f"Costs nothing: a rule says that {schema.determined[name]} determines it.",)
    found = foresee(schema, epsilon, rows)
    measured = found.schema
    place = measured.names.index(name)
    levels = measured.attributes[place].n_levels
    error = _TWICE * float(found.one_way_sd[place])
    told = [
        f"{levels:,} levels. At epsilon {epsilon:.3g} the count of one comes out within ±{error:,.0f} rows "
        f"({percent(min(error / rows, 1.0))} of the table), 19 times out of 20."
    ]
    first, second = measured.cells.pairs
    mine = (first == place) | (second == place)
    noisy = int(np.sum((found.pair_sd * measured.cells.pair_sizes / rows)[mine] > 1))
    if noisy:
        told.append(f"{noisy:,} of its {int(mine.sum()):,} two-way tables are mostly noise: wider bins would help.")
    if beside and measured.n_attributes > 2 and measured.n_levels <= _MOST_LEVELS:
        told += _taken(schema, name, found, epsilon, rows)
    return tuple(told)


def _taken(schema: Schema, name: str, found: Forecast, epsilon: float, rows: int) -> list[str]:
    """How much smaller the errors of all other two-way counts would be without the column."""
    rest = tuple(attribute for attribute in schema.attributes if attribute.name != name)
    try:
        without = foresee(replace(schema, attributes=rest, rules=()), epsilon, rows)
    except SklarError:
        return []
    names = found.schema.names
    first, second = found.schema.cells.pairs
    place = names.index(name)
    others = (first != place) & (second != place)
    kept = found.pair_sd[others]
    if not kept.size or schema.rules:
        return []
    saved = 1 - float(np.sqrt(np.mean(without.pair_sd**2)) / np.sqrt(np.mean(kept**2)))
    return [f"Without it, the two-way counts of the others would err by {percent(max(saved, 0.0))} less."]
