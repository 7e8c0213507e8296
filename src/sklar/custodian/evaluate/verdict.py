"""What a release's columns may be used for, in plain words: warnings by stated thresholds, and one line over all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sklar.custodian.evaluate.numbers import Correlations, Heap, Numbers, Share, text, width_text
from sklar.public.schema import Attribute

# From here on a figure is called wrong. Chosen for readers, not fitted to tables: at a KS distance of 0.1 one row in
# ten is on the wrong side of some number.
MAX_KS = 0.1
MAX_TV = 0.1
MAX_MEAN = 0.1
MAX_SD = 0.15
MAX_HEAP = 0.05
MAX_ROUNDING = 0.1
MAX_MISSING = 0.05
MAX_CORRELATION = 0.1
THRESHOLDS = {
    "ks": MAX_KS,
    "total_variation": MAX_TV,
    "mean_in_real_sd": MAX_MEAN,
    "sd_relative": MAX_SD,
    "heap_share": MAX_HEAP,
    "rounding_share": MAX_ROUNDING,
    "missing_share": MAX_MISSING,
    "correlation": MAX_CORRELATION,
}

_NAMED = 4
_SEVERAL = "have KS above {:g}: do not use them as numbers"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Column:
    """How one attribute of a release compares with the real one.

    `tv` is the total variation distance over its levels. `numbers` is None for categories, and where one of the tables
    has no number; `warnings` say in words what is beyond a threshold.
    """

    attribute: Attribute
    on_axis: bool
    tv: float
    missing: Share | None = None
    texts: tuple[Share, ...] = ()
    numbers: Numbers | None = None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self.attribute.name

    @property
    def distance(self) -> float:
        """KS for numbers, total variation for categories: by this the worst column is found."""
        return self.tv if self.numbers is None else self.numbers.ks

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "type": self.attribute.kind,
            "total_variation": self.tv,
            "missing": None
            if self.missing is None
            else {"real": self.missing.real, "synthetic": self.missing.synthetic},
            "texts": [share.to_dict() for share in self.texts],
            "numbers": None if self.numbers is None else self.numbers.to_dict(),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verdict:
    """One line over all columns, and what it rests on. `chance` is the KS distance that chance alone rarely exceeds."""

    line: str
    worst: str
    distance: float
    numbers: int
    unusable: tuple[str, ...]
    warned: tuple[str, ...]
    chance: float | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "line": self.line,
            "worst_column": self.worst,
            "worst_distance": self.distance,
            "numbers": self.numbers,
            "unusable_numbers": list(self.unusable),
            "columns_with_warnings": list(self.warned),
            "chance_ks": self.chance,
            "thresholds": THRESHOLDS,
        }


def warn(column: Column) -> tuple[str, ...]:
    """What is beyond a threshold in one column, the worst kind first."""
    found: list[str] = []
    numbers = column.numbers
    if numbers is not None:
        found += _warn_of_numbers(column.attribute, numbers)
    elif column.on_axis and column.missing is not None:
        found.append("only one of the tables has numbers, or neither")
    if column.tv > MAX_TV:
        found.append(f"total variation of its levels {column.tv:.3f}, above {MAX_TV:g}")
    if column.missing is not None and column.missing.gap > MAX_MISSING:
        found.append(f"missing: {shares(column.missing)}")
    found += [f"text {each.what!r}: {shares(each)}" for each in column.texts if each.gap > MAX_MISSING]
    return tuple(found)


def _warn_of_numbers(attribute: Attribute, numbers: Numbers) -> Iterable[str]:
    real, other = numbers.real, numbers.synthetic
    if numbers.ks > MAX_KS:
        yield f"KS {numbers.ks:.3f}, above {MAX_KS:g}"
    for heap in lost_heaps(numbers):
        yield f"exactly {heap.what}: {shares(heap)}"
    if abs(real.mean - other.mean) > MAX_MEAN * real.sd:
        yield f"mean {text(attribute, other.mean)} for {text(attribute, real.mean)}"
    if abs(real.sd - other.sd) > MAX_SD * real.sd:
        yield f"standard deviation {width_text(attribute, other.sd)} for {width_text(attribute, real.sd)}"
    rounding = max(numbers.rounding, key=lambda share: share.gap, default=None)
    if rounding is not None and rounding.gap > max(MAX_ROUNDING, _likely_gap(rounding, numbers.others)):
        yield f"{rounding.what}: {shares(rounding)}"


def _likely_gap(share: Share, sizes: tuple[int, int]) -> float:
    """Four standard errors of the difference of two shares: where few numbers are not 0, chance makes a large one."""
    pooled = (share.real * sizes[0] + share.synthetic * sizes[1]) / sum(sizes)
    return 4 * math.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))


def lost_heaps(numbers: Numbers) -> list[Heap]:
    """The heaps whose shares differ too much, the worst first."""
    return sorted((heap for heap in numbers.heaps if heap.gap > MAX_HEAP), key=lambda heap: -heap.gap)


def shares(share: Share) -> str:
    """Both shares in words.

    >>> shares(Share(what="0", real=0.917, synthetic=0.0))
    '0.0% for 91.7%'
    """
    return f"{share.synthetic:.1%} for {share.real:.1%}"


def judge(columns: tuple[Column, ...], correlations: Correlations | None, *, rows: tuple[int, int]) -> Verdict:
    """One line over all columns."""
    scored = [column for column in columns if column.numbers is not None]
    on_axis = [column for column in columns if column.on_axis and column.missing is not None]
    unusable = sorted(
        (each for each in on_axis if each.numbers is None or each.numbers.ks > MAX_KS),
        key=lambda each: -each.distance,
    )
    wrong = [each for each in columns if not each.on_axis and each.tv > MAX_TV]
    rest = [each for each in columns if each.warnings and each not in unusable and each not in wrong]
    worst = max(columns, key=lambda each: each.distance)
    measure = "total variation" if worst.numbers is None else "KS"
    parts = [f"Worst column: {worst.name}, {measure} {worst.distance:.3f}"]
    if unusable:
        advice = "has KS above {:g}: do not use it as a number" if len(unusable) == 1 else _SEVERAL
        parts.append(f"{len(unusable)} of {len(on_axis)} numbers {advice.format(MAX_KS)} ({_names(unusable)})")
    elif scored:
        parts.append(f"no number has KS above {MAX_KS:g}")
    if wrong:
        have = "category has" if len(wrong) == 1 else "categories have"
        parts.append(f"{len(wrong)} {have} total variation above {MAX_TV:g} ({_names(wrong)})")
    if rest:
        parts.append(f"{len(rest)} more with warnings ({_names(rest)})")
    apart = correlations.gaps()[:1] if correlations is not None else []
    if apart and apart[0][0] > MAX_CORRELATION and correlations is not None:
        gap, one, two = apart[0]
        parts.append(f"a correlation is off by {gap:.2f} ({correlations.names[one]}, {correlations.names[two]})")
    chance = _chance(*rows) if scored else None
    if chance is not None and chance > MAX_KS:
        parts.append(f"with this few rows chance alone makes KS up to {chance:.2f}")
    return Verdict(
        line="; ".join(parts) + ".",
        worst=worst.name,
        distance=worst.distance,
        numbers=len(on_axis),
        unusable=tuple(each.name for each in unusable),
        warned=tuple(each.name for each in columns if each.warnings),
        chance=chance,
    )


def _names(columns: list[Column]) -> str:
    listed = ", ".join(column.name for column in columns[:_NAMED])
    return listed + (f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else "")


def _chance(real: int, synthetic: int) -> float:
    """What the KS distance of two tables drawn from one law exceeds once in a hundred times, for a continuous law."""
    return 1.63 * math.sqrt(1 / real + 1 / synthetic)
