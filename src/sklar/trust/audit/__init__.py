"""Attacks on the privacy of the code that is installed here: whole releases of invented tables, in another process.

Attacks use the public interface alone, `release.fit` and `release.measure`, and replace nothing. One that needs exact
counts measures with a budget that needs no noise. The process shares nothing with a release that runs beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

from sklar.errors import NoiseError
from sklar.machine.progress import SILENT, Progress
from sklar.machine.wording import said, stated

# The chance with which one statistical comparison fails sound code.
ALPHA = 1e-6
_WIDTH = 110
_WORDS: dict[str, dict[str, str]] = stated("sklar.trust.audit", "words.toml")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison of what is claimed with what came out.

    `part` is the part of the path from file to model that is attacked. `tried`, `found` and `sees` are sentences: what
    was tried, what came out, and what the attack would have seen. `p_value` is the chance of something as odd where
    chance is involved, and `kind` the kind of release where the attack is made on every kind.
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
    kind: str = ""

    def lines(self) -> list[str]:
        """For a person."""
        lines = [*wrap(f"{self.part}: {self.tried}", _WIDTH), *wrap(f"{self.found} {self.sees}", _WIDTH)]
        mark = "ok   " if self.passed else "FAIL "
        return [(" " * 5 if number else mark) + line for number, line in enumerate(lines)]


def compare(
    part: str, claimed: float, measured: float, trials: int, p_value: float | None = None, *, passed: bool, **shown: Any
) -> Comparison:
    """A comparison in the words of its part, which may quote what is compared and what else is `shown`."""
    quoted = {"claimed": claimed, "measured": measured, "trials": trials, **shown}
    words = {name: text.format(**quoted) for name, text in ({"part": part} | _WORDS[part]).items()}
    words |= {name: text for name, text in shown.items() if name in ("found", "sees")}
    return Comparison(**words, passed=passed, claimed=claimed, measured=measured, trials=trials, p_value=p_value)


def conclude(
    part: str, wrong: Sequence[str], trials: int = 1, p_value: float | None = None, **shown: Any
) -> Comparison:
    """A comparison that passes where nothing is wrong; it quotes the first of what is wrong."""
    shown |= {"found": wrong[0]} if wrong else {}
    return compare(part, 0.0, float(len(wrong)), trials, p_value, passed=not wrong, **shown)


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
        lines = [line for finding in self.findings for line in finding.lines()]
        return [*lines, f"{len(self.findings)} attacks: {verdict}."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many of what each attack tries: releases, where nothing else is said. Sound code passes whatever the effort.

    `wide_rows` are those of the widest table whose counts are compared: enough for compiled counting. `neighbors` are
    replacements of a row, by the number of rows of the table: a few, more than a thousand, more than five, and more
    than a batch. `each` are of every kind of release, and of its neighbor; `draws` are of the sampler by itself.
    """

    wide_rows: int = 100_000
    neighbors: Mapping[int, int] = field(default_factory=lambda: dict.fromkeys((3, 40, 1_500, 7_000, 100_000), 300))
    each: int = 60
    draws: int = 2_000_000
    once: int = 8_000
    twice: int = 3_000
    searches: int = 60


QUICK = Effort(
    wide_rows=45_000, neighbors={3: 60, 40: 60, 1_500: 24, 7_000: 16, 100_000: 32}, each=20, draws=200_000,
    once=300, twice=60,
)  # fmt: skip


def audit(*, quick: bool = False, progress: Progress = SILENT) -> Audit:
    """Run all attacks in a process of their own."""
    command = [sys.executable, "-m", "sklar.trust.audit", *(["--quick"] if quick else [])]
    findings: list[Comparison] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        progress.stage("audit", unit="attacks")
        for line in process.stdout or ():
            findings.append(Comparison(**json.loads(line)))
            progress.advance(1)
    if process.returncode or not findings:
        raise NoiseError(said("trust.audit_ended"))
    return Audit(findings=tuple(findings))
