"""All attacks, in the order in which they are carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sklar.trust.audit import books, guesses, leaks, noises, sensitivity
from sklar.trust.audit.comparison import Comparison, Effort, conclude

# Takes a folder for its files, and how often to try.
Attack = Callable[[Path, Effort], Iterable[Comparison]]
# Those that take least time first.
ATTACKS: tuple[Attack, ...] = (
    books.check_seal, noises.check_fresh, sensitivity.check_records, sensitivity.check_crowds,
    sensitivity.check_counts, sensitivity.check_neighbors, leaks.check_shown, leaks.check_plan, leaks.check_third,
    leaks.check_refit, books.check_ledger, books.check_checkpoint, noises.check_cells, noises.check_stretches,
    noises.check_threshold, noises.check_searches, guesses.check_choice, noises.check_sampler, guesses.check_ratio,
    guesses.check_person, guesses.check_guesses,
)  # fmt: skip


def carry_out(attack: Attack, folder: Path, effort: Effort) -> Iterator[Comparison]:
    """What an attack finds. A release that fails where it should not is a finding too."""
    try:
        yield from attack(folder, effort)
    except Exception as error:
        wrong = [f"It could not be carried out: {type(error).__name__}: {error}"]
        part, tried = attack.__name__.removeprefix("check_"), "an attack that releases invented tables."
        yield conclude(part, tried, wrong, "A release of a sound table must not fail.", trials=0)
