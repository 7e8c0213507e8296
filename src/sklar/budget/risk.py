"""What a budget means for an attacker: bounds on how often a guess about one person is right, from a certificate alone.
The derivation: docs/derivations.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sklar.budget.certificate import Certificate
from sklar.kernel.theorems import ROUNDING, curve_epsilon, log_ndtr, smallest, zcdp_epsilon

GAUSSIAN = (
    "the Gaussian trade-off curve (Dong, Roth and Su 2022) and Pinsker's inequality for zCDP (Bun and Steinke 2016)"
)
ANY = "the trade-off curve of (epsilon, delta)-differential privacy (Kairouz, Oh and Viswanath 2015)"
# What an attacker may believe beforehand, as odds of one to so many.
PRIORS = (1, 9, 99)
# How many of so many others an attacker may accuse wrongly.
FALSE_ALARMS = (100, 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """Bounds on what an attacker gains: T, the theorem behind it, and the certificate's epsilon and delta."""

    advantage: float
    theorem: str
    epsilon: float
    delta: float

    def right(self, others: int) -> tuple[float, float]:
        """How often the best guess is right, before looking and at most after it, at odds of one to so many."""
        rare = 1 / (1 + others)
        return 1 - rare, min(1 - rare + rare * self.advantage, 1.0)

    def sure(self, others: int) -> float:
        """How sure anybody can be after looking, at odds of one to so many before; but for a chance of delta."""
        return 1 / (1 + others * math.exp(-min(self.epsilon, 700.0)))

    def found(self, among: int) -> float:
        """The largest share of true cases that a test finds which accuses one of so many others wrongly."""
        alarm = 1 / among
        return min(alarm + self.advantage, alarm * math.exp(min(self.epsilon, 700.0)) + self.delta, 1.0)


def risk_of(certificate: Certificate) -> Risk:
    """The bounds that follow from a certificate's epsilon, delta and mechanism."""
    curved = certificate.mechanism == "gaussian" and certificate.composition == "tight"
    return risk_at(certificate.epsilon, certificate.delta, curved=curved)


def risk_at(epsilon: float, delta: float, *, curved: bool) -> Risk:
    """The bounds at an epsilon and delta; `curved` where noise is Gaussian and planned by the smaller of two bounds."""
    # tanh(epsilon / 2) is (e^epsilon - 1) / (e^epsilon + 1).
    advantage = math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0)))
    theorem = ANY
    if curved:
        # The largest mu and rho that cost no more than epsilon, from above.
        mu = smallest(lambda mu: curve_epsilon(mu**2, delta) > epsilon, start=1.0)
        rho = smallest(lambda rho: zcdp_epsilon(rho, delta) > epsilon, start=1.0)
        smaller = max(1 - 2 * math.exp(log_ndtr(-mu / 2)), math.sqrt(rho / 2)) + 2 * delta
        if smaller < advantage:
            advantage, theorem = smaller, GAUSSIAN
    return Risk(advantage=min(advantage * (1 + ROUNDING), 1.0), theorem=theorem, epsilon=epsilon, delta=delta)
