"""The process of an audit: `python -m sklar.trust.audit [--quick]` prints one comparison a line, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from sklar.trust.audit import QUICK, Comparison, Effort, by_kind, kinds, noises, sensitivity

# Takes a folder for its files, and how often to try.
Attack = Callable[[Path, Effort], Iterable[Comparison]]
# Those that take least time first.
ATTACKS: tuple[Attack, ...] = (
    noises.check_seal, noises.check_fresh, sensitivity.check_passes, *map(by_kind.on_kind, kinds.kinds()),
    sensitivity.check_counts, sensitivity.check_neighbors, sensitivity.check_checkpoint, noises.check_searches,
    noises.check_sampler, by_kind.check_guesses,
)  # fmt: skip


def carry_out(attack: Attack, folder: Path, effort: Effort) -> Iterator[Comparison]:
    """What an attack finds. A release that fails where it should not is a finding too."""
    try:
        yield from attack(folder, effort)
    except Exception as error:
        found = f"It could not be carried out: {type(error).__name__}: {error}"
        part, tried = attack.__name__.removeprefix("check_"), "an attack that releases invented tables."
        sees = "A release of a sound table must not fail."
        yield Comparison(part, tried, found, sees, passed=False, claimed=0.0, measured=1.0, trials=0)


def main(effort: Effort) -> None:
    """Carry out all attacks."""
    with tempfile.TemporaryDirectory(prefix="sklar-audit-") as folder:
        for attack in ATTACKS:
            for comparison in carry_out(attack, Path(folder), effort):
                sys.stdout.write(json.dumps(asdict(comparison)) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(QUICK if "--quick" in sys.argv[1:] else Effort())
