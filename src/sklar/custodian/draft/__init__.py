"""A schema proposed after a look at the rows, and a PRIVATE page with what they show.

The schema's file holds no figure and no rare value of the rows: domains are public lists, or wide bounds, or left for a
release to find within its budget. What depends on the rows is its outline: names and kinds of columns, which of them
are left out, customary codes, and questions. The custodian answers them (`custodian.review`); then the file is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sklar.answer.report.render import Rows
from sklar.custodian.draft.columns import TableSummary, Tie, find_ties, summarize
from sklar.custodian.draft.page import private_page
from sklar.custodian.draft.propose import ColumnProposal, as_seen, propose
from sklar.custodian.draft.sniff import Sniffed, sniff
from sklar.errors import DataError
from sklar.files.write import check_target, write_text
from sklar.machine.progress import SILENT, Progress
from sklar.public.reading import PLAIN, Reading
from sklar.public.schema import Schema
from sklar.public.toml import toml_key, toml_value
from sklar.rows.read import open_source
from sklar.rows.sql import Query

PROPOSED, DECIDE, RULE = "# Proposed: ", "# Decide: ", "# Rule? "
LEFT_OUT, READ_WITH = "# Left out: ", "# Read with "
HEADING = (
    "# A draft. Its domains were not read from the rows, but nobody has reviewed it: a release refuses it until",
    "# each question is answered. `sklar schema review` asks them, and marks each entry with where it comes from.",
)
RULES_HEADING = (
    "# Is it public knowledge that one column determines another, or excludes some of its values? Then it",
    "# can be a rule, which costs nothing and every released record honors.",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Draft:
    """A proposed schema whose entries nobody has reviewed, the columns that it leaves out, and what the rows show."""

    schema: Schema
    proposals: Mapping[str, ColumnProposal]
    seen: TableSummary
    ties: tuple[Tie, ...]
    remarks: Rows = ()

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that the draft leaves out, each with the reason."""
        return {name: each.proposed for name, each in self.proposals.items() if each.attribute is None}

    def to_toml(self) -> str:
        """The draft as a file to review: what is proposed for each column, and what must be decided."""
        lines = [
            *HEADING,
            # A comment must stay one, whatever the column is called.
            *(f"{LEFT_OUT}{toml_value(name)}: {reason}." for name, reason in self.left_out.items()),
            *(f"{READ_WITH}{key} = {value} ({sure}: {why})." for key, value, sure, why in self.remarks),
        ]
        noted = "\n".join(lines) + "\n\n" + self.schema.to_toml()
        for name, proposal in self.proposals.items():
            if proposal.attribute is not None and not proposal.attribute.reviewed:
                header = f"[attributes.{toml_key(name)}]\n"
                told = f"{PROPOSED}{proposal.proposed}.\n" + (f"{DECIDE}{proposal.decide}\n" if proposal.decide else "")
                noted = noted.replace("\n" + header, "\n" + header + told, 1)
        questions = "".join(f"{RULE}{toml_value(tie.first)} {tie.how} {toml_value(tie.second)}\n" for tie in self.ties)
        if questions:
            noted += "\n".join(["", *RULES_HEADING, questions])
        return noted

    def __repr__(self) -> str:
        # Nothing that the rows show.
        return f"Draft('{self.schema.name}', PRIVATE until it is reviewed: see .to_toml() and .private_page())"

    def private_page(self) -> str:
        """What the rows show, as an HTML page for the custodian's eyes."""
        return private_page(self.schema.name, self.seen, self.proposals, self.ties, self.remarks)

    def as_seen(self) -> Schema:
        """The schema with the domains that the rows show. Whoever uses it says so with `reviewed("rows")`.

        A domain read from the rows tells who is in them, which no noise repairs: for tables that are public anyway.
        """
        read = [attribute for column in self.seen.columns if column.name and (attribute := as_seen(column)) is not None]
        return replace(self.schema, attributes=tuple(read)).checked()


def draft(
    data: object,
    *,
    query: str | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    reading: Reading | None = None,
    progress: Progress = SILENT,
) -> Draft:
    """Look at the rows, and propose a schema: no domain is read from them, and every entry has yet to be reviewed.

    `data` is a path or anything that exports an Arrow stream; with a `query`, a DuckDB file or the address of a
    database. How the text of a file is written is guessed from its beginning, unless `reading` says it. With `out`, the
    draft is written there (S.toml), and what the rows show to a PRIVATE page beside it (S.PRIVATE.html). The table is
    called as its file unless it has a `name`.
    """
    targets = None if out is None else [check_target(out, (".toml",))]
    if targets is not None:
        targets.append(check_target(Path(out).with_suffix(".PRIVATE.html"), (".html",)))  # type: ignore[arg-type]
    rows = data if query is None else Query(data, query)  # type: ignore[arg-type]
    file = rows if isinstance(rows, str | Path) and "://" not in str(rows) else None
    sniffed = Sniffed(reading=reading) if reading is not None else _sniff(file)
    source = open_source(rows, sniffed.reading)
    seen = summarize(source, sniffed.reading, progress=progress)
    proposals = {column.name: propose(column) for column in seen.columns}
    attributes = tuple(each.attribute for each in proposals.values() if each.attribute is not None)
    if not attributes:
        raise DataError(f"{source.name} has no column that a draft could describe. Write the schema by hand.")
    name = (Path(file).name.split(".")[0] if file else "") if name is None else name
    schema = Schema(name=name or "table", attributes=attributes, reading=sniffed.reading).checked()
    remarks = tuple((each.key, toml_value(each.value), each.sureness, each.reason) for each in sniffed.remarks)
    ties = find_ties(seen, schema.names)
    drafted = Draft(schema=schema, proposals=proposals, seen=seen, ties=ties, remarks=remarks)
    if targets is not None:
        write_text(targets[1], drafted.private_page(), private=True)
        write_text(targets[0], drafted.to_toml(), private=True)
    return drafted


def _sniff(file: str | Path | None) -> Sniffed:
    """How a file seems to be written; what is no file of text is read as it is.

    Texts for "no value" are left to the attributes: each says in its own words what is missing.
    """
    try:
        guess = Sniffed(reading=PLAIN) if file is None else sniff(file)
    except Exception:
        # Whoever reads the file next reports what is wrong with it, without quoting it.
        return Sniffed(reading=PLAIN)
    remarks = tuple(remark for remark in guess.remarks if remark.key != "nulls")
    return Sniffed(reading=replace(guess.reading, nulls=()), remarks=remarks)
