"""A schema proposed after a look at the rows, and a PRIVATE page with what they show.

The schema's file holds no figure and no rare value of the rows: domains are public lists, wide bounds, or left for a
release to find within its budget. Only its outline depends on the rows: names and kinds of columns, which are left out,
customary codes, and questions. Once the custodian has answered them (`custodian.review`), the file is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from markupsafe import Markup

from sklar.answer.report import svg
from sklar.answer.report.render import Rows, percent, render, short
from sklar.custodian.check import Hidden
from sklar.custodian.draft.columns import ColumnSummary, Tie, find_ties, summarize
from sklar.custodian.draft.propose import ColumnProposal, as_seen, asked, propose, unread
from sklar.custodian.draft.sniff import Remark, sniff
from sklar.errors import DataError, SchemaError
from sklar.files.write import check_target, require_same, write_text
from sklar.machine.notebook import html_card
from sklar.machine.progress import SILENT, Progress
from sklar.machine.wording import said
from sklar.public.description import toml_key, toml_value
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import PLAIN, Person, Reading, whose
from sklar.rows.read import open_source
from sklar.rows.sql import Query

PROPOSED, DECIDE, LEFT_OUT, READ_WITH = "# Proposed: ", "# Decide: ", "# Left out: ", "# Read with "
HEADING, RULES_HEADING = (said(f"custodian.{key}").splitlines() for key in ("heading", "rules_heading"))

_TOP, _EXAMPLES, _MAX_COLUMNS = 12, 5, 300
_KINDS = {"real": "decimal number", "integer": "whole number", "datetime": "date and time"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Draft:
    """A proposed schema whose entries nobody has reviewed, the columns that it leaves out, and what the rows show."""

    schema: Schema
    proposals: Mapping[str, ColumnProposal]
    columns: tuple[ColumnSummary, ...]
    ties: tuple[Tie, ...]
    remarks: Rows

    @property
    def rows(self) -> int:
        """The number of rows: PRIVATE."""
        return self.columns[0].rows

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that the draft leaves out, each with the reason."""
        return {name: each.proposed for name, each in self.proposals.items() if each.attribute is None}

    def column(self, name: str) -> ColumnSummary | None:
        """What the rows show of the column of that name, where there is one."""
        held = self.schema.attribute(name).column if name in self.schema.names else name
        return next((column for column in self.columns if column.name == held), None)

    def counted(self, person: Person | None) -> int:
        """How many rows a release counts if rows with one value in a column are one person's (PRIVATE)."""
        column = None if person is None else self.column(person.column)
        if person is None or column is None or not column.counted:
            return self.rows
        # Beyond the most texts that are counted one by one, the rest is taken to be as they are.
        part = sum(min(times, person.rows_per_person) for times in column.counts.values()) / column.counted
        return max(round(part * (self.rows - column.missing.total())) + column.missing.total(), 1)

    def people(self, said: str) -> Draft:
        """The draft with the answer to its first question: can a person have several rows? (`settings.whose`)"""
        person = whose(said)
        kept = tuple(each for each in self.schema.attributes if person is None or each.name != person.column)
        if person is not None and self.column(person.column) is None:
            raise SchemaError(f"the table has no column '{person.column}'. Name the one that says whose rows are.")
        return replace(self, schema=replace(self.schema, attributes=kept, person=person, ask_person=()))

    def to_toml(self) -> str:
        """The draft as a file to review: what is proposed for each column, and what must be decided."""
        lines = [
            *HEADING,
            # A comment must stay one, whatever the column is called.
            *(f"{LEFT_OUT}{toml_value(name)}: {reason}." for name, reason in self.left_out.items()),
            *(f"{READ_WITH}{key} = {value} ({sure}: {why})." for key, value, sure, why in self.remarks),
        ]
        noted = "\n".join(lines) + "\n\n" + self.schema.to_toml()
        for name in self.schema.not_reviewed:
            proposal, header = self.proposals[self.schema.attribute(name).column], f"\n[attributes.{toml_key(name)}]\n"
            decide = f"{DECIDE}{proposal.decide}\n" if proposal.decide else ""
            noted = noted.replace(header, f"{header}{PROPOSED}{proposal.proposed}.\n{decide}", 1)
        return noted + "\n".join(["", *RULES_HEADING, *(tie.line for tie in self.ties), ""] if self.ties else [])

    def __repr__(self) -> str:
        # Nothing that the rows show.
        return f"Draft('{self.schema.name}', PRIVATE until it is reviewed: see .to_toml() and .private_page())"

    def _repr_html_(self) -> str:
        shown = [(name, each) for name, each in self.proposals.items()]
        columns = {
            "column": [name or "(no name)" for name, _ in shown],
            "proposed": [("left out: " if each.attribute is None else "") + each.proposed for _, each in shown],
            "to decide": [self.question(name) for name, _ in shown],
        }
        notes = ["PRIVATE until it is reviewed: .private_page() is what the rows show, .to_toml() the file to review"]
        return html_card(f"Draft of '{self.schema.name}'", {}, columns, verdict=self.schema.standing, notes=notes)

    def question(self, name: str) -> str:
        """What is to be decided about a column, with one plain question about its bounds."""
        proposal, seen = self.proposals[name], next(column for column in self.columns if column.name == name)
        return asked(proposal.decide, proposal.attribute, seen) if proposal.attribute else proposal.decide

    def private_page(self) -> str:
        """What the rows show, as an HTML page for the custodian's eyes; `templates/draft.html.j2` has the words."""
        shown = {"columns": self.columns[:_MAX_COLUMNS], "facts": facts, "common": common, "histogram": _histogram}
        return render("sklar.custodian.draft", "draft.html.j2", Hidden(draft=self, **shown))

    def unread(self) -> Schema:
        """The schema, each entry accepted unread and marked so: releases say that the promise does not cover it.

        It holds no value of the rows: what a type or a file declares is left for a release to find. Kinds, public
        bounds and customary codes, and which columns are left out, do depend on the rows.
        """
        entries = ((self.column(each.column), each) for each in self.schema.attributes)
        marked = tuple(each if seen is None else unread(seen, each) for seen, each in entries)
        return replace(self.schema, attributes=marked).checked()

    def as_seen(self) -> Schema:
        """The schema with the domains that the rows show. Whoever uses it says so with `reviewed("rows")`.

        A domain read from the rows tells who is in them, which no noise repairs: for tables that are public anyway.
        """
        read = [attribute for column in self.columns if column.name and (attribute := as_seen(column)) is not None]
        return replace(self.schema, attributes=tuple(read)).checked()


def draft(
    data: object,
    *,
    query: str | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    name: str | None = None,
    reading: Reading | None = None,
    progress: Progress = SILENT,
) -> Draft:
    """Look at the rows, and propose a schema: no domain is read from them, and every entry has yet to be reviewed.

    `data` is a path or anything that exports an Arrow stream; with a `query`, a DuckDB file or the address of a
    database. How the text of a file is written is guessed from its beginning, unless `reading` says it. With `out`, the
    draft is written there (S.toml), and what the rows show to a PRIVATE page beside it (S.PRIVATE.html). A schema
    that is there and says other things than this draft is kept, unless told to `replace` it. The table is called as its
    file unless it has a `name`.
    """
    target = None if out is None else check_target(out, (".toml",), data)
    page = None if target is None else check_target(target.with_suffix(".PRIVATE.html"), (".html",))
    rows = data if query is None else Query(data, query)  # type: ignore[arg-type]
    file = rows if isinstance(rows, str | Path) and "://" not in str(rows) else None
    guesses: tuple[Remark, ...] = ()
    # Errors are reported by the reader below, which does not quote the file.
    with suppress(Exception):
        reading, guesses = (reading, ()) if reading or file is None else sniff(file)
    reading = reading or PLAIN
    source = open_source(rows, reading)
    columns = summarize(source, reading, progress)
    proposals = {column.name: propose(column) for column in columns}
    attributes = tuple(own for each in proposals.values() if each.attribute for own in (each.attribute, *each.parts))
    if not attributes:
        raise DataError(f"{source.name} has no column that a draft could describe. Write the schema by hand.")
    name = (Path(file).name.split(".")[0] if file else "") if name is None else name
    repeated = tuple(name for name, each in proposals.items() if each.repeats)
    schema = Schema(name=name or "table", attributes=attributes, reading=reading, ask_person=repeated).checked()
    remarks = tuple((each.key, toml_value(each.value), each.sureness, each.reason) for each in guesses)
    ties = find_ties(column for column in columns if column.name in schema.names)
    drafted = Draft(schema=schema, proposals=proposals, columns=columns, ties=ties, remarks=remarks)
    if target is not None and page is not None:
        text = drafted.to_toml()
        require_same(target, text, replace=replace or _adds_nothing(target, text))
        write_text(page, drafted.private_page(), private=True)
        write_text(target, text, private=True)
    return drafted


def _adds_nothing(path: Path, text: str) -> bool:
    """Whether a file says what a draft says, but for answers that accepted all of it as it was proposed."""
    # A path that is no file of text is refused as another one.
    with suppress(OSError, UnicodeDecodeError):
        lines, drafted = path.read_text(encoding="utf-8").splitlines(), text.splitlines()
        own = [line for line in lines if not line.startswith(("provenance = ", "reviewed = "))]
        stated = [
            [line for line in each if line and not line.startswith(("#", "reviewed = "))] for each in (own, drafted)
        ]
        return stated[0] == stated[1] and {*own} <= {*drafted}
    return False


def facts(seen: ColumnSummary) -> tuple[str, ...]:
    """What was seen of a column, a sentence each: exact, for the custodian's eyes."""
    values, kind = seen.counts.total(), next(iter(seen.axes), None)
    gaps = f"{percent(seen.missing.total() / max(seen.rows, 1))} of {seen.rows:,} rows have no value"
    texts = ", ".join(f"'{short(text)}'" for text in seen.missing if text)
    lines = [
        gaps if seen.missing else "no value is missing",
        f"{'more than ' if seen.many else ''}{len(seen.counts):,} different values",
        *([f"for a missing value stand {texts}"] if texts else []),
    ]
    if kind is None:
        return tuple(lines)
    odd = seen.axes[kind].odd
    ordered = sorted((text for text in seen.counts if text not in odd), key=lambda text: seen.point(text, kind) or 0.0)
    if ordered:
        plain = kind.partition(" ")[0]
        lines.append(f"read as a {_KINDS.get(plain, plain)}, from {short(ordered[0])} to {short(ordered[-1])}")
    if odd:
        lines.append("not of that kind: " + ", ".join(f"'{short(text)}' ({times:,})" for text, times in odd.items()))
    heaps = [(text, times) for text, times in seen.counts.most_common(_EXAMPLES) if times >= 0.05 * values]
    if len(seen.counts) > 20 and heaps:
        shared = ", ".join(f"{short(text)} ({percent(times / values)})" for text, times in heaps)
        lines.append(f"many rows share {shared}")
    return tuple(lines)


def common(seen: ColumnSummary, most: int = _TOP) -> Rows:
    """The most common values of a column, with how many rows have them, and their share."""
    ordered = sorted(seen.counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return tuple((short(text, 60), f"{times:,}", percent(times / max(seen.rows, 1))) for text, times in ordered)


def _histogram(seen: ColumnSummary, attribute: Attribute | None) -> Markup | None:
    """The numbers or dates of a column that is proposed, as a picture."""
    points, times = (np.empty(0), np.empty(0)) if attribute is None else seen.points(attribute)
    if attribute is None or np.unique(points).size < 2:
        return None
    drawn = svg.histogram(attribute, [(points, times / times.sum())])
    return svg.bins(drawn, title=f"Histogram of {short(seen.name, 60)}", description="; ".join(facts(seen)))
