"""A latent model over whole attributes: every record valid.

Given a latent component c, attributes are independent, with probabilities Pi[c] = softmax(W[c]) within each attribute;
D components are equally likely, so that the predicted two-way tables are Pi^T Pi / D: a finite mixture, whose logits W
are fitted to noisy tables (`descent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes, LatentSampler
from sklar.draw.refine import MOST_ROUNDS
from sklar.draw.repair import RedrawGivenOthers
from sklar.errors import ModelError
from sklar.fitting.denoise import Targets
from sklar.fitting.descent import CellWeights, Fit, Loss, Start, fits_together, threads_for
from sklar.fitting.margins import Doubles, Floats, scale_levels
from sklar.fitting.protocols import ReadArray
from sklar.fitting.threeway import ThreeWayLoss
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import side_by_side
from sklar.public.rules import Allowed, constrained
from sklar.public.schema import Schema

# Steps between two reports of progress.
_AT_ONCE = 10
_MAX_COMPONENTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LatentModel:
    """Equally likely components, each with independent attributes. It is a `Copula`.

    `probabilities` has shape (components, d): within each attribute's levels, rows sum to one. `rounds` says how often
    a drawn value is offered an exchange that brings counts nearer to the model's (`draw.refine`): those of two-way
    tables, and of three-way tables where `matched` is 3.
    """

    kind: ClassVar[str] = "latent"
    dummies: ClassVar[bool] = False

    schema: Schema
    probabilities: Floats
    rounds: int = 0
    matched: int = 2

    def __repr__(self) -> str:
        return f"LatentModel({self.schema!r}, {self.n_components:,} components)"

    @property
    def n_components(self) -> int:
        """How many components there are."""
        return len(self.probabilities)

    def margins(self) -> Doubles:
        """Probabilities of levels, shape (d,)."""
        return np.asarray(self.probabilities.mean(axis=0, dtype=np.float64))

    def predict_pairs(self, chances: Doubles | None = None) -> Floats:
        """Predicted two-way tables, as probabilities, shape (d, d), symmetric; zero within attributes.

        `chances`, shape (components,), are those of components where they are not equally likely.
        """
        attribute = self.schema.cells.attribute_of_level
        if chances is None:
            pairs = self.probabilities.T @ self.probabilities / np.float32(self.n_components)
        else:
            pairs = self.probabilities.T @ (self.probabilities * chances[:, None].astype(np.float32))
        pairs[attribute[:, None] == attribute] = 0.0
        return np.asarray(pairs)

    def components(self) -> Floats:
        """Probabilities of levels in each component, shape (components, d)."""
        return self.probabilities

    def sampler(self) -> LatentSampler:
        """Draws any block of records."""
        return LatentSampler(self)

    def redrawing(self, codes: Codes, allowed: Allowed) -> RedrawGivenOthers:
        """Draws the attributes that rules are about, given the other attributes of these records."""
        return RedrawGivenOthers(self, codes, allowed)

    def scaled(self, step: Doubles, allowed: Allowed) -> LatentModel:
        """The model with levels these many times as likely in all components, where rules are about their attribute."""
        cells = self.schema.cells
        own = np.isin(cells.attribute_of_level, constrained(allowed))
        moved = scale_levels(self.probabilities.astype(np.float64) * np.where(own, step, 1.0), cells)
        return replace(self, probabilities=np.where(own, moved, self.probabilities).astype(np.float32))

    def describe(self) -> dict[str, Any]:
        """What a model file says of it in JSON."""
        return {"kind": self.kind, "components": self.n_components, "rounds": self.rounds, "matched": self.matched}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file holds of it as flat arrays."""
        return {"probabilities": self.probabilities.ravel()}

    @classmethod
    def read(cls, schema: Schema, described: Mapping[str, Any], array: ReadArray) -> LatentModel:
        """The model that a file describes."""
        components = described["components"]
        if type(components) is not int or not 1 <= components <= _MAX_COMPONENTS:
            raise ModelError(f"its number of components must be from 1 to {_MAX_COMPONENTS}, got {components!r}.")
        # Models before 0.3 were not refined.
        rounds = described.get("rounds", 0)
        if type(rounds) is not int or not 0 <= rounds <= MOST_ROUNDS:
            raise ModelError(f"its rounds of exchanges must be from 0 to {MOST_ROUNDS}, got {rounds!r}.")
        matched = described.get("matched", 2)
        if matched not in (2, 3):
            raise ModelError(f"its exchanges must match tables of order 2 or 3, got {matched!r:.40}.")
        flat = array("probabilities", np.float32, components * schema.n_levels)
        return cls(
            schema=schema, probabilities=flat.reshape(components, schema.n_levels), rounds=rounds, matched=matched
        )

    def summary(self, settings: Mapping[str, Any]) -> list[str]:
        """How it was fitted, in a few lines."""
        if settings["kind"] == "independence":
            return ["Model: independence; the noisy tables support no dependence between attributes."]
        lines = [
            f"Model: {settings['kind']}, {self.n_components:,} components from {settings['fits']} fits of "
            f"{settings['steps']} steps.",
            f"  Chosen on noisy tables alone: held-out error {settings['gain_over_independence']:.0%} below "
            "independence.",
        ]
        if settings["priors"]:
            lines.append(f"  Margins shrunk by a fitted prior: {', '.join(settings['priors'])}.")
        return lines


def independent(schema: Schema, levels: Doubles) -> LatentModel:
    """The model of one component: independence with these margins."""
    return LatentModel(schema=schema, probabilities=levels.astype(np.float32)[None, :])


def fit_latent(
    targets: Targets,
    schema: Schema,
    shrinkage: float,
    start: Start,
    *,
    steps: int,
    fits: int,
    three: ThreeWayLoss | None = None,
    progress: Progress = SILENT,
) -> LatentModel:
    """The union of several fits, each of this many steps, from different random starts.

    `three` is the part of the loss that three-way tables make, where any were measured.
    """
    loss = Loss(targets, shrinkage, CellWeights(targets.cells, targets.precision), three)

    def run(first: int) -> Floats:
        own = min(together, fits - first)
        fit = Fit(loss, replace(start, seed=start.seed + first), fits=own, until=steps)
        for done in range(0, steps, _AT_ONCE):
            some = min(_AT_ONCE, steps - done)
            fit.advance(some)
            progress.advance(own * some)
        return fit.probabilities.T

    together = fits_together(targets.cells, start, fits)
    found = side_by_side(run, range(0, fits, together), threads=threads_for(targets.cells, start))
    return LatentModel(schema=schema, probabilities=np.concatenate(found))
