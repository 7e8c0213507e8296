"""Attacks on what a release shows or keeps beside noisy cells: facts, plans, models, ledger, checkpoints, the seal."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sklar.budget.ledger import Ledger
from sklar.budget.method import PAPER
from sklar.errors import BudgetError, DataError
from sklar.kernel import noise
from sklar.kernel.queries import Tables
from sklar.kernel.theorems import DEFAULT_DELTA, Budget
from sklar.release import measure
from sklar.trust.audit import Comparison, Effort, conclude, inventions
from sklar.trust.audit.inventions import EXACT, PEOPLE, invent, write
from sklar.trust.exact import exact_epsilon

_TOTAL, _EACH, _MANY = 1.0, 0.3, 20


def check_ledger(folder: Path, _: Effort) -> Iterator[Comparison]:
    """Release until the ledger refuses: what has left costs no more than the total."""
    book = Ledger(folder / "ledger.db")
    book.open_account("audit", epsilon=_TOTAL, delta=DEFAULT_DELTA)
    path = write(invent(40).frame, folder / "ledger.csv")
    scales: list[float] = []
    done = 0
    while done < _MANY:
        try:
            measured = measure(path, PEOPLE, Budget(epsilon=_EACH), ledger=book, dataset="audit")
        except BudgetError:
            break
        done += 1
        # One scale a table: what one person can move in it is counted below.
        for block in measured.blocks:
            scales += block.scales.tolist() if isinstance(block.query, Tables) else []
    values, tables = np.unique(scales, return_counts=True)
    spent = exact_epsilon("gaussian", values, 2 * tables, DEFAULT_DELTA) if values.size else math.inf
    passed = 0 < done < _MANY and spent <= _TOTAL * 1.002 and len(book.account("audit").charges) == done
    tried = f"releases of epsilon {_EACH} from a ledger with a total of {_TOTAL:g}, until it refused."
    found = f"{done} releases left; together they cost epsilon {spent:.4g}."
    sees = "It sees a ledger that lets more out than its total, and a refusal that is charged."
    yield Comparison("ledger", tried, found, sees, passed, _TOTAL, spent, done)


def check_checkpoint(folder: Path, _: Effort) -> Iterator[Comparison]:
    """Interrupt a pass over a folder of files, look at what it kept, and let it go on."""
    parts, place, kept = [invent(300, typed=True) for _ in range(4)], folder / "parts", folder / "kept"
    place.mkdir()
    last = [write(part.frame, place / f"{number}.parquet") for number, part in enumerate(parts)][-1]
    whole = last.read_bytes()
    # A file whose pages are damaged but whose end is not: it opens, and fails when it is read.
    damaged = min(2_000, len(whole) // 3)
    last.write_bytes(whole[:4] + bytes(damaged) + whole[4 + damaged :])
    raised = False
    try:
        measure(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept)
    except DataError:
        raised = True
    files = [path for path in kept.rglob("*") if path.is_file()]
    closed = all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    closed = closed and (not files or stat.S_IMODE(kept.stat().st_mode) == 0o700)
    last.write_bytes(whole)
    cells = inventions.released(measure(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept)).cells
    counts = inventions.right_counts(np.concatenate([part.codes for part in parts], axis=1), PEOPLE)
    same = raised and bool(files) and np.array_equal(cells, counts)
    tried = "a pass over four files that was interrupted at the last, and went on."
    wrong = [] if same else ["The counts are not those of the rows."]
    sees = "It sees a file that is counted twice, or not at all, after an interruption."
    yield conclude("checkpoint", tried, wrong, "The counts are those of the rows.", sees)
    tried = "what that pass kept on the disk while it was interrupted, and what it left behind in the end."
    wrong = ["Exact counts were open to others, or were left behind."] * ((not closed) + kept.exists())
    right = "It was closed to others, and nothing was left."
    sees = "It sees rights beyond those of the owner, and every file that stays."
    yield conclude("checkpoint", tried, wrong, right, sees, len(files))


def check_seal(_: Path, __: Effort) -> Iterator[Comparison]:
    """Try to replace the noise from outside, as another part of a program might."""
    wrong = ["The noise of this process can be replaced."]
    try:
        noise.discrete_gaussian = noise.discrete_gaussian
    except AttributeError:
        wrong = []
    tried = "to assign to the name of the sampler, from outside its module."
    sees = "It sees a sampler that any code in the process can switch off."
    yield conclude("seal", tried, wrong, "It is refused.", sees)
