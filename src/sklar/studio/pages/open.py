"""Step 1, open: choose a file, see how it seems to be written, and have a schema drafted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sklar.answer.report.render import Rows
from sklar.custodian.draft.sniff import sniff
from sklar.custodian.entries import save
from sklar.errors import DataError, SklarError
from sklar.public.reading import PLAIN, Reading, parse_reading
from sklar.rows.read import open_source
from sklar.rows.text import DELIMITERS, kind_of
from sklar.studio.folder import Desk, File
from sklar.studio.guard import form_of
from sklar.studio.pages.cost import parsed
from sklar.studio.pages.frame import (
    Frame,
    Note,
    Studio,
    desk_of,
    frame,
    go,
    plain,
    releases,
    schema_text,
    show,
    table_words,
    tell,
)

_SHOWN_ROWS, _SHOWN_COLUMNS = 8, 60
_WAIT_S = 3.0
_SIGNS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A table that was opened before, with how far it is."""

    desk: Desk
    columns: int
    waiting: int
    releases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The list of files."""

    frame: Frame
    known: tuple[Known, ...]
    files: tuple[File, ...]
    more: bool
    query: str


def home(studio: Studio, request: Request) -> Response:
    """All tables below the folder."""
    files, more = studio.folder.files()
    view = Home(
        frame=frame(studio, request, title="Open a table", step="open", commands=("sklar studio .",)),
        known=tuple(_known(studio, desk) for desk in studio.folder.desks()),
        files=tuple(files),
        more=more,
        query="",
    )
    return show("home.html.j2", view)


def _known(studio: Studio, desk: Desk) -> Known:
    columns = waiting = 0
    try:
        schema = parsed(schema_text(studio, desk) or "")
        columns, waiting = schema.n_attributes, len(schema.not_reviewed)
    except SklarError:
        pass
    return Known(desk=desk, columns=columns, waiting=waiting, releases=len(releases(studio.folder, desk)))


def choose(studio: Studio, request: Request) -> Response:
    """Open a file: make its desk, and show how it is read."""
    form = form_of(request)
    try:
        desk = studio.folder.open(form.get("file", ""), form.get("query", "").strip() or None)
    except SklarError as error:
        return tell(studio, "/", str(error), form=form)
    return go(f"/t/{desk.name}/open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """How a file seems to be written, and its first rows."""

    frame: Frame
    desk: Desk
    reading: Reading
    remarks: Rows
    signs: tuple[tuple[str, str], ...]
    is_text: bool
    drafted: bool
    problem: str
    columns: tuple[str, ...]
    rows: Rows
    n_columns: int


def opened(studio: Studio, request: Request) -> Response:
    """The first rows of the file, PRIVATE, as they are read with what was guessed or chosen."""
    desk = desk_of(studio, request)
    path = studio.folder.inside(desk.data)
    text = schema_text(studio, desk)
    remarks: Rows = ()
    is_text = desk.query is None and kind_of(path) in DELIMITERS
    problem, reading = "", PLAIN
    columns: tuple[str, ...] = ()
    rows: Rows = ()
    try:
        if text is not None:
            reading = parsed(text).reading
        elif is_text:
            reading, remarks = _guess(studio, desk)
        columns, rows = _first_rows(studio, desk, reading)
    except SklarError as error:
        problem = plain(studio, str(error))
    view = Opened(
        frame=frame(
            studio,
            request,
            title=f"Open {desk.data}",
            step="open",
            desk=desk,
            private=True,
            commands=(f"sklar schema draft {table_words(desk)} -o {shlex.quote(desk.schema)}",),
        ),
        desk=desk,
        reading=reading,
        remarks=remarks,
        signs=tuple(_SIGNS.items()),
        is_text=is_text,
        drafted=text is not None,
        problem=problem,
        columns=columns[:_SHOWN_COLUMNS],
        rows=rows,
        n_columns=len(columns),
    )
    return show("opened.html.j2", view)


def _guess(studio: Studio, desk: Desk) -> tuple[Reading, Rows]:
    try:
        found = sniff(studio.folder.inside(desk.data))
    except SklarError:
        raise
    except Exception:
        # What a reader says of a damaged file may quote a cell of it.
        raise DataError(f"'{desk.data}' cannot be read: it is damaged, or is no text file.") from None
    kept = [each for each in found.remarks if each.key != "nulls"]
    remarks = tuple((each.key, repr(each.value), each.sureness, each.reason) for each in kept)
    return replace(found.reading, nulls=()), remarks


def _first_rows(studio: Studio, desk: Desk, reading: Reading) -> tuple[tuple[str, ...], Rows]:
    source = open_source(studio.folder.table(desk), reading)
    columns = source.find_columns() if source.find_columns else source.columns
    head = next(iter(source.batches(tuple(columns)[:_SHOWN_COLUMNS])), None)
    if head is None:
        return tuple(columns), ()
    rows = tuple(
        tuple("" if cell is None else str(cell) for cell in row) for row in islice(head.iter_rows(), _SHOWN_ROWS)
    )
    return tuple(columns), rows


def draft(studio: Studio, request: Request) -> Response:
    """Draft a schema with the reading that was chosen, or go on with the one that is there."""
    desk = desk_of(studio, request)
    form = form_of(request)
    here = f"/t/{desk.name}/open"
    try:
        reading = _chosen(studio, desk, form)
        look = studio.looks.at(desk, reading, wait_s=_WAIT_S)
    except SklarError as error:
        return tell(studio, here, str(error), form=form)
    if not look.over.is_set():
        note = studio.notes.keep(Note(text="", failed=False, form=form))
        return go(f"/t/{desk.name}/reading?note={note}")
    if look.draft is None:
        return tell(studio, here, look.problem, form=form)
    if form.get("again") or schema_text(studio, desk) is None:
        try:
            save(studio.folder.inside(desk.schema), look.draft.to_toml())
        except SklarError as error:
            return tell(studio, here, str(error), form=form)
    studio.folder.save(desk, rows=look.draft.seen.rows)
    return go(f"/t/{desk.name}/describe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A large table, while it is read: the form goes on by itself when that is over."""

    frame: Frame
    desk: Desk
    fields: tuple[tuple[str, str], ...]


def reading(studio: Studio, request: Request) -> Response:
    """Wait for the rows of a large table."""
    desk = desk_of(studio, request)
    note = studio.notes.find(request.query_params.get("note"))
    if note is None:
        return go(f"/t/{desk.name}/open")
    shown = frame(studio, request, title=f"Reading {desk.data}", step="open", desk=desk, private=True)
    view = Waiting(frame=replace(shown, note=None), desk=desk, fields=tuple(note.form.items()))
    return show("reading.html.j2", view)


def rows_read(studio: Studio, request: Request) -> Response:
    """How far the look at a table is: for the script that waits."""
    look = studio.looks.present(desk_of(studio, request))
    over = look is None or look.over.is_set()
    return JSONResponse({"rows": 0 if look is None else look.rows, "over": over})


def _chosen(studio: Studio, desk: Desk, form: Mapping[str, str]) -> Reading:
    """The reading that the form states; what the schema says where there is one; plain for what is no text."""
    text = schema_text(studio, desk)
    if text is not None and not form.get("again"):
        return parsed(text).reading
    if "delimiter" not in form:
        return PLAIN
    usual = DELIMITERS.get(kind_of(studio.folder.inside(desk.data)))
    table: dict[str, object] = {key: form[key] for key in ("decimal", "encoding", "quote") if key in form}
    table |= {key: form[key] for key in ("thousands",) if form.get(key)}
    if form["delimiter"] != usual:
        table["delimiter"] = form["delimiter"]
    if form.get("header") == "no":
        source = open_source(studio.folder.table(desk), parse_reading(table))
        table |= {"header": False, "columns": [f"column_{number + 1}" for number in range(len(source.columns))]}
    return parse_reading(table)
