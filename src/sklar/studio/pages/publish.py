"""Step 6, publish: verify's verdict, the folder that can be put online, and downloads."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from sklar.errors import DataError, SklarError
from sklar.studio.folder import Desk
from sklar.studio.guard import form_of
from sklar.studio.pages.frame import Frame, Studio, desk_of, frame, go, plain, release_of, releases, show, tell
from sklar.studio.pages.look import report_text
from sklar.studio.work import State
from sklar.trust.verify import Check, verify

_WHAT = {
    ".csv": "synthetic rows",
    ".sklar": "the model: noisy tables, certificate, and what draws rows",
    ".report.html": "the report for readers",
    ".toml": "the schema",
}
_SAID = ("publisher", "contact", "license", "url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A file that may be given to anybody."""

    name: str
    what: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """The page."""

    frame: Frame
    desk: Desk
    release: int | None
    releases: tuple[int, ...]
    products: tuple[Product, ...]
    published: tuple[Product, ...]
    out: str
    running: State | None
    last: State | None
    problem: str


def publishing(studio: Studio, request: Request) -> Response:
    """What there is to publish."""
    desk = desk_of(studio, request)
    number = release_of(studio, desk, request)
    if number is not None:
        # So that it can be downloaded.
        report_text(studio, desk, number)
    stem = f"{desk.name}-{number}"
    out = f"{stem}-published"
    states = [each for each in studio.works.all(desk.name) if each.kind == "publish" and each.release == number]
    commands = (
        f"sklar verify {stem}.sklar",
        f"sklar publish {stem}.sklar --out {shlex.quote(out)}",
        f"sklar verify {out}",
    )
    view = Publishing(
        frame=frame(
            studio, request, title="Publish", step="publish", desk=desk, commands=() if number is None else commands
        ),
        desk=desk,
        release=number,
        releases=tuple(releases(studio.folder, desk)),
        products=() if number is None else tuple(_products(studio, desk, number)),
        published=() if number is None else tuple(_published(studio, out)),
        out=out,
        running=studio.works.running(),
        last=states[-1] if states else None,
        problem=plain(studio, states[-1].message) if states else "",
    )
    return show("publish.html.j2", view)


def _products(studio: Studio, desk: Desk, number: int) -> list[Product]:
    found = []
    for suffix, what in _WHAT.items():
        name = desk.schema if suffix == ".toml" else f"{desk.name}-{number}{suffix}"
        path = studio.folder.inside(name)
        if path.is_file():
            found.append(Product(name=name, what=what, bytes=path.stat().st_size))
    return found


def _published(studio: Studio, out: str) -> list[Product]:
    folder = studio.folder.inside(out)
    if not folder.is_dir():
        return []
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        Product(name=studio.folder.relative(path), what="", bytes=path.stat().st_size)
        for path in files
        if path.resolve().is_relative_to(folder)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verify says of a model file."""

    passed: bool
    checks: tuple[Check, ...]
    concluded: tuple[str, ...]


def verdict(studio: Studio, request: Request) -> Response:
    """Verify's verdict, fetched after the page: it recomputes what the release cost."""
    desk = desk_of(studio, request)
    number = release_of(studio, desk, request)
    if number is None:
        raise DataError("there is no release yet. Make one first.")
    path = studio.folder.inside(f"{desk.name}-{number}.sklar")
    found = verify(path)
    lines = found.lines()
    concluded = lines[lines.index("") + 1 :] if "" in lines else lines
    text = " ".join(concluded).replace(str(path), path.name)
    return show("verdict.html.j2", Verdict(passed=found.passed, checks=found.checks, concluded=(text,)))


def publish(studio: Studio, request: Request) -> Response:
    """Write the folder that can be put online, in a process of its own."""
    desk, form = desk_of(studio, request), form_of(request)
    here = f"/t/{desk.name}/publish"
    asked = form.get("release", "")
    if not asked.isdigit() or int(asked) not in releases(studio.folder, desk):
        return tell(studio, here, "There is no such release.", form=form)
    said = {name: form[name].strip() for name in _SAID if form.get(name, "").strip()}
    try:
        studio.works.begin("publish", desk.name, {"release": int(asked), "said": said})
    except SklarError as error:
        return tell(studio, here, str(error), form=form)
    return go(f"{here}?release={asked}")


def download(studio: Studio, request: Request) -> Response:
    """A file that may be given to anybody: of those that the page lists, and of no other."""
    desk = desk_of(studio, request)
    name = request.path_params["file"]
    for number in releases(studio.folder, desk):
        allowed = (*_products(studio, desk, number), *_published(studio, f"{desk.name}-{number}-published"))
        if any(each.name == name for each in allowed):
            path = studio.folder.inside(name)
            # A browser must never show it as a page of the studio.
            return FileResponse(path, filename=path.name, media_type="application/octet-stream")
    raise DataError("there is no such file to give out. Choose one from the list.")
