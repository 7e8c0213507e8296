"""`sklar studio` on the command line: what it prints, refuses and needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sklar.cli import cli
from sklar.errors import MissingExtraError, SklarError


def test_the_address_is_printed_and_the_browser_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def serve(root: Path, *, ready: Callable[[str], None], **options: Any) -> None:
        given.update(options, root=root)
        ready("http://127.0.0.1:1/enter?token=x")

    monkeypatch.setattr("sklar.studio.serve.serve", serve)
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    found = CliRunner().invoke(cli, ["studio", str(tmp_path), "--no-browser", "--quiet", "--port", "8642"])
    assert found.output == "http://127.0.0.1:1/enter?token=x\n"
    assert given == {"root": tmp_path, "host": "127.0.0.1", "port": 8642, "beyond": False}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "192.0.2.1"], "add --beyond-this-machine"),
        (["nowhere"], "'nowhere' is no folder"),
        (["--host", "192.0.2.1", "--beyond-this-machine"], "192.0.2.1:0 cannot be listened on"),
    ],
)
def test_what_cannot_be_served_is_refused(options: list[str], says: str) -> None:
    found = CliRunner().invoke(cli, ["studio", "--no-browser", *options])
    assert isinstance(found.exception, SklarError)
    assert says in str(found.exception)


def test_without_its_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    found = CliRunner().invoke(cli, ["studio"])
    assert isinstance(found.exception, MissingExtraError)
    assert str(found.exception) == "the studio needs uvicorn: pip install 'sklar[studio]'"
