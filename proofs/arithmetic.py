"""The arithmetic of bounds and of the noise, for all numbers at once: checked by z3.

    python -m proofs.arithmetic

Every lemma has premises and a claim over whole or real numbers, or over the bits of a machine word. z3 looks for
numbers that meet the premises and not the claim, and finds that there are none. A lemma could be true of nothing, or
claim little: so the premises must have a solution, and a claim that is stronger by a hair must have a counterexample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import z3

Result = Literal["proven", "not proven", "empty", "slack"]
# A lemma that takes z3 longer than so many milliseconds counts as not proven; the slowest here takes a hundredth of it.
_LONGEST = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemma:
    """`premises` imply `claim`, and do not imply `too_much`."""

    name: str
    about: str
    premises: list[Any]
    claim: Any
    too_much: Any

    def check(self) -> Result:
        """Whether it is proven; else not, of nothing (empty), or weaker than it could be (slack)."""
        if _solve(*self.premises) != z3.sat:
            return "empty"
        if _solve(*self.premises, z3.Not(self.claim)) != z3.unsat:
            return "not proven"
        return "proven" if _solve(*self.premises, z3.Not(self.too_much)) == z3.sat else "slack"


def _solve(*facts: Any) -> Any:
    solver = z3.Solver()
    solver.set("timeout", _LONGEST)
    solver.add(*facts)
    return solver.check()


def distances() -> Lemma:
    """kernel.queries.Distances, steps 3 and 4: rounded distances differ by at most floor(15 d + 1.3)."""
    a, b, d = z3.Reals("a b d")
    e, f = z3.Reals("e f")
    off = z3.RealVal("0.111")
    premises = [a >= 0, b >= 0, d >= 0, a - b <= 15 * d, b - a <= 15 * d, e <= off, e >= -off, f <= off, f >= -off]
    apart = z3.ToInt(a + e + z3.RealVal("0.5")) - z3.ToInt(b + f + z3.RealVal("0.5"))
    return Lemma(
        name="distances",
        about="floor(a + e + 1/2) - floor(b + f + 1/2) <= floor(15 d + 1.3), if |a - b| <= 15 d, roundings of 0.111",
        premises=premises,
        claim=apart <= z3.ToInt(15 * d + z3.RealVal("1.3")),
        too_much=apart <= z3.ToInt(15 * d + z3.RealVal("1.1")),
    )


def narrowed() -> Lemma:
    """kernel.queries.one_or_none: 64 bits to 32, whatever they are."""
    code, size = z3.BitVec("code", 64), z3.BitVec("size", 64)
    outside = z3.Or(code < 0, code >= size)
    narrow = z3.SignExt(32, z3.If(outside, z3.BitVecVal(-1, 32), z3.Extract(31, 0, code)))
    inside = z3.And(narrow >= -1, narrow < size, z3.Or(narrow == -1, narrow == code))
    return Lemma(
        name="one cell or none",
        about="a code of 64 bits becomes -1, or stays what it is below `size` <= 2^31",
        premises=[size >= 1, size <= 2**31 - 1],
        claim=inside,
        too_much=narrow == code,
    )


def uniform() -> Lemma:
    """kernel.noise._attempt: a draw plus its geometric part stays below 2^31."""
    p, u, v = z3.Ints("p u v")
    return Lemma(
        name="U + pV",
        about="U + p V < 2^31 for U < p <= 2^24 and V <= 127",
        premises=[p >= 1, p <= 2**24, u >= 0, u < p, v >= 0, v <= 127],
        claim=u + p * v < 2**31,
        too_much=u + p * v < 2**31 - 1,
    )


def squares() -> Lemma:
    """kernel.noise._attempt: what decides whether a Gaussian value is kept fits in 63 bits."""
    yq, p = z3.Ints("yq p")
    return Lemma(
        name="(|Y| q - p)^2",
        about="(|Y| q - p)^2 < 2^62 for |Y| q < 2^31 and p <= 2^24",
        premises=[yq >= 0, yq < 2**31, p >= 1, p <= 2**24],
        claim=(yq - p) * (yq - p) < 2**62,
        too_much=(yq - p) * (yq - p) < 2**61,
    )


def coins() -> Lemma:
    """kernel.noise._tosses: a digit leaves 0 < n' < d, or decides; nothing exceeds 63 bits."""
    n, d, w = z3.Ints("n d w")
    rest = 256 * n - w * d
    return Lemma(
        name="a coin's digits",
        about="0 <= n <= d, 256 d < 2^63, w a byte: 256 n - w d fits in 64 bits, and is above 0 and below d or decides",
        premises=[n >= 0, n <= d, d >= 1, 256 * d < 2**63, w >= 0, w <= 255],
        claim=z3.And(rest < 2**63, rest > -(2**63), z3.Implies(z3.And(rest > 0, z3.Not(rest >= d)), rest <= d)),
        too_much=rest < 2**63 - 256,
    )


def denominators() -> Lemma:
    """kernel.noise._tosses_exp: the largest denominator that a coin meets."""
    p, k = z3.Ints("p k")
    return Lemma(
        name="256 d K",
        about="256 (2 p^2 K) < 2^63 for p <= 2^24 and K <= 63",
        premises=[p >= 1, p <= 2**24, k >= 1, k <= 63],
        claim=256 * 2 * p * p * k < 2**63,
        too_much=256 * 2 * p * p * k < 2**62,
    )


def masked() -> Lemma:
    """kernel.noise._attempt: the mask of a uniform draw covers all numbers below p, and fewer than twice as many."""
    p = z3.BitVec("p", 64)
    mask = p - 1
    for bits in (1, 2, 4, 8, 16):
        mask = mask | z3.LShR(mask, bits)
    whole = (mask & (mask + 1)) == 0
    return Lemma(
        name="mask",
        about="the bits of p - 1, spread to the right, are 2^k - 1 with p <= 2^k < 2 p - 1, for 1 < p <= 2^24",
        premises=[z3.UGT(p, 1), z3.ULE(p, 2**24)],
        claim=z3.And(whole, z3.UGE(mask, p - 1), z3.ULT(mask, 2 * (p - 1))),
        too_much=z3.ULT(mask, 2 * (p - 1) - 1),
    )


LEMMAS: tuple[Callable[[], Lemma], ...] = (distances, narrowed, uniform, squares, coins, denominators, masked)


def main() -> None:
    """Check all, and print a line each."""
    results = [(lemma, lemma.check()) for lemma in (make() for make in LEMMAS)]
    for lemma, result in results:
        print(f"{result:10} {lemma.name}: {lemma.about}")
    raise SystemExit(any(result != "proven" for _, result in results))


if __name__ == "__main__":
    main()
