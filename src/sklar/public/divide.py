"""A schema whose bins are divided at more edges: what a question needs that cuts bins.

Every level of the divided schema is a part of one level of the schema, or all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sklar.public.rules import Determined, Rule
from sklar.public.schema import Attribute, Schema


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Divided:
    """The divided schema, and for each of its attributes the level of the schema that each of its levels is part of."""

    schema: Schema
    parts: tuple[NDArray[np.int64], ...]

    @property
    def measured_parts(self) -> tuple[NDArray[np.int64], ...]:
        """Those of the measured attributes."""
        determined = self.schema.determined
        return tuple(own for name, own in zip(self.schema.names, self.parts, strict=True) if name not in determined)


def divide_schema(schema: Schema, cuts: Mapping[str, Sequence[int | float]]) -> Divided:
    """The schema with these numbers, on each attribute's axis, as further edges of its bins.

    >>> age = Attribute(name="age", kind="integer", edges=(0, 30, 60), points=(40,), missing="?")
    >>> found = divide_schema(Schema(name="people", attributes=(age,)), {"age": [45]})
    >>> found.schema.attributes[0].levels, found.parts[0].tolist()
    (('[0, 30)', '[30, 45)', '40', '[45, 60)', '?'), [0, 1, 2, 1, 3])
    """
    attributes, parts = [], []
    for attribute in schema.attributes:
        added = set(cuts.get(attribute.name, ())) - set(attribute.edges)
        if not added:
            attributes.append(attribute)
            parts.append(np.arange(attribute.n_levels))
            continue
        finer = replace(attribute, edges=tuple(sorted({*attribute.edges, *added})))
        attributes.append(finer)
        parts.append(_parts(attribute, finer))
    by_name = dict(zip(schema.names, parts, strict=True))
    rules = tuple(_divided(rule, by_name) for rule in schema.rules)
    return Divided(schema=replace(schema, attributes=tuple(attributes), rules=rules), parts=tuple(parts))


def _parts(attribute: Attribute, finer: Attribute) -> NDArray[np.int64]:
    """The level of an attribute that each level of the finer one is part of."""
    found = np.arange(finer.n_levels) - finer.n_levels + attribute.n_levels
    found[finer.point_codes] = attribute.point_codes
    within = [bisect_right(attribute.edges, edge) - 1 for edge in finer.edges[:-1]]
    found[finer.bin_codes] = attribute.bin_codes[within]
    return found


def _divided(rule: Rule, parts: Mapping[str, NDArray[np.int64]]) -> Rule:
    """The same rule over the finer levels."""
    if isinstance(rule, Determined):
        # What a rule determines is never divided, so that its levels are as they were.
        return replace(rule, levels=tuple(np.array(rule.levels)[parts[rule.by]].tolist()))

    def levels(name: str, codes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.flatnonzero(np.isin(parts[name], codes)).tolist())

    return replace(
        rule,
        first_levels=levels(rule.first, rule.first_levels),
        second_levels=levels(rule.second, rule.second_levels),
    )
