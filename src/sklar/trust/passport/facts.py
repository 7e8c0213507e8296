"""What all descriptions of a published folder say, worked out once: from the model, the draw and the publisher.

Nothing here may depend on the machine or the time: equal models give equal folders.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from sklar.answer.report.publish import described, shown_of
from sklar.budget.certificate import rounded_up
from sklar.draw.decode import released_values
from sklar.errors import OutputError
from sklar.files.model import Model
from sklar.machine.wording import stated
from sklar.public.outputs import output_of, plain_output
from sklar.public.schema import Attribute, Schema
from sklar.public.shown import shown_name, shown_table
from sklar.public.tree import Tree

INDEX, SYNTHETIC = "index.html", "SYNTHETIC.txt"
REPORT = "report.html"
# What the files of synthetic rows of one table are called.
ROWS = "synthetic"
MODEL = "model.sklar"
TABLES = "noisy_tables.parquet"
SCHEMA = "schema.toml"
CERTIFICATE = "certificate.json"
PASSPORT = "passport.json"
SUMS = "SHA256SUMS"
# What the folder says in the words of others: its files, each with what it is, and names of types and licenses.
WORDS = stated("sklar.trust.passport", "words.toml")
FILES: dict[str, str] = WORDS["files"]
SIGNED = (MODEL, SUMS)
DESCRIPTIONS = ("datapackage.json", "croissant.json", "dcat.jsonld")
# The files that standards describe, with their media types.
DATA: dict[str, str] = WORDS["media"]

_MAX_LETTERS = 500
# Names of licenses as SPDX writes them: CC-BY-4.0, ODbL-1.0.
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
WEB = re.compile(r"https?://[^\s<>\"{}|\\^`]+")


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


_RULES: dict[str, tuple[Callable[[str], object], str]] = {
    "url": (WEB.fullmatch, "a web address that begins with https://"),
    "license": (
        lambda text: _SPDX.fullmatch(text) or WEB.fullmatch(text),
        "a name such as CC-BY-4.0 (SPDX) or a web address",
    ),
    "date": (_is_date, "a day such as 2026-03-31"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Who publishes a release, how to reach them, its license (SPDX or an address), its address, and its date.

    All of it is optional. Where a standard asks for what nobody states, it is marked as not stated.

    >>> Publication(publisher="Office of Statistics", license="CC-BY-4.0").license_address
    'https://spdx.org/licenses/CC-BY-4.0'
    """

    publisher: str | None = None
    contact: str | None = None
    license: str | None = None
    url: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        stated = {name: value for name, value in asdict(self).items() if value is not None}
        for name, value in stated.items():
            line = isinstance(value, str) and len(value) <= _MAX_LETTERS and value.isprintable() and value.strip()
            if not line:
                most = f"1 to {_MAX_LETTERS} printable characters"
                raise OutputError(f"{name} must be one line of {most}, got {value!r:.60}.")
        for name, (fits, requirement) in _RULES.items():
            if name in stated and not fits(stated[name]):
                raise OutputError(f"{name} must be {requirement}, got '{stated[name]}'.")

    @property
    def license_address(self) -> str | None:
        """The license as a web address."""
        if self.license is None or WEB.fullmatch(self.license):
            return self.license
        return f"https://spdx.org/licenses/{self.license}"


class Content(NamedTuple):
    """The size and the SHA-256 of a file."""

    size: int
    sha256: str


Family = Literal["string", "integer", "number", "boolean", "date", "datetime", "time", "duration"]
# By how the name of an output type begins; all others are integers.
_FAMILIES: dict[str, Family] = WORDS["families"]


class RowColumn(NamedTuple):
    """A column of the synthetic rows: its values where they are listed, its least and largest number where it has any.

    `missing` is what stands in the CSV file where a value is missing; None where none can be.
    """

    name: str
    title: str
    family: Family
    description: str = ""
    unit: str | None = None
    values: tuple[str | int, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    least: float | str | None = None
    largest: float | str | None = None
    missing: str | None = None


class Facts:
    """A model, how many rows were drawn from it with which seed, who publishes it, and what follows from that.

    `epsilon` and `delta` are upper bounds, `shown` is what the report shows, `uses` what its first screen says, and
    `contents` are those of the files in `data`. `recomputed` says whether the publisher's refit gave the model.
    `tables` are the columns of synthetic rows by the table that they are of.
    """

    recomputed = False

    def __init__(
        self, model: Model, rows: int, seed: int, publication: Publication, contents: Mapping[str, Content]
    ) -> None:
        self.rows, self.seed, self.publication, self.contents = rows, seed, publication, contents
        self.model, schema, stated, tree = model, model.schema, model.certificate, model.measured.tree
        self.tables = {ROWS: _columns(schema, model)} if tree is None else _tables(tree)
        self.files, self.data = files_of(model), data_of(model)
        self.shown = shown_of(model, MODEL)
        self.uses = self.shown["uses"]
        self.epsilon, self.delta = rounded_up(stated.epsilon, 4), rounded_up(stated.delta, 3)
        others = "" if tree is None else "".join(f", {each.name}" for each in tree.branches[1:])
        self.title = f"{shown_table(schema)}{others}: differentially private synthetic data"
        self.slug = re.sub("[^a-z0-9]+", "-", schema.name.lower()).strip("-") or "table"
        replaced = stated.neighbors == "replace-one"
        self.unit = f"{'the content' if replaced else 'the presence'} of any one {stated.unit}"
        self.sklar = " ".join(filter(None, ("Sklar", stated.versions.get("sklar"))))
        about = "" if schema.words.description is None else f"{' '.join(schema.words.description.split())} "
        shown = {"of": self, "stated": stated, "rows": rows, "n": model.n_rows, "m": schema.n_attributes}
        shown |= {
            "size": "" if stated.public_rows is not None else "about ",
            "counted": self.uses["counted"],
            "how": WORDS["how"]["alone" if self.uses["independent"] else "drawn"].format(**self.uses),
            "invented": f"people{others}" if others else "records",
            "original": "confidential tables" if others else "a confidential table",
            "publisher": publication.publisher or "(publisher)",
            "year": "year" if publication.date is None else publication.date[:4],
            "url": "" if publication.url is None else f" {publication.url}.",
        }
        self.promise, self.description, self.citation = (text.format(**shown) for text in WORDS["about"].values())
        self.description = f"{about}{self.description} {self.promise}"

    def address(self, name: str) -> str:
        """Where a file stands: beside its description, or below the address that the publisher states."""
        return name if self.publication.url is None else f"{self.publication.url.rstrip('/')}/{name}"

    @property
    def columns(self) -> tuple[RowColumn, ...]:
        """The columns of the synthetic rows."""
        return tuple(column for columns in self.tables.values() for column in columns)


def rows_of(model: Model) -> dict[str, list[str]]:
    """The files of synthetic rows by their kind, those of a table that says how many rows were drawn first."""
    tree = model.measured.tree
    tables = [ROWS] if tree is None else [*(own.name for own in tree.branches), *(own.name for own in tree.lookups)]
    return {kind: [f"{name}.{kind}" for name in tables] for kind in ("parquet", "csv")}


def files_of(model: Model) -> dict[str, str]:
    """All files of a folder, each with what it is."""
    if model.measured.tree is None:
        return FILES
    own = {name: what for name, what in FILES.items() if not name.startswith(f"{ROWS}.")}
    for kind, names in rows_of(model).items():
        own |= {name: WORDS["rows"][kind].format(table=name.removesuffix(f".{kind}")) for name in names}
    return own


def data_of(model: Model) -> dict[str, str]:
    """Those that standards describe, with their media types: synthetic rows as text first."""
    others = {name: media for name, media in DATA.items() if not name.startswith(f"{ROWS}.")}
    kinds = {kind: DATA[f"{ROWS}.{kind}"] for kind in ("csv", "parquet")}
    return {name: media for kind, media in kinds.items() for name in rows_of(model)[kind]} | others


def _columns(schema: Schema, model: Model) -> tuple[RowColumn, ...]:
    if not model.dummies:
        return tuple(_column(attribute) for attribute in schema.released)
    said = {name: f"1 where {name}, else 0" for name in schema.dummy_names}
    return tuple(RowColumn(name, name, "integer", about, values=(0, 1)) for name, about in said.items())


def _tables(tree: Tree) -> dict[str, tuple[RowColumn, ...]]:
    """The columns of linked tables: keys, attributes, and texts of public tables."""
    found = {}
    for branch in tree.branches:
        keys = (RowColumn(name, name, "integer", "Key: says whose row it is. No real key.") for name in branch.ids)
        found[branch.name] = (*keys, *(_column(attribute) for attribute in branch.schema.released))
    for lookup in tree.lookups:
        found[lookup.name] = tuple(RowColumn(name, name, "string", "Public.", missing="") for name, _ in lookup.columns)
    return found


def _column(attribute: Attribute) -> RowColumn:
    """How an attribute is released."""
    output, words = output_of(attribute), attribute.words
    listed = output.name.endswith("category")
    name = plain_output(attribute).name if listed else output.name
    family: Family = next((each for start, each in _FAMILIES.items() if name.startswith(start)), "integer")
    values = released_values(attribute) if attribute.categorical else []
    if attribute.boolean and family == "string":
        values = [*(attribute.texts or ("false", "true")), *attribute.special]
    values = values if family == "integer" else [str(value) for value in values]
    least = largest = None
    if family in ("integer", "number") and attribute.edges:
        # The last edge of whole numbers is in no bin.
        last = attribute.edges[-1] - (1 if attribute.kind in ("integer", "year") else 0)
        ends = (attribute.edges[0], *attribute.apart, last)
        least, largest = min(ends), max(ends)
    about, labels = described(attribute), dict(words.labels)
    if attribute.edges:
        bins = f"{attribute.n_bins:,} bin{'s' if attribute.n_bins > 1 else ''}"
        about = f"{about} Counted in {bins}; values inside a bin are drawn, not measured.".lstrip()
    title = shown_name(attribute)
    named = tuple((str(value), labels[str(value)]) for value in values if str(value) in labels)
    return RowColumn(
        attribute.name, title, family, about, words.unit, tuple(values), named, least, largest, attribute.missing
    )
