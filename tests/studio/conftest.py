"""A studio on a port of its own in a thread of this process, and somebody who asks it as a browser does."""

from __future__ import annotations

import html
import http.client
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from sklar.studio.folder import Folder
from sklar.studio.guard import Session
from sklar.studio.serve import make_server

PEOPLE = "age,sex,region,smoker\n" + "".join(
    f"{20 + row % 50},{('female', 'male')[row % 2]},{'snn'[row % 3]},{'yn'[row % 5 > 0]}\n" for row in range(400)
)
READ = {"delimiter": ",", "encoding": "utf-8", "header": "yes", "quote": '"', "decimal": "."}
SCHEMA = """
[table]
name = "people"
[attributes]
age = {type = "integer", edges = [0, 30, 50, 100]}
sex = {type = "categorical", values = ["female", "male"]}
region = {type = "categorical", values = ["n", "s"]}
"""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def said(self) -> str:
        """The text of the page, without its marks."""
        return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", self.text).split()))


@dataclass
class Browser:
    """Asks as a browser does: with the cookie that it was given, and an Origin in forms."""

    session: Session
    folder: Path
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.session.port}"

    def ask(
        self, method: str, path: str, *, headers: Mapping[str, str | None] | None = None, body: bytes | None = None
    ) -> Answer:
        """One request. A header of None is not sent."""
        sent: dict[str, str | None] = {"Host": self.host}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if method == "POST":
            sent |= {"Origin": f"http://{self.host}", "Content-Type": "application/x-www-form-urlencoded"}
        sent |= headers or {}
        with closing(http.client.HTTPConnection("127.0.0.1", self.session.port, timeout=300)) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None and "Content-Length" not in sent and "Transfer-Encoding" not in sent:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            self.cookies |= re.findall(r"^([^=]+)=([^;]*)", response.headers.get("Set-Cookie", ""))
            return Answer(status=response.status, headers=response.headers, body=response.read())

    def enter(self) -> Answer:
        """Open the first address."""
        return self.ask("GET", self.session.first_address.split(self.host)[1])

    def get(self, path: str) -> Answer:
        """A page, redirects followed."""
        answer = self.ask("GET", path)
        while answer.status == 303:
            answer = self.ask("GET", answer.headers["Location"].partition("#")[0])
        return answer

    def open(self, table: str = "people", **reading: str) -> Answer:
        """Choose a CSV file and say how it is read."""
        self.post("/open", file=f"{table}.csv")
        return self.post(f"/t/{table}/open", **READ | reading)

    def post(self, path: str, **fields: str) -> Answer:
        """A form of the studio's own, redirects followed."""
        body = urlencode({**fields, "form_token": self.session.form_token}).encode()
        answer = self.ask("POST", path, body=body)
        return self.get(answer.headers["Location"].partition("#")[0]) if answer.status == 303 else answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One studio for the tests of a module: to start and stop one takes most of a second."""
    with running(tmp_path_factory.mktemp("studio") / "folder") as browser:
        yield browser


@pytest.fixture
def studio(server: Browser) -> Browser:
    """A studio of a folder with nothing but a small table, and a browser that has not entered yet."""
    shutil.rmtree(server.folder)
    server.folder.mkdir()
    (server.folder / "people.csv").write_text(PEOPLE)
    server.session.token = "a-token-of-this-test"
    return Browser(session=server.session, folder=server.folder)


@pytest.fixture
def inside(studio: Browser) -> Browser:
    """A browser that has entered."""
    studio.enter()
    return studio


@pytest.fixture
def drafted(inside: Browser) -> Browser:
    """A browser before the draft of the table's schema."""
    inside.open()
    return inside


@pytest.fixture
def reviewed(inside: Browser) -> Browser:
    """A browser before a table that is described."""
    (inside.folder / "people.toml").write_text(SCHEMA)
    inside.open()
    return inside


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """A studio of a folder, while the block runs, and a browser that has entered."""
    folder.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        session = Session(host="127.0.0.1", port=listening.getsockname()[1])
        server = make_server(Folder(folder), session)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        await_(lambda: server.started)
        browser = Browser(session=session, folder=folder)
        try:
            browser.enter()
            yield browser
        finally:
            server.should_exit = True
            thread.join(timeout=20)


def await_(done: Callable[[], bool], wait_s: float = 300) -> None:
    """Wait until something holds."""
    end = time.monotonic() + wait_s
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
