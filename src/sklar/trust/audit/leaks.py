"""Attacks on what a release shows or keeps beside noisy cells: checkpoints, the seal."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sklar.budget.method import PAPER
from sklar.errors import DataError
from sklar.kernel import noise
from sklar.trust.audit import Comparison, Effort, conclude, inventions
from sklar.trust.audit.inventions import EXACT, PEOPLE, invent, released, write


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
        released(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept)
    except DataError:
        raised = True
    files = [path for path in kept.rglob("*") if path.is_file()]
    closed = all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    closed = closed and (not files or stat.S_IMODE(kept.stat().st_mode) == 0o700)
    last.write_bytes(whole)
    cells = released(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept).cells
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
