"""What an attack found, in plain words for a person and in numbers for a program."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

# The chance with which one statistical comparison fails sound code.
ALPHA = 1e-6
_WIDTH = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One comparison of what is claimed with what came out.

    `part` is the part of the path from file to model that is attacked. `tried`, `found` and `sees` are sentences: what
    was tried, what came out, and what the attack would have seen. `p_value` is the chance of something as odd where
    chance is involved.
    """

    part: str
    tried: str
    found: str
    sees: str
    passed: bool
    claimed: float
    measured: float
    trials: int
    p_value: float | None = None

    def lines(self) -> list[str]:
        """For a person."""
        first = wrap(f"{self.part}: {self.tried}", _WIDTH)
        rest = wrap(f"{self.found} {self.sees}", _WIDTH)
        marks = ["ok   " if self.passed else "FAIL ", *[" " * 5] * (len(first) + len(rest) - 1)]
        return [mark + line for mark, line in zip(marks, [*first, *rest], strict=True)]


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
        verdict = "nothing found" if self.passed else "THIS CODE IS NOT PRIVATE AS CLAIMED. Do not release with it"
        return [
            *(line for finding in self.findings for line in finding.lines()),
            f"{len(self.findings)} attacks: {verdict}.",
        ]
