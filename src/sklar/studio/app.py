"""The studio's pages behind its guard, as one ASGI application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sklar.errors import SklarError
from sklar.studio.folder import Folder
from sklar.studio.guard import Guard, Session
from sklar.studio.looks import Looks
from sklar.studio.pages import books, describe, look, plan, publish, release
from sklar.studio.pages import open as opening
from sklar.studio.pages.frame import Frame, Notes, Studio, frame, plain, show
from sklar.studio.work import Works

Page = Callable[[Studio, Request], Response]

_STATIC = {
    "studio.css": ("sklar.studio", "static/studio.css", "text/css"),
    "report.css": ("sklar.answer.report", "templates/style.css", "text/css"),
    "studio.js": ("sklar.studio", "static/studio.js", "text/javascript"),
    "bins.js": ("sklar.studio", "static/bins.js", "text/javascript"),
    "icon.svg": ("sklar.studio", "static/icon.svg", "image/svg+xml"),
}
# (method, address, page)
_PAGES: tuple[tuple[str, str, Page], ...] = (
    ("GET", "/", opening.home),
    ("POST", "/open", opening.choose),
    ("GET", "/t/{desk}/open", opening.opened),
    ("POST", "/t/{desk}/open", opening.draft),
    ("GET", "/t/{desk}/reading", opening.reading),
    ("GET", "/t/{desk}/reading/rows", opening.rows_read),
    ("GET", "/t/{desk}/describe", describe.describe),
    ("POST", "/t/{desk}/describe", describe.decide),
    ("POST", "/t/{desk}/describe/accept", describe.accept),
    ("POST", "/t/{desk}/describe/cost", describe.cost),
    ("POST", "/t/{desk}/describe/person", describe.set_person),
    ("POST", "/t/{desk}/describe/rule", describe.decide_rule),
    ("GET", "/t/{desk}/plan", plan.plan),
    ("POST", "/t/{desk}/plan", plan.choose),
    ("GET", "/t/{desk}/plan/curve", plan.curve),
    ("POST", "/t/{desk}/plan/goals", plan.set_goals),
    ("GET", "/t/{desk}/plan/forecast", plan.forecast),
    ("GET", "/t/{desk}/release", release.release),
    ("POST", "/t/{desk}/release", release.start),
    ("POST", "/t/{desk}/release/cancel", release.cancel),
    ("POST", "/t/{desk}/release/draw", release.draw),
    ("GET", "/t/{desk}/release/state", release.state),
    ("GET", "/t/{desk}/look", look.look),
    ("POST", "/t/{desk}/look", look.compare),
    ("GET", "/t/{desk}/look/comparison", look.comparison),
    ("GET", "/t/{desk}/report", look.report),
    ("GET", "/t/{desk}/report/page", look.public_report),
    ("GET", "/t/{desk}/publish", publish.publishing),
    ("POST", "/t/{desk}/publish", publish.publish),
    ("GET", "/t/{desk}/publish/verdict", publish.verdict),
    ("GET", "/t/{desk}/files/{file:path}", publish.download),
    ("GET", "/t/{desk}/books", books.books),
    ("GET", "/books", books.books),
    ("GET", "/books/paid", books.paid),
)


def make_app(folder: Folder, session: Session) -> Starlette:
    """The application that serves one folder to one browser."""
    studio = Studio(folder=folder, session=session, works=Works(folder), looks=Looks(folder), notes=Notes())
    routes = [Route(address, _endpoint(page, studio), methods=[method]) for method, address, page in _PAGES]
    routes.append(Route("/static/{name}", _static, methods=["GET"]))
    failed = partial(_failed, studio)
    return Starlette(
        debug=False,
        routes=routes,
        middleware=[Middleware(Guard, session=session)],
        exception_handlers={SklarError: failed, HTTPException: failed, Exception: failed},
    )


def _endpoint(page: Page, studio: Studio) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        return page(studio, request)

    return endpoint


def _static(request: Request) -> Response:
    package, path, kind = _STATIC.get(request.path_params["name"], ("", "", ""))
    if not package:
        raise HTTPException(404)
    content = files(package).joinpath(path).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """What went wrong, on a page of its own."""

    frame: Frame
    says: str
    status: int


def _failed(studio: Studio, request: Request, error: Exception) -> Response:
    """A failure as a page: never a stack trace, and never the text of an error that might quote a row."""
    if isinstance(error, SklarError):
        status, says = 400, plain(studio, str(error))
    elif isinstance(error, HTTPException):
        status = error.status_code
        says = "There is no such page here." if status == 404 else "This page is asked for in another way."
    else:
        status, says = 500, f"Unexpected {type(error).__name__}. What was saved before is still there."
    view = Failed(frame=frame(studio, request, title="That did not work", step=""), says=says, status=status)
    return show("failed.html.j2", view, status=status)
