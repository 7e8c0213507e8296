"""Step 1, open: choose a file, see how it seems to be written, and have a schema drafted."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from starlette.responses import JSONResponse, Response

from sklar.answer.report.render import Rows
from sklar.custodian.draft.sniff import sniff
from sklar.custodian.review import save
from sklar.errors import DataError, SklarError
from sklar.machine.wording import failing
from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Reading, parse_reading
from sklar.rows.read import open_source
from sklar.rows.text import DELIMITERS, kind_of
from sklar.studio.folder import Desk, Folder
from sklar.studio.pages.cost import parsed
from sklar.studio.pages.visit import Note, Visit, go

_SHOWN_ROWS, _SHOWN_COLUMNS = 8, 60
_WAIT_S = 3.0
_SIGNS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}


def home(visit: Visit) -> Response:
    """All tables below the folder."""
    files, more = visit.folder.files()
    known = [_progress(visit.folder, desk) for desk in visit.folder.desks()]
    return visit.page(
        "home.html.j2", "Open a table", "open", commands=("sklar studio .",), known=known, files=files, more=more
    )


def _progress(folder: Folder, desk: Desk) -> tuple[Desk, Schema | None, int]:
    """A table that was opened before, its schema where there is one, and how many releases it has."""
    schema = None
    with suppress(SklarError):
        schema = parsed(folder.schema_text(desk) or "")
    return desk, schema, len(folder.releases(desk))


def choose(visit: Visit) -> Response:
    """Open a file: make its desk, and show how it is read."""
    visit.back = "/"
    desk = visit.folder.open(visit.form.get("file", ""), visit.form.get("query", "").strip() or None)
    return go(f"/t/{desk.name}/open")


def opened(visit: Visit) -> Response:
    """The first rows of the file, PRIVATE, as they are read with what was guessed or chosen."""
    desk, text = visit.desk, visit.text
    is_text = desk.query is None and kind_of(visit.folder.inside(desk.data)) in DELIMITERS
    problem, reading = "", PLAIN
    columns: tuple[str, ...] = ()
    remarks: Rows = ()
    rows: Rows = ()
    try:
        if text is not None:
            reading = parsed(text).reading
        elif is_text:
            reading, remarks = _guess(visit)
        columns, rows = _first_rows(visit, reading)
    except SklarError as error:
        problem = visit.plain(str(error))
    return visit.page(
        "opened.html.j2",
        f"Open {desk.data}",
        "open",
        private=True,
        commands=(f"sklar schema draft {visit.table} -o {visit.schema_path}",),
        reading=reading,
        remarks=remarks,
        signs=_SIGNS.items(),
        is_text=is_text,
        drafted=text is not None,
        problem=problem,
        columns=columns[:_SHOWN_COLUMNS],
        rows=rows,
        n_columns=len(columns),
    )


def _guess(visit: Visit) -> tuple[Reading, Rows]:
    # What a reader says of a damaged file may quote a cell of it.
    with failing(DataError, f"'{visit.desk.data}' cannot be read: it is damaged, or is no text file."):
        reading, remarks = sniff(visit.folder.inside(visit.desk.data))
    return reading, tuple((each.key, repr(each.value), each.sureness, each.reason) for each in remarks)


def _first_rows(visit: Visit, reading: Reading) -> tuple[tuple[str, ...], Rows]:
    source = open_source(visit.folder.table(visit.desk), reading)
    columns = tuple(source.find_columns() if source.find_columns else source.columns)
    head = next(iter(source.batches(columns[:_SHOWN_COLUMNS])), None)
    rows = () if head is None else islice(head.iter_rows(), _SHOWN_ROWS)
    return columns, tuple(tuple("" if cell is None else str(cell) for cell in row) for row in rows)


def draft(visit: Visit) -> Response:
    """Draft a schema with the reading that was chosen, or go on with the one that is there."""
    visit.back = visit.address("open")
    desk, form = visit.desk, visit.form
    look = visit.studio.looks.at(desk, _chosen(visit), wait_s=_WAIT_S)
    if not look.over.is_set():
        note = visit.keep(Note(text="", failed=False, form=form))
        return go(visit.address("reading", note=note))
    if look.draft is None:
        raise DataError(look.problem)
    if form.get("again") or visit.text is None:
        save(visit.folder.inside(desk.schema), look.draft.to_toml())
    visit.folder.save(desk, rows=look.draft.rows)
    return go(visit.address("describe"))


def reading(visit: Visit) -> Response:
    """Wait for the rows of a large table: the form goes on by itself when they have been read."""
    note, visit.note = visit.note, None
    if note is None:
        return go(visit.address("open"))
    title = f"Reading {visit.desk.data}"
    return visit.page("reading.html.j2", title, "open", private=True, fields=note.form.items())


def rows_read(visit: Visit) -> Response:
    """How far the look at a table is: for the script that waits."""
    look = visit.studio.looks.present(visit.desk)
    return JSONResponse({"rows": 0 if look is None else look.rows, "over": look is None or look.over.is_set()})


def _chosen(visit: Visit) -> Reading:
    """The reading that the form states; what the schema says where there is one; plain for what is no text."""
    form, desk = visit.form, visit.desk
    if visit.text is not None and not form.get("again"):
        return visit.schema.reading
    if "delimiter" not in form:
        return PLAIN
    table: dict[str, object] = {key: form[key] for key in ("decimal", "encoding", "quote") if key in form}
    table |= {key: form[key] for key in ("thousands",) if form.get(key)}
    if form["delimiter"] != DELIMITERS.get(kind_of(visit.folder.inside(desk.data))):
        table["delimiter"] = form["delimiter"]
    if form.get("header") == "no":
        source = open_source(visit.folder.table(desk), parse_reading(table))
        table |= {"header": False, "columns": [f"column_{number + 1}" for number in range(len(source.columns))]}
    return parse_reading(table)
