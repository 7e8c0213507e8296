"""Tables of README and docs are what the pages' JSON says; every page can be renewed and says of which tree it is."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from benchmarks import filled, pages, results, scoreboard
from tests.conftest import output_of

# Kept to the tree by a test of their own, or made of other pages.
ELSEWHERE = {"README", "details", "attacks", "scoreboard"}


@pytest.mark.parametrize("path", filled.FILES, ids=lambda path: path.name)
def test_tables_between_markers_are_what_the_json_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert filled.after(text) == text
    assert text.count("<!-- figures: ") == text.count("<!-- end of figures -->") == len(filled.MARKED.findall(text))


def test_every_table_stands_somewhere() -> None:
    everywhere = "".join(path.read_text(encoding="utf-8") for path in filled.FILES)
    assert {name for _, name, _ in filled.MARKED.findall(everywhere)} == set(filled.TABLES)


def test_a_table_that_was_edited_by_hand_is_filled_again() -> None:
    text = "Before.\n\n<!-- figures: aim -->\nby hand\n<!-- end of figures -->\n\nAfter."
    assert "by hand" not in filled.after(text)
    assert filled.after(filled.after(text)) == filled.after(text)


def test_every_page_has_commands_that_exist_and_keeps_to_its_time() -> None:
    names = {page.name for page in results.PAGES}
    # A page that was never made on an idle machine is not there yet.
    assert names >= {path.stem for path in pages.RESULTS.glob("*.md")} - ELSEWHERE
    assert len(names) == len(results.PAGES)
    for page in results.PAGES:
        for command in page.commands:
            assert importlib.util.find_spec(command.split()[0]) is not None, command
    assert sum(page.minutes for page in results.PAGES) <= results.MOST_MINUTES
    assert sum(page.minutes for page in results.PAGES if page.quick) <= results.MOST_QUICK


def test_a_page_and_its_json_are_of_one_tree() -> None:
    for page in results.PAGES:
        record = page.path.with_suffix(".json")
        header = json.loads(record.read_text(encoding="utf-8")).get("header", {}) if record.exists() else {}
        if "src" in header:
            assert page.tree() == header["src"], page.name
        assert re.fullmatch(r"[0-9a-f]{8}|-", page.tree()), page.name


def test_pages_are_of_one_tree_or_say_in_words_that_they_are_not() -> None:
    tree = results.newest()
    for page in (page for page in results.PAGES if page.path.exists()):
        text = page.path.read_text(encoding="utf-8")
        assert results.dated(text, tree) == text, f"{page.name}: python -m benchmarks.results --tables"
        assert ("*Of an earlier tree" in text) == (page.tree() != tree)


def test_the_scoreboard_is_what_the_pages_say() -> None:
    assert (pages.RESULTS / "scoreboard.md").read_text(encoding="utf-8") == scoreboard.text()


def test_what_is_of_this_tree_is_left_alone_and_what_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "LOGS", tmp_path)
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(filled, "fill", list)
    monkeypatch.setattr(scoreboard, "write", list)
    monkeypatch.setattr(results, "sum_up", lambda: True)
    monkeypatch.setattr(results, "WHOLE", tmp_path / "tree.json")
    monkeypatch.setattr("benchmarks.dots.draw", list)
    (tmp_path / "writes.py").write_text("open('old.md', 'w').write('# new')\n")
    for name in ("fresh", "old", "broken", "unwritten"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n")
    fresh = results.stamped((tmp_path / "fresh.md").read_text(), ["this"])
    (tmp_path / "fresh.md").write_text(fresh)
    asked = {"fresh": "no_such_module", "old": "writes", "broken": "no_such_module", "unwritten": "this"}
    made = [results.Page(name=name, minutes=1, commands=(command,)) for name, command in asked.items()]
    monkeypatch.setattr(results, "PAGES", made)
    shown = output_of(results.main, code=1)
    assert "[1/3] old" in shown
    assert "not renewed: broken: no_such_module ended with exit status 1: broken.log; unwritten: its commands" in shown
    assert pages.stated((tmp_path / "old.md").read_text())["src"] == pages.SRC
    assert "# new" in (tmp_path / "old.md").read_text()
    assert (tmp_path / "fresh.md").read_text() == fresh
    # What no command wrote is of no tree.
    assert (
        pages.stated((tmp_path / "broken.md").read_text())
        == pages.stated((tmp_path / "unwritten.md").read_text())
        == {}
    )
    assert not (tmp_path / "tree.json").exists()


def test_peers_runs_are_kept_by_their_versions(tmp_path: Path) -> None:
    from benchmarks import accuracy

    run = {"table": "adult", "method": "mst", "epsilon": 1.0, "draw": 1, "status": "finished"}
    learned = [{"stem": "adult.mst.1.1"}, {"stem": "adult.auto.1.1"}, {"stem": "real"}]
    recorded = {"header": {"peers": {"dpmm": "0"}}, "runs": [run, run | {"method": "auto"}], "learning": learned}
    accuracy.restore(tmp_path, recorded)
    assert not list(tmp_path.iterdir())
    recorded["header"] = json.loads((pages.RESULTS / "accuracy.json").read_text())["header"]
    accuracy.restore(tmp_path, recorded)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adult.mst.1.1.json", "learning.json"]
    assert json.loads((tmp_path / "learning.json").read_text()) == learned[:1]
    assert accuracy.current(tmp_path / "adult.mst.1.1.json")
    (tmp_path / "adult.auto.1.1.json").write_text(json.dumps(run | {"method": "auto", "source": "another"}))
    assert not accuracy.current(tmp_path / "adult.auto.1.1.json")
