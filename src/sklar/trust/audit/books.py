"""Attacks on what surrounds a release: the ledger, checkpoints, and the seal on the noise."""

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
from sklar.trust.audit.comparison import Comparison, Effort, compare, conclude
from sklar.trust.audit.inventions import PEOPLE, invent, released, right_counts, write
from sklar.trust.exact import exact_epsilon

_TOTAL, _EACH, _MANY = 1.0, 0.3, 20
_EXACT = Budget(epsilon=1e9)


def check_ledger(folder: Path, _: Effort) -> Iterator[Comparison]:
    """Release until the ledger refuses: what has left costs no more than the total, and every charge covers its own."""
    book = Ledger(folder / "ledger.db")
    book.open_account("audit", epsilon=_TOTAL, delta=DEFAULT_DELTA)
    path = write(invent(40, np.random.default_rng()).frame, folder / "ledger.csv")
    scales: list[float] = []
    short = done = 0
    while done < _MANY:
        try:
            measured = measure(path, PEOPLE, Budget(epsilon=_EACH), ledger=book, dataset="audit")
        except BudgetError:
            break
        done += 1
        # One scale a table: what one person can move in it is counted below.
        own = np.concatenate([block.scales for block in measured.blocks if isinstance(block.query, Tables)])
        charges = book.account("audit").charges
        short += charges[-1].cost.rho < float(np.sum(1 / own**2)) * (1 - 1e-9)
        short += len(charges) != done
        scales += own.tolist()
    short += len(book.account("audit").charges) != done
    values, tables = np.unique(scales, return_counts=True)
    spent = exact_epsilon("gaussian", values, 2 * tables, DEFAULT_DELTA) if values.size else math.inf
    yield compare(
        "ledger",
        f"releases of epsilon {_EACH} from a ledger with a total of {_TOTAL:g}, until it refused.",
        f"{done} releases left; together they cost epsilon {spent:.4g}.",
        "It sees a ledger that lets more out than its total.",
        (_TOTAL, spent),
        passed=0 < done < _MANY and spent <= _TOTAL * 1.002,
        trials=done,
    )
    yield conclude(
        "ledger",
        f"the charges of these {done} releases, beside the noise scales of all tables that they measured.",
        [f"{short} charges do not cover what was measured."] * short,
        "It sees a table or a stage that was measured and not charged.",
        right="Every charge covers its release, and a refusal charged nothing.",
        trials=done,
    )


def check_checkpoint(folder: Path, _: Effort) -> Iterator[Comparison]:
    """Interrupt a pass over a folder of files, look at what it kept, and let it go on."""
    generator = np.random.default_rng()
    parts = [invent(300, generator, typed=True) for _ in range(4)]
    place, kept = folder / "parts", folder / "kept"
    place.mkdir()
    paths = [write(part.frame, place / f"{number}.parquet") for number, part in enumerate(parts)]
    whole = paths[-1].read_bytes()
    # A file whose pages are damaged but whose end is not: it opens, and fails when it is read.
    damaged = min(2_000, len(whole) // 3)
    paths[-1].write_bytes(whole[:4] + bytes(damaged) + whole[4 + damaged :])
    raised = False
    try:
        measure(place, PEOPLE, _EXACT, method=PAPER, checkpoint=kept)
    except DataError:
        raised = True
    files = [path for path in kept.rglob("*") if path.is_file()] if kept.exists() else []
    closed = all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    closed = closed and (not files or stat.S_IMODE(kept.stat().st_mode) == 0o700)
    paths[-1].write_bytes(whole)
    cells = released(measure(place, PEOPLE, _EXACT, method=PAPER, checkpoint=kept)).cells
    right = right_counts(np.concatenate([part.codes for part in parts], axis=1), PEOPLE)
    same = raised and bool(files) and np.array_equal(cells, right)
    yield conclude(
        "checkpoint",
        "a pass over four files that was interrupted at the last, and went on.",
        [] if same else ["The counts are not those of the rows."],
        "It sees a file that is counted twice, or not at all, after an interruption.",
        right="The counts are those of the rows.",
    )
    yield conclude(
        "checkpoint",
        "what that pass kept on the disk while it was interrupted, and what it left behind in the end.",
        ["Exact counts were open to others, or were left behind."] * ((not closed) + kept.exists()),
        "It sees rights beyond those of the owner, and every file that stays.",
        right="It was closed to others, and nothing was left.",
        trials=len(files),
    )


def check_seal(_: Path, __: Effort) -> Iterator[Comparison]:
    """Try to replace the noise from outside, as another part of a program might."""
    wrong = ["The noise of this process can be replaced."]
    try:
        noise.discrete_gaussian = noise.discrete_gaussian
    except AttributeError:
        wrong = []
    yield conclude(
        "seal",
        "to assign to the name of the sampler, from outside its module.",
        wrong,
        "It sees a sampler that any code in the process can switch off.",
        right="It is refused.",
    )
