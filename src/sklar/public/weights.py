"""How much the tables of attributes and pairs matter, as a schema states it: public, and a share of the budget.

`weight = 3` in an attribute triples the privacy cost that its tables get, before all are scaled to the budget; so does
`weight` in a `[[pairs]]` entry for one two-way table. Standard errors fall with the root of it, and those of all other
tables rise a little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sklar.errors import SchemaError

if TYPE_CHECKING:
    from sklar.public.schema import Schema

# Beyond these a table would get nearly all of the budget, or none.
LEAST, MOST = 0.01, 100.0

PairWeight = tuple[str, str, float]


def weight_of(where: str, entry: Mapping[str, Any]) -> float:
    """The weight that an entry states; 1 without one."""
    weight = entry.get("weight", 1)
    if type(weight) not in (int, float) or not LEAST <= weight <= MOST:
        raise SchemaError(f"{where}: weight must be a number from {LEAST} to {MOST:g}, got {weight!r}.")
    return float(weight)


def pair_weights_of(entries: object, names: Sequence[str], determined: Mapping[str, str]) -> tuple[PairWeight, ...]:
    """The weights of pairs that a schema file states."""
    if not isinstance(entries, list):
        raise SchemaError(
            f"pairs must be a list of tables, got {entries!r}. Write [[pairs]] with attributes and weight below it."
        )
    found: dict[frozenset[str], PairWeight] = {}
    for number, entry in enumerate(entries, start=1):
        where = f"pair {number}"
        if not isinstance(entry, Mapping) or set(entry) != {"attributes", "weight"}:
            raise SchemaError(f"{where}: a pair has the keys attributes and weight, got {entry!r}.")
        pair = entry["attributes"]
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
            raise SchemaError(f"{where}: attributes must be two different names, got {pair!r}.")
        for name in pair:
            if name not in names:
                raise SchemaError(f"{where}: the schema has no attribute {name!r}. It has: {', '.join(names)}.")
            if name in determined:
                raise SchemaError(f"{where}: a rule determines '{name}', which is not measured. Remove the pair.")
        if frozenset(pair) in found:
            raise SchemaError(f"{where}: '{pair[0]}' and '{pair[1]}' have a weight already. Remove one.")
        found[frozenset(pair)] = (pair[0], pair[1], weight_of(where, entry))
    return tuple(found.values())


def describe_pairs(pairs: Sequence[PairWeight]) -> list[dict[str, Any]]:
    """The structure that `pair_weights_of` reads."""
    return [{"attributes": [first, second], "weight": weight} for first, second, weight in pairs]


def importance_of(schema: Schema) -> tuple[float, ...] | None:
    """The weight of every one-way table, then of every two-way table, of a schema's attributes; None where all are 1.

    A two-way table has the product of its attributes' weights, times its own.
    """
    own = np.array([attribute.weight for attribute in schema.attributes])
    first, second = schema.cells.pairs
    pairs = own[first] * own[second]
    for one, other, weight in schema.pairs:
        i, j = sorted((schema.names.index(one), schema.names.index(other)))
        pairs[schema.cells.pair(i, j)] *= weight
    weights = (*own.tolist(), *pairs.tolist())
    return None if all(math.isclose(weight, 1.0) for weight in weights) else weights
