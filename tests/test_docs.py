"""Every code block of the Markdown pages here and in docs/ runs, page by page and in order, in a folder of its own.

- `python` blocks share one namespace per page; with `>>>` they are doctests.
- `bash` blocks hold `sklar` commands, one a line (a backslash continues it); they run in this process.
- `toml` blocks are schemas; a first line `# people.toml` also saves it under that name, as linked tables need.
- `text` and `json` blocks show output.
- A comment `<!-- first:` with commands, closed by `-->` on a line of its own, runs them unseen.
- A comment `<!-- not run: REASON -->` before a block excuses it.
"""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sklar
from sklar.cli import cli
from tests.conftest import output_of, refuses

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SHOWN = ("text", "json")

_PARTS = re.compile(
    r"^<!-- first:\n(?P<first>.*?)^-->$"
    r"|^<!-- not run: (?P<excuse>.+?) -->$"
    r"|^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    code: str
    line: int = 1
    excuse: str | None = None


def blocks(text: str) -> list[Block]:
    """What a page asks to be run, in order; excused blocks are marked."""
    found, excuse = [], None
    for part in _PARTS.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if part["excuse"]:
            excuse = part["excuse"]
            continue
        language, code = ("bash", part["first"]) if part["first"] else (part["language"], part["code"])
        # Directives of the site, such as tables of contents.
        if not language.startswith("{"):
            found.append(Block(language, code, line, excuse))
        excuse = None
    return found


def run_command(line: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    assert program == "sklar", f"only sklar commands run here, got {line!r}"
    # Play the custodian of a review: accept all that is proposed, and no rule.
    output_of(cli, *arguments, typed="A\n" if arguments[:2] == ["schema", "review"] else None)


def run_block(block: Block, namespace: dict[str, Any]) -> None:
    if block.language == "python" and ">>> " in block.code:
        test = doctest.DocTestParser().get_doctest(block.code, namespace, "block", None, None)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, clear_globs=False)
        assert runner.summarize(verbose=False).failed == 0
        namespace.update(test.globs)
    elif block.language == "python":
        exec(compile(block.code, "block", "exec"), namespace)
    elif block.language == "bash":
        for line in block.code.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                run_command(line)
    elif block.language == "toml":
        named = re.match(r"# (\S+\.toml)\n", block.code)
        if named:
            Path(named[1]).write_text(block.code)
        document = tomllib.loads(block.code)
        if named and "attributes" not in document:
            sklar.Tree.load(named[1])
        else:
            sklar.Schema.from_dict(document)
    else:
        assert block.language in SHOWN, f"say what it is, one of python, bash, toml, text, json: {block.language!r}"
        if block.language == "json":
            json.loads(block.code)


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of a page, which runs in a folder of its own and shows no window."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    return {"__name__": "__main__"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs(page: Path, namespace: dict[str, Any]) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.excuse is None:
            try:
                run_block(block, namespace)
            except BaseException as error:
                error.add_note(f"the block at {page.relative_to(ROOT)}, line {block.line}")
                raise


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_notebooks_run(notebook: Path, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plots = pytest.importorskip("matplotlib.pyplot")
    document = json.loads(notebook.read_text(encoding="utf-8"))
    monkeypatch.setattr(plots, "show", lambda: plots.close("all"))
    for number, cell in enumerate(document["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
    # Stored outputs are shown by the site; big ones do not belong in the repository.
    assert notebook.stat().st_size < 400_000


def test_every_public_function_is_described_and_its_example_runs(namespace: dict[str, Any]) -> None:
    entries = tomllib.loads((ROOT / "docs" / "api.toml").read_text(encoding="utf-8"))
    public = {name: found for name in sklar.__all__ if inspect.isfunction(found := getattr(sklar, name))}
    assert set(entries["functions"]) == set(public)
    returned = {str(inspect.signature(found).return_annotation) for found in public.values()} - {"None"}
    unnamed = {each for text in returned for each in text.split(" | ")} - set(sklar.__all__)
    kinds = {name: getattr(sklar, name) for name in sklar.__all__ if inspect.isclass(getattr(sklar, name))}
    kinds = {name: found for name, found in kinds.items() if not issubclass(found, Exception)}
    results = {name: entry["of"].rpartition(".") for name, entry in entries["classes"].items() if "of" in entry}
    assert set(results) == unnamed
    assert set(entries["classes"]) == set(kinds) | unnamed
    for name, (module, _, _) in results.items():
        fields = dataclasses.fields(getattr(importlib.import_module(module), name))
        assert list(entries["classes"][name]["fields"]) == [field.name for field in fields], name
    exec(compile(entries["setup"], "setup", "exec"), namespace)
    for name, entry in entries["functions"].items():
        own, named = entry.get("arguments", {}), set(inspect.signature(public[name]).parameters)
        assert named <= entries["arguments"].keys() | own.keys(), name
        assert own.keys() <= named, name
        assert f"sklar.{name}(" in entry["example"], name
        assert entry["returns"].endswith(".")
        exec(compile(entry["example"], name, "exec"), namespace)
    for name, entry in entries["classes"].items():
        exec(compile(entry["example"], name, "exec"), namespace)


def test_blocks_are_found_and_excused() -> None:
    text = (
        "<!-- first:\nsklar --version\n-->\n```python\n1 / 0\n```\n"
        "- item\n\n  ```text\n  shown\n  ```\n<!-- not run: it installs -->\n```bash\nmake\n```\n"
        "```{toctree}\napi\n```\n"
    )
    found = blocks(text)
    assert [(block.language, block.line, block.excuse) for block in found] == [
        ("bash", 1, None), ("python", 4, None), ("text", 9, None), ("bash", 13, "it installs")
    ]  # fmt: skip
    refuses(None, run_block, found[1], {}, error=ZeroDivisionError)
    refuses("only sklar commands run here, got 'make'", run_block, found[3], {}, error=AssertionError)


def test_a_wrong_block_fails() -> None:
    for language, code, error in (
        ("", "x", AssertionError),
        ("python", ">>> 1 + 1\n3\n", AssertionError),
        ("bash", "sklar sample nothing.sklar --out x.csv", sklar.ModelError),
        ("bash", "sklar --nonsense", AssertionError),
        ("toml", "[attributes.x]\ntype = 'nonsense'", sklar.SchemaError),
        ("json", "{", json.JSONDecodeError),
    ):
        refuses(None, run_block, Block(language, code), {}, error=error)


def test_few_blocks_are_excused() -> None:
    every = [block for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))]
    ran = [block for block in every if block.excuse is None and block.language not in SHOWN]
    assert 3 * sum(block.excuse is not None for block in every) <= len(ran)


def test_links_within_the_repository_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:|#", target):
                assert (page.parent / target.split("#")[0]).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_yes_of_the_comparison_has_a_test_or_a_page_behind_it() -> None:
    text = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    ours = [line.split("|")[2].strip() for line in text.splitlines() if line.count("|") == 12]
    claims = [cell for cell in ours if cell.startswith("yes")]
    assert len(claims) > 10
    for claim in claims:
        paths = re.findall(r"`([^`]+)`", claim)
        assert paths or "](" in claim, claim
        assert all((ROOT / path).exists() for path in paths), claim
