"""Tables of figures in README and docs, between markers, from the JSON of the pages that they are taken from.

    python -m benchmarks.results --tables

A marker is a comment, `figures: NAME` with NAME one of `TABLES`, and `end of figures` closes it. Each table says of
which tree its page is; a test fails when a table is not what the page's JSON says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import accuracy_page, aim_page
from benchmarks.pages import RESULTS, ROOT
from experiments import paper, record
from sklar.files.write import write_text

FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
Document = Mapping[str, Any]


def of_which(header: Mapping[str, Any]) -> str:
    """Of which tree, machine and day figures are, in a line."""
    if "src" in header:
        return f"Tree `{header['src']}` of {header['date']}, {header['machine']}."
    known = ", ".join([f"sklar {header['sklar']}", *([header["machine"]] if "machine" in header else [])])
    return f"Of an earlier tree ({known}), not renewed since."


def accuracy(document: Document) -> str:
    """Methods on Adult at epsilon 1, and ours at larger ones."""

    def runs(method: str, epsilon: float) -> list[dict[str, Any]]:
        wanted = ("adult", method, epsilon, "finished")
        return [
            run for run in document["runs"] if (run["table"], run["method"], run["epsilon"], run["status"]) == wanted
        ]

    def mean(found: list[dict[str, Any]], measure: str) -> float:
        return record.mean([run[measure] for run in found])

    lines = []
    for method, name in accuracy_page.NAMED.items():
        found = runs(method, 1.0)
        if found and method != "mixture":
            counts = f"{mean(found, 'two_way_average'):.1f} / {mean(found, 'two_way_maximum'):,.0f}"
            seconds = mean(found, "cpu_seconds")
            figures = [f"{mean(found, measure):.3f}" for measure in ("tv2", "tv3")]
            lines.append(
                (mean(found, "tv2"), [name, counts, *figures, f"{seconds:.1f}" if seconds < 1 else f"{seconds:.0f}"])
            )
    head = ["method", "two-way average / maximum", "TV2", "TV3", "CPU s"]
    table = record.table(head, [line for _, line in sorted(lines)])
    larger = [
        f"at epsilon {epsilon:g} TV2 {mean(found, 'tv2'):.4f} and TV3 {mean(found, 'tv3'):.4f}"
        for epsilon in (4.0, 10.0)
        if (found := runs("auto", epsilon))
    ]
    return f"{table}\n`auto` {', '.join(larger)}. {of_which(document['header'])}"


def aim(document: Document) -> str:
    """In how many comparisons on tables that nobody looked at ours is ahead, and behind by more than a little."""
    names = next(iter(document["groups"].values()))
    ahead, behind, both = dict.fromkeys(aim_page.MEASURES, 0), dict.fromkeys(aim_page.MEASURES, 0), 0
    for (table, _), by in aim_page.groups(document["runs"]).items():
        if table not in names or aim_page.OURS not in by or aim_page.best_peer(by, "tv2") is None:
            continue
        both += 1
        for measure in aim_page.MEASURES:
            theirs = aim_page.mean(by[str(aim_page.best_peer(by, measure))], measure)
            ours = aim_page.mean(by[aim_page.OURS], measure)
            ahead[measure] += ours < theirs
            behind[measure] += ours > (1 + aim_page.BEHIND) * theirs
    return (
        f"Of {both} comparisons each, ours has the smaller TV2 in {ahead['tv2']} and the smaller TV3 in "
        f"{ahead['tv3']}; it is behind the best of them by more than {aim_page.BEHIND:.0%} in "
        f"{behind['tv2']} and {behind['tv3']}.\n" + of_which(document["header"])
    )


def speed(document: Document) -> str:
    """Whole releases of the paper's shapes, beside the paper's."""
    by = {(run["shape"], run["method"]): run for run in document["runs"]}
    lines = []
    for shape in ("adult", "hospital", "dss", "syn1", "syn2"):
        ours = by[shape, "auto"]
        peak = max(by[shape, method]["peak_bytes"] for method in ("auto", "binary")) / 1e9
        taken = [by[shape, method]["seconds"] for method in ("auto", "binary")]
        lines.append(
            [
                ours["title"],
                f"{ours['rows']:,} x {ours['attributes']:,}",
                *(f"{each:.1f} s" if each < 10 else f"{each:.0f} s" for each in taken),
                f"{peak:.1f} GB",
                paper.TIMES[shape][3],
            ]
        )
    head = ["table", "rows x attributes", "`auto`", "`binary`", "peak memory", "the paper, 10 cores"]
    return f"{record.table(head, lines)}\n{of_which(document['header'])}"


def scale(document: Document) -> str:
    """Both engines in turn."""
    lines = []
    for name, run in document["in turn"].items():
        here, there = run["median"]["local"], run["median"]["spark"]
        through = f"{run['median']['frame'] / here:.1f}" if "frame" in run["median"] else "-"
        lines.append([name, f"{here:.1f}", f"{there:.1f}", f"{there / here:.2f}", through])
    head = ["rows x attributes", "local, s", "Spark, s", "ratio", "ratio through the JVM"]
    return f"{record.table(head, lines)}\n{of_which(document['header'])}"


TABLES: Mapping[str, Callable[[Document], str]] = {"accuracy": accuracy, "aim": aim, "speed": speed, "scale": scale}


def text(name: str) -> str:
    """A table as the JSON of its page has it."""
    return TABLES[name](json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


def after(page: str) -> str:
    """A page with all of its tables filled."""
    return MARKED.sub(lambda found: f"{found[1]}\n{text(found[2])}\n\n{found[3]}", page)


def fill() -> list[Path]:
    """Fill every table of `FILES`; returns the files that changed."""
    changed = []
    for path in FILES:
        before = path.read_text(encoding="utf-8")
        if (new := after(before)) != before:
            write_text(path, new)
            changed.append(path)
    return changed
