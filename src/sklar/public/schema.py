"""What is publicly known of each attribute: its type, its finite domain, what stands for missing. TOML in and out.

A schema is written from public knowledge, never from the rows: the domain it states is covered in full by every noised
table, so it must not depend on who is in the data. Level codes are the schema's order: listed values (or bins), then
`missing`, then `other`. Rules between attributes (`rules`) are public knowledge too.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import re
import sys
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from sklar.errors import SchemaError
from sklar.kernel.cells import Cells
from sklar.public.rules import (
    Allowed,
    Determined,
    Rule,
    allowed_pairs,
    describe_rule,
    forbidden_rules,
    parse_rules,
    sources,
)
from sklar.public.types import misfit, parse_output

Kind = Literal["categorical", "boolean", "integer", "real", "date", "datetime"]
Outside = Literal["clip", "missing"]
Domain = Literal["public", "private", "found"]
KINDS: tuple[str, ...] = get_args(Kind)
BINNED = ("integer", "real", "date", "datetime")
TRUE_TEXTS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_TEXTS = frozenset({"false", "f", "no", "n", "0"})

# All pairs of levels are held as one square array of counts: 20,000 levels are 3.2 GB.
MAX_LEVELS = 20_000

# Categories that are looked for where a domain is private and the schema does not say how many.
DEFAULT_AT_MOST = 50

_KEYS = {
    "categorical": {"values", "missing", "other", "domain", "at_most"},
    "boolean": {"missing"},
    **{kind: {"edges", "low", "high", "bins", "missing", "outside", "domain"} for kind in BINNED},
}
_DATE_EPOCH = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One column's public domain.

    `values` are the categories (text, or whole numbers); `edges` the bin edges of a number, as days since 1970 for a
    date and microseconds since 1970 (UTC) for a datetime. Bins include their lower edge; the last bin of a `real`
    includes its upper edge too. `output` is the released column's type, where it is not the kind's own (see `columns`).

    A `domain` is public knowledge unless the schema calls it private: then a release finds at most `at_most` categories
    or bins with part of its budget, and its model's schema lists them as `found`. Until then `edges` hold the two
    bounds, `values` nothing, and sizes are those of `at_most` levels.

    >>> age = Attribute(name="age", kind="integer", edges=(0, 18, 65, 66), missing="?")
    >>> age.levels
    ('[0, 18)', '[18, 65)', '65', '?')
    >>> age.n_levels, age.missing_code
    (4, 3)
    """

    name: str
    kind: Kind
    values: tuple[str, ...] | tuple[int, ...] = ()
    edges: tuple[int, ...] | tuple[float, ...] = ()
    missing: str | None = None
    other: bool = False
    outside: Outside = "clip"
    output: str | None = None
    reviewed: bool = True
    domain: Domain = "public"
    at_most: int = 0

    @property
    def n_values(self) -> int:
        """Levels before `missing` and `other`: categories, bins, or false and true."""
        if self.domain == "private":
            return self.at_most
        if self.kind == "boolean":
            return 2
        return len(self.values) if self.kind == "categorical" else len(self.edges) - 1

    @property
    def n_levels(self) -> int:
        """All levels, the size of this attribute's one-way table."""
        return self.n_values + (self.missing is not None) + self.other

    @property
    def missing_code(self) -> int | None:
        """The level that nulls, empty texts and the missing text take; None when not declared."""
        return None if self.missing is None else self.n_values

    @property
    def other_code(self) -> int | None:
        """The level that unlisted categories take; None when not declared."""
        return self.n_levels - 1 if self.other else None

    @property
    def levels(self) -> tuple[str, ...]:
        """A name for each level, unique within the attribute, in code order."""
        if self.domain == "private":
            named = [f"(to be found {number})" for number in range(1, self.at_most + 1)]
        elif self.kind == "boolean":
            named = ["false", "true"]
        elif self.kind == "categorical":
            named = [str(value) for value in self.values]
        else:
            named = [self._bin_name(low, high) for low, high in pairwise(self.edges)]
        if self.missing is not None:
            named.append(self.missing or "(missing)")
        if self.other:
            named.append("other")
        return tuple(named)

    def _bin_name(self, low: float, high: float) -> str:
        if self.kind == "integer" and high - low == 1:
            return str(low)
        return f"[{self.edge_text(low)}, {self.edge_text(high)})"

    def edge_text(self, edge: float) -> str:
        """An edge as a person writes it: a number or an ISO date."""
        if self.kind == "date":
            return (_DATE_EPOCH + dt.timedelta(days=int(edge))).isoformat()
        if self.kind == "datetime":
            return (_EPOCH + int(edge) * _MICROSECOND).isoformat()
        return str(edge)

    def level_code(self, where: str, value: object) -> int:
        """The code of the level that a rule names: by its name, as a category, or as a number or day that is a bin.

        >>> Attribute(name="age", kind="integer", edges=(0, 18, 65, 66)).level_code("rule 1", 65)
        2
        """
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, dt.date):
            text = value.isoformat()
        if text in self.levels:
            return self.levels.index(text)
        edge = parse_edge(text, self.kind) if self.kind in BINNED and not isinstance(value, bool) else None
        if edge is None or not self.edges[0] <= edge <= self.edges[-1]:
            shown = ", ".join(f"'{level}'" for level in self.levels[:12])
            more = " and others" if self.n_levels > 12 else ""
            raise SchemaError(f"{where}: '{self.name}' has no level {value!r}. Its levels are {shown}{more}.")
        code = min(bisect_right(self.edges, edge) - 1, self.n_values - 1)
        if self.kind not in ("integer", "date") or self.edges[code + 1] - self.edges[code] != 1:
            raise SchemaError(
                f"{where}: {value} lies within the bin {self.levels[code]} of '{self.name}', and rules are about whole "
                f"bins. Write '{self.levels[code]}', or give it a bin of its own."
            )
        return code

    def edge_index(self, where: str, value: object) -> int:
        """Which edge a rule's range begins or ends at."""
        if self.kind not in BINNED:
            raise SchemaError(f"{where}: '{self.name}' is {self.kind} and has no range. List its levels.")
        edge = _edge(f"{where}: '{self.name}'", self.kind, value)
        if edge not in self.edges:
            raise SchemaError(f"{where}: a range of '{self.name}' must begin and end at its edges, got {value!r}.")
        return self.edges.index(edge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The public description of a table: its name, its attributes, in the order of the release, and rules between them.

    `whole` is the schema that this one is the measured part of, where rules leave attributes out of the measurement.
    """

    name: str
    attributes: tuple[Attribute, ...]
    rules: tuple[Rule, ...] = ()
    whole: Schema | None = None

    @classmethod
    def of(cls, given: Schema | str | Path) -> Schema:
        """The schema that a caller gives, by value or as the path of its file."""
        return given if isinstance(given, Schema) else cls.load(given)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file (TOML)."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise SchemaError(f"schema file '{path}' does not exist. Check the path.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"schema file '{path}' cannot be read: {error}. It must be a UTF-8 text file.") from None
        return cls.from_toml(text)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Parse a schema from TOML text.

        >>> Schema.from_toml('[attributes.sex]\\ntype = "categorical"\\nvalues = ["F", "M"]').n_levels
        2
        """
        try:
            document = tomllib.loads(text)
        except ValueError as error:
            raise SchemaError(f"the schema is not valid TOML: {error}.") from None
        return cls.from_dict(document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """Build a schema from the parsed TOML, or from the same structure in JSON."""
        _known("schema", document, {"table", "attributes", "rules"})
        table, attributes = document.get("table", {}), document.get("attributes")
        if not isinstance(table, Mapping):
            raise SchemaError("[table] must be a table of settings. Write [table] and name = '...' below it.")
        _known("[table]", table, {"name"})
        name = table.get("name", "table")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"[table] name must be a text that is not empty, got {name!r}.")
        if not isinstance(attributes, Mapping) or not attributes:
            raise SchemaError("the schema lists no attributes. Add [attributes.NAME] for each column to release.")
        described = cls(
            name=name, attributes=tuple(_attribute(key, entry) for key, entry in attributes.items())
        ).checked()
        rules = document.get("rules", [])
        return replace(described, rules=parse_rules(rules, described.attributes)) if rules != [] else described

    def checked(self) -> Schema:
        """This schema, or an error when it is too large to be measured, or two dummies would share a name."""
        if self.n_levels > MAX_LEVELS:
            largest = max(self.attributes, key=lambda attribute: attribute.n_levels)
            raise SchemaError(
                f"the schema must have at most {MAX_LEVELS} levels in all, got {self.n_levels}; the largest attribute "
                f"is '{largest.name}' with {largest.n_levels}. Use wider bins, or list fewer values and other = true."
            )
        repeated = _repeated(self.dummy_names)
        if repeated is not None:
            raise SchemaError(
                f"dummy columns must differ in name, got '{repeated}' twice. Rename an attribute or a value."
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """The structure that `from_dict` reads."""
        document: dict[str, Any] = {
            "table": {"name": self.name},
            "attributes": {attribute.name: _entry(attribute) for attribute in self.attributes},
        }
        if self.rules:
            document["rules"] = [describe_rule(rule, self.attributes) for rule in self.rules]
        return document

    def to_toml(self) -> str:
        """The schema as TOML text, one line per key, as a person would write it."""
        parts = [f"[table]\nname = {_quoted(self.name)}\n"]
        for attribute in self.attributes:
            keys = "".join(f"{key} = {toml_value(value)}\n" for key, value in _entry(attribute).items())
            parts.append(f"[attributes.{toml_key(attribute.name)}]\n{keys}")
        for rule in self.rules:
            described = describe_rule(rule, self.attributes)
            keys = "".join(f"{key} = {toml_value(value)}\n" for key, value in described.items())
            parts.append(f"[[rules]]\n{keys}")
        return "\n".join(parts)

    @property
    def digest(self) -> str:
        """SHA-256 of the schema's content, rules and all, whatever its layout on disk; for a part, of the whole."""
        canonical = json.dumps((self.whole or self).to_dict(), separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """Attribute names, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def n_attributes(self) -> int:
        """m in the paper."""
        return len(self.attributes)

    @property
    def n_levels(self) -> int:
        """d in the paper: the number of dummy columns."""
        return sum(attribute.n_levels for attribute in self.attributes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Levels of each attribute, shape (m,)."""
        return np.array([attribute.n_levels for attribute in self.attributes], dtype=np.int64)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each attribute's levels begin among the d dummies, shape (m + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def cells(self) -> Cells:
        """Which cells the one-way and two-way tables of these attributes have."""
        return _cells(tuple(attribute.n_levels for attribute in self.attributes))

    @property
    def dummy_names(self) -> tuple[str, ...]:
        """Names of the d dummy columns, `attribute=level`."""
        return tuple(f"{attribute.name}={level}" for attribute in self.attributes for level in attribute.levels)

    def attribute(self, name: str) -> Attribute:
        """The attribute of that name."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SchemaError(f"the schema has no attribute '{name}'. It has: {', '.join(self.names)}.")

    @property
    def private_domains(self) -> tuple[Attribute, ...]:
        """Attributes whose categories or bins a release has to find."""
        return tuple(attribute for attribute in self.attributes if attribute.domain == "private")

    def require_found(self) -> None:
        """Refuse a schema with private domains where levels are needed."""
        if self.private_domains:
            names = ", ".join(attribute.name for attribute in self.private_domains)
            raise SchemaError(
                f"these domains are private and a release has yet to find them: {names}. Use the schema of its model: "
                "sklar schema import MODEL.sklar"
            )

    @property
    def allowed(self) -> Allowed:
        """Which pairs of levels may stand in one record, by the measured attributes i < j that rules speak of."""
        return allowed_pairs(self.attributes, self.rules)

    @property
    def determined(self) -> dict[str, str]:
        """Attributes that a rule determines, and by which others."""
        return {rule.attribute: rule.by for rule in self.rules if isinstance(rule, Determined)}

    @property
    def measured(self) -> Schema:
        """The part that is measured: without the attributes that others determine, whose rules pass to those others."""
        left_out = self.determined
        if not left_out:
            return self
        attributes = tuple(attribute for attribute in self.attributes if attribute.name not in left_out)
        place = self._places
        allowed = {(place[i], place[j]): free for (i, j), free in self.allowed.items()}
        return replace(self, attributes=attributes, rules=forbidden_rules(attributes, allowed), whole=self)

    @property
    def sources(self) -> list[tuple[int, NDArray[np.int64]]]:
        """For each attribute: the place in `measured` of the one that decides its level, and its level for each."""
        place = self._places
        return [(place[source.attribute], source.levels) for source in sources(self.attributes, self.rules)]

    @property
    def _places(self) -> dict[int, int]:
        """Where in `measured` each measured attribute stands."""
        left_out = self.determined
        kept = (i for i, attribute in enumerate(self.attributes) if attribute.name not in left_out)
        return {i: place for place, i in enumerate(kept)}

    def complete(self, codes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """Codes of all attributes, shape (m, rows), from those of the measured ones. Code -1 stays."""
        if not self.determined:
            return codes
        return np.stack([np.append(levels, -1).astype(np.int32)[codes[source]] for source, levels in self.sources])

    def require_reviewed(self) -> None:
        """Refuse entries that a draft read from the rows and nobody has replaced by public knowledge."""
        waiting = [attribute.name for attribute in self.attributes if not attribute.reviewed]
        if waiting:
            raise SchemaError(
                f"these entries were read from the rows and are not reviewed: {', '.join(waiting)}. A domain read from "
                "the rows tells who is in them, which no noise repairs. Check each against public knowledge (a code "
                "book, a legal limit), correct it, and remove its line reviewed = false; or have a release find it "
                "within its budget, with domain = 'private' in place of its values or edges."
            )

    def reviewed(self) -> Schema:
        """The same schema with every entry marked reviewed."""
        return replace(self, attributes=tuple(replace(attribute, reviewed=True) for attribute in self.attributes))


@lru_cache(maxsize=64)
def _cells(sizes: tuple[int, ...]) -> Cells:
    return Cells(sizes)


def days(value: dt.date) -> int:
    """Days from 1970-01-01."""
    return (value - _DATE_EPOCH).days


def microseconds(value: dt.datetime) -> int:
    """Microseconds from 1970-01-01 UTC; a time without a zone is taken as UTC."""
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _MICROSECOND


def parse_edge(text: str, kind: str) -> int | float | None:
    """The number, or the day or microsecond since 1970, that a text stands for on the axis of this kind, else None."""
    text = text.strip()
    if kind in ("integer", "real"):
        lowered = text.lower()
        if lowered in ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"):
            return float(lowered)
        return parse_number(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return days(moment.date()) if kind == "date" else microseconds(moment)
    except OverflowError:
        return None


def parse_number(text: str) -> int | float | None:
    """The finite number that a text stands for, else None."""
    # Python reads 1_000 as a number; no data file means that.
    if "_" in text or len(text) > 400:
        return None
    for parse in (int, float):
        try:
            number: int | float = parse(text)
        except ValueError:
            continue
        return number if parse is int or math.isfinite(number) else None
    return None


def _known(where: str, entry: Mapping[str, Any], keys: Iterable[str]) -> None:
    unknown = sorted(set(entry) - set(keys))
    if unknown:
        raise SchemaError(f"{where}: unknown key '{unknown[0]}'. Known keys are {', '.join(sorted(keys))}.")


def _attribute(name: str, entry: object) -> Attribute:
    where = f"attribute '{name}'"
    if not name:
        raise SchemaError("an attribute's name must not be empty. Give [attributes.NAME] the name of its column.")
    if not isinstance(entry, Mapping):
        raise SchemaError(f"{where}: must be a table, got {entry!r}. Write [attributes.{name}] and its keys below it.")
    kind = entry.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SchemaError(f"{where}: type must be one of {', '.join(KINDS)}, got {kind!r}.")
    _known(where, entry, _KEYS[kind] | {"type", "output", "reviewed"})
    missing, other = entry.get("missing"), _flag(where, entry, "other", default=False)
    if missing is not None and not isinstance(missing, str):
        raise SchemaError(f"{where}: missing must be the text that stands for a missing value, got {missing!r}.")
    outside = entry.get("outside", "clip")
    if outside not in get_args(Outside):
        raise SchemaError(f"{where}: outside must be 'clip' or 'missing', got {outside!r}.")
    if outside == "missing" and missing is None:
        raise SchemaError(f"{where}: outside = 'missing' needs a missing level. Add missing = '' or another text.")
    domain, at_most = _domain(where, kind, entry)
    if domain == "private":
        # What is not found, or lies beyond at_most, must have a place.
        other = kind == "categorical"
    elif kind == "categorical" and domain == "found" and not other:
        raise SchemaError(f"{where}: a domain that was found needs other = true. Add it.")
    attribute = Attribute(
        name=name,
        kind=cast(Kind, kind),
        values=_values(where, entry, domain) if kind == "categorical" else (),
        edges=_bounds(where, kind, entry) if domain == "private" else _edges(where, kind, entry),
        missing=missing,
        other=other,
        outside=cast(Outside, outside),
        output=entry.get("output"),
        reviewed=_flag(where, entry, "reviewed", default=True),
        domain=domain,
        at_most=at_most,
    )
    repeated = _repeated(attribute.levels)
    if repeated is not None:
        raise SchemaError(f"{where}: levels must differ, got '{repeated}' twice. Remove or rename one.")
    _check_missing(where, attribute)
    return attribute if attribute.output is None else replace(attribute, output=_output(where, attribute))


def _output(where: str, attribute: Attribute) -> str:
    """The output as this file writes it, when it is a type that holds every value of the domain."""
    output = parse_output(attribute.output) if isinstance(attribute.output, str) else None
    if output is None:
        raise SchemaError(
            f"{where}: output must be a column type such as 'int32', 'decimal(10, 2)', 'timestamp[us, tz=UTC]', "
            f"'string' or 'category', got {attribute.output!r}."
        )
    reason = misfit(output, attribute.kind, attribute.values, attribute.edges, other=attribute.other)
    if reason is not None:
        raise SchemaError(f"{where}: output '{output}' {reason}.")
    return str(output)


def _check_missing(where: str, attribute: Attribute) -> None:
    """Refuse a missing text that a released value could read as, or that listed values hide."""
    missing = attribute.missing
    if missing is None:
        return
    if attribute.kind == "categorical" and "" in attribute.values:
        raise SchemaError(f"{where}: values must not list '' beside missing, which takes empty texts. Remove one.")
    if attribute.kind == "boolean" and missing.strip().lower() in TRUE_TEXTS | FALSE_TEXTS:
        raise SchemaError(f"{where}: missing must not be a text for true or false, got '{missing}'. Use another text.")
    edge = parse_edge(missing, attribute.kind) if attribute.kind in BINNED else None
    if edge is not None and attribute.edges[0] <= edge <= attribute.edges[-1]:
        raise SchemaError(f"{where}: missing must not lie within the edges, got '{missing}'. Move the edges past it.")


def _flag(where: str, entry: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise SchemaError(f"{where}: {key} must be true or false, got {value!r}.")
    return value


def _repeated(texts: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            return text
        seen.add(text)
    return None


def _domain(where: str, kind: str, entry: Mapping[str, Any]) -> tuple[Domain, int]:
    """Whether the domain is public, and how many categories or bins a release looks for where it is private."""
    domain = entry.get("domain", "public")
    if domain not in get_args(Domain):
        raise SchemaError(f"{where}: domain must be one of {', '.join(get_args(Domain))}, got {domain!r}.")
    if domain != "private":
        if "at_most" in entry:
            raise SchemaError(f'{where}: at_most goes with domain = "private". Remove one, or add the other.')
        return domain, 0
    given = {"values", "other", "edges"} & set(entry)
    if given:
        raise SchemaError(
            f'{where}: domain = "private" is found by a release, so it takes no {sorted(given)[0]}. Remove one of them.'
        )
    key = "at_most" if kind == "categorical" else "bins"
    at_most = entry.get(key, DEFAULT_AT_MOST if kind == "categorical" else None)
    if type(at_most) is not int or not 1 <= at_most <= MAX_LEVELS:
        raise SchemaError(f"{where}: {key} must be a whole number from 1 to {MAX_LEVELS}, got {at_most!r}.")
    return domain, at_most


def _bounds(where: str, kind: str, entry: Mapping[str, Any]) -> tuple[int, ...] | tuple[float, ...]:
    """The two bounds between which edges are to be found."""
    if kind == "categorical":
        return ()
    if not {"low", "high"} <= set(entry):
        raise SchemaError(f'{where}: domain = "private" needs low, high and bins: wide bounds from public knowledge.')
    return _edges(where, kind, {**entry, "bins": 1})


def _values(where: str, entry: Mapping[str, Any], domain: Domain) -> tuple[str, ...] | tuple[int, ...]:
    values = entry.get("values")
    if domain == "private" or (domain == "found" and values == []):
        # Nothing may be common enough to be found.
        return ()
    if not isinstance(values, list) or not values:
        raise SchemaError(f"{where}: values must list the categories, got {values!r}. Write values = ['a', 'b'].")
    kind = type(values[0]) if type(values[0]) in (str, int) else str
    odd = [value for value in values if type(value) is not kind]
    if odd:
        raise SchemaError(f"{where}: values must be all texts or all whole numbers, got {odd[0]!r}. Quote it.")
    if kind is int:
        large = [value for value in values if not -(2**63) <= value < 2**63]
        if large:
            raise SchemaError(f"{where}: whole numbers must fit in 64 bits, got {large[0]}. Quote all values.")
    return tuple(values)


def _edges(where: str, kind: str, entry: Mapping[str, Any]) -> tuple[int, ...] | tuple[float, ...]:
    if kind not in BINNED:
        return ()
    spaced = {"low", "high", "bins"} & set(entry)
    if "edges" in entry and spaced:
        raise SchemaError(f"{where}: give either edges or low, high and bins, not both. Remove {sorted(spaced)[0]}.")
    if "edges" in entry:
        raw = entry["edges"]
        if not isinstance(raw, list) or len(raw) < 2:
            raise SchemaError(f"{where}: edges must list at least two numbers or dates, got {raw!r}.")
        edges = [_edge(where, kind, edge) for edge in raw]
    elif len(spaced) == 3:
        first, last, bins = _edge(where, kind, entry["low"]), _edge(where, kind, entry["high"]), entry["bins"]
        if type(bins) is not int or not 1 <= bins <= MAX_LEVELS:
            raise SchemaError(f"{where}: bins must be a whole number from 1 to {MAX_LEVELS}, got {bins!r}.")
        if not first < last:
            raise SchemaError(f"{where}: low must be below high, got {entry['low']} and {entry['high']}.")
        if kind != "real" and last - first < bins:
            raise SchemaError(f"{where}: {bins} bins do not fit between {entry['low']} and {entry['high']}. Use fewer.")
        # Exact: floats would miss `high`, overflow, or put microseconds beside full seconds.
        width = (Fraction(last) - Fraction(first)) / bins
        steps = [Fraction(first) + width * step for step in range(bins + 1)]
        edges = [float(step) if kind == "real" else round(step) for step in steps]
    else:
        raise SchemaError(f"{where}: needs edges = [...], or low, high and bins. Add them from public knowledge.")
    for before, after in pairwise(edges):
        if not before < after:
            text = Attribute(name="", kind=cast(Kind, kind)).edge_text
            raise SchemaError(f"{where}: edges must increase, got {text(after)} after {text(before)}. Remove one.")
    return tuple(edges)


def _edge(where: str, kind: str, edge: object) -> int | float:
    if kind in ("integer", "real"):
        # Python's whole numbers have no end; floats do.
        finite = isinstance(edge, int | float) and not isinstance(edge, bool) and abs(edge) <= sys.float_info.max
        if not finite:
            raise SchemaError(f"{where}: edges must be finite numbers, got {edge!r}.")
        edge = cast(float, edge)
        if kind == "real":
            return float(edge)
        if edge != int(edge) or abs(edge) >= 2**63:
            raise SchemaError(f"{where}: edges of an integer must be whole and below 2**63, got {edge!r}. Use real.")
        return int(edge)
    try:
        if isinstance(edge, str):
            edge = dt.datetime.fromisoformat(edge)
        if kind == "datetime":
            if isinstance(edge, dt.date) and not isinstance(edge, dt.datetime):
                edge = dt.datetime(edge.year, edge.month, edge.day)
            return microseconds(cast(dt.datetime, edge))
        if isinstance(edge, dt.datetime):
            if edge.time() != dt.time(0):
                raise ValueError
            edge = edge.date()
        return days(cast(dt.date, edge))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise SchemaError(f"{where}: edges of a {kind} must be ISO texts such as '1990-01-31', got {edge!r}.") from None


def _quoted(text: str) -> str:
    # A JSON string is a TOML string, but for one control character that TOML wants escaped too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def toml_key(name: str) -> str:
    """A name as a TOML key: bare where that is allowed."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _quoted(name)


def toml_value(value: object) -> str:
    """A text, number, truth, list or table as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _entry(attribute: Attribute) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": attribute.kind}
    if attribute.domain != "public":
        entry["domain"] = attribute.domain
    if attribute.domain == "private":
        if attribute.kind == "categorical":
            entry["at_most"] = attribute.at_most
        else:
            low, high = attribute.edges
            dated = attribute.kind in ("date", "datetime")
            entry["low"], entry["high"] = map(attribute.edge_text, (low, high)) if dated else (low, high)
            entry["bins"] = attribute.at_most
    elif attribute.kind == "categorical":
        entry["values"] = list(attribute.values)
    elif attribute.kind in ("date", "datetime"):
        entry["edges"] = [attribute.edge_text(edge) for edge in attribute.edges]
    elif attribute.kind in BINNED:
        entry["edges"] = list(attribute.edges)
    if attribute.missing is not None:
        entry["missing"] = attribute.missing
    if attribute.other and attribute.domain != "private":
        entry["other"] = True
    if attribute.outside != "clip":
        entry["outside"] = attribute.outside
    if attribute.output is not None:
        entry["output"] = attribute.output
    if not attribute.reviewed:
        entry["reviewed"] = False
    return entry
