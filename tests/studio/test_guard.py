"""Who may ask the studio: every safeguard by a real request that it must refuse, and one that it must let pass."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from sklar.errors import DataError, SklarError
from sklar.studio.folder import Folder
from sklar.studio.guard import MOST_BYTES, Session
from sklar.studio.serve import check_host
from tests.studio.conftest import Browser


def form(browser: Browser, **fields: str) -> bytes:
    return urlencode({"file": "people.csv", "form_token": browser.session.form_token, **fields}).encode()


def test_the_first_address_lets_one_browser_in_once(studio: Browser) -> None:
    first = studio.session.first_address.split(studio.host)[1]
    answer = studio.ask("GET", first)
    cookie = answer.headers["Set-Cookie"]
    assert answer.status == 303
    assert answer.headers["Location"] == "/"
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert studio.get("/").status == 200
    # The browser that is in may load it again; another one may not.
    assert studio.ask("GET", first).status == 303
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
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_page_is_refused(inside: Browser, headers: dict[str, str | None]) -> None:
    answer = inside.ask("POST", "/open", headers=headers, body=form(inside))
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


@pytest.mark.parametrize("path", ["/", "/t/people/open", "/t/people/describe", "/books", "/nothing", "/enter"])
def test_every_answer_forbids_inline_script_and_caching(inside: Browser, path: str) -> None:
    inside.post("/open", file="people.csv")
    headers = inside.ask("GET", path).headers
    policy = set(headers["Content-Security-Policy"].split("; "))
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= policy
    assert not any("unsafe" in part for part in policy)
    wanted = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}
    wanted |= {"Cross-Origin-Resource-Policy": "same-origin"}
    assert {name: headers[name] for name in wanted} == wanted
    assert headers.get("Server") is None


def test_pages_hold_no_inline_script_or_style(inside: Browser) -> None:
    inside.post("/open", file="people.csv")
    inside.post("/t/people/open", delimiter=",", encoding="utf-8", header="yes", quote='"', decimal=".")
    for path in ("/", "/t/people/open", "/t/people/describe", "/t/people/plan", "/books"):
        text = inside.get(path).text
        assert "<style" not in text
        assert " style=" not in text
        assert "onclick" not in text
        assert text.count("<script") == text.count('<script src="/static/')


def test_text_of_the_table_is_escaped(inside: Browser) -> None:
    (inside.folder / "odd.csv").write_text("<script>alert(1)</script>,b\n" + "<img src=x onerror=alert(1)>,1\n" * 30)
    shown = inside.post("/open", file="odd.csv").text
    assert "&lt;script&gt;" in shown
    assert "<script>alert" not in shown
    assert "<img" not in shown


@pytest.mark.parametrize(
    "name",
    [
        "../outside.csv",
        "/etc/hostname",
        "link.csv",
        "linked/outside.csv",
        "a/../../outside.csv",
        ".sklar-studio/x.csv",
        "\0",
        "",
    ],
)
def test_paths_stay_in_the_folder_after_links_are_resolved(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.csv").write_text("secret\n1\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.csv").symlink_to(tmp_path / "outside.csv")
    (root / "linked").symlink_to(tmp_path)
    folder = Folder(root)
    with pytest.raises(DataError):
        folder.open(name, None)
    assert folder.files() == ([], False)


def test_paths_out_of_the_folder_are_refused_by_requests(inside: Browser) -> None:
    outside = inside.folder.parent / "outside.csv"
    outside.write_text("secret\n1\n")
    (inside.folder / "link.csv").symlink_to(outside)
    inside.post("/open", file="people.csv")
    for name in ("../outside.csv", "link.csv", str(outside)):
        assert "leads out of the studio" in inside.post("/open", file=name).said
    # Only what a release may give out is given out: not the rows, not the notes, not what lies elsewhere.
    for name in ("people.csv", "..%2Foutside.csv", "../outside.csv", ".sklar-studio/people.desk.json", "link.csv"):
        answer = inside.get(f"/t/people/files/{name}")
        assert answer.status in (400, 404)
        assert b"secret" not in answer.body
    for desk in ("..", "%2e%2e", "..%2Fx", "nobody", "."):
        assert inside.get(f"/t/{desk}/describe").status in (400, 404)


def test_a_failure_shows_no_stack_trace_and_no_cell(inside: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Jane Doe")

    monkeypatch.setattr(Folder, "files", fail)
    answer = inside.get("/")
    assert answer.status == 500
    assert "Unexpected RuntimeError" in answer.said
    for word in ("Jane", "Traceback", ".py"):
        assert word not in answer.text


def test_the_studio_listens_beyond_this_machine_only_when_told_twice() -> None:
    check_host("127.0.0.1", beyond=False)
    check_host("::1", beyond=False)
    check_host("192.0.2.1", beyond=True)
    for host, beyond, says in (
        ("192.0.2.1", False, "--beyond-this-machine"),
        ("0.0.0.0", True, "means all of them"),
        ("::", True, "means all of them"),
        ("example.org", True, "must be an address"),
    ):
        with pytest.raises(SklarError, match=says):
            check_host(host, beyond=beyond)


def test_hosts_and_addresses_of_a_session() -> None:
    assert Session(host="::1", port=80).hosts == {"[::1]:80", "[::1]"}
    assert Session(host="192.0.2.1", port=9).hosts == {"192.0.2.1:9"}
    session = Session(host="::1", port=9)
    assert session.first_address.startswith("http://[::1]:9/enter?token=")
    assert len({session.token, session.secret, session.form_token, Session(host="::1", port=9).token}) == 4
    assert str(session.token) not in repr(session)
