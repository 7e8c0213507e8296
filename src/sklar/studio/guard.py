"""Who may ask the studio anything: one browser of one custodian, and no page of anybody else. More:
docs/derivations.md.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sklar.machine.wording import said

# More than any form here needs: a list of some thousand categories.
MOST_BYTES = 1 << 20
_MOST_FIELDS = 20_000
_TOO_LARGE = f"A form must have at most {MOST_BYTES:,} bytes. Put long lists into the schema file instead."
_ENTER, _STATIC = "/enter", "/static/"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Of a report that stands in a frame: it has its style inside, and nothing else that could act.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not `no-referrer`: browsers would then send the Origin of our own forms as null.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(slots=True, kw_only=True, repr=False)
class Session:
    """One run of the studio: where it listens, the token of its first address, and the cookie that follows it."""

    host: str
    port: int
    token: str | None = field(default_factory=lambda: secrets.token_urlsafe(32))
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """The cookie's name. Cookies of one host are shared by its ports, so it names the port."""
        return f"sklar_studio_{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """What a browser may write into `Host`."""
        names = {"127.0.0.1", "localhost"} if self.host == "127.0.0.1" else {self.host}
        written = {f"[{name}]" if ":" in name else name for name in names}
        return frozenset({f"{name}:{self.port}" for name in written} | (written if self.port == 80 else set()))

    @property
    def first_address(self) -> str:
        """The address that lets the custodian in, once."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}{_ENTER}?token={self.token}"

    @property
    def form_token(self) -> str:
        """What every form carries."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest()

    def admit(self, token: str) -> bool:
        """Whether a token lets its bearer in; the right one does so once."""
        if self.token is None or not hmac.compare_digest(token.encode(), self.token.encode()):
            return False
        self.token = None
        return True

    def knows(self, cookie: str | None) -> bool:
        """Whether a cookie is the one that was given out."""
        return cookie is not None and hmac.compare_digest(cookie.encode(), self.secret.encode())


class Guard:
    """Refuses what is not the custodian's, and says to browsers what pages may do."""

    def __init__(self, app: ASGIApp, *, session: Session) -> None:
        self._app, self._session = app, session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refusal(request)
        if refused is None and request.method == "POST":
            refused = await self._take_form(request)
        await (refused or self._app)(scope, receive, answer)

    def _refusal(self, request: Request) -> Response | None:
        session, headers = self._session, request.headers
        if headers.get("host") not in session.hosts:
            return _refuse(421, "This address is not the studio's. Open the one that the terminal shows.")
        if request.method not in ("GET", "HEAD", "POST"):
            return _refuse(405, "The studio knows GET and POST alone.")
        if request.url.path.startswith(_STATIC):
            return None
        if request.url.path == _ENTER:
            return self._enter(request)
        if not session.knows(request.cookies.get(session.cookie)):
            return _refuse(403, said("studio.strange"))
        # A page of the studio made the browser ask: by `Origin`, which browsers send with every form.
        own = headers.get("origin") == f"http://{headers['host']}"
        if request.method == "POST" and not (own and headers.get("sec-fetch-site", "same-origin") == "same-origin"):
            return _refuse(403, "Another page asked for this. Go back to the studio and do it there.")
        return None

    def _enter(self, request: Request) -> Response:
        session = self._session
        known = session.knows(request.cookies.get(session.cookie))
        if not known and not session.admit(request.query_params.get("token", "")):
            return _refuse(403, "This address was used before, or is not complete. Run sklar studio again.")
        # No redirect: a browser that came from a file would not send the cookie along with one.
        icon = '<link rel="icon" href="/static/icon.svg">'
        response = HTMLResponse(f'{icon}<meta http-equiv="refresh" content="0;url=/">')
        response.set_cookie(session.cookie, session.secret, httponly=True, samesite="strict", path="/")
        return response

    async def _take_form(self, request: Request) -> Response | None:
        """Read a form within bounds, require its token, and leave its fields for the page in `request.state.form`."""
        if request.headers.get("content-type", "").split(";")[0] != "application/x-www-form-urlencoded":
            return _refuse(415, "The studio takes forms of its own pages alone.")
        stated = request.headers.get("content-length", "0")
        if not stated.isdigit() or int(stated) > MOST_BYTES:
            return _refuse(413, _TOO_LARGE)
        body = bytearray()
        async for block in request.stream():
            body += block
            if len(body) > MOST_BYTES:
                return _refuse(413, _TOO_LARGE)
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=_MOST_FIELDS
            )
        except ValueError:
            return _refuse(400, "The form could not be read. Go back and send it again.")
        form: dict[str, str] = dict(pairs)
        given = form.pop("form_token", "")
        if not hmac.compare_digest(given.encode(), self._session.form_token.encode()):
            return _refuse(403, "The form is not one of this run of the studio. Go back, reload, and send it again.")
        request.state.form = form
        return None


def _refuse(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)
