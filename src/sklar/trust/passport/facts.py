"""What all descriptions of a published folder say, worked out once: from the model, the draw and the publisher.

Nothing here may depend on the machine or the time: equal models give equal folders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from sklar.answer.report.publish import typical_errors
from sklar.answer.report.spending import together
from sklar.budget.certificate import Certificate, rounded_up
from sklar.files.model import Model
from sklar.public.schema import Attribute, Schema
from sklar.public.shown import shown_name, shown_table
from sklar.public.types import output_of, plain_output
from sklar.trust.passport.publication import Publication

# What stands where the publisher has not said anything.
NOT_STATED = "not stated"

Family = Literal["string", "integer", "number", "boolean", "date", "datetime", "time", "duration"]
_FAMILIES: Mapping[str, Family] = {
    "bool": "boolean",
    "float32": "number",
    "float64": "number",
    "decimal": "number",
    "date32": "date",
    "date64": "date",
    "timestamp": "datetime",
    "time32": "time",
    "time64": "time",
    "duration": "duration",
    "string": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The size and the SHA-256 of a file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the synthetic rows: its values where they are listed, its least and largest number where it has any.

    `missing` is what stands in the CSV file where a value is missing; None where none can be.
    """

    name: str
    title: str
    description: str
    unit: str | None
    family: Family
    values: tuple[str | int, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    least: float | str | None = None
    largest: float | str | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """A model, how many rows were drawn from it with which seed, who publishes it, and the large files."""

    model: Model
    rows: int
    seed: int
    publication: Publication
    contents: Mapping[str, Content]

    @property
    def schema(self) -> Schema:
        """What is publicly known of the table."""
        return self.model.schema

    @property
    def certificate(self) -> Certificate:
        """What was spent."""
        return self.model.certificate

    @property
    def title(self) -> str:
        """What people call the release."""
        return f"{shown_table(self.schema)}: differentially private synthetic data"

    @property
    def slug(self) -> str:
        """A name of small letters, digits and hyphens."""
        return re.sub("[^a-z0-9]+", "-", self.schema.name.lower()).strip("-") or "table"

    @property
    def epsilon(self) -> str:
        """Epsilon, as an upper bound."""
        return rounded_up(self.certificate.epsilon, 4)

    @property
    def delta(self) -> str:
        """Delta, as an upper bound."""
        return rounded_up(self.certificate.delta, 3)

    @property
    def size(self) -> str:
        """How many rows or people the release stands for, in words."""
        return f"{'' if self.certificate.public_rows is not None else 'about '}{self.model.n_rows:,}"

    @property
    def unit(self) -> str:
        """Whom the promise is about: what differs between neighbors, in words."""
        what = "the content" if self.certificate.neighbors == "replace-one" else "the presence"
        return f"{what} of any one {self.certificate.unit}"

    @property
    def description(self) -> str:
        """What this is, in a few sentences."""
        stated = "" if self.schema.words.description is None else f"{' '.join(self.schema.words.description.split())} "
        return (
            f"{stated}These {self.rows:,} records are invented. They follow the statistics of a confidential table of "
            f"{self.size} {'people' if self.certificate.count == 'people' else 'rows'} and "
            f"{self.schema.n_attributes:,} attributes. {self.promise}"
        )

    @property
    def promise(self) -> str:
        """The promise in one sentence."""
        stated = "Claimed by the caller, not checked by Sklar: " if self.certificate.claimed_by else ""
        return (
            f"{stated}{'d' if stated else 'D'}ifferential privacy with epsilon = {self.epsilon} and delta = "
            f"{self.delta} protects {self.unit} ({self.certificate.neighbors} neighbors)."
        )

    @property
    def sklar(self) -> str:
        """The Sklar that measured the tables."""
        number = self.certificate.versions.get("sklar")
        return "Sklar" if number is None else f"Sklar {number}"

    @property
    def citation(self) -> str:
        """How to cite the release."""
        by = self.publication.publisher or "(publisher)"
        year = "(year)" if self.publication.date is None else self.publication.date[:4]
        where = "" if self.publication.url is None else f" {self.publication.url}."
        return (
            f"{by} ({year}). {self.title}. Epsilon = {self.epsilon}, delta = {self.delta}, "
            f"{self.certificate.neighbors} neighbors. Made with {self.sklar}. Schema SHA-256 "
            f"{self.certificate.schema_sha256[:16]}.{where}"
        ).replace("((year))", "(year)")

    @property
    def errors(self) -> tuple[float, float | None]:
        """The typical standard errors of a one-way and of a two-way count."""
        return typical_errors(self.model)

    @property
    def together(self) -> str:
        """How many attributes were counted together at most, in words."""
        return together(self.certificate)

    @property
    def measured(self) -> tuple[str, ...]:
        """What was measured in each stage, in words."""
        told = []
        for (stage, what), group in groupby(self.certificate.measurements, key=lambda each: (each.stage, each.what)):
            each = list(group)
            scales = sorted({f"{entry.scale:.4g}" for entry in each}, key=float)
            between = scales[0] if len(scales) == 1 else f"{scales[0]} to {scales[-1]}"
            told.append(f"stage {stage}: {sum(entry.tables for entry in each):,} {what} at scale {between}")
        return tuple(told)

    def address(self, name: str) -> str:
        """Where a file stands: beside its description, or below the address that the publisher states."""
        return name if self.publication.url is None else f"{self.publication.url.rstrip('/')}/{name}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the synthetic rows."""
        if self.model.dummies:
            return tuple(
                Column(
                    name=name,
                    title=name,
                    description=f"1 where {name}, else 0",
                    unit=None,
                    family="integer",
                    values=(0, 1),
                )
                for name in self.schema.dummy_names
            )
        return tuple(_column(attribute) for attribute in self.schema.attributes)


def _column(attribute: Attribute) -> Column:
    """How an attribute is released."""
    output, words = output_of(attribute), attribute.words
    listed = output.name.endswith("category")
    name = plain_output(attribute).name if listed else output.name
    family = _FAMILIES.get(name, "integer")
    values: list[Any] = [*attribute.values] if attribute.kind == "categorical" else []
    if attribute.kind == "boolean" and family == "string":
        values = [*(attribute.texts or ("false", "true"))]
    if values:
        values += [*attribute.special, *(["other"] if attribute.other else [])]
        values = values if family == "integer" else [str(value) for value in values]
    ends: tuple[Any, Any] = (None, None)
    if family in ("integer", "number") and attribute.edges:
        # The last edge of whole numbers is in no bin.
        last = attribute.edges[-1] - (1 if attribute.kind in ("integer", "year") else 0)
        ends = min(attribute.edges[0], *attribute.apart, last), max(last, *attribute.apart, attribute.edges[0])
    labels = dict(words.labels)
    described = [words.description or "", f"Unit: {words.unit}." if words.unit else ""]
    if attribute.edges:
        bins = f"{attribute.n_bins:,} bin{'s' if attribute.n_bins > 1 else ''}"
        described.append(f"Counted in {bins}; values inside a bin are drawn, not measured.")
    return Column(
        name=attribute.name,
        title=shown_name(attribute),
        description=" ".join(" ".join(described).split()),
        unit=words.unit,
        family=family,
        values=tuple(values),
        labels=tuple((str(value), labels[str(value)]) for value in values if str(value) in labels),
        least=ends[0],
        largest=ends[1],
        missing=attribute.missing,
    )
