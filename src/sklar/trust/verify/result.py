"""What was looked at in a model file, and what may be concluded from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sklar.budget.certificate import Certificate, rounded_up
from sklar.machine.notebook import Tabular, html_card
from sklar.trust.verify.residuals import NoiseTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification(Tabular):
    """All that was looked at in one model file."""

    path: str
    checks: tuple[Check, ...]
    certificate: Certificate | None
    independent_epsilon: float | None = None
    noise: tuple[NoiseTest, ...] = ()
    signer: str | None = None

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if not check.passed]
        return (
            f"Verification({self.path}: {f'FAILED in {failed[0]}' if failed else 'passed'}, {len(self.checks)} checks)"
        )

    def _repr_html_(self) -> str:
        return html_card(f"Verification of {self.path}", {"passed": self.passed}, self.to_columns())

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each thing that was looked at."""
        return {name: [getattr(check, name) for check in self.checks] for name in ("name", "passed", "detail")}

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the certificate."""
        return all(check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "path": self.path,
            "passed": self.passed,
            "independent_epsilon": self.independent_epsilon,
            "signer": self.signer,
            "checks": [asdict(check) for check in self.checks],
            "noise": [asdict(test) for test in self.noise],
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"{'ok  ' if check.passed else 'FAIL'} {check.name}: {check.detail}" for check in self.checks]
        if not self.passed or self.certificate is None:
            return [*lines, "", f"{self.path} contradicts its certificate. Do not rely on its privacy claim."]
        if self.certificate.claimed_by is not None:
            return [*lines, "", *self._claimed(self.certificate)]
        return [*lines, "", *self._concluded(self.certificate)]

    def _claimed(self, stated: Certificate) -> list[str]:
        return [
            f"{self.path} was fitted to tables that Sklar did not measure. Its parts agree with one another.",
            "Whether its tables were measured with the noise that they state, and cost epsilon = "
            f"{rounded_up(stated.epsilon, 4)} at delta = {rounded_up(stated.delta, 3)},",
            f"is claimed by the caller ('{stated.claimed_by}') and was not checked.",
        ]

    def _concluded(self, stated: Certificate) -> list[str]:
        whom, one, others = _whom(stated)
        odds = rounded_up(math.exp(min(stated.epsilon, 700.0)), 4)
        noise = "its noise" if stated.tokens is None else "the noise of its tables of people"
        lines = [
            f"{self.path} agrees with its certificate, and {noise} looks as it says. If all was drawn so (sklar audit",
            f"tests the code that does), then whoever sees it, with any other knowledge, learns little about {whom}:",
            f"no conclusion becomes more than {odds} times as likely, or as unlikely, by that {one} (epsilon = "
            f"{rounded_up(stated.epsilon, 4)}),",
            f"but for a chance of {rounded_up(stated.delta, 3)} (delta). Rows drawn from it, however many, add nothing "
            "to that.",
            f"Other releases {others}.",
        ]
        if stated.earlier:
            named = ", ".join(f"'{name}'" for name in stated.earlier)
            lines.append(
                f"It says that another release found the domains of {named}: what that release cost adds, too."
            )
        if self.signer is not None:
            lines.append(f"Whoever holds the key {self.signer} has signed this file.")
        return lines


def _whom(stated: Certificate) -> tuple[str, str, str]:
    """Whom the promise is about, in words: what is protected, one of them, and what the promise does not cover."""
    replaced = stated.neighbors == "replace-one"
    rows = "of the same rows do add to it"
    if stated.tokens is not None:
        others = "about the same people do add to it"
        if replaced:
            return "any one person, with all their events (the number of people is public)", "person", others
        return "whether any one person, with all their events, is in the tables", "person", others
    if stated.count is None:
        rows += ", and so do several rows about one person"
        if replaced:
            return "what any one row holds (the number of rows is public)", "row", rows
        return "whether any one row is in the table", "row", rows
    if replaced:
        return "what all rows of any one person hold (the number of people is public)", "person", rows
    return "whether any one person, with all their rows, is in the table", "person", rows
