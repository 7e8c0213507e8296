"""The studio's pages behind its guard, served on this machine's own address, unless told otherwise twice."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sklar.errors import SklarError
from sklar.machine.wording import failing, said
from sklar.studio.folder import Folder
from sklar.studio.guard import Guard, Session
from sklar.studio.looks import Looks
from sklar.studio.pages import describing, opening, planning, released
from sklar.studio.pages.visit import Studio, Visit
from sklar.studio.work import Works

LOOPBACK = "127.0.0.1"
_GRACE_S = 2
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
    "/books": released.books,
    "/books/paid": released.paid,
    "open": opening.opened,
    "reading": opening.reading,
    "reading/rows": opening.rows_read,
    "describe": describing.describe,
    "plan": planning.plan,
    "plan/forecast": planning.forecast,
    "release": released.release,
    "release/state": released.state,
    "look": released.look,
    "look/comparison": released.comparison,
    "report": released.report,
    "report/page": released.public_report,
    "publish": released.publishing,
    "publish/verdict": released.verdict,
    "files/{file:path}": released.download,
    "books": released.books,
}
_POST: dict[str, Page] = {
    "/open": opening.choose,
    "open": opening.draft,
    "describe": describing.decide,
    "describe/accept": describing.accept,
    "describe/back": describing.bring_back,
    "describe/cost": describing.cost,
    "describe/person": describing.set_person,
    "describe/rule": describing.decide_rule,
    "describe/target": describing.set_target,
    "plan": planning.choose,
    "plan/goals": planning.set_goals,
    "release": released.start,
    "release/cancel": released.cancel,
    "release/draw": released.draw,
    "look": released.compare,
    "publish": released.publish,
}


def check_host(host: str, *, beyond: bool) -> None:
    """Refuse to listen where others could come from, unless the custodian said so by two options."""
    unread = f"--host must be an address of this machine such as {LOOPBACK}, got '{host}'."
    with failing(SklarError, unread, ValueError):
        address = ipaddress.ip_address(host)
    if address.is_unspecified:
        raise SklarError(f"--host must name one address, and {host} means all of them. Give the one to listen on.")
    if not address.is_loopback and not beyond:
        raise SklarError(said("studio.others_reach", host=host))


def serve(
    root: str | Path, *, host: str = LOOPBACK, port: int = 0, beyond: bool = False, ready: Callable[[str], None]
) -> None:
    """Serve a folder until interrupted. `ready` is told the first address, once it can be opened."""
    check_host(host, beyond=beyond)
    folder = Folder(root)
    busy = f"{host}:{port} cannot be listened on: {{why}}. Leave --port out for a free one."
    with failing(SklarError, busy, OSError):
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    with listening:
        session = Session(host=host, port=listening.getsockname()[1])
        server = make_server(folder, session)
        ready(session.first_address)
        server.run(sockets=[listening])


def make_server(folder: Folder, session: Session) -> uvicorn.Server:
    """The server of a folder, silent: an access log would hold the token and names of columns."""
    studio = Studio(folder=folder, session=session, works=Works(folder), looks=Looks(folder))
    routes = [
        Route(name if name[0] == "/" else f"/t/{{desk}}/{name}", _endpoint(page, studio), methods=[method])
        for method, pages in (("GET", _GET), ("POST", _POST))
        for name, page in pages.items()
    ]
    failed = partial(_failed, studio)
    app = Starlette(
        debug=False,
        routes=[*routes, Route("/static/{name}", _static, methods=["GET"])],
        middleware=[Middleware(Guard, session=session)],
        exception_handlers={SklarError: failed, HTTPException: failed, Exception: failed},
    )
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return uvicorn.Server(config)


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
    table = request.path_params.get("desk") if status == 400 else None
    return visit.page("failed.html.j2", "That did not work", "", status=status, says=says, table=table)
