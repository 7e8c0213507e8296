"""What all pages have in common: their frame, notes to the custodian, and how they are rendered."""

from __future__ import annotations

import os
import secrets
import shlex
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from sklar.answer.report.render import render
from sklar.errors import SchemaError, SklarError
from sklar.studio.folder import LEDGER, Desk, Folder
from sklar.studio.guard import Session
from sklar.studio.looks import Looks
from sklar.studio.pages.cost import parsed
from sklar.studio.work import Works

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STEPS = (
    ("open", "Open"),
    ("describe", "Describe"),
    ("plan", "Plan"),
    ("release", "Release"),
    ("look", "Look"),
    ("publish", "Publish"),
    ("books", "Books"),
)
_MOST_NOTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a form led to: told on the next page, also after a reload. `form` is what was typed, where it failed."""

    text: str
    failed: bool
    form: Mapping[str, str] = field(default_factory=dict)


class Notes:
    """The last notes, by a random name that the next page's address carries."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Note] = OrderedDict()

    def keep(self, note: Note) -> str:
        """Keep a note; its name."""
        name = secrets.token_hex(8)
        self._kept[name] = note
        while len(self._kept) > _MOST_NOTES:
            self._kept.popitem(last=False)
        return name

    def find(self, name: str | None) -> Note | None:
        """The note of that name, while it is kept."""
        return self._kept.get(name or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """All that pages work with."""

    folder: Folder
    session: Session
    works: Works
    looks: Looks
    notes: Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step in the bar at the top of a page."""

    name: str
    label: str
    address: str
    done: bool
    here: bool
    count: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What stands around every page."""

    title: str
    folder: str
    desk: str | None
    step: str
    steps: tuple[Step, ...]
    form_token: str
    note: Note | None
    private: bool
    commands: tuple[str, ...] = ()


def frame(
    studio: Studio,
    request: Request,
    *,
    title: str,
    step: str,
    desk: Desk | None = None,
    private: bool = False,
    commands: tuple[str, ...] = (),
) -> Frame:
    """The frame of a page."""
    return Frame(
        title=title,
        folder=studio.folder.root.name or "/",
        desk=None if desk is None else desk.name,
        step=step,
        steps=_steps(studio, desk, step),
        form_token=studio.session.form_token,
        note=studio.notes.find(request.query_params.get("note")),
        private=private,
        commands=commands,
    )


def _steps(studio: Studio, desk: Desk | None, here: str) -> tuple[Step, ...]:
    made = {"open": desk is not None}
    waiting = 0
    if desk is not None:
        try:
            schema = parsed(schema_text(studio, desk) or "")
            waiting = len(schema.not_reviewed)
            made["describe"] = not waiting
        except SklarError:
            pass
        made["plan"] = bool(desk.target) and made.get("describe", False)
        made["release"] = made["look"] = bool(releases(studio.folder, desk))
        made["publish"] = any(
            (studio.folder.root / f"{desk.name}-{number}-published").is_dir()
            for number in releases(studio.folder, desk)
        )
    return tuple(
        Step(
            name=name,
            label=label,
            address=_address(name, desk),
            done=made.get(name, False),
            here=name == here,
            count=str(waiting) if name == "describe" and waiting else "",
        )
        for name, label in STEPS
    )


def _address(step: str, desk: Desk | None) -> str:
    if step == "books":
        return "/books" if desk is None else f"/t/{desk.name}/books"
    return "" if desk is None and step != "open" else "/" if desk is None else f"/t/{desk.name}/{step}"


def show(template: str, view: DataclassInstance, *, status: int = 200) -> Response:
    """Render a page."""
    return HTMLResponse(render("sklar.studio", template, view), status_code=status)


def go(address: str) -> Response:
    """Send the browser on after a form, so that a reload does not send the form again."""
    return RedirectResponse(address, status_code=303)


def tell(studio: Studio, address: str, text: str, *, form: Mapping[str, str] | None = None) -> Response:
    """Send the browser on with a note. With a `form`, the note says what was wrong with it."""
    note = studio.notes.keep(Note(text=plain(studio, text), failed=form is not None, form=form or {}))
    path, mark, place = address.partition("#")
    sign = "&" if "?" in path else "?"
    return go(f"{path}{sign}note={note}{mark}{place}")


def plain(studio: Studio, text: str) -> str:
    """A message without the path of the folder, in which the reader is anyway."""
    return text.replace(f"{studio.folder.root}{os.sep}", "")


def releases(folder: Folder, desk: Desk) -> list[int]:
    """The numbers of a table's releases, oldest first."""
    numbers = (path.stem.removeprefix(f"{desk.name}-") for path in folder.root.glob(f"{desk.name}-*.sklar"))
    return sorted(int(number) for number in numbers if number.isdigit())


def release_of(studio: Studio, desk: Desk, request: Request) -> int | None:
    """The release that a page is about: the one that the address names, else the last one."""
    made = releases(studio.folder, desk)
    asked = request.query_params.get("release", "")
    return int(asked) if asked.isdigit() and int(asked) in made else (made[-1] if made else None)


def schema_text(studio: Studio, desk: Desk) -> str | None:
    """The schema file of a table; None before there is one."""
    path = studio.folder.inside(desk.schema)
    if not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SchemaError(f"schema file '{desk.schema}' cannot be read. It must be a UTF-8 text file.") from None


def desk_of(studio: Studio, request: Request) -> Desk:
    """The table that an address is about."""
    return studio.folder.desk(request.path_params["desk"])


def table_words(desk: Desk) -> str:
    """How a command names the table."""
    query = "" if desk.query is None else f" --query {shlex.quote(desk.query)}"
    return f"{shlex.quote(desk.data)}{query}"


def query_string(**values: str | int) -> str:
    """Values as the query part of an address."""
    return "&".join(f"{key}={quote(str(value), safe='')}" for key, value in values.items() if value != "")


def ledger_path(studio: Studio) -> Path:
    """The ledger of the folder, whether it is there or not."""
    return studio.folder.root / LEDGER
