"""The paper's copula over dummy-coded attributes.

Every level has a standard normal Y_k. The paper's output (`dummies`) sets level k where Y_k > t_k, so that a row may
have no level or several levels of an attribute. Valid records take the level whose exceedance Y_k - c_k is largest,
with c calibrated so that the margins hold. Of two levels the second mirrors the first, Y_2 = -Y_1 and c_2 = -c_1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import ReadArray, Redraw
from sklar.fitting.margins import scale_levels
from sklar.kernel.cells import Codes, Doubles, Floats, Ints
from sklar.public.rules import Allowed
from sklar.public.schema import Schema

if TYPE_CHECKING:
    from sklar.paper.winners import BinarySampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """What the fit had to change, for the report."""

    clipped_pairs: int
    empty_attributes: int
    negative_eigenvalues: int
    moved: float
    max_moved: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BinaryCopula:
    """A Gaussian copula over d levels. It is a `Copula`.

    `levels` are their probabilities and `cuts` their cut points, shape (d,); `factor`, shape (d, d), is lower
    triangular, in single precision. A level that mirrors another has the negative of its row, and a column of zeros.
    """

    kind: ClassVar[str] = "binary"

    schema: Schema
    dummies: bool
    levels: Doubles
    cuts: Doubles
    factor: Floats
    repairs: Repairs

    def __repr__(self) -> str:
        return f"BinaryCopula({self.schema!r}{', dummies' if self.dummies else ''})"

    def margins(self) -> Doubles:
        """Probabilities of levels before any repair, shape (d,)."""
        return self.levels if self.dummies else scale_levels(self.levels, self.schema.cells)

    def predict_pairs(self) -> None:
        """None: its two-way tables have no closed form."""

    def components(self) -> None:
        """None: its attributes depend on each other directly."""

    def sampler(self) -> BinarySampler:
        """Draws any block of records or dummies."""
        from sklar.paper.winners import BinarySampler

        return BinarySampler(self)

    def redrawing(self, _codes: Codes, _allowed: Allowed, _fixed: Sequence[int] = ()) -> Redraw:
        """Draws whole records at the fitted cut points, whatever rules these break."""
        cuts, offsets = self.cuts.astype(np.float32), self.schema.cells.offsets

        def redraw(codes: Codes, _rows: Ints, generator: np.random.Generator) -> Codes:
            exceed = self.factor @ generator.standard_normal((cuts.size, codes.shape[1]), dtype=np.float32)
            exceed -= cuts[:, None]
            return np.stack([exceed[start:stop].argmax(axis=0) for start, stop in pairwise(offsets)])

        return redraw

    def scaled(self, step: Doubles, _allowed: Allowed) -> BinaryCopula:
        """The copula with these factors, shape (d,), on the margins that it draws by."""
        return replace(self, levels=scale_levels(self.levels * step, self.schema.cells))

    def describe(self) -> dict[str, Any]:
        """What a model file says of it in JSON."""
        return {"kind": self.kind, "dummies": self.dummies, "repairs": asdict(self.repairs)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file holds of it as flat arrays."""
        return {"levels": self.levels, "cuts": self.cuts, "factor": self.factor[np.tri(self.levels.size, dtype=bool)]}

    @classmethod
    def read(cls, schema: Schema, described: Mapping[str, Any], array: ReadArray) -> BinaryCopula:
        """The copula that a file describes."""
        d = schema.n_levels
        # The square is made only when the file has shown that it holds its entries.
        triangle = array("factor", np.float32, d * (d + 1) // 2)
        factor = np.zeros((d, d), dtype=np.float32)
        factor[np.tri(d, dtype=bool)] = triangle
        return cls(
            schema=schema,
            dummies=bool(described["dummies"]),
            levels=array("levels", np.float64, d),
            cuts=array("cuts", np.float64, d),
            factor=factor,
            repairs=Repairs(**described["repairs"]),
        )

    def summary(self, _settings: Mapping[str, Any]) -> list[str]:
        """How it was fitted, in a few lines."""
        repairs, empty = self.repairs, self.repairs.empty_attributes
        return [
            f"Model: binary copula; {repairs.clipped_pairs:,} pairs outside the possible range were clipped, "
            f"{repairs.negative_eigenvalues:,} negative eigenvalues repaired.",
            *([f"  {empty} attributes without any count are drawn evenly."] if empty else []),
        ]
