"""Renew every page of docs/results on this tree, one after the other, and the tables of README and docs after each.

    make results                                     # all of it: at most four hours of two idle cores
    make quick                                       # what takes 20 minutes in all
    python -m benchmarks.results --idle              # pages that time things: nothing else may run
    python -m benchmarks.results --beside            # all others, which other work only makes slower
    python -m benchmarks.results --list              # of which tree each page is
    python -m benchmarks.results --only raw,speed
    python -m benchmarks.results --tables            # only fill the tables of README and docs

A page says in its header of which tree it is (`src`, a digest of the package's files), and one that is of this tree is
left alone: what was interrupted goes on, also inside of a page, as runs are kept one by one. Runs of ours are kept for
one tree alone; runs of peers by their version and settings, in the work folder or in the page's own JSON. A page whose
command fails, or did not write it, is named at the end, with the file that holds what the command printed, and the
others are made all the same.

When all pages are of one tree, docs/results/tree.json says so: from then on a test fails when one is of another.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from experiments.page import PARTS

from benchmarks import dots, filled, scoreboard
from benchmarks.pages import EARLIER, RESULTS, ROOT, SRC, stated, versions
from sklar.files.write import write_text

LOGS = ROOT / "build" / "results"
# Of which tree all pages are, and when the last of them was made; only then is it there.
WHOLE = RESULTS / "tree.json"
# What all pages, and the quick ones, may take on two idle cores.
MOST_MINUTES, MOST_QUICK = 240, 20
_OURS = "auto,mixture,binary,dpc,independence"
_GRAPHICAL = "--peers-python .venv-graphical/bin/python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, the modules that make it with their options, and about how many minutes they take on two idle cores.

    `idle`: it times things, so that nothing else may run.
    """

    name: str
    minutes: float
    commands: tuple[str, ...]
    quick: bool = False
    idle: bool = False
    venv: str = ".venv"

    @property
    def path(self) -> Path:
        """Its Markdown."""
        return RESULTS / f"{self.name}.md"

    def tree(self) -> str:
        """Of which tree it is; a dash where it does not say."""
        return stated(self.path.read_text(encoding="utf-8")).get("src", "-") if self.path.exists() else "-"


def _paper(name: str, minutes: float, *, quick: bool = False, idle: bool = False) -> Page:
    return Page(name=name, minutes=minutes, commands=(f"experiments.{name}",), quick=quick, idle=idle)


_CONDITIONS = "benchmarks.conditions --rows 2000 --table-rows 10000 --page"
PAGES = (
    Page(name="attacks", minutes=0.1, commands=("tests.flaws.attacks",), quick=True),
    _paper("illustrations", 0.2, quick=True),
    _paper("learning", 1, quick=True),
    _paper("correlation_split", 1, quick=True),
    _paper("rules", 1, quick=True),
    _paper("runtimes", 2, quick=True, idle=True),
    _paper("scatter", 2, quick=True),
    Page(name="conditions", minutes=1, commands=(_CONDITIONS,), quick=True, idle=True),
    Page(name="start", minutes=5, commands=("benchmarks.start --runs 3 --page",), quick=True, idle=True),
    _paper("epsilon_sweep", 4),
    _paper("cdfs", 4),
    _paper("errors", 6),
    Page(name="numbers", minutes=2, commands=("benchmarks.numbers --page",)),
    Page(
        name="accuracy",
        minutes=5,
        commands=(
            f"benchmarks.accuracy --methods auto,independence {_GRAPHICAL} --no-learners --no-page",
            f"benchmarks.accuracy --tables adult --methods {_OURS} --no-learners --no-page",
            "benchmarks.accuracy --tables adult --methods auto --epsilons 0.25,4,10",
        ),
    ),
    Page(
        name="aim",
        minutes=20,
        commands=(
            f"benchmarks.aim ours --draws 2 {_GRAPHICAL}",
            f"benchmarks.aim limits {_GRAPHICAL}",
            f"benchmarks.aim page {_GRAPHICAL}",
        ),
    ),
    Page(
        name="labels",
        minutes=17,
        commands=(f"benchmarks.labels ours --draws 2 --jobs 2 {_GRAPHICAL}", f"benchmarks.labels page {_GRAPHICAL}"),
    ),
    Page(name="raw", minutes=7, commands=("benchmarks.raw --draws 1 --page",), venv=".venv-raw"),
    Page(name="judges", minutes=23, commands=("benchmarks.judges --draws 1 --page",), venv=".venv-raw"),
    Page(name="speed", minutes=20, commands=("benchmarks.pipeline", "benchmarks.pipeline --growth --page"), idle=True),
    Page(name="scale", minutes=9, commands=("benchmarks.scale --rows 20000000 --page",), venv=".venv-spark", idle=True),
    Page(name="census", minutes=22, commands=("benchmarks.census --page",), venv=".venv-spark", idle=True),
    Page(
        name="ablation",
        minutes=14,
        commands=(f"benchmarks.ablation --draws 1 --epsilons 1,4 {_GRAPHICAL}", "benchmarks.ablation --page"),
    ),
    Page(name="inference", minutes=26, commands=("experiments.inference --part 0.4 --jobs 2 --minutes 24",)),
    Page(name="functions", minutes=8, commands=("experiments.functions --runs 2 --epsilon 1 --epsilon 10 --jobs 2",)),
    Page(name="studio", minutes=4, commands=("experiments.studio --page",)),
    Page(name="linked", minutes=6, commands=("benchmarks.linked --page",)),
    Page(name="flaws", minutes=22, commands=("tests.flaws.run --jobs 2",)),
)


def current(page: Page) -> bool:
    """Whether a page is of this tree."""
    return page.tree() == SRC


def interpreter(venv: str) -> Path:
    """The Python of an environment: the running one of the package's own, which need not be `.venv`."""
    return Path(sys.executable) if venv == ".venv" else ROOT / venv / "bin" / "python"


def renew(page: Page) -> str | None:
    """Run a page's commands; what went wrong, or None. What they print goes to a file of `LOGS`."""
    python, log = interpreter(page.venv), LOGS / f"{page.name}.log"
    if not python.exists():
        return f"needs the environment {page.venv}. Run make {page.venv}/.done."
    LOGS.mkdir(parents=True, exist_ok=True)
    before = page.path.stat().st_mtime_ns if page.path.exists() else None
    with log.open("w", encoding="utf-8") as output:
        for command in page.commands:
            done = subprocess.run(  # noqa: S603
                [str(python), "-m", *command.split()], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False
            )
            if done.returncode:
                return f"{command} ended with exit status {done.returncode}: {log.relative_to(ROOT)}"
    if not page.path.exists() or page.path.stat().st_mtime_ns == before:
        # A page that nobody wrote is of its old tree, whatever ended well.
        return f"its commands ended well and did not write it: {log.relative_to(ROOT)}"
    write_text(page.path, stamped(page.path.read_text(encoding="utf-8"), page.commands))
    return None if current(page) else "its commands wrote it on another tree"


def dated(text: str, newest: str) -> str:
    """A page that says in words, below its title, that it is of another tree than the newest, or that no longer does.

    >>> dated("<!--\\nsrc: 1a2b3c4d\\n-->\\n\\n# A\\n", "5e6f7a8b").splitlines()[4:]
    ['# A', '', '*Of an earlier tree of the package (1a2b3c4d), not renewed since.*']
    """
    plain = EARLIER.sub("", text)
    tree = stated(plain).get("src", "of no digest")
    if tree == newest:
        return plain
    told = f"\n\n*Of an earlier tree of the package ({tree}), not renewed since.*"
    return re.sub(r"(?m)^# .*$", lambda title: title[0] + told, plain, count=1)


def whole() -> str | None:
    """The tree of all pages, where they were renewed together."""
    return json.loads(WHOLE.read_text(encoding="utf-8"))["src"] if WHOLE.exists() else None


def newest() -> str:
    """The tree of all pages; while they are of several, that of most that were renewed on the last day."""
    said = [stated(page.path.read_text(encoding="utf-8")) for page in PAGES if page.path.exists()]
    days = Counter((each["date"], each["src"]) for each in said if "src" in each)
    return whole() or max(days, key=lambda each: (each[0], days[each]), default=("", "-"))[1]


def date() -> list[Path]:
    """Make every page say whether it is of an earlier tree; returns those that changed."""
    changed, tree = [], newest()
    for page in (page for page in PAGES if page.path.exists()):
        before = page.path.read_text(encoding="utf-8")
        if (new := dated(before, tree)) != before:
            write_text(page.path, new)
            changed.append(page.path)
    return changed


def sum_up() -> bool:
    """Write the page that sums up the paper's from their JSON; whether that went well."""
    return not subprocess.run([sys.executable, "-m", "experiments.page"], cwd=ROOT, check=False).returncode


def stamped(text: str, commands: Sequence[str]) -> str:
    """A page with a header, where the commands that wrote it leave the one of another tree, or none."""
    if stated(text).get("src") == SRC:
        return text
    body = text.split("-->\n", 1)[1].lstrip("\n") if stated(text) else text
    facts = {"command": "; ".join(f"python -m {command}" for command in commands), **versions()}
    return "<!--\n" + "\n".join(f"{key}: {value}" for key, value in facts.items()) + f"\n-->\n\n{body}"


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Only the pages that take little.")
@click.option("--idle", is_flag=True, help="Only the pages that need an idle machine.")
@click.option("--beside", is_flag=True, help="Only the pages that do not.")
@click.option("--only", default="", help="Only these pages, with commas between them.")
@click.option("--again", is_flag=True, help="Also pages that are of this tree.")
@click.option("--list", "listed", is_flag=True, help="Say of which tree each page is, and run nothing.")
@click.option("--tables", is_flag=True, help="Fill the tables of README and docs, and run nothing.")
def main(*, quick: bool, idle: bool, beside: bool, only: str, again: bool, listed: bool, tables: bool) -> None:
    """Renew what is not of this tree."""
    names = [name for name in only.split(",") if name]
    unknown = [name for name in names if name not in {page.name for page in PAGES}]
    if unknown:
        raise click.BadParameter(f"no such page: {', '.join(unknown)}. --list names them.", param_hint="--only")
    chosen = [page for page in PAGES if (page.name in names if names else page.quick or not quick)]
    chosen = [page for page in chosen if idle == beside or page.idle == idle]
    if listed:
        for page in chosen:
            where = "idle" if page.idle else ""
            click.echo(f"{page.name:18} {page.tree():9} {page.minutes:5.3g} min {where:5} {'; '.join(page.commands)}")
        return
    todo = [] if tables else [page for page in chosen if again or not current(page)]
    left, failed = sum(page.minutes for page in todo), []
    for place, page in enumerate(todo, start=1):
        click.echo(
            f"[{place}/{len(todo)}] {page.name}: about {page.minutes:.3g} min, {left:.3g} min for all that is left"
        )
        begin = time.perf_counter()
        problem = renew(page)
        left -= page.minutes
        click.echo(f"    {problem or 'written'} ({(time.perf_counter() - begin) / 60:.1f} min)")
        failed += [f"{page.name}: {problem}"] if problem else []
    old = [page.name for page in PAGES if not current(page)]
    if not old:
        write_text(WHOLE, json.dumps({"src": SRC, "date": versions()["date"]}) + "\n")
    if any(page.name in PARTS for page in todo) and not sum_up():
        failed.append("README: experiments.page ended with an error")
    for path in (*filled.fill(), *date(), *scoreboard.write(), *dots.draw()):
        click.echo(f"filled what stands in {path.relative_to(ROOT)}")
    if failed:
        raise click.ClickException("not renewed: " + "; ".join(failed))
    click.echo(
        f"Tree {SRC}: {len(PAGES) - len(old)} of {len(PAGES)} pages" + (f", not {', '.join(old)}." if old else ".")
    )


if __name__ == "__main__":
    main()
