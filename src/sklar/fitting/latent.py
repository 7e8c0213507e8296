"""A finite mixture over whole attributes, fitted to noisy tables (`descent`): every record valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

# Components of a class of people, each a kind of rows of the other tables: a prime.
KINDS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LatentModel:
    """Equally likely components, each with independent attributes. It is a `Copula`.

    `probabilities` has shape (components, d). `rounds` says how often a drawn value is offered an exchange that brings
    two-way tables nearer to the model's plus `missed` (`draw.refine`), flat or empty, and three-way tables to the
    model's where `matched` is 3. The components of `fits` fits stand one after the other: few rows are drawn from the
    first of them.

    Of a joint table `ties` say of which table each attribute is (`Tree.ties`). Then `KINDS` components after another
    are a class of people, who have the attributes of table 0 in common, and are kinds of rows of each other table,
    which go together in all combinations.
    """

    kind: ClassVar[str] = "latent"
    dummies: ClassVar[bool] = False

    schema: Schema
    probabilities: Floats
    rounds: int = 0
    matched: int = 2
    fits: int = 1
    missed: Floats = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    ties: tuple[int, ...] = ()

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
        attribute, components = self.schema.cells.attribute_of_level, self.components()
        pairs = components.T @ components / np.float32(len(components))
        pairs[attribute[:, None] == attribute] = 0.0
        return np.asarray(pairs)

    def components(self) -> Floats:
        """Probabilities of levels in components, shape (components, d), in which kinds of two tables meet evenly.

        Component (i, j) of a class has kind i + (t - 1) j of table t, up to the prime `KINDS`, and kind j of the sixth.
        """
        tables = max(self.ties, default=0)
        if tables < 2 or self.n_components == 1:
            return self.probabilities
        i, j = np.divmod(np.arange(KINDS**2), KINDS)
        table = np.array(self.ties)[self.schema.cells.attribute_of_level]
        kind = np.where(table > KINDS, j[:, None], (i[:, None] + (table - 1) * j[:, None]) % KINDS)
        classes = self.probabilities.reshape(-1, KINDS, table.size)
        return np.asarray(np.take_along_axis(classes, kind[None], axis=1)).reshape(-1, table.size)

    @property
    def plain(self) -> LatentModel:
        """The same as one table, whose rows are records of the joint table."""
        return replace(self, probabilities=self.components(), ties=())

    @property
    def kinds(self) -> int:
        """How many components are a class of people."""
        return KINDS if self.ties and self.n_components > 1 else 1

    def part(self, places: Sequence[int], schema: Schema | None = None) -> LatentModel:
        """What its components say of some attributes, in ascending order."""
        cells, schema = self.schema.cells, schema or self.schema.part(places)
        levels = np.flatnonzero(np.isin(cells.attribute_of_level, places))
        own: dict[str, Any] = {"probabilities": np.ascontiguousarray(self.probabilities[:, levels]), "ties": ()}
        if self.missed.size:
            own["missed"] = schema.cells.flat(cells.square(self.missed)[np.ix_(levels, levels)])
        return replace(self, schema=schema, **own)

    def of_people(self, schema: Schema) -> LatentModel:
        """What it says of people as a whole, by classes: this schema has the attributes of table 0."""
        part = self.part([place for place, table in enumerate(self.ties) if table == 0], schema)
        return replace(part, probabilities=np.ascontiguousarray(part.probabilities[:: self.kinds]))

    def sampler(self) -> LatentSampler:
        """Draws any block of records."""
        return LatentSampler(self.plain)

    def redrawing(self, codes: Codes, allowed: Allowed, fixed: Sequence[int] = ()) -> Redraw:
        """Draws the attributes that rules are about, given the other attributes of these records."""
        return redraw_given_others(self.components(), self.schema.cells, codes, allowed, fixed)

    def scaled(self, step: Doubles, allowed: Allowed) -> LatentModel:
        """The model with levels these many times as likely in all components, where rules are about their attribute."""
        cells = self.schema.cells
        own = np.isin(cells.attribute_of_level, constrained(allowed))
        moved = scale_levels(self.probabilities.astype(np.float64) * np.where(own, step, 1.0), cells)
        return replace(self, probabilities=np.where(own, moved, self.probabilities).astype(np.float32))

    def describe(self) -> dict[str, Any]:
        """What a model file says of it in JSON."""
        own = {"kind": self.kind, "components": self.n_components, "fits": self.fits}
        tied = {"ties": list(self.ties)} if self.ties else {}
        return own | {"rounds": self.rounds, "matched": self.matched, "missed": self.missed.size > 0} | tied

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
        own["ties"] = tuple(described.get("ties", ()))
        if own["ties"] and (len(own["ties"]) != schema.n_attributes or shape[0] not in (1, shape[0] // KINDS * KINDS)):
            raise ModelError(f"its copula must tie every attribute, in groups of {KINDS} components.")
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
