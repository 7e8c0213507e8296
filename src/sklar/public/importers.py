"""Descriptions of tables that exist already (SDV, SmartNoise, Frictionless, Arrow), as schemas to complete. More:
docs/derivations.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from sklar.errors import SchemaError
from sklar.machine.extras import require
from sklar.machine.wording import failing, said, stated
from sklar.public import arrow
from sklar.public.attribute import Attribute, refuse, within
from sklar.public.axis import AXES, DAY, SECOND, AttributeKind
from sklar.public.declare import parse_format, parse_words
from sklar.public.description import toml_key, toml_table
from sklar.public.outputs import WHOLE, plain_output
from sklar.public.schema import Schema

FORMATS = ("arrow", "frictionless", "sdv", "smartnoise")
IDENTIFIER = "it identifies a row or a person"
_BINS, _MOST_UNIT_BINS = 20, 50
# The words of other tools, and ours for them.
_THEIRS = stated("sklar.public", "importers.toml")
_TRANSFORMED, _METADATA = _THEIRS["transformed"], _THEIRS["metadata"]
_KINDS = {kind: kind for kind in AXES if kind not in ("categorical", "real")} | _THEIRS["kinds"]
_BOUNDS = ("lower", "upper")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEntry:
    """A schema's entry for one attribute, as far as a description goes: the known keys, and notes for a person."""

    keys: dict[str, Any]
    notes: Sequence[str] = ()

    @property
    def is_open(self) -> bool:
        """Whether the domain is not known yet."""
        return self.keys["type"] != "boolean" and not {"values", "edges", "bins"} & set(self.keys)

    def to_toml(self, name: str) -> str:
        """The entry in TOML. An unknown domain is written empty, with `reviewed = false`: a release refuses it."""
        keys, notes = dict(self.keys), list(self.notes)
        if self.is_open:
            categorical = keys["type"] == "categorical"
            keys |= {"values" if categorical else "edges": [], "reviewed": False}
            notes.append(f"To do: {'list the values' if categorical else 'state edges, or low, high and bins'}.")
        else:
            # A description that contradicts itself is refused here, by the attribute's name.
            Schema.from_dict({"attributes": {name: keys}})
        heading = [f"[attributes.{toml_key(name)}]", *(f"# {_printable(note)}" for note in notes)]
        return toml_table("\n".join(heading), keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a description implies: an entry of each column, or why it has none; `nulls` and `words` of the table."""

    name: str
    source: str
    columns: Mapping[str, ColumnEntry | str]
    nulls: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> dict[str, ColumnEntry]:
        """The attributes."""
        return {name: each for name, each in self.columns.items() if isinstance(each, ColumnEntry)}

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that become no attribute, each with the reason."""
        return {name: each for name, each in self.columns.items() if isinstance(each, str)}

    @property
    def open(self) -> tuple[str, ...]:
        """Attributes whose domain is not known yet."""
        return tuple(name for name, entry in self.entries.items() if entry.is_open)

    def to_toml(self) -> str:
        """The schema as a file to complete."""
        if not self.entries:
            raise SchemaError(f"the imported file ({self.source}) describes no column to release. Write a schema.")
        left_out = [f"# Left out: {_printable(name)}: {reason}" for name, reason in self.left_out.items()]
        lines = [said("public.imported", source=self.source), *left_out]
        table = {"name": self.name, **self.words} | ({"nulls": list(self.nulls)} if self.nulls else {})
        tables = [entry.to_toml(name) for name, entry in self.entries.items()]
        return "\n".join(["\n".join(lines) + "\n", toml_table("[table]", table), *tables])


def import_schema(path: str | Path, *, format: str | None = None) -> Imported:  # noqa: A002
    """The schema that a description implies, as far as it goes. The format is recognized unless it is given."""
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise SchemaError(f"format must be one of {', '.join(FORMATS)}, got '{format}'.")
    if not path.is_file():
        raise SchemaError(f"file '{path}' does not exist. Check the path.")
    name, suffix = path.name.split(".")[0] or "table", path.suffix.lower()
    if format == "arrow" or (format is None and suffix in arrow.SUFFIXES):
        import polars as pl

        with failing(SchemaError, said("public.no_arrow", path=path), (Exception, pl.exceptions.PanicException)):
            return from_arrow(arrow.file_schema(path), name)
    parse: Callable[[str], Any] = json.loads
    if suffix in (".yaml", ".yml"):
        require("yaml", what="a YAML file", package="PyYAML", extra="yaml")
        from yaml import safe_load as parse
    with failing(SchemaError, f"'{path}' cannot be read. It must be a JSON, YAML, Parquet or Arrow file."):
        document = parse(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise SchemaError(f"'{path}' must hold an object with keys, got a {type(document).__name__}.")
    kind = format or _recognize(document)
    if kind is None:
        raise SchemaError(said("public.not_recognized", path=path))
    try:
        return _READERS[kind](document, name)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SchemaError(f"'{path}' does not have the layout of {kind} descriptions. Check its format.") from None


def between(kind: str, low: Any, high: Any) -> dict[str, Any]:
    """The keys for bins of equal width from low to high, both included; no keys where a bound is unknown."""
    if low is None or high is None:
        return {}
    if kind == "real":
        return {"low": float(low), "high": float(high), "bins": _BINS}
    axis = AXES[kind]
    with within("bounds: "):
        first, last = (int(axis.check(int(each) if axis.numeric else str(each))) for each in (low, high))
    # Bins exclude their upper edge: the last one ends a step, or a second, after the bound.
    end = last + (SECOND if axis.timed else 1)
    end = min(end, DAY) if kind == "time" else end
    few = end - first <= (_MOST_UNIT_BINS if axis.numeric else _BINS)
    return {"low": axis.value(first), "high": axis.value(end), "bins": max(1, end - first) if few else _BINS}


def words_in(described: Mapping[str, Any], keys: Sequence[str] = ("title", "description", "unit")) -> dict[str, Any]:
    """The words that a description states, as far as a schema can hold them."""
    words = {}
    for key in keys:
        # What is missing, or longer than anybody reads, is left out.
        with suppress(SchemaError):
            words[key] = getattr(parse_words({key: " ".join(str(described.get(key) or "").split())}), key)
    return words


def in_format(keys: dict[str, Any], written: str | None, notes: Sequence[str] = ()) -> ColumnEntry:
    """The entry with the format of its dates or times, where a schema can read them by it; else a note for a person."""
    try:
        parse_format(AXES[keys["type"]], written)
    except SchemaError:
        return ColumnEntry(keys=keys, notes=[*notes, said("public.unread_form", form=written, kind=keys["type"])])
    return ColumnEntry(keys=keys | ({} if written is None else {"format": written}), notes=notes)


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def from_frictionless(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that a Table Schema names."""
    words = words_in(document, ("title", "description"))
    if "resources" in document:
        resources = document["resources"]
        names = ", ".join(str(resource.get("name")) for resource in resources)
        refuse((len(resources) != 1, f"the Data Package holds {len(resources)} resources ({names}). Keep only one."))
        document = resources[0]
        words = words_in(document, ("title", "description")) or words
    if "fields" not in document:
        name, document = str(document.get("name", name)), document["schema"]
    key = document.get("primaryKey", ())
    keys = {key} if isinstance(key, str) else set(key)
    # The first text is what nulls are written as.
    missing = _texts(document.get("missingValues", ()))
    columns = {str(each["name"]): _field(each, keys, missing) for each in document["fields"]}
    source = "a Frictionless Table Schema"
    return Imported(columns=columns, name=name, source=source, nulls=tuple(missing[1:]), words=words)


def _field(described: Mapping[str, Any], key: set[str], missing: list[str]) -> ColumnEntry | str:
    constraints, known = described.get("constraints", {}), _KINDS.get(described.get("type", "string"))
    if key == {str(described["name"])} or constraints.get("unique"):
        return IDENTIFIER
    if known is None and "enum" not in constraints:
        return f"no attribute type fits a field of type {described['type']!r}"
    kind = known or "categorical"
    keys: dict[str, Any] = {"type": kind}
    categories = described.get("categories", ())
    values = constraints.get("enum") or _plain(categories)
    if values and kind != "boolean":
        keys = {"type": "categorical", "values": _values(values)}
        if categories:
            keys |= {"ordered": True} if described.get("categoriesOrdered") else {"output": "category"}
            pairs = [(each["value"], each.get("label")) for each in categories if isinstance(each, Mapping)]
            labels = {str(value): label for value, label in pairs if isinstance(label, str) and label.strip()}
            keys |= {"labels": labels} if labels else {}
    elif AXES[kind].binned:
        keys |= between(kind, _bound(kind, constraints, "inimum", 1), _bound(kind, constraints, "aximum", -1))
    keys = {"type": keys.pop("type"), **words_in(described), **keys}
    notes = []
    if not constraints.get("required"):
        own = described.get("missingValues")
        # The table's own texts for missing are read as nulls. A schema always reads an empty text as missing.
        named = missing[:1] if own is None else _texts(own)
        keys["missing"] = named[0] if named else ""
        if len(named) > 1:
            # A schema has one text for missing; what the field alone has beside it gets a level of its own each.
            keys["special"] = named[1:]
            others = ", ".join(map(repr, named[1:]))
            notes.append(f"The description has {others} for missing too: each is a special value here.")
    if kind == "boolean" and (described.get("falseValues") or described.get("trueValues")):
        false, true = described.get("falseValues", ["false"]), described.get("trueValues", ["true"])
        keys["texts"] = [str(false[0]), str(true[0])]
    written = described.get("format", "default")
    formatted = kind in ("date", "datetime", "time") and written not in ("default", "any")
    return in_format(keys, written if formatted else None, notes)


def _plain(values: Sequence[Any]) -> list[Any]:
    return [each["value"] if isinstance(each, Mapping) else each for each in values]


def _texts(values: Sequence[Any]) -> list[str]:
    return [text for text in map(str, _plain(values)) if text]


def _values(values: Sequence[Any]) -> list[Any]:
    """Values as a schema lists them: as whole numbers if all of them are, else as texts."""
    if all(type(value) is int for value in values):
        return list(values)
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _bound(kind: str, constraints: Mapping[str, Any], end: str, inwards: int) -> Any:
    """The stated bound. An exclusive bound moves inwards by one step, if the kind has steps."""
    axis, stated, excluded = AXES[kind], constraints.get(f"m{end}"), constraints.get(f"exclusiveM{end}")
    if stated is not None or excluded is None or not axis.stepped:
        return excluded if stated is None else stated
    return axis.value(cast(int, axis.parse(str(excluded))) + inwards)


def from_sdv(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that SDV metadata names, in the form of a single table or of several."""
    if document.get("tables") is not None:
        name, document = _only_table(document["tables"], "SDV")
    keys = {document.get("primary_key"), document.get("sequence_key"), *document.get("alternate_keys", ())}
    described = document["columns"].items()
    columns = {column: IDENTIFIER if column in keys else _sdv_column(each) for column, each in described}
    return Imported(columns=columns, name=name, source="SDV metadata")


def _only_table(tables: Mapping[str, Any], what: str) -> tuple[str, Any]:
    named = ", ".join(tables)
    refuse((len(tables) != 1, f"the {what} metadata describes {len(tables)} tables ({named}). Keep only one."))
    return next(iter(tables.items()))


def _sdv_column(described: Mapping[str, Any]) -> ColumnEntry | str:
    kind, missing, keys = described["sdtype"], {"missing": ""}, dict[str, Any]()
    if kind == "datetime":
        written = described.get("datetime_format")
        timed = written is None or any(code in written for code in _THEIRS["times"])
        own = None if written in _THEIRS["iso"] else written
        return in_format({"type": "datetime" if timed else "date"} | missing, own)
    if kind == "numerical":
        held = str(described.get("computer_representation", "Float")).lower()
        output = {} if held not in (*WHOLE, "float32") or held == "int64" else {"output": held}
        keys = {"type": "integer" if held in WHOLE else "real"} | output
    elif kind in ("boolean", "categorical"):
        order = described.get("order") if kind == "categorical" else None
        keys = {"type": kind} | ({"values": _values(order), "ordered": True} if order else {})
    elif kind == "id" or described.get("pii", True):
        return IDENTIFIER
    return ColumnEntry(keys=keys | missing) if keys else f"no attribute type fits a column of SDV's type {kind!r}"


def from_smartnoise(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that SmartNoise's metadata, or its transformers, name."""
    if "constraints" in document:
        columns = {str(column): _transformed(described) for column, described in document["constraints"].items()}
        return Imported(columns=columns, name=name, source="SmartNoise transformers")
    name, table = _only_table(_smartnoise_tables(document), "SmartNoise")
    # What is no table is a setting of this one: rows, max_ids, row_privacy.
    columns = {str(column): _smartnoise_column(each) for column, each in table.items() if isinstance(each, Mapping)}
    return Imported(columns=columns, name=name, source="SmartNoise metadata")


def _smartnoise_column(described: Mapping[str, Any]) -> ColumnEntry | str:
    kind, value = _KINDS.get(described["type"]), described.get("missing_value")
    if described.get("private_id"):
        return IDENTIFIER
    if kind is None:
        return f"no attribute type fits a column of type {described['type']!r}"
    bounds = between(kind, *map(described.get, _BOUNDS)) if AXES[kind].numeric else {}
    keys = {"type": kind} | bounds | ({"missing": ""} if described.get("nullable", True) else {})
    notes = [] if value is None else [f"SmartNoise was told to put {value!r} where a value is missing."]
    return ColumnEntry(keys=keys, notes=notes)


def _smartnoise_tables(document: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of all schemas of the collection, by name; none when the document has another layout."""
    collections = [each for key, each in document.items() if key != "engine"]
    if len(collections) != 1 or not isinstance(collections[0], Mapping):
        return {}
    schemas = [each for each in collections[0].values() if isinstance(each, Mapping)]
    return {str(name): table for schema in schemas for name, table in schema.items() if isinstance(table, Mapping)}


def _transformed(described: Mapping[str, Any]) -> ColumnEntry | str:
    kind, bins, nullable = None, None, False
    bounds: dict[str, Any] = {}
    for step in described["params"] if described["name"] == "ChainTransformer" else [described]:
        params = step["params"] if isinstance(step["params"], Mapping) else {}
        kind = kind or _TRANSFORMED.get(step["name"])
        nullable = nullable or bool(params.get("nullable"))
        known, bounds = bounds, bounds or {key: params[key] for key in _BOUNDS if params.get(key) is not None}
        if step["name"] in _THEIRS["rescaling"] and not known:
            # The steps after this one see another scale.
            break
        bins = bins or params.get("bins")
    if kind is None:
        return "SmartNoise drops it or makes it up"
    keys, notes = {"type": kind}, []
    if kind == "real":
        keys |= between(kind, *map(bounds.get, _BOUNDS))
        keys |= {"bins": bins} if bins and "bins" in keys else {}
        notes = ["If it holds whole numbers, write type = 'integer'."]
    return ColumnEntry(keys=keys | ({"missing": ""} if nullable else {}), notes=notes)


def _recognize(document: Mapping[str, Any]) -> str | None:
    if "fields" in document or "resources" in document or isinstance(document.get("schema"), dict):
        return "frictionless"
    if "METADATA_SPEC_VERSION" in document or "columns" in document or "tables" in document:
        return "sdv"
    return "smartnoise" if "constraints" in document or _smartnoise_tables(document) else None


def from_arrow(schema: Any, name: str) -> Imported:
    """What names and types say: kinds and outputs, but of domains only that a boolean is true or false."""
    columns: dict[str, ColumnEntry | str] = {}
    for each in arrow.fields_of(schema):
        column, described = each.name, arrow.column_type(each)
        if described.kind is None:
            columns[column] = f"a column of type {described.family} is in no domain"
        elif column.startswith("__index_level_"):
            columns[column] = "it is an index that pandas wrote"
        else:
            notes = {key.decode(errors="replace").lower(): text for key, text in dict(each.metadata or {}).items()}
            # By the names that writers of Arrow files use for them.
            words = {word: notes[key].decode(errors="replace") for key, word in _METADATA.items() if key in notes}
            plain = plain_output(Attribute(name="", kind=cast(AttributeKind, described.kind), values=("",)))
            stated: dict[str, Any] = {} if described.output in (None, str(plain)) else {"output": described.output}
            stated = {"ordered": True} if described.output == "ordered category" else stated
            missing = {"missing": ""} if described.nullable else {}
            columns[column] = ColumnEntry(keys={"type": described.kind} | stated | words_in(words) | missing)
    return Imported(columns=columns, name=name, source="an Arrow schema")


_READERS = {"frictionless": from_frictionless, "sdv": from_sdv, "smartnoise": from_smartnoise}
