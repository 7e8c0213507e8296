"""Try to break the privacy of the code that is installed here, on invented tables, in a process of its own.

What is attacked and how is in `trust.attack`. A process of its own shares nothing with the one that asks: an audit
cannot touch a release that runs beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from sklar.errors import NoiseError

# The chance with which one statistical comparison fails sound code.
ALPHA = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One comparison: what was claimed, what was measured, and how much it could have seen."""

    layer: str
    subject: str
    passed: bool
    claimed: float
    measured: float
    trials: int
    power: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All comparisons."""

    findings: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        """Whether none of them found anything."""
        return all(finding.passed for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"passed": self.passed, "alpha": ALPHA, "findings": [asdict(finding) for finding in self.findings]}

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"{'':<5}{'layer':<16}{'subject':<56}{'claimed':>9}{'measured':>10}{'trials':>9}  power"]
        for finding in self.findings:
            lines.append(
                f"{'ok' if finding.passed else 'FAIL':<5}{finding.layer:<16}{finding.subject:<56}"
                f"{finding.claimed:>9.4g}{finding.measured:>10.4g}{finding.trials:>9,}  {finding.power}"
            )
        verdict = "nothing found" if self.passed else "THIS CODE IS NOT PRIVATE AS CLAIMED. Do not release with it"
        return [*lines, f"{len(self.findings)} comparisons: {verdict}."]


def audit(*, quick: bool = False) -> Audit:
    """Run all attacks in a process of their own."""
    command = [sys.executable, "-m", "sklar.trust.attack", *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise NoiseError(
            "the audit's own process must run to its end, got an error. Run python -m sklar.trust.attack to see it."
        )
    return Audit(findings=tuple(Comparison(**entry) for entry in json.loads(done.stdout)))
