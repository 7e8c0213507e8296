"""Predicates that cut bins: the same predicate over a schema whose bins are divided where it cuts them.

`predicate.resolve` refuses to cut a bin, because only whole bins were measured. Here the bin is divided, and whoever
asks must say what share of the bin each part has: `draw.shapes` does. Attributes that a rule determines are not
divided: their values follow from another attribute's level alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.answer.predicate import (
    COMPARED,
    TURNED,
    Atom,
    Combined,
    Comparison,
    Expression,
    Node,
    QueryError,
    is_name,
    resolve,
)
from sklar.public.axis import STEPPED
from sklar.public.divide import Divided, divide_schema
from sklar.public.schema import BINNED, Attribute, Schema
from sklar.public.types import exact, grain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A predicate over the levels of a divided schema; `split` names the bins that it cuts."""

    expression: Expression
    divided: Divided
    split: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A comparison that cuts a bin: numbers from `low` up to but without `high`, and the points that it holds for."""

    attribute: str
    low: int | float
    high: int | float
    holds: Callable[[float], bool]


def divide(node: Node, schema: Schema) -> Question:
    """The predicate over a schema that is divided where it must be; what no division answers is refused as ever."""
    cuts: dict[str, set[int | float]] = {}
    tree = _cut(node, schema, cuts)
    divided = divide_schema(schema, {name: sorted(own) for name, own in cuts.items()})
    split = []
    for name, own in cuts.items():
        attribute = schema.attribute(name)
        bins = [bisect_right(attribute.edges, cut) - 1 for cut in own if cut not in attribute.edges]
        named = {attribute.levels[attribute.bin_codes[bin_]] for bin_ in bins if 0 <= bin_ < attribute.n_bins}
        split += [f"{name} {level}" for level in attribute.levels if level in named]
    return Question(expression=_lifted(tree, divided), divided=divided, split=tuple(split))


def _cut(node: Node | _Cut, schema: Schema, cuts: dict[str, set[int | float]]) -> Combined | Atom | _Cut:
    """The predicate with every comparison resolved to whole levels, or to a cut, which is noted in `cuts`."""
    if isinstance(node, Combined):
        parts = tuple(_cut(part, schema, cuts) for part in node.parts)
        return Combined(operator=node.operator, parts=parts)  # type: ignore[arg-type]
    if not isinstance(node, Comparison):
        return node
    if node.operator in ("in", "!=") and len(node.operands) > 1:
        name, *values = node.operands
        if node.operator == "!=" and not is_name(name, schema) and is_name(values[0], schema):
            name, values = values[0], [name]
        equal = tuple(Comparison(operator="=", operands=(name, value)) for value in values)
        either: Node = equal[0] if len(equal) == 1 else Combined(operator="or", parts=equal)
        return _cut(either if node.operator == "in" else Combined(operator="not", parts=(either,)), schema, cuts)
    try:
        return resolve(node, schema)
    except QueryError:
        found = _interval(node, schema)
        if found is None:
            raise
    attribute = schema.attribute(found.attribute)
    inside = (cut for cut in (found.low, found.high) if attribute.edges[0] < cut < attribute.edges[-1])
    cuts.setdefault(found.attribute, set()).update(inside)
    return found


def _interval(node: Comparison, schema: Schema) -> _Cut | None:
    """The numbers for which a comparison holds, where it is one that a division of bins can answer."""
    operator, operands = node.operator, node.operands
    if len(operands) != 2:
        return None
    if not is_name(operands[0], schema) and is_name(operands[1], schema):
        operator, operands = TURNED.get(operator, operator), operands[::-1]
    name, text = operands[0].text, operands[1].text
    if name not in schema.names or name in schema.determined:
        return None
    attribute = schema.attribute(name)
    if attribute.kind not in BINNED or attribute.domain == "private":
        return None
    border = attribute.number_of(text)
    if border is None or math.isnan(border) or math.isinf(border):
        return None
    unit, first, last = grain(attribute), attribute.edges[0], attribute.edges[-1]
    if operator == "=":
        # Only values that a step separates from the next have rows of their own.
        if attribute.kind not in STEPPED or unit != 1 or border != border // 1 or not first <= border < last:
            return None
        return _Cut(attribute=name, low=int(border), high=int(border) + 1, holds=lambda point: point == border)
    at: int | float = border
    if unit is not None:
        steps = exact(border) / unit
        # The first multiple of the grain on the upper side.
        above = math.floor(steps) + 1 if operator in ("<=", ">") else math.ceil(steps)
        counted = above * unit
        at = float(counted) if attribute.kind == "real" else int(counted)
    low, high = (-math.inf, at) if operator[0] == "<" else (at, math.inf)
    return _Cut(attribute=name, low=low, high=high, holds=lambda point: COMPARED[operator](point, border))


def _lifted(tree: Combined | Atom | _Cut, divided: Divided) -> Expression:
    """The predicate over the divided levels."""
    if isinstance(tree, Combined):
        parts = tuple(_lifted(part, divided) for part in tree.parts)  # type: ignore[arg-type]
        return Combined(operator=tree.operator, parts=parts)
    if isinstance(tree, Atom):
        return Atom(attribute=tree.attribute, levels=tree.levels[divided.parts[tree.attribute]])
    index = divided.schema.names.index(tree.attribute)
    return Atom(attribute=index, levels=_held(tree, divided.schema.attributes[index]))


def _held(cut: _Cut, attribute: Attribute) -> NDArray[np.bool_]:
    held = np.zeros(attribute.n_levels, dtype=bool)
    held[attribute.bin_codes] = [cut.low <= low and high <= cut.high for low, high in pairwise(attribute.edges)]
    held[attribute.point_codes] = [cut.holds(point) for point in attribute.points]
    return held
