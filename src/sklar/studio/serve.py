"""The studio's server: on this machine's own address, unless told otherwise twice."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from sklar.errors import SklarError
from sklar.studio.app import make_app
from sklar.studio.folder import Folder
from sklar.studio.guard import Session

LOOPBACK = "127.0.0.1"
_GRACE_S = 2


def check_host(host: str, *, beyond: bool) -> None:
    """Refuse to listen where others could come from, unless the custodian said so by two options."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise SklarError(f"--host must be an address of this machine such as {LOOPBACK}, got '{host}'.") from None
    if address.is_unspecified:
        raise SklarError(f"--host must name one address, and {host} means all of them. Give the one to listen on.")
    if not address.is_loopback and not beyond:
        raise SklarError(
            f"--host {host} lets other machines reach PRIVATE rows, over a connection that is not encrypted. If that "
            "is meant, add --beyond-this-machine; better, leave both out and use an SSH tunnel."
        )


def serve(
    root: str | Path, *, host: str = LOOPBACK, port: int = 0, beyond: bool = False, ready: Callable[[str], None]
) -> None:
    """Serve a folder until interrupted. `ready` is told the first address, once it can be opened."""
    check_host(host, beyond=beyond)
    folder = Folder(root)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SklarError(
            f"{host}:{port} cannot be listened on: {error.strerror}. Leave --port out for a free one."
        ) from None
    with listening:
        session = Session(host=host, port=listening.getsockname()[1])
        server = make_server(folder, session)
        ready(session.first_address)
        server.run(sockets=[listening])


def make_server(folder: Folder, session: Session) -> uvicorn.Server:
    """The server of a folder, silent: an access log would hold the token and names of columns."""
    config = uvicorn.Config(
        make_app(folder, session),
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return uvicorn.Server(config)
