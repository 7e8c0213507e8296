"""Which round numbers a kind of axis has: tens and hundreds, quarters of an hour, first days of months."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

_MINUTE = 60_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A kind of round number: its name, the least size of a number for which it means something, and its test."""

    name: str
    least: float
    holds: Callable[[NDArray[np.float64]], NDArray[np.bool_]]


def steps_of(kind: str) -> tuple[Step, ...]:
    """The kinds of round numbers on an axis of this kind, the finest first.

    >>> [step.name for step in steps_of("integer")][:3]
    ['multiples of 5', 'multiples of 10', 'multiples of 100']
    """
    return _STEPS.get(kind, ())


def _multiples(unit: float, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(numbers % unit == 0)


def _decimals(unit: float, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    # A decimal fraction is rarely a double: near is equal.
    places = numbers / unit
    return np.asarray(np.abs(places - np.rint(places)) <= 1e-9 * np.maximum(np.abs(places), 1.0))


def _first_of(unit: str, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    days = numbers.astype(np.int64).astype("datetime64[D]")
    return np.asarray(days == days.astype(f"datetime64[{unit}]"))


def _step(unit: float, least: float = 0.0, *, name: str = "") -> Step:
    return Step(name=name or f"multiples of {unit:,.0f}", least=least or unit, holds=partial(_multiples, unit))


_TENS = tuple(_step(10.0**power) for power in range(1, 10))
_MINUTES = tuple(
    _step(minutes * _MINUTE, _MINUTE, name=name)
    for minutes, name in (
        (1, "whole minutes"),
        (5, "multiples of 5 minutes"),
        (15, "multiples of 15 minutes"),
        (30, "multiples of 30 minutes"),
        (60, "whole hours"),
    )
)
_STEPS = {
    "integer": (_step(5.0), *_TENS),
    "real": (
        *(Step(name=f"multiples of {unit:g}", least=unit, holds=partial(_decimals, unit)) for unit in (0.01, 0.1)),
        _step(1.0, name="whole numbers"),
        _step(5.0),
        *_TENS,
    ),
    "year": (_step(5.0), _step(10.0)),
    "yearmonth": (_step(12.0, name="first months of years"),),
    "date": (
        Step(name="first days of months", least=0.0, holds=partial(_first_of, "M")),
        Step(name="first days of years", least=0.0, holds=partial(_first_of, "Y")),
    ),
    "datetime": (*_MINUTES, _step(24 * 60 * _MINUTE, name="midnights")),
    "time": _MINUTES,
    "duration": _MINUTES,
}
