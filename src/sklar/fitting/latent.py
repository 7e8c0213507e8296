"""A finite mixture over whole attributes, fitted to noisy tables (`descent`): every record valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import LatentSampler, ReadArray, Redraw
from sklar.draw.repair import redraw_given_others
from sklar.errors import ModelError
from sklar.fitting.margins import scale_levels
from sklar.kernel.cells import Codes, Doubles, Floats
from sklar.public.rules import Allowed, constrained
from sklar.public.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LatentModel:
    """Equally likely components, each with independent attributes. It is a `Copula`.

    `probabilities` has shape (components, d). `rounds` says how often a drawn value is offered an exchange that brings
    two-way tables nearer to the model's plus `missed` (`draw.refine`), flat or empty, and three-way tables to the
    model's where `matched` is 3. The components of `fits` fits stand one after the other: few rows are drawn from the
    first of them.
    """

    kind: ClassVar[str] = "latent"
    dummies: ClassVar[bool] = False

    schema: Schema
    probabilities: Floats
    rounds: int = 0
    matched: int = 2
    fits: int = 1
    missed: Floats = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    def __repr__(self) -> str:
        return f"LatentModel({self.schema!r}, {self.n_components:,} components)"

    @property
    def n_components(self) -> int:
        """How many components there are."""
        return len(self.probabilities)

    def margins(self) -> Doubles:
        """Probabilities of levels, shape (d,)."""
        return np.asarray(self.probabilities.mean(axis=0, dtype=np.float64))

    def predict_pairs(self) -> Floats:
        """Predicted two-way tables Pi^T Pi / D, as probabilities, shape (d, d), symmetric; zero within attributes."""
        attribute = self.schema.cells.attribute_of_level
        pairs = self.probabilities.T @ self.probabilities / np.float32(self.n_components)
        pairs[attribute[:, None] == attribute] = 0.0
        return np.asarray(pairs)

    def components(self) -> Floats:
        """Probabilities of levels in each component, shape (components, d)."""
        return self.probabilities

    def sampler(self) -> LatentSampler:
        """Draws any block of records."""
        return LatentSampler(self)

    def redrawing(self, codes: Codes, allowed: Allowed) -> Redraw:
        """Draws the attributes that rules are about, given the other attributes of these records."""
        return redraw_given_others(self.probabilities, self.schema.cells, codes, allowed)

    def scaled(self, step: Doubles, allowed: Allowed) -> LatentModel:
        """The model with levels these many times as likely in all components, where rules are about their attribute."""
        cells = self.schema.cells
        own = np.isin(cells.attribute_of_level, constrained(allowed))
        moved = scale_levels(self.probabilities.astype(np.float64) * np.where(own, step, 1.0), cells)
        return replace(self, probabilities=np.where(own, moved, self.probabilities).astype(np.float32))

    def describe(self) -> dict[str, Any]:
        """What a model file says of it in JSON."""
        own = {"kind": self.kind, "components": self.n_components, "fits": self.fits}
        return own | {"rounds": self.rounds, "matched": self.matched, "missed": self.missed.size > 0}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file holds of it as flat arrays."""
        own = {"missed": self.missed} if self.missed.size else {}
        return {"probabilities": self.probabilities.ravel(), **own}

    @classmethod
    def read(cls, schema: Schema, described: Mapping[str, Any], array: ReadArray) -> LatentModel:
        """The model that a file describes."""
        shape, fits = (described["components"], schema.n_levels), described["fits"]
        if shape[0] % fits:
            raise ModelError(f"its copula must be of fits of one size, got {shape[0]:,} components of {fits:,} fits.")
        probabilities = array("probabilities", np.float32, shape[0] * shape[1]).reshape(shape)
        own = {key: described[key] for key in ("rounds", "matched", "fits")}
        if described["missed"]:
            own["missed"] = array("missed", np.float32, schema.cells.n_cells)
        return cls(schema=schema, probabilities=probabilities, **own)

    def summary(self, settings: Mapping[str, Any]) -> list[str]:
        """How it was fitted, in a few lines."""
        if settings["kind"] == "independence":
            return ["Model: independence; the noisy tables support no dependence between attributes."]
        kind, fits, steps, gain = (settings[key] for key in ("kind", "fits", "steps", "gain_over_independence"))
        return [
            f"Model: {kind}, {self.n_components:,} components from {fits} fits of {steps} steps.",
            f"  Chosen on noisy tables alone: held-out error {gain:.0%} below independence.",
            *[f"  Margins shrunk by a fitted prior: {', '.join(own)}." for own in [settings["priors"]] if own],
        ]


def independent(schema: Schema, levels: Doubles) -> LatentModel:
    """The model of one component: independence with these margins."""
    return LatentModel(schema=schema, probabilities=levels.astype(np.float32)[None, :])
