"""The recorded pages say what the recorded runs say, and nothing that a person wrote on them is lost."""

import doctest
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import accuracy_page, aim_page, pages, scale, speed

PAGES: dict[str, Any] = {"accuracy": accuracy_page, "aim": aim_page, "scale": scale, "speed": speed}


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_those_of_its_recorded_runs(name: str) -> None:
    document = json.loads((pages.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    head, shown = (pages.RESULTS / f"{name}.md").read_text(encoding="utf-8").split(PAGES[name].MARK)
    assert shown.split(pages.AT_END)[0].strip() == PAGES[name].markdown(document).strip()
    assert all(f"{key}: {value}\n" in head for key, value in document["header"].items())


DOCTESTED = [
    f"{folder}.{path.stem}"
    for folder in ("benchmarks", "experiments")
    for path in sorted((pages.ROOT / folder).glob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", DOCTESTED)
def test_doctests(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_a_page_written_again_keeps_the_text_of_a_person(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()

    def written(markdown: str) -> str:
        document = {"header": {"command": "make it"}, "runs": [1.5]}
        texts = {"marked": pages.mark("some"), "otherwise": "# Not written yet", "markdown": markdown}
        pages.write_page(tmp_path, "some", document=document, figure=figure, **texts)
        assert json.loads((tmp_path / "some.json").read_text()) == document
        return (tmp_path / "some.md").read_text()

    first = written("| 1 |")
    assert "# Not written yet" in first
    (tmp_path / "some.md").write_text(first.replace("# Not written yet", "# By hand"))
    assert written("| 2 |") == first.replace("# Not written yet", "# By hand").replace("| 1 |", "| 2 |")


def test_the_digest_of_the_source_changes_with_any_file_of_it(tmp_path: Path) -> None:
    digests = set()
    for name, text in (("rows/read.py", "a = 1"), ("rows/read.py", "a = 2"), ("page.html.j2", ""), ("a/list.csv", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        digests.add(pages.source_digest(tmp_path))
    (tmp_path / "rows" / "__pycache__").mkdir()
    (tmp_path / "rows" / "__pycache__" / "read.pyc").write_text("")
    assert pages.source_digest(tmp_path) in digests
    assert len(digests) == 4
