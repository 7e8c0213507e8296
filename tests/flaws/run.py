"""`make flaws`: plant every flaw in a copy of the package and report which of tests, audit and verify catches it.

Tests are those that the flaw names; the audit is the quick one, of the flawed copy; verify is the sound package's, on
models that the flawed copy released. The table goes to docs/results/flaws.*. What was tried on the same package and the
same tests is not tried again, but where its name is given. Fails when the tests miss a flaw, or the audit catches fewer
than it must.

    python -m tests.flaws.run [--jobs N] [PART OF A NAME ...]

Takes neither network nor git. Each of the three looks at a copy of its own, in a process of its own with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.pages import kept, source_digest
from experiments.figures import dots

from experiments import record
from sklar.files.write import write_text
from tests.flaws.planted import FLAWS, ROOT, Flaw, environment, plant

TESTS = source_digest(ROOT / "tests")
KEPT = kept("flaws") / f"{TESTS}.json"
LEAST_BY_THE_AUDIT = 25
_SCHEMA = """[table]
name = "people"
[attributes]
age = {type = "integer", edges = [0, 18, 40, 65, 100], missing = "?"}
city = {type = "categorical", domain = "private", at_most = 4}
member = {type = "boolean"}
income = {type = "integer", domain = "private", low = 0, high = 100000, bins = 5}
"""
# Who caught a flaw, and by what: nothing for who missed it.
Caught = dict[str, str]


def look(who: str, flaw: Flaw) -> str:
    """Plant a flaw and let one of the three look for it."""
    with tempfile.TemporaryDirectory(prefix="sklar-flaw-") as name:
        folder = plant(flaw, Path(name))
        return by_tests(flaw, folder) if who == "tests" else by_audit(folder) if who == "audit" else by_verify(folder)


def settings(folder: Path) -> dict[str, str]:
    """Those of a process that looks at a flawed copy: as many work at once as are told, each with one thread."""
    return environment(folder) | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def by_tests(flaw: Flaw, folder: Path) -> str:
    """The first test that fails, as file and name; nothing when all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *flaw.tests]
    done = subprocess.run(command, cwd=ROOT, env=settings(folder), capture_output=True, text=True, check=False)
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (0, 1) and not failed:
        raise RuntimeError(f"{flaw.name}: its tests could not be run:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    return failed[0].split("[")[0].removeprefix("tests/") if failed else ""


def by_audit(folder: Path) -> str:
    """The part of the first attack that succeeds; nothing when none does."""
    command = [sys.executable, "-m", "sklar.trust.audit", "--quick"]
    with subprocess.Popen(
        command, cwd=ROOT, env=settings(folder), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        for line in process.stdout or ():
            found = json.loads(line)
            if not found["passed"]:
                # What follows cannot make it pass.
                process.kill()
                return str(found["part"])
    if process.returncode:
        raise RuntimeError("the audit of a flawed copy did not run to its end")
    return ""


# Models of several kinds, saved by the flawed copy.
_KINDS = ("bits", "third stage", "private domains", "linked")
_MODELS = f"""
from sklar.release import fit
from sklar.trust.audit.kinds import kinds
for kind in kinds():
    if kind.name in {_KINDS}:
        fit(kind.data(), kind.schema, kind.budget).save(kind.name + ".sklar")
"""


def by_verify(folder: Path) -> str:
    """Whether the sound package refuses a model that the flawed one released, and of which kind."""
    generator = np.random.default_rng(1)
    towns, ages, amounts = ["Bern", "Rome", "Oslo"], range(100), range(100_000)
    columns: dict[str, Any] = {"age": ages, "city": towns, "member": [True, False], "income": amounts}
    drawn = {name: generator.choice(values, 3_000) for name, values in columns.items()}
    # Beside the flawed copy and not above it: `python -m` looks for packages in its folder first.
    place = folder / "release"
    place.mkdir()
    pl.DataFrame(drawn).write_csv(place / "t.csv")
    (place / "s.toml").write_text(_SCHEMA)
    release = ["-m", "sklar", "fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--model", "table.sklar"]
    for command in (release, ["-c", _MODELS]):
        command = [sys.executable, *command]
        done = subprocess.run(command, cwd=place, env=settings(folder), capture_output=True, check=False)
        if done.returncode:
            return "no model"
    for name in ("table", *_KINDS):
        command = [sys.executable, "-m", "sklar", "verify", f"{name}.sklar"]
        if subprocess.run(command, cwd=place, env=dict(os.environ), capture_output=True, check=False).returncode:
            return f"verify ({name})"
    return ""


def counts_of(found: list[Caught]) -> dict[str, int]:
    """How many flaws each of the three catches alone."""
    return {who: sum(bool(each[who]) for each in found) for who in ("tests", "audit", "verify")}


def page(found: list[Caught]) -> str:
    """The table, as a page of the documentation."""
    counts = counts_of(found)
    sentences = (
        f"{len(found)} flaws are planted, each in a copy of the package, and three look for each. Caught by the tests: "
        f"{counts['tests']}; by the audit alone: {counts['audit']}; by verify alone: {counts['verify']}. Verify sees a "
        "file and nothing else, so that it can catch only what a file shows."
    )
    methods = (
        "`make flaws` plants `tests/flaws/planted.toml`. The three are the tests that the flaw names, `sklar audit "
        "--quick` of the flawed copy, and `sklar verify` of the sound package on five models that the flawed copy "
        "released (a table, bits, one with three-way tables, private domains, linked tables)."
    )
    tried = {each["name"] for each in found}
    if rest := [flaw.name for flaw in FLAWS if flaw.name not in tried]:
        methods += f" Not tried yet: {'; '.join(rest)}."
    lines = [
        [
            each["name"],
            f"`{each['tests']}`" if each["tests"] else "**missed**",
            each["audit"] or "-",
            each["verify"] or "-",
        ]
        for each in found
    ]
    head = ["flaw", "test that fails first", "attack that succeeds first", "verify"]
    return record.told("Planted flaws, and who catches each", sentences, record.table(head, lines), methods)


def main(parts: list[str], jobs: int) -> int:
    """Catch all flaws, or those whose name holds one of these texts; returns the exit code."""
    chosen = [flaw for flaw in FLAWS if not parts or any(part in flaw.name for part in parts)]
    known: dict[str, Caught] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    chosen = [flaw for flaw in chosen if parts or flaw.name not in known]
    with ThreadPoolExecutor(jobs) as pool:
        # Audits take longest, above all those that find nothing: they begin first.
        looks = {who: [pool.submit(look, who, flaw) for flaw in chosen] for who in ("audit", "tests", "verify")}
        for number, flaw in enumerate(chosen):
            caught = {who: looks[who][number].result() for who in ("tests", "audit", "verify")}
            sys.stderr.write(f"{flaw.name}: {' | '.join(by or '-' for by in caught.values())}\n")
            known[flaw.name] = {"name": flaw.name, **caught}
            # After each: a run may be interrupted.
            write_text(KEPT, json.dumps(known, indent=1) + "\n")
    found = [known[flaw.name] for flaw in FLAWS if flaw.name in known]
    document = {"header": record.header("tests.flaws.run", tests=TESTS), "flaws": found}
    shares = {who: 100 * number / len(found) for who, number in counts_of(found).items()}
    pictures = {"flaws": dots(f"Of {len(found)} planted flaws", "% caught", {"caught": shares})}
    record.write(record.RESULTS, "flaws", document=document, markdown=page(found), figures=pictures)
    wanted = {flaw.name for flaw in FLAWS if flaw.audited}
    missed = [f"the tests miss: {each['name']}\n" for each in found if not each["tests"]]
    missed += [f"the audit misses: {each['name']}\n" for each in found if each["name"] in wanted and not each["audit"]]
    sys.stderr.writelines(missed)
    return int(bool(missed) or sum(bool(each["audit"]) for each in found) < LEAST_BY_THE_AUDIT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plant flaws and report who catches each.")
    parser.add_argument("parts", nargs="*", metavar="PART OF A NAME")
    parser.add_argument("--jobs", type=int, default=2, help="how many look at once (default: 2)")
    given = parser.parse_args()
    sys.exit(main(given.parts, given.jobs))
