"""What is publicly known of a table: each attribute's type, its finite domain, and the rules between attributes.

A schema is written from public knowledge, never from the rows: every noised table covers the domain that the schema
states in full, so the domain must not depend on who is in the data. Levels have codes in the schema's order: listed
values (or bins and points along the axis), then special values, then `missing`, then `other`. `toml` reads and writes
schema files, `rules` explains rules.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from sklar.errors import SchemaError
from sklar.kernel.cells import Cells
from sklar.public.axis import edge_text, parse_edge
from sklar.public.person import Person
from sklar.public.reading import PLAIN, Reading
from sklar.public.rules import Determined, Rule, allowed_pairs, forbidden_rules, origins
from sklar.public.solve import Allowed

AttributeKind = Literal[
    "categorical", "boolean", "integer", "real", "date", "datetime", "time", "duration", "year", "yearmonth"
]
Outside = Literal["clip", "missing"]
Domain = Literal["public", "private", "found"]
Provenance = Literal["public", "rows"]
BINNED = ("integer", "real", "date", "datetime", "time", "duration", "year", "yearmonth")
TRUE_TEXTS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_TEXTS = frozenset({"false", "f", "no", "n", "0"})

# Two-way tables of all levels have half their square of cells, each of which takes a few times four bytes of memory or
# of disk; `python -m benchmarks.levels` measures how much.
MAX_LEVELS = 40_000
MAX_ATTRIBUTES = 10_000
# A single two-way table is worked on as a whole.
MAX_TABLE = 100_000_000

_Number = TypeVar("_Number", bound=np.generic)


class _Remembering:
    """Room for `cached_property` beside a dataclass's slots.

    What is remembered is no field: equality, hashes, copies and pickles see the fields alone.
    """

    __slots__ = ("__dict__",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(_Remembering):
    """One column's public domain.

    `values` are the categories (text, or whole numbers); `edges` are the bin edges of a number, in days since 1970 for
    a date, in microseconds since 1970 (UTC) for a datetime, and so on (see `axis`). Bins include their lower edge; the
    last bin of a `real` includes its upper edge too. `output` is the type of the released column, where it is not the
    kind's own (see `types`).

    `points` are numbers on the axis that are levels of their own: no bin holds them. A point stands directly before the
    bin that it begins, else directly after the bin that contains it. `special` are texts or numbers that mean something
    else than a value (not applicable, refused), each a level of its own, wherever it lies on the axis.

    `step` is the grain of numbers: those drawn inside a bin are multiples of it (in seconds for what is timed). `texts`
    are those of false and true, `format` is that of dates and times, in the letters of strptime: texts are read and
    written by it. The categories of an `ordered` attribute are in their order.

    A `domain` is public knowledge unless the schema calls it private. A release finds at most `at_most` categories or
    bins of a private domain with part of its budget, and the schema of its model lists them as `found`. Until then
    `edges` hold the two bounds, `values` are empty, and sizes are those of `at_most` levels.

    `provenance` is what a person who reviewed the entry said of what it states: public knowledge, or read from the rows
    at the custodian's risk. None says that nobody was asked: then it counts as public knowledge.

    >>> age = Attribute(name="age", kind="integer", edges=(0, 18, 65, 66), missing="?")
    >>> age.levels
    ('[0, 18)', '[18, 65)', '65', '?')
    >>> age.n_levels, age.missing_code
    (4, 3)
    >>> hours = Attribute(name="hours", kind="integer", edges=(0, 40, 60), points=(0, 50), special=("N",))
    >>> hours.levels, hours.bin_codes.tolist(), hours.point_codes.tolist()
    (('0', '(0, 40)', '[40, 60)', '50', 'N'), [1, 2], [0, 3])
    """

    name: str
    kind: AttributeKind
    values: tuple[str, ...] | tuple[int, ...] = ()
    edges: tuple[int, ...] | tuple[float, ...] = ()
    missing: str | None = None
    other: bool = False
    outside: Outside = "clip"
    output: str | None = None
    reviewed: bool = True
    domain: Domain = "public"
    at_most: int = 0
    provenance: Provenance | None = None
    points: tuple[int, ...] | tuple[float, ...] = ()
    special: tuple[str | int | float, ...] = ()
    step: int | float | None = None
    texts: tuple[str, str] | tuple[()] = ()
    format: str | None = None
    ordered: bool = False

    @property
    def n_values(self) -> int:
        """The number of levels before `special`: categories, bins with points, or false and true."""
        if self.kind == "boolean":
            return 2
        if self.kind == "categorical":
            return self.at_most if self.domain == "private" else len(self.values)
        return self.n_bins + len(self.points)

    @property
    def n_bins(self) -> int:
        """The number of bins of a number, without its points; 0 for categories and booleans."""
        if self.kind not in BINNED:
            return 0
        return self.at_most if self.domain == "private" else len(self.edges) - 1

    @cached_property
    def n_levels(self) -> int:
        """The number of all levels, which is the size of this attribute's one-way table."""
        return self.n_values + len(self.special) + (self.missing is not None) + self.other

    @cached_property
    def bin_codes(self) -> NDArray[np.int64]:
        """The code of each bin, shape (bins,), read-only."""
        before = [bisect_right(self.points, edge) for edge in self.edges[:-1]]
        return _read_only(np.arange(len(before)) + np.array(before, dtype=np.int64))

    @cached_property
    def point_codes(self) -> NDArray[np.int64]:
        """The code of each point, shape (points,), read-only."""
        before = [bisect_left(self.edges, point) for point in self.points]
        return _read_only(np.arange(len(before)) + np.array(before, dtype=np.int64))

    @property
    def special_codes(self) -> range:
        """The code of each special value."""
        return range(self.n_values, self.n_values + len(self.special))

    @cached_property
    def special_numbers(self) -> tuple[int | float | None, ...]:
        """Each special value as a number on the attribute's axis; None for those that are none, and without an axis."""
        return tuple(self.number_of(str(value)) for value in self.special)

    @cached_property
    def apart(self) -> tuple[int | float, ...]:
        """The numbers on the axis that no bin holds, ascending: points and special numbers."""
        return tuple(sorted({*self.points, *(number for number in self.special_numbers if number is not None)}))

    @property
    def missing_code(self) -> int | None:
        """The level of nulls, empty texts and the missing text; None when the schema declares none."""
        return None if self.missing is None else self.n_values + len(self.special)

    @property
    def other_code(self) -> int | None:
        """The level of categories that are not listed; None when the schema declares none."""
        return self.n_levels - 1 if self.other else None

    @property
    def known_from(self) -> Literal["public", "found", "rows"]:
        """Where the levels come from: public knowledge, noisy counts (found, or to be found), or the rows."""
        return "found" if self.domain != "public" else self.provenance or "public"

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """A name for each level, unique within the attribute, in code order."""
        if self.domain == "private":
            named = [f"(to be found {number})" for number in range(1, self.n_values + 1)]
        elif self.kind == "boolean":
            named = list(self.texts or ("false", "true"))
        elif self.kind == "categorical":
            named = [str(value) for value in self.values]
        else:
            named = [""] * self.n_values
            for code, (low, high) in zip(self.bin_codes.tolist(), pairwise(self.edges), strict=True):
                named[code] = self._bin_name(low, high)
            for code, point in zip(self.point_codes.tolist(), self.points, strict=True):
                named[code] = self.edge_text(point)
        named += [str(value) for value in self.special]
        if self.missing is not None:
            named.append(self.missing or "(missing)")
        if self.other:
            named.append("other")
        return tuple(named)

    def _bin_name(self, low: float, high: float) -> str:
        if self.kind in ("integer", "year", "yearmonth") and high - low == 1:
            return self.edge_text(low)
        return f"{'(' if low in self.points else '['}{self.edge_text(low)}, {self.edge_text(high)})"

    def edge_text(self, edge: float) -> str:
        """An edge as a person writes it: a number or an ISO date."""
        return edge_text(self.kind, edge)

    def number_of(self, text: str) -> int | float | None:
        """The number on the attribute's axis that a text in a schema or a question stands for, else None."""
        if self.kind not in BINNED:
            return None
        number = parse_edge(text, self.kind, self.format)
        return parse_edge(text, self.kind) if number is None else number

    def truth_of(self, text: str) -> int | None:
        """The code of the truth value that a text stands for, else None.

        With `texts` of its own, an attribute reads these, true and false, and nothing else: 1 may be no and 2 yes.
        """
        text = text.strip()
        if self.texts:
            return self.texts.index(text) if text in self.texts else {"false": 0, "true": 1}.get(text.lower())
        return 1 if text.lower() in TRUE_TEXTS else 0 if text.lower() in FALSE_TEXTS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema(_Remembering):
    """The public description of a table: its name, its attributes in the order of the release, and rules between them.

    Rules may leave attributes out of the measurement. The schema of the measured part then names the full one as its
    `whole`. `reading` says how the table's text is written, `person` which rows are one person's (None: each row is a
    person of its own).
    """

    name: str
    attributes: tuple[Attribute, ...]
    rules: tuple[Rule, ...] = ()
    reading: Reading = PLAIN
    person: Person | None = None
    whole: Schema | None = None

    # `toml` builds the types of this module, so it is imported when it is called.

    @classmethod
    def of(cls, given: Schema | str | Path) -> Schema:
        """The schema that a caller gives, by value or as the path of its file."""
        return given if isinstance(given, Schema) else cls.load(given)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file (TOML)."""
        from sklar.public.toml import load_schema

        return load_schema(path)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Parse a schema from TOML text.

        >>> Schema.from_toml('[attributes.sex]\\ntype = "categorical"\\nvalues = ["F", "M"]').n_levels
        2
        """
        from sklar.public.toml import parse_schema

        return parse_schema(text)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """Build a schema from the parsed TOML, or from the same structure in JSON."""
        from sklar.public.toml import build_schema

        return build_schema(document)

    def to_dict(self) -> dict[str, Any]:
        """The structure that `from_dict` reads."""
        from sklar.public.toml import describe_schema

        return describe_schema(self)

    def to_toml(self) -> str:
        """The schema as TOML text, one line per key, as a person would write it."""
        from sklar.public.toml import write_schema

        return write_schema(self)

    def checked(self) -> Schema:
        """This schema, or an error when it is too large to be measured, or two dummies would share a name."""
        if self.n_levels > MAX_LEVELS:
            largest = max(self.attributes, key=lambda attribute: attribute.n_levels)
            raise SchemaError(
                f"the schema must have at most {MAX_LEVELS} levels in all, got {self.n_levels}; the largest attribute "
                f"is '{largest.name}' with {largest.n_levels}. Use wider bins, or list fewer values and other = true."
            )
        if self.n_attributes > MAX_ATTRIBUTES:
            raise SchemaError(
                f"the schema must have at most {MAX_ATTRIBUTES} attributes, got {self.n_attributes}. Leave out those "
                "that nobody asks for, or release groups of them by themselves, each at its own cost."
            )
        first, second = sorted([0, 0, *(attribute.n_levels for attribute in self.attributes)])[-2:]
        if first * second > MAX_TABLE:
            raise SchemaError(
                f"two attributes must have at most {MAX_TABLE} pairs of levels, got {first} and {second} levels. "
                "Use wider bins, or list fewer values and other = true."
            )
        twice = repeated(self.dummy_names)
        if twice is not None:
            raise SchemaError(
                f"dummy columns must differ in name, got '{twice}' twice. Rename an attribute or a value."
            )
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content with its rules, whatever the layout on disk. A part has the digest of its whole."""
        canonical = json.dumps((self.whole or self).to_dict(), separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Attribute names, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def n_attributes(self) -> int:
        """m in the paper."""
        return len(self.attributes)

    @cached_property
    def cells(self) -> Cells:
        """Which cells the one-way and two-way tables of these attributes have."""
        return Cells([attribute.n_levels for attribute in self.attributes])

    @property
    def n_levels(self) -> int:
        """d in the paper: the number of dummy columns."""
        return self.cells.n_levels

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of levels of each attribute, shape (m,), read-only."""
        return self.cells.sizes

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each attribute's levels begin among the d dummies, shape (m + 1,), read-only."""
        return self.cells.offsets

    @cached_property
    def dummy_names(self) -> tuple[str, ...]:
        """Names of the d dummy columns, `attribute=level`."""
        return tuple(f"{attribute.name}={level}" for attribute in self.attributes for level in attribute.levels)

    def attribute(self, name: str) -> Attribute:
        """The attribute of that name."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SchemaError(f"the schema has no attribute '{name}'. It has: {', '.join(self.names)}.")

    @cached_property
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

    @cached_property
    def allowed(self) -> Allowed:
        """Which pairs of levels one record may have, for each pair i < j of measured attributes in the rules."""
        pairs = allowed_pairs(self.attributes, self.rules)
        return MappingProxyType({pair: _read_only(free) for pair, free in pairs.items()})

    @cached_property
    def determined(self) -> Mapping[str, str]:
        """The attributes that rules determine, each with the attribute that determines it."""
        return MappingProxyType({rule.attribute: rule.by for rule in self.rules if isinstance(rule, Determined)})

    @property
    def measured(self) -> Schema:
        """The part that is measured: the attributes that no rule determines, with the rules that apply to them."""
        return self._measured if self.determined else self

    @cached_property
    def _measured(self) -> Schema:
        attributes = tuple(attribute for attribute in self.attributes if attribute.name not in self.determined)
        place = self._places
        allowed = {(place[i], place[j]): free for (i, j), free in self.allowed.items()}
        return replace(self, attributes=attributes, rules=forbidden_rules(attributes, allowed), whole=self)

    @cached_property
    def sources(self) -> tuple[tuple[int, NDArray[np.int64]], ...]:
        """For each attribute, the measured attribute that decides its level, and how it does.

        The first is its place in `measured`; the second gives, for each of its levels, the level here (read-only).
        """
        found = origins(self.attributes, self.rules)
        return tuple((self._places[origin.attribute], _read_only(origin.levels)) for origin in found)

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """The place in `measured` of each attribute that is measured."""
        kept = (i for i, attribute in enumerate(self.attributes) if attribute.name not in self.determined)
        return {i: place for place, i in enumerate(kept)}

    def complete(self, codes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """Codes of all attributes, shape (m, rows), from the codes of the measured ones. Code -1 stays -1."""
        if not self.determined:
            return codes
        return np.stack([np.append(levels, -1).astype(np.int32)[codes[source]] for source, levels in self.sources])

    @property
    def read_from_rows(self) -> tuple[str, ...]:
        """Attributes whose domain was read from the rows, at the custodian's risk: the promise does not cover them."""
        return tuple(attribute.name for attribute in self.attributes if attribute.provenance == "rows")

    @property
    def not_reviewed(self) -> tuple[str, ...]:
        """Attributes that nobody has reviewed."""
        return tuple(attribute.name for attribute in self.attributes if not attribute.reviewed)

    def require_reviewed(self) -> None:
        """Refuse entries that a draft proposed and nobody has reviewed."""
        if self.not_reviewed:
            raise SchemaError(
                f"these entries are not reviewed: {', '.join(self.not_reviewed)}. A domain read from the rows tells "
                "who is in them, which no noise repairs. Answer the questions of sklar schema review S.toml; or "
                "compare each entry with public knowledge (a code book, a legal limit), correct it, and remove its "
                "line reviewed = false."
            )

    def reviewed(self, provenance: Provenance | Mapping[str, Provenance] | None = None) -> Schema:
        """The same schema with every entry marked reviewed, by whoever says where its waiting entries come from.

        `provenance` is "public" (public knowledge, also for the bounds of a domain that a release finds) or "rows"
        (read from the rows, at the custodian's risk), for all waiting entries or for each by its name.

        >>> waiting = Schema.from_toml('[attributes.smoker]\\ntype = "boolean"\\nreviewed = false')
        >>> waiting.reviewed("public").attributes[0].provenance
        'public'
        """
        given = dict.fromkeys(self.not_reviewed, provenance) if isinstance(provenance, str) else provenance or {}
        unsaid = [name for name in self.not_reviewed if given.get(name) is None]
        if unsaid:
            raise SchemaError(
                f"reviewed must say where these entries come from: {', '.join(unsaid)}. Give 'public' (public "
                "knowledge) or 'rows' (read from the rows, at your risk), for all of them or for each by its name."
            )
        for name, word in given.items():
            if word not in get_args(Provenance):
                raise SchemaError(f"provenance of '{name}' must be 'public' or 'rows', got {word!r}.")
            self.attribute(name)
        attributes = (
            replace(each, reviewed=True, provenance=given.get(each.name, each.provenance)) for each in self.attributes
        )
        return replace(self, attributes=tuple(attributes))


def repeated(texts: Iterable[str]) -> str | None:
    """The first text that occurs a second time, or None when all differ."""
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            return text
        seen.add(text)
    return None


def _read_only(array: NDArray[_Number]) -> NDArray[_Number]:
    """The array, which nobody can change any more: it is computed once and handed to everyone."""
    array.setflags(write=False)
    return array
