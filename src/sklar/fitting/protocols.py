"""What every fitted model can do: the few methods that sampling, repair, queries and model files need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Codes, Doubles, Floats, Ints
from sklar.public.rules import Allowed
from sklar.public.schema import Schema

# Reads a flat array of a model file by its name, type and size.
ReadArray: TypeAlias = Callable[[str, type[np.generic], int], NDArray[Any]]

# Fresh records in place of codes, shape (m, some rows), which stand in these rows of the records it was made for.
Redraw: TypeAlias = Callable[[Codes, Ints, np.random.Generator], Codes]


class Sampler(Protocol):
    """Draws any block of a model's rows, in any thread. `block_rows` is the size of all blocks but the last."""

    @property
    def block_rows(self) -> int:
        """Rows of a full block."""

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows), or of dummies 0 and 1, shape (d, rows)."""


class Copula(Protocol):
    """A joint distribution of the measured attributes, fitted to noisy tables. `kind` names it in model files.

    Only `release`, which fits models, and `files.archive`, which reads them, know which kinds there are.
    """

    kind: ClassVar[str]

    @property
    def schema(self) -> Schema:
        """The measured part of the schema."""

    @property
    def dummies(self) -> bool:
        """Whether rows are the paper's 0/1 columns instead of valid records."""

    def margins(self) -> Doubles:
        """Probabilities of levels before any repair, shape (d,)."""

    def predict_pairs(self) -> Floats | None:
        """Probabilities of pairs of levels, shape (d, d), zero within attributes; None without a closed form."""

    def components(self) -> Floats | None:
        """Probabilities of levels in D equally likely components, independent within each, shape (D, d), if any."""

    def sampler(self) -> Sampler:
        """Draws any block of rows, before any repair."""

    def redrawing(self, codes: Codes, allowed: Allowed, /) -> Redraw:
        """Draws anew the records that break a rule, given as codes, shape (m, rows)."""

    def scaled(self, step: Doubles, allowed: Allowed, /) -> Self:
        """The model with levels these many times as likely, shape (d,), where a repair may move them."""

    def describe(self) -> dict[str, Any]:
        """What a model file says of it in JSON."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file holds of it as flat arrays."""

    @classmethod
    def read(cls, schema: Schema, described: Mapping[str, Any], array: ReadArray) -> Self:
        """The model that a file describes."""

    def summary(self, settings: Mapping[str, Any], /) -> list[str]:
        """How it was fitted, in a few lines."""
