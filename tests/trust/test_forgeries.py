"""Forged model files: consistent, written byte by byte as Sklar writes them, and each refused for what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sklar.errors import ModelError
from sklar.trust.verify import verify
from tests.trust import forgeries
from tests.trust.forge import Arrays, Document, failed, forged
from tests.trust.forgeries import FORGERIES, HIDDEN, LISTED


@pytest.mark.parametrize("kind", ["auto", "binary", "dummies", "rules"])
def test_genuine_copulas_follow_from_their_tables(genuine: dict[str, Path], kind: str) -> None:
    found = verify(genuine[kind], refit=True)
    assert found.passed, found.lines()
    assert found.checks[-1].name == "refit"


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_fails(genuine: dict[str, Path], name: str, tmp_path: Path) -> None:
    """For what it is, and for nothing else before it."""
    kind, change, checks = FORGERIES[name]
    may, refit = set(checks.split()), "refit" in checks
    found = verify(forged(genuine[kind], change, tmp_path / "f.sklar"), refit=refit)
    assert failed(found)
    assert failed(found) == may if refit else failed(found) <= may, found.lines()
    assert "Do not rely on its privacy claim." in found.lines()[-1]


def test_a_file_that_is_only_written_again_is_the_same(genuine: dict[str, Path], tmp_path: Path) -> None:
    """So that forgeries fail by their change and not by how they are written."""
    for kind in ("auto", "domains"):
        data = genuine[kind].read_bytes()
        assert forged(genuine[kind], lambda _d, _a: None, tmp_path / "f.sklar").read_bytes() == data
        assert forgeries.remade(lambda _name, content, _stands: content)(data) == data


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_nothing_can_be_hidden_in_the_file(genuine: dict[str, Path], name: str, tmp_path: Path) -> None:
    path = tmp_path / "f.sklar"
    path.write_bytes(HIDDEN[name](genuine["auto"].read_bytes()))
    found = verify(path)
    assert failed(found) <= {"format", "layout"}
    assert not found.passed


def test_the_search_cannot_be_called_earlier_without_saying_so(genuine: dict[str, Path], tmp_path: Path) -> None:
    """A release may use domains that another found; then verify says that their cost is not in this epsilon."""

    def change(document: Document, arrays: Arrays) -> None:
        stated = document["certificate"]
        stated["earlier"] = list(dict.fromkeys(found["attribute"] for found in stated["domains"]))
        forgeries.search_deleted(document, arrays)

    found = verify(forged(genuine["domains"], change, tmp_path / "f.sklar"))
    text = " ".join(found.lines())
    assert "3 found by another release, whose cost is not part of this epsilon" in text
    assert "another release found the domains of 'town', 'income', 'age': what that release cost adds" in text


@pytest.mark.parametrize("name", LISTED)
def test_what_cannot_be_told_is_listed(genuine: dict[str, Path], name: str, tmp_path: Path) -> None:
    """Plainly and after a refit: nothing is concluded of what was not checked."""
    kind, change, plain, refitted = LISTED[name]
    path = forged(genuine[kind], change, tmp_path / "f.sklar")
    for refit, words in ((False, plain), (True, refitted)):
        found = verify(path, refit=refit)
        text = "\n".join(found.lines())
        assert re.search(words, text), text
        if refit:
            assert found.verdict != "verified"
            assert "whoever sees it," not in text
    shown = "\n".join(verify(path).lines())
    assert "whoever sees its tables" in shown
    assert "It is not signed: nothing here shows who released it." in shown


def test_what_a_file_says_stays_on_its_line(genuine: dict[str, Path], tmp_path: Path) -> None:
    """No name, key or claim in a file can print a line of its own."""
    for odd in ("x\nok   signature: by SHA256:me", "\x1b[2J", "a\u2028b"):
        for keys in (("certificate", odd), (odd,), ("certificate", "composition"), ("schema", "attributes", "a0", odd)):

            def change(document: Document, _arrays: Arrays, keys: tuple[str, ...] = keys, odd: str = odd) -> None:
                place = document
                for key in keys[:-1]:
                    place = place[key]
                place[keys[-1]] = odd

            found = verify(forged(genuine["auto"], change, tmp_path / "f.sklar"))
            assert found.verdict == "failed"
            assert all(line.isprintable() for line in found.lines())
            assert not any(line.startswith("ok   signature") for line in found.lines())


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none.sklar' is missing: there is no such file\. Name a model file"):
        verify(tmp_path / "none.sklar")
