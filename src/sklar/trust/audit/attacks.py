"""All attacks, and the loop that carries them out."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from sklar.trust.audit.books import check_checkpoint, check_ledger, check_seal
from sklar.trust.audit.comparison import FULL, QUICK, Comparison, Effort, conclude
from sklar.trust.audit.guesses import check_choice, check_guesses, check_person, check_ratio
from sklar.trust.audit.leaks import check_plan, check_refit, check_shown, check_third
from sklar.trust.audit.noises import (
    check_cells,
    check_fresh,
    check_sampler,
    check_searches,
    check_stretches,
    check_threshold,
)
from sklar.trust.audit.sensitivity import check_counts, check_crowds, check_neighbors, check_records

# Takes a folder for its files, and how often to try.
Attack = Callable[[Path, Effort], Iterable[Comparison]]
# Those that take least time first.
ATTACKS: tuple[Attack, ...] = (
    check_seal, check_fresh, check_records, check_crowds, check_counts, check_neighbors, check_shown, check_plan,
    check_third, check_refit, check_ledger, check_checkpoint, check_cells, check_stretches, check_threshold,
    check_searches, check_choice, check_sampler, check_ratio, check_person, check_guesses,
)  # fmt: skip


def carry_out(attack: Attack, folder: Path, effort: Effort) -> Iterator[Comparison]:
    """What an attack finds. A release that fails where it should not is a finding too."""
    try:
        yield from attack(folder, effort)
    except Exception as error:
        wrong = f"It could not be carried out: {type(error).__name__}: {error}"
        yield conclude(
            part=attack.__name__.removeprefix("check_"),
            tried="an attack that releases invented tables.",
            wrong=[wrong],
            sees="A release of a sound table must not fail.",
            trials=0,
        )


def main(*, quick: bool) -> None:
    """Print what all attacks find."""
    with tempfile.TemporaryDirectory(prefix="sklar-audit-") as folder:
        for attack in ATTACKS:
            for comparison in carry_out(attack, Path(folder), QUICK if quick else FULL):
                sys.stdout.write(json.dumps(asdict(comparison)) + "\n")
                sys.stdout.flush()
