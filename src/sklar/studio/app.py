"""The studio's pages behind its guard, as one ASGI application."""

from __future__ import annotations

from collections.abc import Callable
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
from sklar.studio.pages import bookkeeping, describing, looking, opening, planning, publishing, releasing
from sklar.studio.pages.visit import Notes, Studio, Visit
from sklar.studio.work import Works

Page = Callable[[Visit], Response]

_STATIC = {
    "studio.css": ("sklar.studio", "static/studio.css", "text/css"),
    "report.css": ("sklar.answer.report", "templates/style.css", "text/css"),
    "studio.js": ("sklar.studio", "static/studio.js", "text/javascript"),
    "bins.js": ("sklar.studio", "static/bins.js", "text/javascript"),
    "icon.svg": ("sklar.studio", "static/icon.svg", "image/svg+xml"),
}
# Address: page; /t/{desk}/ stands before those that are about a table.
_GET: dict[str, Page] = {
    "/": opening.home,
    "/books": bookkeeping.books,
    "/books/paid": bookkeeping.paid,
    "open": opening.opened,
    "reading": opening.reading,
    "reading/rows": opening.rows_read,
    "describe": describing.describe,
    "plan": planning.plan,
    "plan/curve": planning.curve,
    "plan/forecast": planning.forecast,
    "release": releasing.release,
    "release/state": releasing.state,
    "look": looking.look,
    "look/comparison": looking.comparison,
    "report": looking.report,
    "report/page": looking.public_report,
    "publish": publishing.publishing,
    "publish/verdict": publishing.verdict,
    "files/{file:path}": publishing.download,
    "books": bookkeeping.books,
}
_POST: dict[str, Page] = {
    "/open": opening.choose,
    "open": opening.draft,
    "describe": describing.decide,
    "describe/accept": describing.accept,
    "describe/cost": describing.cost,
    "describe/person": describing.set_person,
    "describe/rule": describing.decide_rule,
    "plan": planning.choose,
    "plan/goals": planning.set_goals,
    "release": releasing.start,
    "release/cancel": releasing.cancel,
    "release/draw": releasing.draw,
    "look": looking.compare,
    "publish": publishing.publish,
}


def make_app(folder: Folder, session: Session) -> Starlette:
    """The application that serves one folder to one browser."""
    studio = Studio(folder=folder, session=session, works=Works(folder), looks=Looks(folder), notes=Notes())
    routes = [
        Route(name if name[0] == "/" else f"/t/{{desk}}/{name}", _endpoint(page, studio), methods=[method])
        for method, pages in (("GET", _GET), ("POST", _POST))
        for name, page in pages.items()
    ]
    failed = partial(_failed, studio)
    return Starlette(
        debug=False,
        routes=[*routes, Route("/static/{name}", _static, methods=["GET"])],
        middleware=[Middleware(Guard, session=session)],
        exception_handlers={SklarError: failed, HTTPException: failed, Exception: failed},
    )


def _endpoint(page: Page, studio: Studio) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        visit = Visit(studio, request)
        try:
            return page(visit)
        except SklarError as error:
            if visit.back is None:
                raise
            return visit.tell(visit.back, str(error), form=visit.form)

    return endpoint


def _static(request: Request) -> Response:
    package, path, kind = _STATIC.get(request.path_params["name"], ("", "", ""))
    if not package:
        raise HTTPException(404)
    content = files(package).joinpath(path).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def _failed(studio: Studio, request: Request, error: Exception) -> Response:
    """A failure as a page: never a stack trace, and never the text of an error that might quote a row."""
    visit = Visit(studio, request)
    if isinstance(error, SklarError):
        status, says = 400, visit.plain(str(error))
    elif isinstance(error, HTTPException):
        status = error.status_code
        says = "There is no such page here." if status == 404 else "This page is asked for in another way."
    else:
        status, says = 500, f"Unexpected {type(error).__name__}. What was saved before is still there."
    return visit.page("failed.html.j2", "That did not work", "", status=status, says=says)
