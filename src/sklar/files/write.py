"""Results to disk, whole or not at all, and released rows as the tables of other libraries.

A file is written under a temporary name in its own folder, flushed to the disk and then renamed; an interruption leaves
the old file, or none. Rows are drawn as a frame of polars, with its nearest types; Arrow has every type as the schema
spells it. In pandas categories are `category`, dates and decimals Python objects.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from itertools import chain
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sklar.draw.decode import clock_texts, float_texts, moment_texts, released_values, written_texts
from sklar.errors import ModelError, OutputError
from sklar.machine.extras import lazily, require
from sklar.machine.stores import fresh_file, require_apart
from sklar.machine.wording import failing, said
from sklar.public.outputs import arrow_type, output_of, parse_output, plain_output, whole_seconds
from sklar.public.schema import Attribute, Schema
from sklar.public.tree import Branch, Lookup, Tree

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pl = lazily("polars")

Library = Literal["polars", "pandas", "arrow"]
# Of files that hold a whole table, and of databases, the package and the extra that writing one needs.
_WHOLE = {".xlsx": ("xlsxwriter", "excel"), ".dta": ("pyreadstat", "stata"), ".sav": ("pyreadstat", "spss")}
_EXTRAS = {**_WHOLE, ".duckdb": ("duckdb", "sql")}
SUFFIXES = (".csv", ".parquet", ".arrow", ".feather", ".ndjson", ".json", *_WHOLE)
# Databases, which hold linked tables with their keys declared.
DATABASES = (".duckdb", ".sqlite", ".db")
# What each library's tables are made with, and the extra that installs it.
_NEEDED = {"polars": (), "pandas": ("pandas", "pyarrow"), "arrow": ("pyarrow",)}
# Seconds until a thread that was about to open a file has done so.
_SETTLED = 0.05
_ROW_GROUP = 1 << 17
# Bytes that a release may take on disk for each cell of its two-way tables: two noisy counts.
_EACH_CELL = 16
_TYPES = "ARROW:schema"
# What the metadata of synthetic rows says, in Parquet and in Arrow: never a column.
MARK = {"sklar.synthetic": "Drawn from a model: no row was copied from a record."}
# What a sheet holds beside its header, and the time that a workbook states. No text is a formula or a link.
_MOST_ROWS, _MOST_COLUMNS, _EARLIEST = (1 << 20) - 1, 1 << 14, dt.datetime(1980, 1, 1)
_AS_TEXT = {"in_memory": True} | {f"strings_to_{other}": False for other in ("formulas", "urls", "numbers")}
# How a text begins that a spreadsheet takes for a formula; and what begins so and is a number.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+\-]?[0-9]+(\.[0-9]*)?([eE][+\-]?[0-9]+)?$"


def check_target(path: str | Path, suffixes: tuple[str, ...], *inputs: object) -> Path:
    """The path, when a file of one of these kinds can be put there; refused before any work is done otherwise.

    It must be none of the `inputs`, nor of what the present command reads.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in suffixes:
        raise OutputError(f"'{path}' must end in {_any_of(suffixes)}.")
    if path.is_dir():
        raise OutputError(f"'{path}' is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise OutputError(f"the folder '{path.parent}' does not exist. Create it first.")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"the folder '{path.parent}' cannot be written to. Choose another, or ask for the right.")
    require_apart(path, *inputs)
    if kind in _EXTRAS:
        package, extra = _EXTRAS[kind]
        require(package, what=f"a file that ends in {kind}", package=package, extra=extra)
    return path


def _any_of(suffixes: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name when the block ends well, and vanishes when it does not.

    A release has the rights of any new file. What is `private` (drafts, evaluations) is its owner's alone: 0600.
    """
    with failing(OutputError, f"'{path}' cannot be written: {{why}}.", OSError):
        temporary = fresh_file(path, private=private)
    try:
        with failing(OutputError, f"'{path}' could not be written: {{why}}. Nothing was left behind.", OSError):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a text file; a private one is its owner's alone (0600)."""
    with replacing(path, private=private) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_own(path: Path, *, own: bool) -> None:
    """Refuse to replace a file that the same command did not write."""
    if not own:
        raise OutputError(said("files.not_own", path=path))


def require_same(path: Path, text: str, *, replace: bool) -> None:
    """Refuse to replace a file that holds another text than would be written, unless that is meant."""
    require_own(path, own=replace or not path.exists() or path.read_bytes() == text.encode())


def check_keep(path: str | Path | None, cells: int) -> None:
    """Refuse, before anything is charged, a file for so many noisy cells that exists, or that its disk cannot hold."""
    if path is None:
        return
    target = check_target(path, (".sklar",))
    if target.exists():
        raise OutputError(said("files.kept", path=target))
    needed, free = _EACH_CELL * cells / 1e6, disk_usage(target.parent).free / 1e6
    if free < needed:
        raise OutputError(said("files.no_room", path=target, needed=needed, free=free))


def write_frames(
    path: Path,
    columns: pl.Schema,
    frames: Iterable[pl.DataFrame],
    described: Schema | None,
    *,
    shown: pl.Schema | None = None,
    spreadsheet: bool = False,
) -> None:
    """Stream frames to a file of the kind that its suffix names; few are held at a time.

    In CSV a null is the attribute's missing text, by `described`, and moments have no fractions where none is drawn.
    `shown` are the types that readers of a Parquet file see, where texts are held as an Enum until they are written;
    such rows are synthetic, and the file's metadata says so.
    With `spreadsheet`, which is for CSV alone, no text reads as a formula (see `harmless`).
    """
    with replacing(path) as temporary:
        suffix = path.suffix.lower()
        try:
            if suffix == ".csv":
                _write_csv(temporary, columns, frames, described, spreadsheet=spreadsheet)
            elif suffix == ".parquet":
                metadata = {}
                if shown is not None:
                    # How a Parquet file tells its readers the types of its columns: as Arrow's schema.
                    pl.DataFrame(schema=shown).write_parquet(empty := BytesIO())
                    metadata = MARK | {_TYPES: pl.read_parquet_metadata(empty.getvalue())[_TYPES]}
                write_parquet(temporary, columns, frames, metadata)
            elif suffix == ".json":
                _write_json(temporary, frames)
            elif suffix in _WHOLE:
                _write_whole(temporary, suffix, chain([columns.to_frame()], frames), described)
            elif suffix == ".ndjson":
                _stream(columns, frames).sink_ndjson(temporary)
            else:
                _stream(columns, frames).sink_ipc(temporary, compression="lz4", record_batch_size=_ROW_GROUP)
                if shown is not None:
                    _mark_arrow(temporary)
        except BaseException:
            # polars opens the file in a thread of its own, which may do so a moment after the stream has broken: what
            # is removed before that would come back.
            time.sleep(_SETTLED)
            raise


def _mark_arrow(path: Path) -> None:
    """Put `MARK` into the schema that ends an Arrow file: polars leaves its metadata empty.

    The file ends with a footer, which is a flatbuffer, its length, and a magic word. Offsets in a flatbuffer lead
    forward alone: a footer, a schema and the metadata stand before the old footer, and lead into it.
    """
    with path.open("r+b") as file:
        file.seek(-10, os.SEEK_END)
        (size,) = struct.unpack("<i6x", file.read(10))
        start = file.seek(-10 - size, os.SEEK_END)
        old = file.read(size)

        def follow(at: int) -> int:
            return at + int.from_bytes(old[at : at + 4], "little")

        def slots(table: int) -> list[int]:
            """Where the fields of a table stand; 0 for those that it has not."""
            above = table - struct.unpack_from("<i", old, table)[0]
            (length,) = struct.unpack_from("<H", old, above)
            return [at and table + at for at in (*struct.unpack_from(f"<{length // 2 - 2}H", old, above + 4), 0, 0)]

        version, schema, *blocks = slots(follow(0))
        order, fields = slots(follow(schema))[:2]
        texts = [text.encode() for item in MARK.items() for text in item]
        strings = [struct.pack("<I", len(text)) + text + bytes(4 - len(text) % 4) for text in texts]
        room = -(-(100 + len(b"".join(strings))) // 8) * 8
        # Each list of slots stands before its table: of the footer at 20, the schema at 52, the metadata at 88.
        new = struct.pack("<I8H", 20, 14, 20, 16, 4, 8, 12, 0, 0)
        leads = [room + follow(at) - 28 - 4 * k if at else 0 for k, at in enumerate(blocks[:2])]
        new += struct.pack("<iIIIhxx", 16, 52 - 24, *leads, struct.unpack_from("<h", old, version)[0] if version else 0)
        new += struct.pack("<6H", 12, 16, 12, 4, 8, 0)
        ends = struct.unpack_from("<h", old, order)[0] if order else 0
        new += struct.pack("<iIIhxx4x", 12, room + follow(fields) - 56, 72 - 60, ends)
        new += struct.pack("<II4HiII", 1, 88 - 76, 8, 12, 4, 8, 8, 100 - 92, 100 + len(strings[0]) - 96)
        footer = (new + b"".join(strings)).ljust(room, b"\0") + old
        file.seek(start)
        file.truncate()
        file.write(footer + struct.pack("<i", len(footer)) + b"ARROW1")


def check_tables(path: str | Path, kind: str) -> Path:
    """Where linked tables can go: a folder with a file of this kind for each, or a database."""
    if Path(path).suffix.lower() in DATABASES:
        return check_target(path, DATABASES)
    if kind not in ("csv", "parquet") or Path(path).suffix.lower() in SUFFIXES:
        raise OutputError(said("files.no_tables", path=path, ends=_any_of(DATABASES)))
    check_target(Path(path).with_suffix(f".{kind}"), SUFFIXES)
    if Path(path).exists() and not Path(path).is_dir():
        raise OutputError(f"'{path}' is a file. Name a folder.")
    return Path(path)


class _Table(NamedTuple):
    """A table to be written: its columns, its frames, what they are, and what a database is told of them."""

    name: str
    columns: pl.Schema
    frames: Iterable[pl.DataFrame]
    schema: Schema | None
    keys: Mapping[str, str]


def write_tables(
    path: Path,
    tree: Tree,
    columns: Mapping[str, pl.Schema],
    drawn: Iterable[Mapping[str, pl.DataFrame]],
    *,
    shown: Mapping[str, pl.Schema],
    kind: str = "csv",
    spreadsheet: bool = False,
) -> None:
    """Write all tables of some people at a time, and public ones: drawn once, and held in files in between.

    `columns` are as rows are drawn, `shown` as readers see them (`write_frames`).
    """
    with TemporaryDirectory() as folder:
        held: dict[str, list[Path]] = {name: [] for name in columns}
        for number, block in enumerate(drawn):
            for name, frame in block.items():
                held[name].append(part := Path(folder) / f"{name}.{number}.arrow")
                frame.write_ipc(part, compression="lz4")
        tables = [_looked_up(lookup, tree, columns) for lookup in tree.lookups]
        for each in tree.branches:
            parts = map(pl.read_ipc, held[each.name])
            tables.append(_Table(each.name, columns[each.name], parts, each.schema, _keys_of(each, tree)))
        if path.suffix.lower() in DATABASES:
            write = _into_duckdb if path.suffix.lower() == ".duckdb" else _into_sqlite
            failed = f"'{path}' was not written ({{kind}}); CSV and Parquet take any table. Nothing was left behind."
            with failing(OutputError, failed), replacing(path) as temporary:
                write(temporary, tables)
            return
        with failing(OutputError, f"the folder '{path}' cannot be written: {{why}}.", OSError):
            path.mkdir(exist_ok=True)
        for name, kinds, frames, schema, _ in tables:
            own = shown.get(name, kinds)
            write_frames(path / f"{name}.{kind}", kinds, frames, schema, shown=own, spreadsheet=spreadsheet)


def _keys_of(branch: Branch, tree: Tree) -> dict[str, str]:
    """What a database is told of the columns of a table: which are its keys, and which refer to others."""
    root, keys = tree.root, {each.id: f"REFERENCES {_quoted(each.name)} ({_quoted(each.id)})" for each in tree.lookups}
    keys[branch.key] = f"NOT NULL REFERENCES {_quoted(root.name)} ({_quoted(root.key)})" if branch.of else "PRIMARY KEY"
    keys |= {branch.id: "PRIMARY KEY"} if branch.id else {}
    above = next((each for each in tree.branches if each.name == branch.of), root)
    keys |= {branch.parent: f"NOT NULL REFERENCES {_quoted(above.name)} ({_quoted(above.id)})"} if branch.parent else {}
    return keys


def _looked_up(lookup: Lookup, tree: Tree, columns: Mapping[str, pl.Schema]) -> _Table:
    """A public table, whose ids have the type of the columns that refer to them."""
    frame = pl.DataFrame([pl.Series(name, list(values), dtype=pl.String) for name, values in lookup.columns])
    kinds = (columns[each.name][lookup.id] for each in tree.branches if lookup.id in each.schema.names)
    frame = frame.with_columns(pl.col(lookup.id).cast(kind) for kind in kinds if kind.is_integer())
    return _Table(lookup.name, frame.schema, [frame], None, {lookup.id: "PRIMARY KEY"})


def _into_sqlite(path: Path, tables: Sequence[_Table]) -> None:
    """What is no number is text, as in CSV."""
    import sqlite3

    with closing(sqlite3.connect(path)) as database, database:
        # No file of its own, which a kill would leave.
        database.execute("PRAGMA journal_mode = MEMORY")
        for name, columns, frames, schema, keys in tables:
            known = {} if schema is None else {each.name: each for each in schema.released}
            shown, kinds = list[pl.Expr](), list[str]()
            for at, (column, kind) in enumerate(columns.items()):
                number = kind.is_integer() or kind.is_float() or kind == pl.Boolean
                text = None if number else _texts(pl.nth(at), kind, known.get(column))
                shown.append(pl.nth(at) if number else (pl.nth(at) if text is None else text).cast(pl.String))
                kinds.append("REAL" if kind.is_float() else "INTEGER" if number else "TEXT")
            database.execute(_created(name, keys, columns, kinds))
            into = " ".join(("INSERT INTO", _quoted(name), "VALUES (", ", ".join("?" * len(columns)), ")"))
            for frame in frames:
                database.executemany(into, frame.select(shown).iter_rows())


def _into_duckdb(path: Path, tables: Sequence[_Table]) -> None:
    import duckdb

    path.unlink()
    with duckdb.connect(path) as database, TemporaryDirectory() as folder:
        for name, columns, frames, _, keys in tables:
            write_parquet(part := Path(folder) / "part.parquet", columns, frames, {})
            held = database.read_parquet(str(part))
            database.execute(_created(name, keys, columns, map(str, held.types)))
            held.insert_into(_quoted(name))


def _created(name: str, keys: Mapping[str, str], columns: Iterable[str], kinds: Iterable[str]) -> str:
    """The statement that makes a table with its keys."""
    parts = (
        f"{_quoted(column)} {kind} {keys.get(column, '')}".rstrip() for column, kind in zip(columns, kinds, strict=True)
    )
    return f"CREATE TABLE {_quoted(name)} ({', '.join(parts)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_parquet(path: Path, columns: pl.Schema, frames: Iterable[pl.DataFrame], metadata: dict[str, str]) -> None:
    """Stream frames to Parquet in row groups of one size; bytes depend on the rows alone, not on threads or frames."""
    try:
        _stream(columns, frames).sink_parquet(
            path,
            compression="zstd",
            # Drawn values hardly repeat: a higher level takes longer, and saves next to nothing.
            compression_level=1,
            # Rows are in random order: no reader could skip any by the least and the largest value.
            statistics=False,
            row_group_size=_ROW_GROUP,
            metadata=metadata,
        )
    except pl.exceptions.ComputeError as error:
        # polars words a full disk as an error of the format, here only.
        _, failed, why = str(error).partition("IO error: ")
        if failed:
            raise OSError(why) from None
        raise


def _stream(columns: pl.Schema, frames: Iterable[pl.DataFrame]) -> pl.LazyFrame:
    """Frames that polars takes one after the other, as it has room for them."""

    # Imported here: polars is slow to load, and a model file is checked without it.
    from polars.io.plugins import register_io_source

    # Not a generator around them: an interruption would end it, and them, from within polars.
    return register_io_source(lambda _columns, _predicate, _rows, _size: iter(frames), schema=columns)


def _write_csv(
    path: Path, columns: pl.Schema, frames: Iterable[pl.DataFrame], described: Schema | None, *, spreadsheet: bool
) -> None:
    known = {} if described is None else {attribute.name: attribute for attribute in described.released}
    # By place: a name such as * would be a pattern.
    texts = [_texts(pl.nth(at), kind, known.get(name)) for at, (name, kind) in enumerate(columns.items())]
    rows = _stream(columns, frames).with_columns(text for text in texts if text is not None)
    if spreadsheet:
        # A column that was written as text for its own sake (numbers, moments) holds no text of anybody's, but for the
        # one of what is missing.
        text = pl.all().cast(pl.String)
        # What is null is no formula. The column first: it gives the result its name.
        plain = (~text.str.contains(_FORMULA) | text.str.contains(_NUMBER)).fill_null(value=True)
        rows = rows.with_columns(pl.when(plain).then(text).otherwise(pl.lit("'") + text))
        rows = rows.rename({name: harmless(name) for name in columns})
    rows.sink_csv(path)


def _write_json(path: Path, frames: Iterable[pl.DataFrame]) -> None:
    """A list of objects."""
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, frame in enumerate(frames):
            file.write((",\n" if number else "") + frame.write_json()[1:-1])
        file.write("]\n")


def _write_whole(path: Path, kind: str, frames: Iterable[pl.DataFrame], described: Schema | None) -> None:
    """A workbook, or a file of Stata or SPSS, of a table that is held in memory; it names no author and no time.

    Texts stand for what these programs have no type for. Titles and labels are the schema's.
    """
    known = {} if described is None else {attribute.name: attribute for attribute in described.attributes}
    table = pl.concat(frames)
    for place, (name, held) in enumerate(table.schema.items()):
        if held == pl.Boolean or held.is_decimal():
            table.replace_column(place, table[name].cast(pl.Int8 if held == pl.Boolean else pl.Float64))
        elif not held.is_numeric() and held != pl.Date and (held != pl.Datetime or getattr(held, "time_zone", None)):
            text = _texts(pl.nth(place), held, known.get(name))
            written = table.select(pl.nth(place) if text is None else text).to_series()
            table.replace_column(place, written.cast(pl.String))
    if kind == ".xlsx":
        if table.height > _MOST_ROWS or table.width > _MOST_COLUMNS:
            raise OutputError(said("files.workbook", rows=_MOST_ROWS, columns=_MOST_COLUMNS, got=table.shape))
        from xlsxwriter import Workbook

        with Workbook(whole := BytesIO(), _AS_TEXT) as book:
            book.set_properties({"created": _EARLIEST})
            table.write_excel(book, autofilter=False, dtype_formats={pl.Float64: "General", pl.Int64: "General"})
        path.write_bytes(whole.getvalue())
        return
    import pyreadstat

    words: dict[str, Any] = {
        "column_labels": {name: each.words.title for name, each in known.items() if each.words.title},
        "variable_value_labels": {
            name: {value: dict(each.words.labels).get(str(value), str(value)) for value in each.values}
            for name, each in known.items()
            if each.words.labels and table[name].dtype.is_integer()
        },
    }
    write = pyreadstat.write_dta if kind == ".dta" else pyreadstat.write_sav
    try:
        write(table, str(path), **words)
    except (pyreadstat.PyreadstatError, pyreadstat.ReadstatError) as error:
        raise OSError(f"{error}; CSV and Parquet take any table") from None
    with path.open("r+b") as file:
        file.seek(92 if kind == ".sav" else file.read(1 << 10).index(b"<timestamp>") + 12)
        file.write(b"01 Jan 8000:00:00" if kind == ".sav" else b"01 Jan 1980 00:00")


def harmless(text: str) -> str:
    """A text as a spreadsheet shows it and does not run it: behind an apostrophe where it would begin a formula.

    That is where it begins with = + - @, a tab or a carriage return, and is no number.

    >>> harmless("=1+1"), harmless("-5"), harmless("-a"), harmless("a=b")
    ("'=1+1", '-5', "'-a", 'a=b')
    """
    return f"'{text}" if re.match(_FORMULA, text) and not re.match(_NUMBER, text) else text


def _texts(column: pl.Expr, kind: pl.DataType, attribute: Attribute | None) -> pl.Expr | None:
    """How a column is written, where polars would write it otherwise."""
    output = None if attribute is None or attribute.output is None else parse_output(attribute.output)
    missing = "" if attribute is None or attribute.missing is None else attribute.missing
    if kind.is_float():
        column = float_texts(column)
    elif attribute is not None and attribute.format is not None and isinstance(kind, pl.Date | pl.Datetime | pl.Time):
        zoned = isinstance(kind, pl.Datetime) and kind.time_zone is not None
        column = written_texts(column, attribute.format, zoned=zoned)
    elif isinstance(kind, pl.Time | pl.Duration):
        column = clock_texts(column, kind, seconds=attribute is not None and whole_seconds(attribute))
    elif isinstance(kind, pl.Datetime):
        zone = kind.time_zone if output is None else output.zone
        # Six zeros more would only be noise to a reader.
        column = moment_texts(column, kind, zone=zone, seconds=attribute is not None and whole_seconds(attribute))
    elif not missing:
        return None
    # Null is nothing between two commas, and an empty text would stand in quotes.
    return column.cast(pl.String).fill_null(missing) if missing else column


def check_library(to: str) -> None:
    """Refuse a library that is not known or not installed, before any row is drawn."""
    if to not in _NEEDED:
        raise ModelError(f"to must be 'polars', 'pandas' or 'arrow', got {to!r}.")
    for package in _NEEDED[to]:
        require(package, what=f"to='{to}'", package=package, extra=to)


def to_library(frame: pl.DataFrame, to: str, schema: Schema | None) -> pl.DataFrame | pd.DataFrame | pa.Table:
    """The frame as a table of this library; `schema` says what its columns are, None that they are dummies."""
    if to == "polars":
        return frame
    table = to_arrow(frame, schema)
    return table.replace_schema_metadata(MARK) if to == "arrow" else _to_pandas(table, schema)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of released records: every type as the schema spells it."""
    import pyarrow as pa

    def kind(attribute: Attribute) -> pa.DataType:
        output = output_of(attribute)
        if not output.name.endswith("category"):
            return arrow_type(output)
        plain = arrow_type(plain_output(attribute))
        return pa.dictionary(pa.int32(), plain, ordered=output.name.startswith("ordered"))

    return pa.schema([(attribute.name, kind(attribute)) for attribute in schema.released])


def to_arrow(frame: pl.DataFrame, schema: Schema | None) -> pa.Table:
    """Released rows as an Arrow table; `schema` says what its columns are, None that they are dummies."""
    import pyarrow as pa

    if schema is None:
        return pa.table({column.name: _exported(column) for column in frame.iter_columns()})
    kinds, columns = arrow_schema(schema), []
    for attribute, kind in zip(schema.released, kinds.types, strict=True):
        column = frame[attribute.name]
        if not pa.types.is_dictionary(kind):
            columns.append(_exported(column).cast(kind))
            continue
        # One dictionary of all public values in their order, drawn or not.
        values = released_values(attribute)
        place, listed = pl.Enum([str(value) for value in values]), pa.array(values, kind.value_type)
        indices = _exported(column.cast(pl.String).cast(place).to_physical().cast(pl.Int32))
        parts = [pa.DictionaryArray.from_arrays(part, listed, ordered=kind.ordered) for part in indices.chunks]
        columns.append(pa.chunked_array(parts, kind))
    return pa.table(columns, schema=kinds)


def _exported(column: pl.Series) -> pa.ChunkedArray:
    # Arrow's C interface takes no name that has a null character in it.
    return column.alias("").to_frame().to_arrow().column(0)


def _to_pandas(table: pa.Table, schema: Schema | None) -> pd.DataFrame:
    """Whole numbers and booleans that may be missing come as nullable types (`Int64`, `boolean`), others as NumPy's."""
    import pandas as pd
    import pyarrow as pa

    def nullable(kind: pa.DataType) -> object:
        if pa.types.is_boolean(kind):
            return pd.BooleanDtype()
        # Int8 for int8, UInt8 for uint8, and so on.
        name = str(kind).replace("i", "I").replace("u", "U")
        return pd.api.types.pandas_dtype(name) if pa.types.is_integer(kind) else None

    frame = table.to_pandas(types_mapper=nullable)
    may_miss = () if schema is None else [entry.name for entry in schema.released if entry.missing is not None]
    always = [field for field in table.schema if field.name not in may_miss and nullable(field.type) is not None]
    return frame.astype({field.name: field.type.to_pandas_dtype() for field in always})
