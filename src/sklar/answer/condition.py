"""What rows are drawn under, as a person states it: values by attribute, a predicate, or rows with nulls to fill. More:
docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.answer.predicate import Combined, Expression, QueryError, Relation, Token, divide, joined, parse
from sklar.draw.blocks import Copula
from sklar.draw.decode import Decoder, Shape
from sklar.draw.given import Box, Condition, Domains, condition_boxes, fill
from sklar.errors import ModelError
from sklar.machine.extras import lazily
from sklar.machine.wording import said
from sklar.public.schema import Attribute, Divided, Schema

if TYPE_CHECKING:
    import polars as pl

    from sklar.files.model import Model
else:
    pl = lazily("polars")

Given: TypeAlias = str | Mapping[str, Any]

_MAX_CLASSES = 1 << 16


def _stated(name: str, value: Any, schema: Schema) -> Expression:
    """What a condition states of one attribute."""
    named = Token("name", str(name))
    if value is None:
        return Relation("missing", (named,))
    if isinstance(value, tuple):
        # The range from the first of two values up to but without the second; None leaves an end open.
        if len(value) != 2 or value == (None, None) or (name in schema.names and not schema.attribute(name).binned):
            raise QueryError(said("answer.no_range", name=name, got=value))
        ends = (pair for pair in zip((">=", "<"), value, strict=True) if pair[1] is not None)
        return joined("and", *(Relation(sign, (named, _token(end))) for sign, end in ends))
    if isinstance(value, list | set | frozenset):
        if not value:
            raise QueryError(f"attribute '{name}': a list of values must not be empty. List one, or leave it out.")
        # In the order of their texts: sets have none, and a seed must give the same rows every time.
        listed = value if isinstance(value, list) else sorted(value, key=str)
        return joined("or", *(_stated(name, each, schema) for each in listed))
    return Relation("=", (named, _token(value)))


def _token(value: Any) -> Token:
    """A value as a predicate writes it."""
    text = str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
    return Token("value", value.isoformat() if hasattr(value, "isoformat") else text)


def condition_of(given: Given, schema: Schema, shapes: Mapping[str, Shape]) -> tuple[Condition, dict[str, Shape]]:
    """A condition over the levels of a model with this whole schema, and the shapes inside its divided bins."""
    if not isinstance(given, str | Mapping) or (not given and not isinstance(given, str)):
        raise QueryError(said("answer.given", got=given))
    if isinstance(given, str):
        node, text = parse(given), f"'{given}'"
    else:
        node, text = joined("and", *(_stated(*each, schema) for each in given.items())), str(dict(given))
    expression, divided = divide(node, schema)
    finer, shares = divide_shapes(divided, schema, shapes, {schema.names[i] for i in expression.attributes})
    offsets = schema.measured.cells.offsets
    condition = Condition(
        schema=divided.schema,
        origin=np.concatenate([offsets[i] + parts for i, parts in enumerate(divided.measured_parts)]),
        share=np.concatenate(shares),
        boxes=tuple(_boxes(expression.traced(divided.schema), text)),
        text=text,
    )
    return condition, finer


def divide_shapes(
    divided: Divided, schema: Schema, shapes: Mapping[str, Shape], about: set[str]
) -> tuple[dict[str, Shape], list[NDArray[np.float64]]]:
    """Shapes inside the divided bins of attributes that a condition is `about`, and the shares of measured parts."""
    finer_shapes, shares = dict(shapes), {}
    for attribute, finer in zip(schema.attributes, divided.schema.attributes, strict=True):
        own = shares[attribute.name] = np.ones(finer.n_levels)
        if attribute.name not in about or not attribute.binned:
            continue
        edges, cuts = (np.asarray(each.edges, dtype=np.float64) for each in (attribute, finer))
        if attribute.name in shapes:
            finer_shapes[attribute.name], own[finer.bin_codes] = shapes[attribute.name].divided(edges, cuts)
        else:
            whole = np.diff(edges)[np.searchsorted(edges, cuts[:-1], side="right") - 1]
            own[finer.bin_codes] = np.diff(cuts) / whole
    return finer_shapes, [shares[name] for name in divided.schema.measured.names]


def limits_of(model: Model, attribute: Attribute, shapes: Mapping[str, Shape]) -> tuple[float, float] | None:
    """The ends of what a search found of a number, where its bounds lie beyond; else None."""
    found = [each for each in model.certificate.domains if each.attribute == attribute.name and each.bounds]
    if not found or attribute.name not in shapes:
        return None
    lows, highs = shapes[attribute.name].ends
    ends = (float(lows.min()), float(highs.max()), *attribute.points)
    low, high = min(ends), max(ends)
    return None if attribute.clip is None and (low, high) == found[0].bounds else (low, high)


def shown_limits(attribute: Attribute, limits: tuple[float, float]) -> str:
    """Limits of a number as a person writes them."""
    shown = [f"{end:.6g}" if attribute.axis.continuous else attribute.axis.text(int(end)) for end in limits]
    return f"[{shown[0]}, {shown[1]}]"


def level_classes(expression: Expression) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For each attribute, one level of every class that a predicate does not tell apart, and each level's class."""
    classes = {}
    for i in expression.attributes:
        levels = np.stack([leaf.levels for leaf in expression.leaves() if leaf.attribute == i])
        _, first, which = np.unique(levels, axis=1, return_index=True, return_inverse=True)
        classes[i] = first, which.ravel()
    return classes


def _boxes(expression: Expression, text: str) -> Iterator[Box]:
    """Disjoint boxes of levels in which a predicate holds."""
    parts = []
    for group in _unrelated(expression):
        # The parts of a group hang together: all combinations of classes of levels are tried.
        classes = level_classes(group)
        _require_few(text, math.prod(first.size for first, _ in classes.values()))
        held = group.cells({i: first for i, (first, _) in classes.items()})
        parts.append(list(condition_boxes(held, {i: which for i, (_, which) in classes.items()})))
    _require_few(text, math.prod(len(own) for own in parts))
    for combined in product(*parts):
        yield {i: levels for box in combined for i, levels in box.items()}


def _unrelated(expression: Expression) -> list[Expression]:
    """Predicates that have no attribute in common, and hold together where this one does."""
    if not isinstance(expression, Combined) or expression.operator != "and":
        return [expression]
    groups: list[tuple[set[int], list[Expression]]] = []
    for part in (own for each in expression.parts for own in _unrelated(each)):
        about, together = set(part.attributes), [part]
        for group in [group for group in groups if group[0] & about]:
            groups.remove(group)
            about, together = about | group[0], [*group[1], *together]
        groups.append((about, together))
    return [joined("and", *own) for _, own in groups]


def _require_few(text: str, number: int) -> None:
    if number > _MAX_CLASSES:
        shown = text if len(text) <= 100 else f"{text[:97]}..."
        raise QueryError(said("answer.too_many_classes", shown=shown, number=number, most=_MAX_CLASSES))


def complete_rows(copula: Copula, rows: object, shapes: Mapping[str, Shape], seed: int) -> pl.DataFrame:
    """The rows with all attributes of the schema, nulls filled from the model given the rest of each row."""
    schema, codes = copula.schema.whole or copula.schema, {}
    if not hasattr(rows, "__arrow_c_stream__"):
        raise ModelError(said("answer.no_table", got=type(rows).__name__))
    # Not a number is how some libraries write null.
    frame = pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))
    unknown = [name for name in frame.columns if name not in schema.columns]
    if unknown:
        listed = ", ".join([*schema.columns][:12])
        raise ModelError(f"the schema has no attribute '{unknown[0]}'. Drop or rename that column; it has: {listed}.")
    for column in frame:
        # The level of every value; -1 for null.
        distinct = column.unique().drop_nulls()
        for attribute in (schema.attributes[place] for place in schema.columns[column.name]):
            known = pl.Series([_code(attribute, value) for value in distinct.to_list()], dtype=pl.Int64)
            own = column.replace_strict(distinct, known, default=None, return_dtype=pl.Int64)
            codes[attribute.name] = own.fill_null(-1).to_numpy().astype(np.int64)
    domains = _domains(schema, codes, frame.height)
    filled = schema.complete(fill(copula, domains, seed))
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, 8])))
    drawn = Decoder(schema, shapes=shapes).decode(filled, generator)
    return pl.DataFrame([_kept(frame[name], drawn[name]) if name in frame else drawn[name] for name in schema.columns])


def _code(attribute: Attribute, value: Any) -> int:
    """The level of one value; one that is outside the domain is refused unless it has a level there."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    code = attribute.code_named(attribute.cut(text))
    if code is None and attribute.binned:
        dated = hasattr(value, "isoformat")
        number = attribute.read(value.isoformat() if dated else text, plain=dated)
        code = None if number is None else attribute.code_at(number)
    elif code is None:
        code = attribute.other_code
    if code is None:
        raise ModelError(said("answer.outside", name=attribute.name, got=text))
    return code


def _domains(schema: Schema, codes: Mapping[str, NDArray[np.int64]], rows: int) -> list[Domains]:
    """The levels of each measured attribute that every row allows; a filled value is never missing."""
    domains = []
    for place, attribute in enumerate(schema.measured.attributes):
        tables, kinds = [], []
        # Its own value, and those of attributes that it determines.
        for own, (source, levels) in zip(schema.attributes, schema.sources, strict=True):
            if source == place:
                free = np.ones(levels.size, dtype=bool)
                if own.name == attribute.name and own.missing_code is not None and own.n_levels > 1:
                    free[own.missing_code] = False
                # Code -1, null, is the last row of each table.
                tables.append(np.vstack([np.arange(own.n_levels)[:, None] == levels, free]))
                kinds.append(codes.get(own.name, np.full(rows, -1)) % (own.n_levels + 1))
        together, which = np.unique(np.stack(kinds), axis=1, return_inverse=True)
        allowed = np.logical_and.reduce([table[kind] for table, kind in zip(tables, together, strict=True)])
        empty = ~allowed.any(axis=1)[which.ravel()]
        if empty.any():
            raise ModelError(said("answer.contradicts", row=int(np.argmax(empty)) + 1, name=attribute.name))
        domains.append(Domains(allowed=allowed, kinds=which.ravel()))
    return domains


def _kept(given: pl.Series, drawn: pl.Series) -> pl.Series:
    """A column with its values as they were given, where they are of the released type, and its nulls filled."""
    try:
        return given.cast(drawn.dtype).fill_null(drawn)
    except pl.exceptions.PolarsError:
        raise ModelError(said("answer.no_type", name=drawn.name, wanted=drawn.dtype, got=given.dtype)) from None
