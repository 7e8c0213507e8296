"""`make flaws`: plant every flaw in a copy of the package and report which of tests, audit and verify catches it.

Tests are those that the flaw names; the audit is the quick one, of the flawed copy; verify is the sound package's, on
models that the flawed copy released. The table goes to docs/results/flaws.md, and is kept in flaws.json beside it, so
that some flaws can be tried again. Fails when the tests miss a flaw, or the audit catches fewer than it must.

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

from tests.flaws.planted import FLAWS, ROOT, Flaw, environment, plant

PAGE = ROOT / "docs" / "results" / "flaws.md"
KEPT = PAGE.with_suffix(".json")
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
from sklar.release import fit, fit_linked
from sklar.trust.audit.kinds import kinds
for kind in kinds():
    if kind.name in {_KINDS}:
        release = fit_linked if kind.name == "linked" else fit
        release(*kind.tables[0], kind.schema, kind.budget).save(kind.name + ".sklar")
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


def page(found: list[Caught]) -> str:
    """The table, as a page of the documentation."""
    counts = {who: sum(bool(each[who]) for each in found) for who in ("tests", "audit", "verify")}
    lines = [
        "# Planted flaws, and who catches each",
        "",
        f"`make flaws` plants {len(found)} flaws (`tests/flaws/planted.toml`), each in a copy of the package, "
        "and lets three look for each: the tests that the flaw names, `sklar audit --quick` of the flawed copy, and "
        "`sklar verify` of the sound package on five models that the flawed copy released (a table, bits, one with "
        "three-way tables, private domains, linked tables).",
        "",
        f"Caught by the tests: {counts['tests']} of {len(found)}. By the audit alone: {counts['audit']}. By verify "
        f"alone: {counts['verify']}. Verify sees a file and nothing else, so that it can catch only what a file shows.",
        "",
        "| flaw | test that fails first | attack that succeeds first | verify |",
        "|---|---|---|---|",
    ]
    marks = {"": " (*)", "without models": " (+)", "whole": ""}
    for each in found:
        tests = f"`{each['tests']}`" if each["tests"] else "**missed**"
        mark = marks[each.get("audited", "")]
        lines.append(f"| {each['name']} | {tests} | {each['audit'] or '-'}{mark} | {each['verify'] or '-'} |")
    lines += ["", "(*) Audit and verify as before attacks were made by kind of release: not tried again since."] * any(
        "audited" not in each for each in found
    )
    lines += ["", "(+) By the quick audit without its attack on models; tests were run apart from it."] * any(
        each.get("audited") == "without models" for each in found
    )
    tried = {each["name"] for each in found}
    rest = [flaw.name for flaw in FLAWS if flaw.name not in tried]
    lines += ["", f"Planted, and not tried by all three yet: {'; '.join(rest)}."] if rest else []
    return "\n".join(lines) + "\n"


def main(parts: list[str], jobs: int) -> int:
    """Catch all flaws, or those whose name holds one of these texts; returns the exit code."""
    chosen = [flaw for flaw in FLAWS if not parts or any(part in flaw.name for part in parts)]
    kept = json.loads(KEPT.read_text()) if parts and KEPT.exists() else {}
    with ThreadPoolExecutor(jobs) as pool:
        # Audits take longest, above all those that find nothing: they begin first.
        looks = {who: [pool.submit(look, who, flaw) for flaw in chosen] for who in ("audit", "tests", "verify")}
        for number, flaw in enumerate(chosen):
            caught = {who: looks[who][number].result() for who in ("tests", "audit", "verify")}
            sys.stderr.write(f"{flaw.name}: {' | '.join(by or '-' for by in caught.values())}\n")
            kept[flaw.name] = {"name": flaw.name, **caught, "audited": "whole"}
            # After each: a run may be interrupted.
            KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    found = [kept[flaw.name] for flaw in FLAWS if flaw.name in kept]
    PAGE.write_text(page(found))
    sys.stdout.write(page(found))
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
