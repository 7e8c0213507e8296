"""Step 5, look: the private comparison and the publishable report, each on a page of its own."""

from __future__ import annotations

import shlex

from starlette.responses import HTMLResponse, Response

from sklar.answer.report import publishable
from sklar.errors import DataError
from sklar.files.archive import load
from sklar.files.write import write_text
from sklar.studio.guard import REPORT_POLICY
from sklar.studio.pages.visit import Visit, go


def look(visit: Visit) -> Response:
    """The comparison of a release with the real rows: PRIVATE."""
    number, desk, there = visit.release, visit.desk, False
    commands: tuple[str, ...] = ()
    if number is not None:
        stem, data = visit.stem, shlex.quote(desk.data)
        there = visit.folder.inside(f"{stem}.PRIVATE.html").is_file()
        evaluate = f"sklar evaluate {data} {stem}.csv --schema {stem}.sklar --report {stem}.PRIVATE.html"
        commands = () if desk.query else (evaluate,)
    tried = [each for each in visit.works.all(desk.name) if each.kind != "publish" and each.release == number]
    return visit.page(
        "look.html.j2",
        "Look: beside the real rows",
        "look",
        private=True,
        commands=commands,
        release=number,
        releases=visit.releases,
        there=there,
        running=visit.works.running(),
        problem=visit.plain(tried[-1].message or tried[-1].remark) if tried and tried[-1].over else "",
        public=False,
    )


def compare(visit: Visit) -> Response:
    """Compare a release with the real rows, in a process of its own."""
    visit.back = visit.address("look")
    number = visit.asked_release
    visit.works.begin("compare", visit.desk.name, {"release": number})
    return go(visit.address("look", release=number))


def comparison(visit: Visit) -> Response:
    """The comparison itself, which stands in a frame of the page."""
    path = visit.folder.inside(f"{visit.stem}.PRIVATE.html")
    if not path.is_file():
        raise DataError("there is no comparison yet. Make one on the page before.")
    return _framed(path.read_text(encoding="utf-8"))


def report(visit: Visit) -> Response:
    """The report that is safe to publish."""
    number = visit.release
    return visit.page(
        "look.html.j2",
        "Look: the public report",
        "look",
        commands=() if number is None else (f"sklar report {visit.stem}.sklar --out {visit.stem}.report.html",),
        release=number,
        releases=visit.releases,
        there=number is not None,
        running=None,
        problem="",
        public=True,
    )


def public_report(visit: Visit) -> Response:
    """The report itself, made from the model file alone, and kept beside it."""
    return _framed(report_text(visit))


def report_text(visit: Visit) -> str:
    """The report of a release; written beside its model when it is asked for first."""
    model, path = (visit.folder.inside(visit.stem + suffix) for suffix in (".sklar", ".report.html"))
    if path.is_file() and path.stat().st_mtime >= model.stat().st_mtime:
        return path.read_text(encoding="utf-8")
    text = publishable(load(model), file_name=model.name)
    write_text(path, text)
    return text


def _framed(text: str) -> Response:
    return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})
