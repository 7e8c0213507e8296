"""Who may ask the studio: every safeguard by a real request that it must refuse, and one that it must let pass."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from sklar.cli import cli
from sklar.errors import SklarError
from sklar.studio.folder import Folder
from sklar.studio.guard import MOST_BYTES, Session
from sklar.studio.serve import check_host
from tests.studio.conftest import PEOPLE, Browser


def form(browser: Browser, **fields: str) -> bytes:
    return urlencode({"file": "people.csv", "form_token": browser.session.form_token, **fields}).encode()


def test_the_first_address_lets_one_browser_in_once(studio: Browser) -> None:
    first = studio.session.first_address.split(studio.host)[1]
    answer = studio.ask("GET", first)
    # A page, and no redirect: from a file, a browser would not send the cookie along with one.
    assert (answer.status, b"0;url=/" in answer.body) == (200, True)
    assert {"httponly", "samesite=strict"} <= set(answer.headers["Set-Cookie"].lower().split("; "))
    assert studio.get("/").status == 200
    # The browser that is in may load it again; another one may not.
    assert studio.ask("GET", first).status == 200
    studio.cookies.clear()
    refused = studio.ask("GET", first)
    assert (refused.status, refused.headers.get("Set-Cookie")) == (403, None)
    assert "was used before" in refused.text


@pytest.mark.parametrize("path", ["/", "/books", "/t/people/look", "/t/people/files/people.csv", "/nothing"])
def test_nothing_is_shown_without_the_cookie(studio: Browser, path: str) -> None:
    studio.session.admit(studio.session.token or "")
    for cookie in ("", f"{studio.session.cookie}=guess", f"other={studio.session.secret}"):
        answer = studio.ask("GET", path, headers={"Cookie": cookie})
        assert answer.status == 403
        assert "does not know this browser" in answer.text
    assert studio.ask("GET", "/enter?token=guess").status == 403
    assert studio.ask("GET", "/enter").status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "10.0.0.1:{port}", None]
)
def test_another_host_is_refused(inside: Browser, host: str | None) -> None:
    # DNS rebinding: a name of somebody else's that points to this machine.
    named = None if host is None else host.format(port=inside.session.port)
    answer = inside.ask("GET", "/", headers={"Host": named})
    assert answer.status in (400, 421)
    assert b"people.csv" not in answer.body
    assert inside.ask("GET", "/", headers={"Host": f"localhost:{inside.session.port}"}).status == 200


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("Origin", value) for value in ("http://evil.example", "null", None, "http://127.0.0.1:1")),
        *(("Sec-Fetch-Site", value) for value in ("cross-site", "same-site")),
    ],
)
def test_a_form_of_another_page_is_refused(inside: Browser, header: str, value: str | None) -> None:
    answer = inside.ask("POST", "/open", headers={header: value}, body=form(inside))
    assert answer.status == 403
    assert "Another page asked for this" in answer.text
    assert inside.ask("POST", "/open", body=form(inside)).status == 303


@pytest.mark.parametrize("token", ["", "guess", "0" * 64])
def test_a_form_without_its_token_is_refused(inside: Browser, token: str) -> None:
    assert inside.ask("POST", "/open", body=form(inside, form_token=token)).status == 403
    assert inside.ask("POST", "/open", body=b"file=people.csv").status == 403
    assert not (inside.folder / ".sklar-studio").exists()


def test_large_requests_are_refused_before_they_are_read(inside: Browser) -> None:
    stated = inside.ask("POST", "/open", headers={"Content-Length": str(MOST_BYTES + 1)}, body=b"")
    assert stated.status == 413
    assert "at most 1,048,576 bytes" in stated.text
    block = b"x" * (MOST_BYTES // 2)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(block), block) for _ in range(3)) + b"0\r\n\r\n"
    # It may also hang up while more is being sent.
    with suppress(ConnectionError):
        assert inside.ask("POST", "/open", headers={"Transfer-Encoding": "chunked"}, body=chunks).status == 413
    assert inside.ask("POST", "/open", headers={"Content-Length": "nine"}, body=b"").status in (400, 413)


def test_only_forms_are_taken(inside: Browser) -> None:
    for kind in ("multipart/form-data; boundary=x", "application/json", "text/plain", None):
        assert inside.ask("POST", "/open", headers={"Content-Type": kind}, body=form(inside)).status == 415
    assert inside.ask("POST", "/open", body=b"a;b=\xff").status == 400
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert inside.ask(method, "/").status in (400, 405)


def test_every_answer_forbids_inline_script_and_caching_and_holds_none(drafted: Browser) -> None:
    required = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}
    required |= {"Cross-Origin-Resource-Policy": "same-origin"}
    for path in ("/", "/t/people/open", "/t/people/describe", "/t/people/plan", "/books", "/nothing", "/enter"):
        answer = drafted.ask("GET", path)
        policy = set(answer.headers["Content-Security-Policy"].split("; "))
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= policy
        assert not any("unsafe" in part for part in policy)
        assert {name: answer.headers[name] for name in required} == required
        assert answer.headers.get("Server") is None
        assert not any(text in answer.text for text in ("<style", " style=", "onclick"))
        assert answer.text.count("<script") == answer.text.count('<script src="/static/')


def test_text_of_the_table_is_escaped(inside: Browser) -> None:
    (inside.folder / "odd.csv").write_text("<script>alert(1)</script>,b\n" + "<img src=x onerror=alert(1)>,1\n" * 30)
    shown = inside.post("/open", file="odd.csv").text
    assert "&lt;script&gt;" in shown
    assert not any(text in shown for text in ("<script>alert", "<img"))


def test_paths_stay_in_the_folder_after_links_are_resolved(inside: Browser) -> None:
    other = inside.folder.parent / "other.csv"
    other.write_text("secret\n1\n")
    (inside.folder / "link.csv").symlink_to(other)
    (inside.folder / "linked").symlink_to(other.parent)
    assert Folder(inside.folder).files()[0] == [{"path": "people.csv", "bytes": len(PEOPLE), "database": False}]
    inside.post("/open", file="people.csv")
    for name in ("../other.csv", "link.csv", "linked/other.csv", "a/../../other.csv", ".sklar-studio/x", f"{other}"):
        assert "leads out of the studio" in inside.post("/open", file=name).said
    assert "no path below the studio" in inside.post("/open", file="\0").said
    assert "does not exist any more" in inside.post("/open", file="").said
    # Only what a release may give out is given out: not the rows, not the notes, not what lies elsewhere.
    for name in ("people.csv", "..%2Fother.csv", "../other.csv", ".sklar-studio/people.desk.json", "link.csv"):
        answer = inside.get(f"/t/people/files/{name}")
        assert answer.status in (400, 404)
        assert b"secret" not in answer.body
    for desk in ("..", "%2e%2e", "..%2Fx", "nobody", "."):
        assert inside.get(f"/t/{desk}/describe").status in (400, 404)


def test_a_failure_shows_no_stack_trace_and_no_cell(inside: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "files", Mock(side_effect=RuntimeError("Jane Doe")))
    answer = inside.get("/")
    assert answer.status == 500
    assert "Unexpected RuntimeError" in answer.said
    assert not any(word in answer.text for word in ("Jane", "Traceback", ".py"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "192.0.2.1"], "add --beyond-this-machine"),
        (["--host", "192.0.2.1", "--beyond-this-machine"], "192.0.2.1:0 cannot be listened on"),
        (["--host", "0.0.0.0", "--beyond-this-machine"], "means all of them"),
        (["--host", "::", "--beyond-this-machine"], "means all of them"),
        (["--host", "example.org", "--beyond-this-machine"], "must be an address"),
        (["nowhere"], "'nowhere' is no folder"),
    ],
)
def test_what_is_not_served(options: list[str], says: str) -> None:
    """Other machines may connect only when that is said twice."""
    done = CliRunner().invoke(cli, ["studio", "--no-browser", *options])
    assert isinstance(done.exception, SklarError)
    assert says in str(done.exception)
    check_host("::1", beyond=False)


def test_without_its_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(cli, ["studio"])
    assert str(done.exception) == "the studio needs uvicorn: pip install 'sklar[studio]'"


def test_the_address_is_printed_and_the_browser_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = Mock(side_effect=lambda *_, ready, **__: ready("http://127.0.0.1:1/enter?token=x"))
    monkeypatch.setattr("sklar.studio.serve.serve", serve)
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    found = CliRunner().invoke(cli, ["studio", str(tmp_path), "--no-browser", "--quiet", "--port", "8642"])
    assert found.output == "http://127.0.0.1:1/enter?token=x\n"
    serve.assert_called_once_with(tmp_path, host="127.0.0.1", port=8642, beyond=False, ready=ANY)


def test_the_browser_opens_a_private_page_and_its_arguments_tell_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Now(threading.Thread):
        def __init__(self, _seconds: float, function: Any, arguments: tuple[str, ...]) -> None:
            super().__init__()
            opened.extend(arguments)
            page = Path(arguments[0].removeprefix("file://"))
            assert page.stat().st_mode & 0o777 == 0o600
            assert "token=secret" in page.read_text()

    serve = Mock(side_effect=lambda *_, ready, **__: ready("http://127.0.0.1:1/enter?token=secret"))
    monkeypatch.setattr("sklar.studio.serve.serve", serve)
    monkeypatch.setattr(threading, "Timer", Now)
    assert CliRunner().invoke(cli, ["studio", str(tmp_path)]).exit_code == 0
    assert opened
    assert "secret" not in opened[0]
    assert not Path(opened[0].removeprefix("file://")).exists()


def test_hosts_and_addresses_of_a_session() -> None:
    assert Session(host="::1", port=80).hosts == {"[::1]:80", "[::1]"}
    assert Session(host="192.0.2.1", port=9).hosts == {"192.0.2.1:9"}
    session = Session(host="::1", port=9)
    assert session.first_address.startswith("http://[::1]:9/enter?token=")
    assert len({session.token, session.secret, session.form_token, Session(host="::1", port=9).token}) == 4
    assert str(session.token) not in repr(session)
