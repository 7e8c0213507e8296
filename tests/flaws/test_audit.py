"""Each planted flaw fails the audit, run as a user runs it. Missed with a chance below 1e-6 each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flaws.planted import FLAWS, Flaw, plant, run

LAYERS = {
    "half the sensitivity": {"a sensitivity"},
    "seven tenths of the noise": {"a independence"},
    "noise on seen cells only": {"a independence"},
    "one noise for all cells": {"a independence"},
    "a key that is always the same": {"a independence", "d sampler"},
    "a row counted twice": {"a sensitivity"},
}


@pytest.mark.parametrize(
    "flaw", [FLAWS[0], *(pytest.param(flaw, marks=pytest.mark.slow) for flaw in FLAWS[1:])], ids=lambda flaw: flaw.name
)
def test_the_audit_catches_a_planted_flaw(flaw: Flaw, tmp_path: Path) -> None:
    done = run(plant(flaw, tmp_path), "audit", "--quick", "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["passed"] is False
    failed = {finding["layer"] for finding in document["findings"] if not finding["passed"]}
    assert failed >= LAYERS[flaw.name], document
