"""One visit to the studio: the table that a request is about, its form, and the page or redirect that answers it."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from sklar.answer.report.render import render
from sklar.errors import DataError, SklarError
from sklar.public.schema import Schema
from sklar.studio.folder import Desk, Folder
from sklar.studio.guard import Session
from sklar.studio.looks import Looks
from sklar.studio.pages.cost import parsed
from sklar.studio.work import Works

# Addresses of the five steps, and what they are called.
STEPS = {"open": "Open", "describe": "Who and what", "plan": "Plan", "release": "Release", "look": "Share"}
_MOST_NOTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The result of a form, shown on the next page, also after a reload. `form` is what was typed, where it failed."""

    text: str
    failed: bool
    form: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """What all visits share."""

    folder: Folder
    session: Session
    works: Works
    looks: Looks
    # The last notes, by a random name that the next page's address carries.
    notes: dict[str, Note] = field(default_factory=dict)


class Visit:
    """One request. `back` is where a form that fails leads: a page that shows the error beside what was typed."""

    def __init__(self, studio: Studio, request: Request) -> None:
        self.studio, self.request = studio, request
        self.folder, self.works = studio.folder, studio.works
        self.back: str | None = None

    @cached_property
    def desk(self) -> Desk:
        """The table that the address is about."""
        return self.folder.desk(self.request.path_params["desk"])

    @property
    def form(self) -> Mapping[str, str]:
        """The fields of a form that the guard let pass."""
        form: Mapping[str, str] = self.request.state.form
        return form

    @cached_property
    def note(self) -> Note | None:
        """The note that the address names."""
        return self.studio.notes.get(self.query("note"))

    @cached_property
    def text(self) -> str | None:
        """The schema file of the table; None before there is one."""
        return self.folder.schema_text(self.desk)

    @property
    def schema(self) -> Schema:
        """The schema of the table."""
        return parsed(self.text or "")

    @property
    def schema_path(self) -> str:
        """The schema file as a command names it."""
        return shlex.quote(self.desk.schema)

    @property
    def table(self) -> str:
        """The table as a command names it."""
        query = "" if self.desk.query is None else f" --query {shlex.quote(self.desk.query)}"
        return f"{shlex.quote(self.desk.data)}{query}"

    @cached_property
    def releases(self) -> list[int]:
        """The numbers of the table's releases, oldest first."""
        return self.folder.releases(self.desk)

    @property
    def release(self) -> int | None:
        """The release that a page is about: the one that the address names, else the last one."""
        named = self.query("release")
        if named.isdigit() and int(named) in self.releases:
            return int(named)
        return self.releases[-1] if self.releases else None

    @property
    def stem(self) -> str:
        """What the names of that release's files begin with; an error where there is none."""
        if self.release is None:
            raise DataError("there is no release yet. Make one first.")
        return f"{self.desk.name}-{self.release}"

    @property
    def form_release(self) -> int:
        """The release that a form is about."""
        named = self.form.get("release", "")
        if not named.isdigit() or int(named) not in self.releases:
            raise DataError("There is no such release.")
        return int(named)

    def query(self, name: str, default: str = "") -> str:
        """A value of the address."""
        return self.request.query_params.get(name, default)

    def address(self, step: str, **values: str | int) -> str:
        """The address of a page about this table."""
        query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in values.items() if value != "")
        return f"/t/{self.desk.name}/{step}" + (f"?{query}" if query else "")

    def plain(self, text: str) -> str:
        """A message without the path of the folder, in which the reader is anyway."""
        return text.replace(f"{self.folder.root}{os.sep}", "")

    def keep(self, note: Note) -> str:
        """Keep a note for the next page; its name."""
        notes, name = self.studio.notes, secrets.token_hex(8)
        notes[name] = note
        if len(notes) > _MOST_NOTES:
            del notes[next(iter(notes))]
        return name

    def tell(self, address: str, text: str, *, form: Mapping[str, str] | None = None) -> Response:
        """Send the browser on with a note. With a `form`, the note says what was wrong with it."""
        note = self.keep(Note(text=self.plain(text), failed=form is not None, form=form or {}))
        path, mark, place = address.partition("#")
        return go(f"{path}{'&' if '?' in path else '?'}note={note}{mark}{place}")

    def page(
        self,
        template: str,
        title: str,
        step: str,
        *,
        private: bool = False,
        commands: tuple[str, ...] = (),
        status: int = 200,
        **values: Any,
    ) -> Response:
        """Render a page with what stands around every page. One without a step is about no table."""
        desk = self.desk if step and "desk" in self.request.path_params else None
        frame = {"title": title, "step": step, "private": private, "commands": commands, "note": self.note}
        frame |= {
            "folder": self.folder.root.name or "/",
            "desk": None if desk is None else desk.name,
            "steps": STEPS,
            "progress": self._progress(desk),
            "form_token": self.studio.session.form_token,
        }
        return show(template, status=status, **{"frame": frame, "desk": desk} | values)

    def _progress(self, desk: Desk | None) -> tuple[int | None, set[str]]:
        """How many decisions wait, None where no schema can be read; and which steps are done."""
        if desk is None:
            return None, set()
        waiting = None
        # Whose rows are is a decision, too.
        with suppress(SklarError):
            waiting = len(self.schema.not_reviewed) + bool(self.schema.ask_person)
        folders = (self.folder.root / f"{desk.name}-{number}-published" for number in self.releases)
        done = {"open": True, "describe": waiting == 0, "plan": waiting == 0 and bool(desk.target)}
        done |= {"release": bool(self.releases), "look": any(folder.is_dir() for folder in folders)}
        return waiting, {name for name, whether in done.items() if whether}


def show(template: str, *, status: int = 200, **values: Any) -> Response:
    """Render a page, or a part of one."""
    return HTMLResponse(render("sklar.studio", template, values), status_code=status)


def go(address: str) -> Response:
    """Send the browser on after a form, so that a reload does not send the form again."""
    return RedirectResponse(address, status_code=303)
