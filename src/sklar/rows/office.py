"""Workbooks of Excel, and files of Stata and SPSS, to batches, by extras. More: docs/derivations.md."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from sklar.errors import DataError
from sklar.machine.extras import require
from sklar.machine.wording import failing, said, stated
from sklar.public.arrow import ColumnType
from sklar.public.axis import DAY
from sklar.rows.source import Batches, Source, batch_rows

WORKBOOK = ".xlsx"
SURVEYS = {".dta": "stata", ".sav": "spss", ".zsav": "spss"}
_Clock = tuple[str, int, int]
_MOST_BYTES, _MOST_LETTERS = 1 << 32, 200
# What a format says of a number: its kind, microseconds in one, and days from its zero to 1970.
_CLOCKS: dict[str, _Clock] = stated("sklar.rows", "said.toml")["clocks"]
_FIRST, _LAST = -719_162 * DAY, 2_932_897 * DAY - 1
# The kind and the output of what a file holds as no whole number. A double may be any number, or a whole one.
_KINDS = {"string": ("categorical", "string"), "float": ("real", "float32"), "double": (None, None)}
_OUTPUTS = {"date": "date32", "datetime": "timestamp[us]"}


def parted(path: Path) -> tuple[Path, str | None]:
    """A path and the sheet that it names behind a sign: people.xlsx#Sheet2."""
    file, _, sheet = path.name.rpartition("#")
    return (path.with_name(file), sheet) if file.lower().endswith(WORKBOOK) else (path, None)


def open_workbook(path: Path) -> Source:
    """One sheet of a workbook, the first unless its path names one; its first row names the columns."""
    name, (file, sheet) = f"file '{path}'", parted(path)
    require("fastexcel", what=f"a file that ends in {WORKBOOK}", package="fastexcel", extra="excel")
    import fastexcel

    try:
        with zipfile.ZipFile(file) as archive:
            large = sum(each.file_size for each in archive.infolist()) > _MOST_BYTES
            # No member holds more than it declares: its checksum would be another.
            whole = large or archive.testzip() is None
        book = fastexcel.read_excel(file) if whole and not large else None
        if book is not None and (sheet is None or sheet in book.sheet_names):
            columns = tuple(book.load_sheet(sheet or 0, n_rows=0, dtypes="string").to_polars().columns)
            return Source(name=name, columns=columns, open_batches=partial(_read_sheet, book, sheet or 0), path=file)
    except Exception:
        # The reader's message may quote a cell of the table.
        book, large = None, False
    if book is not None:
        raise DataError(f"file '{file}' has no sheet '{sheet}'. Check its name, or leave it out for the first one.")
    why = "is larger than 4 GiB when it is unpacked" if large else "is not an Excel workbook, or it is damaged"
    raise DataError(f"{name} {why}. Save the sheet as CSV, and give that file.")


def _read_sheet(book: Any, sheet: int | str, names: tuple[str, ...]) -> Batches:
    frame = book.load_sheet(sheet, dtypes="string").to_polars()
    # Days have a midnight in workbooks, and times of day a day.
    plain = pl.all().str.replace(r"^(\d{4}-\d{2}-\d{2}) 00:00:00$", "$1")
    plain = plain.str.replace(r"^(?:1899-12-3[01]|1904-01-01) (\d{2}:\d{2}:\d{2}(?:\.\d+)?)$", "$1")
    yield pl.DataFrame([frame.get_column(name) for name in names]).select(plain)


def open_survey(path: Path, kind: str) -> Source:
    """A file of Stata or SPSS."""
    require("pyreadstat", what=f"a file that ends in {kind}", package="pyreadstat", extra=SURVEYS[kind])
    import pyreadstat

    read = partial(pyreadstat.read_dta if kind == ".dta" else pyreadstat.read_sav, str(path))
    program = SURVEYS[kind].replace("stata", "Stata").replace("spss", "SPSS")
    with failing(DataError, said("rows.no_survey", path=path, program=program)):
        _, described = read(metadataonly=True, user_missing=True)
    held, clocks = described.readstat_variable_types, dict[str, _Clock | None]()
    for name, form in described.original_variable_types.items():
        # How it is shown may stand behind the name of a format: %tdD_m_Y, DATE11.
        written = form or ""
        clocks[name] = _CLOCKS.get(written[:3] if written.startswith("%") else written.rstrip("0123456789."))
    types = {name: _type(name, held[name], clocks[name], described) for name in described.column_names}

    def batches(names: tuple[str, ...]) -> Batches:
        step, rows, options = 4 * batch_rows(len(names)), 0, {"disable_datetime_conversion": True}
        while rows % step == 0:
            part, _ = read(usecols=list(names), row_offset=rows, row_limit=step, output_format="dict", **options)
            batch = pl.DataFrame([_column(name, part.get(name, ()), held[name], clocks[name]) for name in names])
            rows += batch.height or 1
            yield batch

    return Source(name=f"file '{path}'", columns=tuple(types), open_batches=batches, types=types, path=path)


def _type(name: str, held: str, clock: _Clock | None, described: Any) -> ColumnType:
    """The type of a column as the file declares it, without the labels of missing values."""
    text, missing = held == "string", described.missing_ranges.get(name, ())
    labels = {
        str(int(value) if not text and value == int(value) else value): _words(label)
        for value, label in described.variable_value_labels.get(name, {}).items()
        if isinstance(value, str) == text and not any(each["lo"] <= value <= each["hi"] for each in missing)
    }
    whole = not text and all(value.removeprefix("-").isdigit() for value in labels)
    kind, output = _KINDS.get(held, ("integer", held)) if clock is None else (clock[0], _OUTPUTS[clock[0]])
    named = tuple((value, label) for value, label in labels.items() if label)
    title = _words(described.column_names_to_labels.get(name) or "") or None
    if labels:
        kind, output = "categorical", None
    whole = whole if labels else kind == "integer"
    return ColumnType(kind=kind, output=output, whole=whole, nullable=True, family=held, labels=named, title=title)


def _words(text: str) -> str:
    """A label in one line, as long as a schema takes it."""
    return "".join(filter(str.isprintable, " ".join(text.split())))[:_MOST_LETTERS].strip()


def _column(name: str, values: Sequence[object], held: str, clock: _Clock | None) -> pl.Series:
    if held == "string":
        return pl.Series(name, values, dtype=pl.String, strict=False)
    numbers = pl.Series(name, values, dtype=pl.Float64, strict=False)
    if clock is None:
        return numbers
    kind, unit, days = clock
    # Clipped to the years that Python has.
    moments = (numbers.fill_nan(None) * unit - days * DAY).clip(_FIRST, _LAST).cast(pl.Int64).cast(pl.Datetime("us"))
    return moments.cast(pl.Date) if kind == "date" else moments
