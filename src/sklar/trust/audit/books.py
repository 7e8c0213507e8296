"""Attacks on what surrounds a release: the ledger, checkpoints, and the seal on the noise."""

from __future__ import annotations

import math
import stat
from pathlib import Path

import numpy as np

from sklar.budget.ledger import Ledger
from sklar.budget.method import PAPER, Method
from sklar.errors import BudgetError, DataError
from sklar.kernel import noise
from sklar.kernel.theorems import DEFAULT_DELTA, Budget
from sklar.release import measure
from sklar.trust.audit.path import released
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.tables import PEOPLE, invent, right_counts, write
from sklar.trust.exact import exact_epsilon

_TOTAL = 1.0
_EACH = 0.3
_EXACT = Budget(epsilon=1e9)
_MANY = 20


def check_ledger(folder: Path) -> list[Comparison]:
    """Release until the ledger refuses: what has left costs no more than the total, and every charge covers its own."""
    book = Ledger(folder / "ledger.db")
    book.open_account("audit", epsilon=_TOTAL, delta=DEFAULT_DELTA)
    path = write(invent(40, np.random.default_rng()).frame, folder / "ledger.csv")
    scales: list[float] = []
    short = done = 0
    while done < _MANY:
        try:
            measured = measure(path, PEOPLE, Budget(epsilon=_EACH), ledger=book, dataset="audit", method=Method())
        except BudgetError:
            break
        done += 1
        # One scale a table: what one person can move in it is counted below.
        own = np.concatenate([stage.plan.scales for stage in measured.stages])
        charged = book.account("audit").charges[-1].cost
        short += charged.rho < float(np.sum(1 / own**2)) * (1 - 1e-9)
        short += len(book.account("audit").charges) != done
        scales += own.tolist()
    refused = len(book.account("audit").charges) != done
    values, tables = np.unique(scales, return_counts=True)
    spent = exact_epsilon("gaussian", values, 2 * tables, DEFAULT_DELTA) if values.size else math.inf
    return [
        Comparison(
            part="ledger",
            tried=f"releases of epsilon {_EACH} from a ledger with a total of {_TOTAL:g}, until it refused.",
            found=f"{done} releases left; together they cost epsilon {spent:.4g}.",
            sees="It sees a ledger that lets more out than its total.",
            passed=0 < done < _MANY and spent <= _TOTAL * 1.002,
            claimed=_TOTAL,
            measured=spent,
            trials=done,
        ),
        Comparison(
            part="ledger",
            tried=f"the charges of these {done} releases, beside the noise scales of all tables that they measured.",
            found="Every charge covers its release, and a refusal charged nothing."
            if not (short or refused)
            else f"{short + refused} charges do not cover what was measured.",
            sees="It sees a table or a stage that was measured and not charged.",
            passed=not (short or refused),
            claimed=0.0,
            measured=float(short + refused),
            trials=done,
        ),
    ]


def check_checkpoint(folder: Path) -> list[Comparison]:
    """Interrupt a pass over a folder of files, look at what it kept, and let it go on."""
    generator = np.random.default_rng()
    parts = [invent(300, generator, typed=True) for _ in range(4)]
    place, kept = folder / "parts", folder / "kept"
    place.mkdir()
    paths = [write(part.frame, place / f"{number}.parquet") for number, part in enumerate(parts)]
    whole = paths[-1].read_bytes()
    # A file whose pages are damaged but whose end is not: it opens, and fails when it is read.
    paths[-1].write_bytes(whole[:4] + bytes(min(2_000, len(whole) // 3)) + whole[4 + min(2_000, len(whole) // 3) :])
    raised = False
    try:
        measure(place, PEOPLE, _EXACT, method=PAPER, checkpoint=kept)
    except DataError:
        raised = True
    files = [path for path in kept.rglob("*") if path.is_file()] if kept.exists() else []
    rights = [stat.S_IMODE(path.stat().st_mode) for path in files]
    closed = all(mode == 0o600 for mode in rights) and (not files or stat.S_IMODE(kept.stat().st_mode) == 0o700)
    paths[-1].write_bytes(whole)
    found = released(measure(place, PEOPLE, _EXACT, method=PAPER, checkpoint=kept)).cells
    right = right_counts(np.concatenate([part.codes for part in parts], axis=1), PEOPLE)
    same = raised and bool(files) and np.array_equal(found, right)
    return [
        Comparison(
            part="checkpoint",
            tried="a pass over four files that was interrupted at the last, and went on.",
            found="The counts are those of the rows." if same else "The counts are not those of the rows.",
            sees="It sees a file that is counted twice, or not at all, after an interruption.",
            passed=same,
            claimed=0.0,
            measured=float(np.abs(found - right).sum()) if found.size == right.size else math.inf,
            trials=1,
        ),
        Comparison(
            part="checkpoint",
            tried="what that pass kept on the disk while it was interrupted, and what it left behind in the end.",
            found="It was closed to others, and nothing was left."
            if closed and not kept.exists()
            else "Exact counts were open to others, or were left behind.",
            sees="It sees rights beyond those of the owner, and every file that stays.",
            passed=closed and not kept.exists(),
            claimed=0.0,
            measured=float(not closed) + float(kept.exists()),
            trials=len(files),
        ),
    ]


def check_seal() -> Comparison:
    """Try to replace the noise from outside, as another part of a program might."""
    real = noise.discrete_gaussian
    try:
        noise.discrete_gaussian = real
        replaced = True
    except AttributeError:
        replaced = False
    return Comparison(
        part="seal",
        tried="to assign to the name of the sampler, from outside its module.",
        found="It is refused." if not replaced else "The noise of this process can be replaced.",
        sees="It sees a sampler that any code in the process can switch off.",
        passed=not replaced,
        claimed=0.0,
        measured=float(replaced),
        trials=1,
    )
