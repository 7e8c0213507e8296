"""The paper's copula over dummy-coded attributes.

Every level has a standard normal Y_k, correlated across attributes. The paper's output (`dummies`) sets level k where
Y_k > t_k, so that a row may have no level or several levels of an attribute. Valid records take the level whose
exceedance Y_k - c_k is largest, with c calibrated so that the margins hold. Where an attribute has two levels, the
second is the mirror of the first, Y_2 = -Y_1 and c_2 = -c_1, so that a record takes the first where Y_1 > t_1: one
normal and one cut point, as the paper has for a binary attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes
from sklar.fitting.margins import Probabilities, scale_levels
from sklar.fitting.protocols import ReadArray
from sklar.machine.threads import undivided
from sklar.public.schema import Schema
from sklar.public.solve import Allowed

if TYPE_CHECKING:
    from sklar.draw.binary import BinarySampler, RedrawWhole

_FLOOR = 1e-6
# How exactly correlations are repaired: noise moves them by hundredths, further steps would move none by a thousandth.
_ACCURACY = 1e-6


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
    levels: NDArray[np.float64]
    cuts: NDArray[np.float64]
    factor: NDArray[np.float32]
    repairs: Repairs

    def __repr__(self) -> str:
        return f"BinaryCopula({self.schema!r}{', dummies' if self.dummies else ''})"

    def margins(self) -> NDArray[np.float64]:
        """Probabilities of levels before any repair, shape (d,)."""
        return self.levels if self.dummies else scale_levels(self.levels, self.schema.cells)

    def predict_pairs(self) -> None:
        """None: its two-way tables have no closed form."""

    def components(self) -> None:
        """None: its attributes depend on each other directly."""

    def sampler(self) -> BinarySampler:
        """Draws any block of records or dummies."""
        from sklar.draw.binary import BinarySampler

        return BinarySampler(self)

    def redrawing(self, _codes: Codes, _allowed: Allowed) -> RedrawWhole:
        """Draws whole records, whatever rules these break."""
        from sklar.draw.binary import RedrawWhole

        return RedrawWhole(self)

    def scaled(self, step: NDArray[np.float64], _allowed: Allowed) -> BinaryCopula:
        """The copula with these factors, shape (d,), on the margins that it draws by."""
        return replace(self, levels=scale_levels(self.levels * step, self.schema.cells))

    def describe(self) -> dict[str, Any]:
        """What a model file says of it in JSON."""
        return {"kind": self.kind, "dummies": self.dummies, "repairs": asdict(self.repairs)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file holds of it as flat arrays."""
        return {
            "levels": self.levels,
            "cuts": self.cuts,
            "factor": self.factor[np.tri(self.levels.size, dtype=bool)],
        }

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
        lines = [
            f"Model: binary copula; {self.repairs.clipped_pairs:,} pairs outside the possible range were clipped, "
            f"{self.repairs.negative_eigenvalues:,} negative eigenvalues repaired."
        ]
        if self.repairs.empty_attributes:
            lines.append(f"  {self.repairs.empty_attributes} attributes without any count are drawn evenly.")
        return lines


def fit_binary(probabilities: Probabilities, schema: Schema, *, dummies: bool, weighted: bool) -> BinaryCopula:
    """Fit the copula (Eqs 5-7 and Algorithm 4 of the paper).

    Dummies keep the paper's structural zeros: levels of one attribute never occur together, which asks for correlation
    -1 between them. Records get exclusiveness from the decoding, so that their correlation is 0 instead, except for
    attributes of two levels, where it is -1. `weighted` weighs the repair by the square root of the levels'
    probabilities: rare levels give way first.
    """
    from sklar.fitting.cuts import calibrate, thresholds
    from sklar.fitting.nearest import nearest

    cells, levels = probabilities.cells, probabilities.levels
    # Noise can clip every level of an attribute to zero; a record needs one all the same.
    empty = np.add.reduceat(levels, cells.offsets[:-1]) <= 0
    if not dummies and empty.any():
        attribute = cells.attribute_of_level
        levels = np.where(empty[attribute], 1 / cells.sizes[attribute], levels)
    mirrors = np.zeros(0, dtype=np.int64) if dummies else cells.offsets[:-1][cells.sizes == 2] + 1
    own = np.delete(np.arange(levels.size), mirrors)
    raw, clipped = _gaussian_correlations(probabilities, own, structural_zeros=dummies)
    rarity = levels.copy()
    rarity[mirrors - 1] = np.minimum(levels[mirrors - 1], levels[mirrors])
    # Threads of a decomposition wait for each other: on a busy machine they take many times as long as one.
    with undivided():
        weights = np.sqrt(np.maximum(rarity[own], 1e-6)) if weighted else None
        repair = nearest(raw, floor=_FLOOR, weights=weights, tolerance=_ACCURACY)
        triangle = np.linalg.cholesky(repair.correlation).astype(np.float32)
    factor = np.zeros((levels.size, levels.size), dtype=np.float32)
    factor[own[:, None], own] = triangle
    factor[mirrors] = -factor[mirrors - 1]
    return BinaryCopula(
        schema=schema,
        dummies=dummies,
        levels=levels,
        cuts=thresholds(levels) if dummies else calibrate(cells, levels, factor),
        factor=factor,
        repairs=Repairs(
            clipped_pairs=clipped,
            empty_attributes=0 if dummies else int(empty.sum()),
            negative_eigenvalues=repair.negative_eigenvalues,
            moved=repair.moved,
            max_moved=repair.max_moved,
        ),
    )


def _gaussian_correlations(
    probabilities: Probabilities, own: NDArray[np.int64], *, structural_zeros: bool
) -> tuple[NDArray[np.float64], int]:
    """The paper's P of the levels `own`, and how many of their pairs lay outside the Frechet bounds."""
    from sklar.fitting.tetrachoric import tetrachoric_matrix

    cells = probabilities.cells
    solved = tetrachoric_matrix(probabilities.levels[own], cells.square(probabilities.pairs)[own[:, None], own])
    raw = solved.r
    if not structural_zeros:
        attribute = cells.attribute_of_level[own]
        raw[attribute[:, None] == attribute] = 0.0
        np.fill_diagonal(raw, 1.0)
    return raw, solved.clipped
