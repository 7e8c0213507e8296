"""`check`: a schema and, for the custodian's eyes, what it does to the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sklar.custodian.check import Fate, broken_rules
from sklar.custodian.check import check as look
from sklar.custodian.people import Crowd, look_at_people
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.progress import SILENT, Progress
from sklar.public.rules import rule_text
from sklar.public.schema import Schema, SchemaLike
from sklar.rows.sql import Query

NOTICE = "PRIVATE, for the custodian only: exact counts of values, never part of a release."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Checked(Tabular):
    """What a schema asks to be measured. With rows: how many values meet which fate, which is PRIVATE.

    `values` has one entry for each attribute, `rows_that_break` one number for each rule; both are None without rows.
    """

    schema: Schema
    values: tuple[Fate, ...] | None = None
    rows_that_break: tuple[int, ...] | None = None
    people: Crowd | None = None

    @property
    def unfit(self) -> tuple[Fate, ...]:
        """The attributes that would lose more than half of their values: PRIVATE."""
        return tuple(fate for fate in self.values or () if fate.unfit)

    @property
    def rules(self) -> list[str]:
        """The schema's rules in words."""
        return [rule_text(rule, self.schema.attributes) for rule in self.schema.rules]

    def __repr__(self) -> str:
        rows = "" if self.values is None else f", PRIVATE counts of values, {len(self.unfit)} attributes unfit"
        return f"Checked({self.schema!r}{rows})"

    def _repr_html_(self) -> str:
        facts = {"two-way tables": f"{self._pairs:,}", "not reviewed": ", ".join(self.schema.not_reviewed) or "none"}
        note = "" if self.values is None else NOTICE
        return html_card(repr(self.schema), facts, self.to_columns() if self.values else None, note=note)

    @property
    def _pairs(self) -> int:
        m = self.schema.measured.n_attributes
        return m * (m - 1) // 2

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """How many values of each attribute meet which fate; without rows, its levels."""
        if self.values is None:
            attributes = self.schema.attributes
            return {
                "attribute": [each.name for each in attributes],
                "type": [each.kind for each in attributes],
                "levels": [each.n_levels for each in attributes],
            }
        names = ("attribute", "listed", "missing", "clipped", "folded", "no_cell")
        return {name: [getattr(fate, name) for fate in self.values] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        m = self.schema.measured.n_attributes
        return {
            "table": self.schema.name,
            "attributes": self.schema.n_attributes,
            "levels": self.schema.n_levels,
            "one_way_tables": m,
            "two_way_tables": self._pairs,
            "rules": self.rules,
            "not_reviewed": list(self.schema.not_reviewed),
            "PRIVATE": None
            if self.values is None
            else {
                "values": [asdict(fate) for fate in self.values],
                "rows_that_break_rules": list(self.rows_that_break or ()),
                "people": None if self.people is None else self.people.to_dict(),
            },
        }

    def lines(self) -> list[str]:
        """For a person to read."""
        schema, m = self.schema, self.schema.measured.n_attributes
        lines = [
            f"table '{schema.name}', {schema.n_attributes} attributes, {schema.n_levels} levels in all,",
            f"{m} one-way and {self._pairs} two-way tables to measure.",
        ]
        if schema.person is not None:
            lines.append(f"Any one person, with all their rows, is protected. Counted are {schema.person.words}.")
        lines += [f"Rule {number}: {text}." for number, text in enumerate(self.rules, start=1)]
        if schema.not_reviewed:
            lines.append(f"Not reviewed, so a release would refuse it: {', '.join(schema.not_reviewed)}.")
        if self.values is None:
            return lines
        lines += [
            NOTICE,
            f"{'attribute':<24}{'in domain':>12}{'missing':>10}{'clipped':>10}{'folded':>10}{'in no cell':>12}",
        ]
        lines += [
            f"{fate.attribute:<24.24}{fate.listed:>12,}{fate.missing:>10,}{fate.clipped:>10,}{fate.folded:>10,}"
            f"{fate.no_cell:>12,}"
            for fate in self.values
        ]
        broken = enumerate(self.rows_that_break or (), start=1)
        lines += [f"Rule {number}: broken by {rows:,} rows." for number, rows in broken]
        return [*lines, *([] if self.people is None else self.people.lines())]


def check(
    schema: SchemaLike, data: object | None = None, *, query: str | None = None, progress: Progress = SILENT
) -> Checked:
    """Validate a schema; with `data`, say what it would do to the rows, which is PRIVATE.

    `schema` is a schema, the path of one, or a model for its schema; `data` a path or anything that exports an Arrow
    stream; with a `query`, a DuckDB file or the address of a database.
    """
    schema = Schema.of(schema)
    if data is None:
        return Checked(schema=schema)
    rows = data if query is None else Query(data, query)  # type: ignore[arg-type]
    return Checked(
        schema=schema,
        values=tuple(look(rows, schema, progress=progress)),
        rows_that_break=tuple(broken_rules(rows, schema, progress=progress)) if schema.rules else (),
        people=look_at_people(rows, schema, progress=progress) if schema.person else None,
    )
