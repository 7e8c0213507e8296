"""Step 5, look: the private comparison and the publishable report, each on a page of its own."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sklar.answer.report import publishable
from sklar.errors import DataError, SklarError
from sklar.files.archive import load
from sklar.files.write import write_text
from sklar.studio.folder import Desk
from sklar.studio.guard import REPORT_POLICY, form_of
from sklar.studio.pages.frame import Frame, Studio, desk_of, frame, go, plain, release_of, releases, show, tell
from sklar.studio.work import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Either page: which release, and whether there is something to show."""

    frame: Frame
    desk: Desk
    release: int | None
    releases: tuple[int, ...]
    there: bool
    running: State | None
    problem: str
    public: bool


def look(studio: Studio, request: Request) -> Response:
    """The comparison of a release with the real rows: PRIVATE."""
    desk = desk_of(studio, request)
    number = release_of(studio, desk, request)
    stem = f"{desk.name}-{number}"
    running = studio.works.running()
    tried = [each for each in studio.works.all(desk.name) if each.kind != "publish" and each.release == number]
    problem = plain(studio, tried[-1].message or tried[-1].remark) if tried and tried[-1].over else ""
    commands = () if number is None or desk.query else (_evaluate(desk, stem),)
    view = Looked(
        frame=frame(
            studio, request, title="Look: beside the real rows", step="look", desk=desk, private=True, commands=commands
        ),
        desk=desk,
        release=number,
        releases=tuple(releases(studio.folder, desk)),
        there=number is not None and studio.folder.inside(f"{stem}.PRIVATE.html").is_file(),
        running=running,
        problem=problem,
        public=False,
    )
    return show("look.html.j2", view)


def _evaluate(desk: Desk, stem: str) -> str:
    return f"sklar evaluate {shlex.quote(desk.data)} {stem}.csv --schema {stem}.sklar --report {stem}.PRIVATE.html"


def compare(studio: Studio, request: Request) -> Response:
    """Compare a release with the real rows, in a process of its own."""
    desk = desk_of(studio, request)
    here = f"/t/{desk.name}/look"
    asked = form_of(request).get("release", "")
    if not asked.isdigit() or int(asked) not in releases(studio.folder, desk):
        return tell(studio, here, "There is no such release.", form=form_of(request))
    try:
        studio.works.begin("compare", desk.name, {"release": int(asked)})
    except SklarError as error:
        return tell(studio, here, str(error), form=form_of(request))
    return go(f"{here}?release={asked}")


def comparison(studio: Studio, request: Request) -> Response:
    """The comparison itself, which stands in a frame of the page."""
    desk = desk_of(studio, request)
    number = release_of(studio, desk, request)
    path = studio.folder.inside(f"{desk.name}-{number}.PRIVATE.html")
    if not path.is_file():
        raise DataError("there is no comparison yet. Make one on the page before.")
    return _framed(path.read_text(encoding="utf-8"))


def report(studio: Studio, request: Request) -> Response:
    """The report that is safe to publish."""
    desk = desk_of(studio, request)
    number = release_of(studio, desk, request)
    stem = f"{desk.name}-{number}"
    commands = () if number is None else (f"sklar report {stem}.sklar --out {stem}.report.html",)
    view = Looked(
        frame=frame(studio, request, title="Look: the public report", step="look", desk=desk, commands=commands),
        desk=desk,
        release=number,
        releases=tuple(releases(studio.folder, desk)),
        there=number is not None,
        running=None,
        problem="",
        public=True,
    )
    return show("look.html.j2", view)


def public_report(studio: Studio, request: Request) -> Response:
    """The report itself, made from the model file alone, and kept beside it."""
    desk = desk_of(studio, request)
    number = release_of(studio, desk, request)
    if number is None:
        raise DataError("there is no release yet. Make one first.")
    return _framed(report_text(studio, desk, number))


def report_text(studio: Studio, desk: Desk, number: int) -> str:
    """The report of a release; written beside its model when it is asked for first."""
    model = studio.folder.inside(f"{desk.name}-{number}.sklar")
    path = studio.folder.inside(f"{desk.name}-{number}.report.html")
    if path.is_file() and path.stat().st_mtime >= model.stat().st_mtime:
        return path.read_text(encoding="utf-8")
    text = publishable(load(model), file_name=model.name)
    write_text(path, text)
    return text


def _framed(text: str) -> Response:
    return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})
