"""The page docs/results/aim.md: what `benchmarks.aim` measured, under a person's text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.paper import OTHERS

from benchmarks import pages
from benchmarks.accuracy_page import cell
from experiments import record

MARK = pages.mark("aim")
OURS = "auto"
NAMED = {
    OURS: "**sklar auto**",
    "aim3-8": "AIM-3, 8 MB",
    "aim3-80": "AIM-3, 80 MB",
    "aim2-8": "AIM-2, 8 MB",
    "mst": "MST",
}
MEASURES = {"tv2": "TV2", "tv3": "TV3"}
LARGEST = {"two_way_maximum": "largest two-way error", "three_way_maximum": "largest three-way error"}
# Ours is behind where its mean is above the best peer's by more than this share.
BEHIND = 0.03

_Run = dict[str, Any]


def groups(runs: Sequence[_Run]) -> dict[tuple[str, float], dict[str, list[_Run]]]:
    """The runs by table and epsilon, then by method, in the order of `NAMED`."""
    found: dict[tuple[str, float], dict[str, list[_Run]]] = {}
    for run in runs:
        found.setdefault((run["table"], run["epsilon"]), {name: [] for name in NAMED})[run["method"]].append(run)
    return {key: {name: here for name, here in by.items() if here} for key, by in sorted(found.items())}


def mean(runs: Sequence[_Run], measure: str) -> float:
    """The mean over draws."""
    return float(sum(run[measure] for run in runs) / len(runs))


def best_peer(by: dict[str, list[_Run]], measure: str) -> str | None:
    """The peer with the least mean error, whether all of its runs ended or not."""
    peers = [method for method in by if method != OURS]
    return min(peers, key=lambda method: mean(by[method], measure), default=None)


def behind(runs: Sequence[_Run]) -> Iterator[str]:
    """Where ours is behind the best peer by more than `BEHIND`, in words.

    >>> ours = {"table": "t", "title": "T", "epsilon": 4.0, "method": "auto", "tv2": 0.01, "tv3": 0.03, "whole": True}
    >>> list(behind([ours, ours | {"method": "mst", "tv2": 0.02, "tv3": 0.02}]))
    ['T, epsilon 4: TV3 0.0300, 50% above 0.0200 of MST']
    """
    for (_, epsilon), by in groups(runs).items():
        for measure, shown in MEASURES.items():
            peer = best_peer(by, measure)
            if peer is None or OURS not in by:
                continue
            ours, theirs = mean(by[OURS], measure), mean(by[peer], measure)
            if ours > (1 + BEHIND) * theirs:
                where = f"{by[OURS][0]['title']}, epsilon {epsilon:g}: {shown} {ours:.4f}"
                yield f"{where}, {ours / theirs - 1:.0%} above {theirs:.4f} of {NAMED[peer]}{_stopped(by[peer])}"


def _stopped(runs: Sequence[_Run]) -> str:
    return "" if all(run["whole"] for run in runs) else " *"


def summary(runs: Sequence[_Run], limits: Mapping[str, Any]) -> str:
    """Ours, the best peer and both limits, TV2 and TV3: one line for a table and an epsilon."""
    lines, before = [], ""
    for (table, epsilon), by in groups(runs).items():
        line = ["" if table == before else by[next(iter(by))][0]["title"], f"{epsilon:g}"]
        for measure in MEASURES:
            peer = best_peer(by, measure)
            ours = mean(by[OURS], measure) if OURS in by else None
            theirs = None if peer is None else mean(by[peer], measure)
            ahead = ours is not None and theirs is not None and theirs < ours
            line.append("-" if ours is None else f"{ours:.4f}")
            if peer is None or theirs is None:
                line.append("-")
            else:
                figure = f"**{theirs:.4f}**" if ahead else f"{theirs:.4f}"
                line.append(f"{figure} {NAMED[peer]}{_stopped(by[peer])}")
        near = limits.get(table)
        again = [f"{near['resampled'][measure]:.4f}" if near else "-" for measure in MEASURES]
        best = f"{near['unbiased_tv2'][f'{epsilon:g}']:.4f}" if near else "-"
        lines.append([*line[:4], again[0], best, *line[4:], again[1]])
        before = table
    again_, best_ = "rows drawn again", "best unbiased"
    head = ["table", "epsilon", "TV2: ours", "best peer", again_, best_, "TV3: ours", "best peer", again_]
    return record.table(head, lines)


def details(runs: Sequence[_Run]) -> str:
    """Every method on one table, one line for an epsilon and a method."""
    # Runs of before it was taken have no largest three-way error.
    lines, largest = [], [measure for measure in LARGEST if any(run.get(measure) is not None for run in runs)]
    for (_, epsilon), by in groups(runs).items():
        for method, here in by.items():
            ended = sum(run["whole"] for run in here)
            measured = [cell(here, measure, 4) for measure in MEASURES]
            rounds = "-" if method in (OURS, "mst") else cell(here, "rounds", 0)
            lines.append(
                [
                    f"{epsilon:g}",
                    NAMED[method],
                    f"{len(here)}" + ("" if ended == len(here) else f", {len(here) - ended} stopped"),
                    *measured,
                    *[cell(here, measure, 0) for measure in largest],
                    rounds,
                    cell(here, "seconds", 0),
                ]
            )
    head = ["epsilon", "method", "draws", *MEASURES.values(), *map(LARGEST.__getitem__, largest), "rounds", "seconds"]
    return record.table(head, lines)


def others() -> str:
    """What was measured elsewhere of one more peer on Adult, where a row is added or removed."""
    told = json.loads(OTHERS.read_text(encoding="utf-8"))["dpsynth"]
    rows = [f"{name}: TV2 {run['tv2']:.4f}, TV3 {run['tv3']:.4f}" for name, run in told["rows"].items()]
    return f"\n\n*Not measured here, at epsilon 1: {'; '.join(rows)} ({told['source']}).*"


def markdown(document: dict[str, Any]) -> str:
    """The tables of the page. A person writes above them what they mean."""
    runs, parts = document["runs"], []
    for heading, names in document["groups"].items():
        here = [run for run in runs if run["table"] in names]
        if here:
            found = list(behind(here))
            missing = f"\n\nOurs is behind by more than {BEHIND:.0%}:\n\n" if found else ""
            told = others() if heading.startswith("Adult") else ""
            parts.append(
                f"## {heading}\n\n{summary(here, document.get('limits', {}))}{missing}"
                + "\n".join(f"- {line}" for line in found)
                + told
            )
    parts.append("## All runs")
    for name in dict.fromkeys(name for names in document["groups"].values() for name in names):
        here = [run for run in runs if run["table"] == name]
        if here:
            size = f"{here[0]['rows']:,} rows, {here[0]['attributes']} attributes, {here[0]['levels']:,} levels"
            parts.append(f"### {here[0]['title']}: {size}\n\n{details(here)}")
    return "\n\n".join(part.strip() for part in parts)


def write_page(document: dict[str, Any], folder: Path) -> None:
    """Write aim.json and aim.md."""
    pages.write_page(
        folder,
        "aim",
        marked=MARK,
        otherwise="# Beside AIM and MST",
        document=document,
        markdown=markdown(document),
        figure=None,
    )
