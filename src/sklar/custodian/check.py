"""What a schema would do to the rows: exact counts, hence private, for the custodian's eyes before a release."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.causes import Outside, likely_cause
from sklar.kernel.codes import NO_CELL
from sklar.machine.progress import SILENT, Progress
from sklar.public.axis import parse_edge
from sklar.public.reading import Reading
from sklar.public.rules import Determined
from sklar.public.schema import BINNED, Attribute, Schema
from sklar.rows.encode import coder, encode, missing_number
from sklar.rows.read import open_source
from sklar.rows.source import require_columns
from sklar.rows.values import distinct, is_nothing, opaque, readable_text

_OPAQUE = "(not a value)"
# A schema that loses more than this share of an attribute's values is taken for a mistake.
_MOST = 0.5
# Different values outside of a domain that are looked at for a cause.
_STRAYS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """How many values of one attribute meet which fate under a schema: private.

    `cause` says what seems to be the matter where more than half of the values are outside of the domain.
    """

    attribute: str
    listed: int
    missing: int
    clipped: int
    folded: int
    no_cell: int
    cause: str = field(default="", compare=False)

    @property
    def outside(self) -> float:
        """The share of the values, those that are missing left out, that the domain does not hold."""
        lost = self.clipped + self.folded + self.no_cell
        return lost / max(lost + self.listed, 1)

    @property
    def unfit(self) -> bool:
        """Whether a release would waste its budget on this attribute."""
        return bool(self.cause)

    @property
    def warning(self) -> str:
        """What the custodian is told, and nobody else."""
        return f"{self.attribute}: {self.outside:.0%} of its values are outside its domain. {self.cause}"


def check(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[Fate]:
    """What the schema would do to the rows, attribute by attribute: private, exact counts for the custodian alone."""
    source = open_source(data, schema)
    require_columns(source, schema)
    tallies = [Counter[str]() for _ in schema.attributes]
    strays: list[Outside] = [Counter() for _ in schema.attributes]
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
                fate = _fate(text, attribute, coders[index](text))
                tallies[index][fate] += times
                if fate not in ("listed", "missing") and (len(strays[index]) < _STRAYS or text in strays[index]):
                    strays[index][text] += times
        progress.advance(batch.height)
    return [
        _judged(attribute, schema.reading, tally, outside)
        for attribute, tally, outside in zip(schema.attributes, tallies, strays, strict=True)
    ]


def _judged(attribute: Attribute, reading: Reading, tally: Counter[str], outside: Outside) -> Fate:
    private = attribute.domain == "private" and attribute.kind == "categorical"
    if private:
        # A release decides which of them it lists.
        tally["listed"] += tally.pop("folded", 0)
    fate = Fate(
        attribute=attribute.name,
        listed=tally["listed"],
        missing=tally["missing"],
        clipped=tally["clipped"],
        folded=tally["folded"],
        no_cell=tally["no_cell"],
    )
    # Where a release found the categories, it put the rare ones under other itself.
    if fate.outside <= _MOST or private or (attribute.domain == "found" and attribute.other):
        return fate
    return replace(fate, cause=likely_cause(attribute, reading, outside))


def broken_rules(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[int]:
    """How many rows break each rule of the schema: private, exact counts for the custodian alone.

    A row without a level of one of a rule's attributes breaks nothing.
    """
    source = open_source(data, schema)
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
    texts, places = places_of(column)
    found: Counter[str | None] = Counter()
    for text, times in zip(texts, np.bincount(places, minlength=len(texts)).tolist(), strict=True):
        found[text] += times
    return +found


def places_of(column: pl.Series) -> tuple[list[str | None], NDArray[np.int64]]:
    """The texts that `coder` would see, None for a null, and which of them each row has. A text may occur twice."""
    if column.dtype == pl.Null:
        return [None], np.zeros(len(column), dtype=np.int64)
    if opaque(column.dtype):
        return [_OPAQUE, None], column.is_null().to_numpy().astype(np.int64)
    values, places = distinct(column)
    texts = [None if is_nothing(value) else _text(value) for value in values]
    return [*texts, None], places


def _text(value: object) -> str:
    text = readable_text(value)
    return _OPAQUE if text is None else text
