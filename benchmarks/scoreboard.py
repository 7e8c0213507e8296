"""The page docs/results/scoreboard.md: what each judge and each peer says, a table each, from the other pages' JSON.

    python -m benchmarks.results --tables

Nothing is measured here. Every table says of which tree its page is; figures of others are those of
docs/results/others.json, with their sources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments.paper import OTHERS

from benchmarks import accuracy_page, aim_page, filled
from benchmarks.pages import RESULTS, stated
from experiments import record
from sklar.files.write import write_text

Document = Mapping[str, Any]
HEAD = """\
# Scoreboard

![Errors beside MST and AIM](../images/benchmark.svg)

How releases of `auto` score before judges that others wrote, beside methods that others wrote, and against our own
checks. Each table is filled from the page that it names, which says how it was measured, and says of which tree of the
package that page is. Figures of others come from [one file](others.json) with their sources, and were not measured
here."""


def peers(document: Document) -> str:
    """Errors of every method on Adult at epsilon 1."""
    others = json.loads(OTHERS.read_text(encoding="utf-8"))["dpsynth"]
    lines = []
    for method, name in accuracy_page.NAMED.items():
        every = [
            run for run in document["runs"] if (run["table"], run["method"], run["epsilon"]) == ("adult", method, 1)
        ]
        if found := [run for run in every if run["status"] == "finished"]:
            tv = [f"{mean(run[measure] for run in found):.4f}" for measure in ("tv2", "tv3")]
            lines.append([name, *tv, f"{mean(run['cpu_seconds'] for run in found):.0f}"])
    lines.sort(key=lambda line: float(line[1]))
    lines += [
        [f"*{name}*", f"{run['tv2']:.4f}", f"{run['tv3']:.4f}", f"{run['cpu_seconds']}"]
        for name, run in others["rows"].items()
    ]
    return (
        record.table(["Adult, epsilon 1", "TV2", "TV3", "CPU s"], lines) + f"\n*Not of this page: {others['source']}.*"
    )


def graphical(document: Document) -> str:
    """In how many comparisons ours has the smaller error, by group of tables."""
    lines = []
    for title, names in document["groups"].items():
        both = {
            key: by for key, by in aim_page.groups(document["runs"]).items() if key[0] in names and aim_page.OURS in by
        }
        cells = []
        for measure in aim_page.MEASURES:
            pairs = [
                (aim_page.mean(by[aim_page.OURS], measure), aim_page.mean(by[peer], measure))
                for by in both.values()
                if (peer := aim_page.best_peer(by, measure)) is not None
            ]
            ahead = sum(ours < theirs for ours, theirs in pairs)
            behind = sum(ours > (1 + aim_page.BEHIND) * theirs for ours, theirs in pairs)
            cells += [f"{ahead} of {len(pairs)}", f"{behind}"]
        lines.append([title, *cells])
    far = f"behind by more than {aim_page.BEHIND:.0%}"
    return record.table(["beside the best of AIM and MST", "TV2 smaller", far, "TV3 smaller", far], lines)


def judged(document: Document) -> str:
    """Scores of outside judges on raw values, means over tables, and how many goals are met."""
    kinds = {"test": "real test rows", "known": "a knowing person's schema (Adult)", "draft": "a draft, unread"}
    kinds["floor"] = "independence"
    found: dict[str, dict[str, list[float]]] = {}
    for run in document["runs"]:
        for key, said in run["said"].items():
            judge, kind = key.split(".")
            if isinstance(said, dict) and "score" in said:
                found.setdefault(judge, {}).setdefault(kind, []).append(said["score"])
    lines = [
        [judge, *(_mean(by.get(kind, [])) for kind in kinds), _met(document["goals"], judge)]
        for judge, by in found.items()
    ]
    return record.table(["means over tables, epsilon 1", *kinds.values(), "goals met"], lines)


def _mean(values: Sequence[float]) -> str:
    return "-" if not values else f"{mean(values):.0f}" if mean(values) > 10 else f"{mean(values):.3f}"


def _met(goals: Sequence[Sequence[Any]], judge: str) -> str:
    mine = [behind <= limit for _, name, behind, limit, _ in goals if name == judge]
    return f"{sum(mine)} of {len(mine)}" if mine else "-"


def drafts(document: Document) -> str:
    """The goals of raw tables that were accepted unread."""
    lines = [
        [words, "-" if found is None else f"{found:.3f}", limit, "PASS" if met else "FAIL"]
        for words, found, limit, met in document["goals"]
    ]
    return record.table(["tables that were accepted unread", "found", "limit", ""], lines)


def learners(document: Document) -> str:
    """What a classifier learns from our rows, from real ones, and from independent columns."""
    lines = []
    for epsilon in sorted({run["epsilon"] for run in document["runs"] if run["method"] == "auto"}):
        cells = []
        for method in ("real", "auto", "independence"):
            values = [run["auc"] for run in document["runs"] if run["method"] == method]
            at = [run["auc"] for run in document["runs"] if (run["method"], run["epsilon"]) == (method, epsilon)]
            cells.append(f"{median(at or values):.3f}" if values else "-")
        lines.append([f"{epsilon:g}", *cells])
    return record.table(["epsilon", "AUC of real rows", "of ours", "of independence"], lines)


def flaws(document: Document) -> str:
    """How many planted flaws each of three finds alone."""
    found = document["flaws"] if "flaws" in document else list(document.values())
    caught = [sum(bool(flaw.get(who)) for flaw in found) for who in ("tests", "audit", "verify")]
    lines = [[str(len(found)), *map(str, caught)]]
    return record.table(["planted flaws", "found by tests", "by the audit alone", "by verify alone"], lines)


def nist() -> str:
    """What NIST's reports say of others."""
    told = json.loads(OTHERS.read_text(encoding="utf-8"))["sdnist"]
    lines = [[name, str(score)] for name, score in told["k_marginal"].items()]
    return record.table(["SDNist's k-marginal of others", "of 1000"], lines) + f"\n*{told['source']}.*"


# The name of a page, what its table is called, and how it is made.
PARTS: Mapping[str, tuple[str, Callable[[Document], str]]] = {
    "judges": ("Outside judges", judged),
    "accuracy": ("Other methods", peers),
    "aim": ("AIM and MST", graphical),
    "labels": ("Classifiers", learners),
    "raw": ("Raw tables", drafts),
    "speed": ("Time and memory", filled.speed),
    "flaws": ("Planted flaws", flaws),
}


def of_which(name: str, document: Document) -> str:
    """Of which tree a page is."""
    header = document.get("header") or stated((RESULTS / f"{name}.md").read_text(encoding="utf-8"))
    return filled.of_which(header or {"sklar": "of unknown version"})


def text() -> str:
    """The page, from the pages that there are."""
    parts = [HEAD]
    for name, (title, made) in PARTS.items():
        if (path := RESULTS / f"{name}.json").exists():
            document = json.loads(path.read_text(encoding="utf-8"))
            table = made(document).strip()
            told = "" if name == "speed" else f"\n\n{of_which(name, document)}"
            parts.append(f"## {title}\n\n{table}{told} How: [{name}]({name}.md).")
    return "\n\n".join([*parts, f"## What others report\n\n{nist()}"]) + "\n"


def write() -> list[Path]:
    """Write the page; returns it where it changed."""
    path = RESULTS / "scoreboard.md"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if (new := text()) == before:
        return []
    write_text(path, new)
    return [path]
