"""The process of an audit: `python -m sklar.trust.audit [--quick]` prints one comparison a line, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from sklar.trust.audit.books import check_checkpoint, check_ledger, check_seal
from sklar.trust.audit.counts import check_counts, check_neighbors, check_records
from sklar.trust.audit.effort import FULL, QUICK, Effort
from sklar.trust.audit.guesses import check_guesses, check_ratio
from sklar.trust.audit.noise import check_cells, check_fresh, check_sampler, check_stretches
from sklar.trust.audit.people import check_crowds, check_person
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.search import check_choice, check_searches, check_threshold
from sklar.trust.audit.shown import check_plan, check_refit, check_shown
from sklar.trust.audit.third import check_third

Attack = Callable[[], Comparison | list[Comparison]]


def attacks(folder: Path, *, effort: Effort) -> tuple[Attack, ...]:
    """All attacks, those that take least time first."""
    return (
        check_seal,
        check_fresh,
        check_records,
        check_crowds,
        partial(check_counts, folder, effort=effort),
        partial(check_neighbors, folder, effort=effort),
        partial(check_shown, folder),
        partial(check_plan, folder),
        partial(check_third, folder),
        partial(check_refit, folder),
        partial(check_ledger, folder),
        partial(check_checkpoint, folder),
        partial(check_cells, folder, effort=effort),
        partial(check_stretches, effort=effort),
        partial(check_threshold, folder),
        partial(check_searches, folder),
        partial(check_choice, folder),
        partial(check_sampler, effort=effort),
        partial(check_ratio, effort=effort),
        partial(check_person, folder, effort=effort),
        partial(check_guesses, folder, effort=effort),
    )


def carry_out(attack: Attack) -> list[Comparison]:
    """What an attack found. A release that fails where it should not is a finding too."""
    try:
        found = attack()
    except Exception as error:
        name = getattr(attack, "func", attack).__name__.removeprefix("check_")
        return [
            Comparison(
                part=name,
                tried="an attack that releases invented tables.",
                found=f"It could not be carried out: {type(error).__name__}: {error}",
                sees="A release of a sound table must not fail.",
                passed=False,
                claimed=0.0,
                measured=1.0,
                trials=0,
            )
        ]
    return found if isinstance(found, list) else [found]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sklar-audit-") as name:
        for each in attacks(Path(name), effort=QUICK if "--quick" in sys.argv[1:] else FULL):
            for comparison in carry_out(each):
                sys.stdout.write(json.dumps(asdict(comparison)) + "\n")
                sys.stdout.flush()
