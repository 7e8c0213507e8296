"""`python -m tests.flaws.attacks`: which attack is made on which kind of release, into docs/results/attacks.md."""

from __future__ import annotations

import sys

from benchmarks.results import stamped

from sklar.trust.audit.by_kind import BY_KIND
from sklar.trust.audit.kinds import kinds
from tests.flaws.planted import ROOT

PAGE = ROOT / "docs" / "results" / "attacks.md"
# Attacks of a kind that see less than they do of others, and what holds the rest.
LESS = {
    ("counts", "linked"): "the joint table; tables beside it: `tests/rows/test_trees.py`",
    ("counts", "private domains"): "values that are listed, and roundings; other tables: `tests/rows/test_engines.py`",
}
# Attacks that are not made on every kind, and why.
ONCE = {
    "seal": "tries to replace the sampler, which all kinds share",
    "fresh noise": "draws from the sampler in fresh processes",
    "sampler": "draws from the sampler, which all kinds share",
    "passes": "needs people with more rows than are counted, and a query that takes two passes: parities of people",
    "counting": "is about files, encoding and counting, before any kind of release",
    "neighbors": "is about files, encoding and counting, before any kind of release",
    "checkpoint": "is about counts that are kept on the way, of rows and public domains alone",
    "search": "is about private domains alone",
    "tightness": "says how tight the guess is, on the release where it is tightest",
}


def page() -> str:
    """The table, as a page of the documentation."""
    names = list(dict.fromkeys(kind.name.removesuffix(", add-remove") for kind in kinds()))
    both = {kind.name for kind in kinds()}
    lines = [
        "# Attacks of the audit, by kind of release",
        "",
        f"`sklar audit` makes {len(BY_KIND)} attacks on each of {len(both)} kinds of release, "
        f"and {len(ONCE)} more that are not about one kind. `python -m tests.flaws.attacks` prints this page, and "
        "`tests/trust/test_audit.py` holds it to what an audit does. Of bits, searches, third stages and linked tables "
        "noise is Gaussian: these queries are refused under Laplace noise.",
        "",
        "Made under replace-one and under add-remove (both), with notes below:",
        "",
        f"| attack | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    notes = list(LESS)
    for part in BY_KIND:
        cells = []
        for name in names:
            made = [each in both for each in (name, f"{name}, add-remove")]
            mark = f" ({notes.index((part, name)) + 1})" if (part, name) in LESS else ""
            cells.append(("both" if all(made) else "**missing**") + mark)
        lines.append(f"| {part} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {LESS[note]}." for number, note in enumerate(notes, 1)), ""]
    lines += ["Not made on every kind, and why:", "", "| attack | it |", "|---|---|"]
    lines += [f"| {part} | {why} |" for part, why in ONCE.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(stamped(page(), ["tests.flaws.attacks"]))
    sys.stdout.write(page())
