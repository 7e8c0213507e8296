"""What a schema would do to the rows: exact counts, hence private, for the custodian's eyes before a release."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from sklar.kernel.codes import NO_CELL
from sklar.machine.progress import SILENT, Progress
from sklar.public.axis import parse_edge
from sklar.public.rules import Determined
from sklar.public.schema import BINNED, Attribute, Schema
from sklar.rows.encode import coder, distinct, encode, is_nothing, missing_number, opaque, readable_text
from sklar.rows.read import open_source, require_columns

_OPAQUE = "(not a value)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """How many values of one attribute meet which fate under a schema: private."""

    attribute: str
    listed: int
    missing: int
    clipped: int
    folded: int
    no_cell: int


def check(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[Fate]:
    """What the schema would do to the rows, attribute by attribute: private, exact counts for the custodian alone."""
    source = open_source(data)
    require_columns(source, schema)
    tallies = [Counter[str]() for _ in schema.attributes]
    # Bounds are all that is known of a private domain of numbers, and nothing of one of categories.
    known = [
        replace(attribute, domain="public") if attribute in schema.private_domains else attribute
        for attribute in schema.attributes
    ]
    coders = [coder(attribute) for attribute in known]
    progress.stage("check", unit="rows")
    for batch in source.batches(schema.names):
        for index, attribute in enumerate(known):
            for text, times in texts_of(batch.to_series(index)).items():
                tallies[index][_fate(text, attribute, coders[index](text))] += times
        progress.advance(batch.height)
    for attribute, tally in zip(schema.attributes, tallies, strict=True):
        if attribute.domain == "private" and attribute.kind == "categorical":
            # A release decides which of them it lists.
            tally["listed"] += tally.pop("folded", 0)
    return [
        Fate(attribute=attribute.name, **{fate: tally[fate] for fate in Fate.__slots__ if fate != "attribute"})
        for attribute, tally in zip(schema.attributes, tallies, strict=True)
    ]


def broken_rules(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[int]:
    """How many rows break each rule of the schema: private, exact counts for the custodian alone.

    A row without a level of one of a rule's attributes breaks nothing.
    """
    source = open_source(data)
    require_columns(source, schema)
    names, broken = schema.names, [0] * len(schema.rules)
    progress.stage("rules", unit="rows")
    for batch in source.batches(names):
        codes = encode(batch, schema)
        for number, rule in enumerate(schema.rules):
            if isinstance(rule, Determined):
                has, by = codes[names.index(rule.attribute)], codes[names.index(rule.by)]
                breaks = (has != np.array(rule.levels)[by]) & (has >= 0) & (by >= 0)
            else:
                breaks = np.isin(codes[names.index(rule.first)], rule.first_levels)
                breaks &= np.isin(codes[names.index(rule.second)], rule.second_levels)
            broken[number] += int(np.count_nonzero(breaks))
        progress.advance(batch.height)
    return broken


def _fate(text: str | None, attribute: Attribute, code: int) -> str:
    if code == NO_CELL:
        return "no_cell"
    if text is None or text in ("", attribute.missing):
        return "listed" if code < attribute.n_values else "missing"
    if code in attribute.special_codes:
        return "listed"
    if attribute.kind in BINNED:
        edge = parse_edge(text, attribute.kind, attribute.format)
        if not text.strip() or (edge is not None and (edge != edge or edge == missing_number(attribute))):
            return "missing"
        if edge is not None:
            first, last = attribute.edges[0], attribute.edges[-1]
            inside = first <= edge < last or (attribute.kind == "real" and edge == last)
            if not inside:
                return "clipped" if code < attribute.n_values else "folded"
    return "listed" if code < attribute.n_values else "folded"


def texts_of(column: pl.Series) -> Counter[str | None]:
    """How often each text occurs that `coder` would see; None for a null."""
    if column.dtype == pl.Null:
        return Counter({None: len(column)})
    if opaque(column.dtype):
        nulls = column.null_count()
        return +Counter({None: nulls, _OPAQUE: len(column) - nulls})
    values, places = distinct(column)
    found: Counter[str | None] = Counter()
    for value, times in zip([*values, None], np.bincount(places, minlength=len(values) + 1).tolist(), strict=True):
        text = readable_text(value)
        found[None if is_nothing(value) else _OPAQUE if text is None else text] += times
    return +found
