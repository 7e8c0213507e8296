"""Files that describe tables: the TOML of schemas, and model files, opened within bounds here and nowhere else.

A few kilobytes of a zip can unpack to gigabytes, or to JSON that fills the memory with objects. So members and sizes
are checked before anything is unpacked, and the bytes of the description before they are parsed.
"""

from __future__ import annotations

import json
import re
import struct
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sklar.errors import ModelError, SchemaError, SklarError
from sklar.machine.wording import said

MAX_JSON = 16 << 20
MAX_VALUES = 300_000
MAX_DEPTH = 16
MAX_STAGES = 100
# Arrays of every stage, one of all searches, four of three-way tables, one of scores, and a few of the copula's.
_MAX_MEMBERS = 4 * MAX_STAGES + 20
# A file may unpack to the first, or to the second times its size: noise does not pack well.
_MAX_UNPACKED = 128 << 20
_MAX_RATIO = 20
# The longest legitimate numbers: integers of 19 digits, floats of 24 characters.
_MAX_NUMBER = 40
# How a zip without a comment ends: a signature, and how many members it has.
_END = struct.Struct("<4s4xHH8xH")
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[-+.0-9eE]{%d}" % (_MAX_NUMBER + 1))
_NESTING = bytes(set(range(256)) - set(b"[]{}"))


@contextmanager
def open_model(path: str | Path, what: str = "model") -> Iterator[tuple[zipfile.ZipFile, dict[str, Any]]]:
    """The archive of a model file, and its description. Whatever fails on the way, or in the body, is a ModelError."""
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"model file '{path}' does not exist. Check the path.")
    try:
        _require_few_members(path)
        with zipfile.ZipFile(path) as archive:
            _require_small_members(archive)
            document = parse(archive.read("model.json"))
            if not isinstance(document, dict):
                raise ModelError("its description is not a Sklar model's.")
            yield archive, document
    except SklarError as error:
        raise ModelError(f"'{path}' is not a usable {what}: {error}") from None
    except Exception as error:
        # Whatever a damaged or hostile file makes zip, JSON or NumPy raise: report one clear error.
        raise ModelError(said("public.no_model", path=path, kind=type(error).__name__)) from None


def _require_few_members(path: Path) -> None:
    """Refuse a file with more members than a model has, before Python lists them; and one with a comment."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _END.size, 0))
        end = file.read()
    signature, here, members, comment = _END.unpack(end) if len(end) == _END.size else (b"", 0, 0, 0)
    if signature == b"PK\5\6" and (comment or not 1 <= members <= _MAX_MEMBERS or here != members):
        raise ModelError(f"its zip must have at most {_MAX_MEMBERS} members and no comment.")


def _require_small_members(archive: zipfile.ZipFile) -> None:
    """Refuse a zip whose members are not such as a model's are, before any of them is unpacked."""
    members = archive.infolist()
    if len({each.filename for each in members}) != len(members):
        raise ModelError("its zip holds two members of one name.")
    plain = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if any(each.compress_type not in plain or each.flag_bits & 1 or each.comment for each in members):
        raise ModelError("its zip holds a member that no model's does: encrypted, with a comment or packed otherwise.")
    if archive.getinfo("model.json").file_size > MAX_JSON:
        raise ModelError("its description is larger than any model's.")
    packed, unpacked = sum(each.compress_size for each in members), sum(each.file_size for each in members)
    if unpacked > max(_MAX_UNPACKED, _MAX_RATIO * packed):
        raise ModelError(f"it would unpack to {unpacked / 2**20:,.0f} MiB, far more than noisy counts do.")


def parse(text: bytes) -> Any:
    """The document that a text of JSON holds, when it is within the bounds of any model's."""
    if len(text) > MAX_JSON:
        raise ModelError("its description is larger than any model's.")
    # Strings are still included: their content can only raise the count.
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise ModelError(f"its description holds more than {MAX_VALUES:,} values, as no model's does.")
    bare = _STRINGS.sub(b"", text)
    if _LONG_NUMBER.search(bare):
        raise ModelError(f"its description holds a number of more than {_MAX_NUMBER} digits.")
    brackets = np.frombuffer(bare.translate(None, _NESTING), dtype=np.uint8)
    if np.cumsum(np.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1)).max(initial=0) > MAX_DEPTH:
        raise ModelError(f"its description is nested more than {MAX_DEPTH} deep.")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(members := dict(pairs)) != len(pairs):
            raise ModelError("its description has a duplicate key.")
        return members

    def refuse_constant(name: str) -> None:
        raise ModelError(f"its description holds {name}, which is no number.")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)


def written(document: Mapping[str, Any]) -> bytes:
    """The one way in which a description is written."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode()


def read_described(path: str | Path) -> dict[str, Any]:
    """What a schema file (TOML) states, or the schema of a model file."""
    if Path(path).suffix.lower() != ".sklar" and not zipfile.is_zipfile(path):
        return read_toml(path)
    try:
        with open_model(path) as (_archive, document):
            schema = document.get("schema")
    except ModelError as error:
        raise SchemaError(str(error)) from None
    if not isinstance(schema, dict):
        raise SchemaError(f"'{path}' is neither a schema nor a model.")
    return schema


def describes_tree(document: Mapping[str, Any]) -> bool:
    """Whether a document is of linked tables: it has no attributes, and some entry has a schema, or is public."""
    tables = (entry for entry in document.values() if isinstance(entry, Mapping))
    return "attributes" not in document and any({"schema", "public"} & set(entry) for entry in tables)


def read_toml(path: str | Path) -> dict[str, Any]:
    """What a schema file holds."""
    try:
        return parse_toml(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SchemaError(f"schema file '{path}' does not exist. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"schema file '{path}' cannot be read: {error}. It must be a UTF-8 text file.") from None


def parse_toml(text: str) -> dict[str, Any]:
    """What the text of a schema file holds."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise SchemaError(f"the schema is not valid TOML: {why}.") from None


def toml_key(name: str) -> str:
    """A name as a TOML key, without quotes where TOML allows that."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: object) -> str:
    """A text, number, truth value, list or table as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    # A JSON string is a TOML string, except for one control character that TOML wants escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F") if isinstance(value, str) else repr(value)


def toml_table(heading: str, entry: Mapping[str, Any]) -> str:
    """A table with its heading, one line for each key."""
    return f"{heading}\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in entry.items())
