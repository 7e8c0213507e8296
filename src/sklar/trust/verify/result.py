"""What was looked at in a model file, and what may be concluded from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sklar.budget.certificate import Certificate, rounded_up
from sklar.machine.notebook import Tabular, html_card
from sklar.trust.verify.residuals import NoiseTest

_MARKS = {True: "ok  ", False: "FAIL", None: "n/a "}
# Whom the promise is about, by unit and by whether neighbors replace one: what is protected, in words.
_WHOM = {
    ("row", True): "what any one row holds (the number of rows is public)",
    ("row", False): "whether any one row is in the table",
    ("person", True): "what all rows of any one person hold (the number of people is public)",
    ("person", False): "whether any one person, with all their rows, is in the table",
    ("linked", True): "any one person, with all their events (the number of people is public)",
    ("linked", False): "whether any one person, with all their events, is in the tables",
}
_OTHERS = {
    "row": "of the same rows do add to it, and so do several rows about one person",
    "person": "of the same rows do add to it",
    "linked": "about the same people do add to it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at; `passed` is None where it could not be."""

    name: str
    passed: bool | None
    detail: str


def judge(name: str, detail: str = "", wrong: str = "") -> Check:
    """A check that passes where nothing is wrong."""
    return Check(name=name, passed=not wrong, detail=wrong or detail)


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
        verdict = next((f"FAILED in {check.name}" for check in self.checks if check.passed is False), "passed")
        return f"Verification({self.path}: {verdict}, {len(self.checks)} checks)"

    def _repr_html_(self) -> str:
        return html_card(f"Verification of {self.path}", {"passed": self.passed}, self.to_columns())

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each thing that was looked at."""
        return {name: [getattr(check, name) for check in self.checks] for name in ("name", "passed", "detail")}

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the certificate."""
        return all(check.passed is not False for check in self.checks)

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
        lines = [f"{_MARKS[check.passed]} {check.name}: {check.detail}" for check in self.checks]
        return [*lines, "", *self._concluded(self.certificate)]

    def _concluded(self, stated: Certificate | None) -> list[str]:
        if not self.passed or stated is None:
            return [f"{self.path} contradicts its certificate. Do not rely on its privacy claim."]
        epsilon, delta = rounded_up(stated.epsilon, 4), rounded_up(stated.delta, 3)
        if stated.claimed_by is not None:
            lines = [
                f"{self.path} was fitted to tables that Sklar did not measure. Its parts agree with one another.",
                "Whether its tables were measured with the noise that they state, and cost epsilon = "
                f"{epsilon} at delta = {delta},",
                f"is claimed by the caller ('{stated.claimed_by}') and was not checked.",
            ]
        else:
            unit = "linked" if stated.tokens is not None else "row" if stated.count is None else "person"
            whom, one = _WHOM[unit, stated.neighbors == "replace-one"], "row" if unit == "row" else "person"
            odds = rounded_up(math.exp(min(stated.epsilon, 700.0)), 4)
            noise = "the noise of its tables of people" if unit == "linked" else "its noise"
            lines = [
                f"{self.path} agrees with its certificate, and {noise} looks as it says. If all was drawn so (sklar "
                "audit",
                "tests the code that does), then whoever sees it, with any other knowledge, learns little about "
                f"{whom}:",
                f"no conclusion becomes more than {odds} times as likely, or as unlikely, by that {one} (epsilon = "
                f"{epsilon}),",
                f"but for a chance of {delta} (delta). Rows drawn from it, however many, add nothing to that.",
                f"Other releases {_OTHERS[unit]}.",
            ]
        if stated.earlier:
            named = ", ".join(f"'{name}'" for name in stated.earlier)
            lines.append(
                f"It says that another release found the domains of {named}: what that release cost adds, too."
            )
        if any(check.passed is None for check in self.checks):
            lines.append("The model was not recomputed: whether it follows from its tables alone was not checked.")
        if self.signer is not None:
            lines.append(f"Whoever holds the key {self.signer} has signed this file.")
        return lines
