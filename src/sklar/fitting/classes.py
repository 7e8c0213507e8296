"""A two-level mixture of people and their events, fitted to the noisy tables of linked tables.

A person belongs to one of H equally likely classes. Given the class, the attributes of the person and the number of
their events are independent; every event belongs to one of G classes of events of that class of people, and given both
its attributes are independent. How events follow one another, where they have an order, is fitted after (`order`).

With P (H, dP) the levels of people's attributes, N (H, bins) the bins of the number of events, C (H, G) the classes of
events, Q (H, G, dE) the levels of their attributes, E = sum_g C Q, and Z = [1, P, N], all tables are four products:

    Z^T Z / H                                one-way and two-way tables of people, with the number of events
    [(1 - N_0) P, N, N w, N (1 - w)]^T E / H people by events, number by events, both halves of one-way tables of events
    Q^T diag((1 - N_0) C) Q / H              two-way tables of events
    E^T diag(P(two events)) E / H            one attribute in two events of a person

A fit descends on the sum over cells of (predicted - target)^2 / variance, by the logits of P, N, C and Q (`descent`).
The steps are chosen by Gaussian thinning, as in `choose`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import LinkedMeasured
from sklar.budget.plan import FULL_WEIGHT, IN_ORDER, LinkedTable
from sklar.draw.blocks import ReadArray
from sklar.errors import ModelError
from sklar.fitting.choose import EVERY, GAIN, SEED, SPLITS
from sklar.fitting.descent import start_logits
from sklar.fitting.margins import GAIN_DIGITS, as_stored, digits, project, project_levels, scale_levels
from sklar.fitting.order import ARRAYS, CourseLaws, fit_course, graded, law_shapes
from sklar.fitting.steps import RATE, contrasts
from sklar.kernel.cells import Cells, Doubles, Floats
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import side_by_side
from sklar.public.events import Linked

PERSON_CLASSES = 150
EVENT_CLASSES = 6
FITS = 4
MAX_STEPS = 1_500
PATIENCE = 100
_MARGIN_STEPS = 100
# What an evaluation must take away of the least error so far, or it is none: where noise is all, fits would go on.
_PROGRESS = 5e-4
# The sd of the logits that a fit starts from: of people, of the number of events, and of events, what a class of people
# has in common and what each class of events has of its own.
_PERSON_SD, _NUMBER_SD, _COMMON_SD, _EVENT_SD = 0.5, 0.3, 0.4, 1.0
# Of the logits of people and of events: a class of events is a small part of one of people.
_RATES, _DAMPING = (RATE / 2, RATE), 0.1
_FLOOR = 1e-5
# A file holds probabilities in single precision.
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkedClasses:
    """What the H equally likely classes of people are like, as probabilities of (H, levels), (H, at_most + 1), (H, G)
    and (H, G, levels); and how their events follow one another, where these have an order.
    """

    linked: Linked
    person: Floats
    number: Floats
    event_class: Floats
    event: Floats
    laws: CourseLaws | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file holds of it, flat."""
        held = {name: getattr(self, name) for name in ("person", "number", "event_class", "event")}
        if self.laws is not None:
            held |= {name: getattr(self.laws, name) for name in ARRAYS}
        return {name: chances.ravel() for name, chances in held.items()}

    @classmethod
    def read(cls, linked: Linked, settings: Mapping[str, Any], array: ReadArray) -> LinkedClasses:
        """The classes that a file holds."""
        classes, kinds, one = settings["person_classes"], settings["event_classes"], np.array([0])
        shapes: dict[str, tuple[tuple[int, ...], NDArray[np.int64]]] = {
            "person": ((classes, linked.people.n_levels), linked.people.offsets[:-1]),
            "number": ((classes, linked.at_most + 1), one),
            "event_class": ((classes, kinds), one),
            "event": ((classes, kinds, linked.events.n_levels), linked.events.offsets[:-1]),
        }
        course = linked.course
        if course is not None:
            shapes |= {name: (shape, one) for name, shape in zip(ARRAYS, law_shapes(course, classes), strict=True)}
        read = {}
        for name, (shape, begins) in shapes.items():
            chances = array(name, np.float32, math.prod(shape)).reshape(shape)
            sums = np.add.reduceat(chances, begins, axis=-1)
            # Comparisons that fail for what is no number.
            if not (chances >= 0).all() or not (abs(sums - 1) < _ROUNDING).all():
                raise ModelError(f"its array '{name}' must hold probabilities.")
            read[name] = chances
        laws = None if course is None else CourseLaws(course=course, **{name: read.pop(name) for name in ARRAYS})
        return cls(linked=linked, laws=laws, **read)


class _Layout:
    """Where every table stands among the four products, and what is known of the number of events within its bins."""

    def __init__(self, measured: LinkedMeasured) -> None:
        linked = measured.linked
        self.tables, self.n_people = measured.tables, measured.n_people
        self.person, self.event = linked.people.cells, linked.events.cells
        bins = np.array(linked.bins)
        self.bin_of = np.searchsorted(bins, np.arange(linked.at_most + 1), side="right") - 1
        self.n_bins = bins.size - 1
        share = project(next(cells for table, cells, _ in self.tables if table.kind == "number") / self.n_people)
        # A little of every number, so that a bin that noise has emptied still has some.
        share = share + 1e-3 / share.size
        self.within = share / np.bincount(self.bin_of, weights=share)[self.bin_of]
        weight = np.minimum(np.arange(linked.at_most + 1), FULL_WEIGHT) / FULL_WEIGHT
        self.full = np.bincount(self.bin_of, weights=self.within * weight).astype(np.float32)
        self.rest = np.bincount(self.bin_of, weights=self.within * (1 - weight)).astype(np.float32)
        self.rest[0] = 0
        # Two events that are apart stand for any two.
        self.apart = float(share[2:].sum() / max(share[3:].sum(), 1e-3))
        self.two = np.ones(self.n_bins, dtype=np.float32)
        self.two[:2] = 0

    def _place(self, table: LinkedTable) -> tuple[int, slice, slice]:
        """The product that a table is a part of, and its rows and columns there."""
        people, bins = self.person.n_levels, self.n_bins

        def person(attribute: int, first: int = 1) -> slice:
            return slice(first + self.person.offsets[attribute], first + self.person.offsets[attribute + 1])

        number, event, i, j = slice(1 + people, 1 + people + bins), self.event.levels, table.first, table.second
        places: dict[str, Callable[[], tuple[int, slice, slice]]] = {
            "number": lambda: (0, slice(1), number),
            "person": lambda: (0, slice(1), person(i)),
            "person-person": lambda: (0, person(i), person(j)),
            "number-person": lambda: (0, number, person(i)),
            "person-event": lambda: (1, person(i, 0), event(j)),
            "number-event": lambda: (1, slice(people, people + bins - 1), event(i)),
            "event": lambda: (1, slice(people + bins - 1, people + bins + 1), event(i)),
            "event-event": lambda: (2, event(i), event(j)),
        }
        return places.get(table.kind, lambda: (3, event(i), event(i)))()

    def arrange(self, each: Sequence[Doubles], *, precisions: bool = False) -> list[Floats]:
        """Tables as the four products that predict them; or, of one variance per table, the precisions of cells."""
        people, events, bins = self.person.n_levels, self.event.n_levels, self.n_bins
        shapes = [(1 + people + bins,) * 2, (people + bins + 1, events), (events, events), (events, events)]
        products = [np.zeros(shape, dtype=np.float32) for shape in shapes]
        for (table, _, _), given in zip(self.tables, each, strict=True):
            if table.kind == "people" or table.kind in IN_ORDER:
                continue
            cells = np.full(table.cells, 1 / given[0]) if precisions else given
            if table.kind == "apart-events":
                cells = cells / self.apart**2 if precisions else cells * self.apart
            product, rows, columns = self._place(table)
            if table.kind == "number":
                sizes = np.bincount(self.bin_of)
                cells = cells[: sizes.size] / sizes if precisions else np.bincount(self.bin_of, weights=given)
            if product == 3:
                low, high = np.triu_indices(table.shape[0])
                # A pair without order is two cells of a product: half of it in one, and so four times as precise.
                halved = np.where(low == high, 1.0, 4.0 if precisions else 0.5)
                products[3][rows, columns][low, high] = cells * halved
            else:
                place = products[product][rows, columns]
                place[:] = cells.reshape(place.shape)
        return products


# What a fit descends to: the four products with their weights.
_Goal: TypeAlias = tuple[_Layout, list[Floats], list[Floats]]


class _ClassFit:
    """A fit in progress: `advance` takes steps. `found` are the present P, N, C and Q."""

    def __init__(
        self, goal: _Goal, seed: int, classes: int = PERSON_CLASSES, kinds: int = EVENT_CLASSES, until: int = 0
    ) -> None:
        self._layout, self._targets, self._weights = layout, targets, _ = goal
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, classes, kinds])))
        people, bins = layout.person.n_levels, layout.n_bins
        shares = [*np.split(targets[0][0, 1:], [people]), targets[1][people + bins - 1 :].sum(axis=0)]
        person, number, event = (
            np.log(scale_levels(project_levels(own.astype(np.float64), cells) + _FLOOR, cells).astype(np.float32))
            for own, cells in zip(shares, (layout.person, Cells([bins]), layout.event), strict=True)
        )

        def around(base: Floats, shape: tuple[int, ...], sd: float) -> Floats:
            # A single class is independence: it starts where it ends.
            drawn = generator.standard_normal((*shape, base.size), dtype=np.float32)
            return base + np.float32(sd if classes > 1 else 0.0) * drawn

        together = around(np.zeros_like(event), (classes, 1), _COMMON_SD)
        persons, numbers = around(person, (classes,), _PERSON_SD), around(number, (classes,), _NUMBER_SD)
        first = np.hstack([persons, numbers, np.zeros((classes, kinds), dtype=np.float32)])
        events = (around(event, (classes, kinds), _EVENT_SD) + together).reshape(classes * kinds, -1)
        self._shape, self._cells = (classes, kinds), (Cells([*layout.person.sizes, layout.n_bins, kinds]), layout.event)
        self._logits = [
            start_logits(cells, np.ascontiguousarray(own.T), damping=_DAMPING, until=until, rate=rate)
            for cells, own, rate in zip(self._cells, (first, events), _RATES, strict=True)
        ]
        self._predict()

    # A kernel may work on lanes beyond the arrays, and raise the flag of an invalid number that no result has.
    @np.errstate(invalid="ignore")
    def _predict(self) -> None:
        layout, (classes, kinds) = self._layout, self._shape
        of_people, of_events = (np.ascontiguousarray(logits.probabilities.T) for logits in self._logits)
        people, bins = layout.person.n_levels, layout.n_bins
        person, number, kind = np.split(of_people, [people, people + bins], axis=1)
        event = of_events.reshape(classes, kinds, -1)
        self.found = [person, number, kind, event]
        self._present = 1 - number[:, :1]
        self._z = np.hstack([np.ones((classes, 1), dtype=np.float32), person, number])
        self._u = np.hstack(
            [self._present * person, number[:, 1:], (number @ layout.full)[:, None], (number @ layout.rest)[:, None]]
        )
        self._mean = np.matmul(kind[:, None, :], event)[:, 0]
        self._of_kind = (self._present * kind).reshape(-1, 1)
        self._flat = of_events
        self._pairs = (number @ layout.two)[:, None]
        scale = np.float32(1 / classes)
        self.products = [
            self._z.T @ self._z * scale,
            self._u.T @ self._mean * scale,
            self._flat.T @ (self._of_kind * self._flat) * scale,
            self._mean.T @ (self._pairs * self._mean) * scale,
        ]

    def error(self, targets: Sequence[Floats]) -> float:
        """The weighted squared distance of all cells from these targets."""
        return sum(
            float(np.sum(weights * (product - target) ** 2, dtype=np.float64))
            for product, target, weights in zip(self.products, targets, self._weights, strict=True)
        )

    def advance(self, steps: int) -> None:
        """Take this many steps."""
        for _ in range(steps):
            for logits, cells, gradient in zip(self._logits, self._cells, self._gradients(), strict=True):
                pull = contrasts(gradient, cells)
                logits.move(pull, np.zeros((len(pull), 1), dtype=np.float32))
            self._predict()

    @np.errstate(invalid="ignore")
    def _gradients(self) -> tuple[Floats, Floats]:
        """The gradient of the error in the probabilities, times H / 2, shapes (levels, H) and (levels, H x G)."""
        layout, (person, _, kind, event) = self._layout, self.found
        people, bins = layout.person.n_levels, layout.n_bins
        missed = [
            weights * (product - target)
            for product, target, weights in zip(self.products, self._targets, self._weights, strict=True)
        ]
        of_z = self._z @ (missed[0] + missed[0].T)
        of_u = self._mean @ missed[1].T
        of_mean = self._u @ missed[1]
        pulled = self._flat @ (missed[2] + missed[2].T)
        # A quadratic form: half of its double product.
        of_weight = (0.5 * np.einsum("ij,ij->i", self._flat, pulled)).reshape(self._shape)
        twice = self._mean @ (missed[3] + missed[3].T)
        of_mean += self._pairs * twice
        of_pairs = 0.5 * np.einsum("ij,ij->i", self._mean, twice)[:, None]
        of_event = (self._of_kind * pulled).reshape(event.shape) + kind[:, :, None] * of_mean[:, None, :]
        of_kind = np.einsum("hgd,hd->hg", event, of_mean) + self._present * of_weight
        of_present = np.einsum("hg,hg->h", kind, of_weight) + np.einsum("hd,hd->h", person, of_u[:, :people])
        of_person = of_z[:, 1 : 1 + people] + self._present * of_u[:, :people]
        of_number = of_z[:, 1 + people :].copy()
        of_number[:, 1:] += of_u[:, people : people + bins - 1]
        of_number += of_u[:, people + bins - 1 : people + bins] * layout.full
        of_number += of_u[:, people + bins :] * layout.rest + of_pairs * layout.two
        of_number[:, 0] -= of_present
        return np.hstack([of_person, of_number, of_kind]).T, of_event.reshape(len(self._flat), -1).T


def fit_classes(measured: LinkedMeasured, *, progress: Progress = SILENT) -> tuple[LinkedClasses, dict[str, Any]]:
    """The model of these noisy tables, and what was decided on the way."""
    layout = _Layout(measured)
    shares = [cells / layout.n_people for _, cells, _ in layout.tables]
    sds = np.array([scale for _, _, scale in layout.tables]) / layout.n_people
    weights = layout.arrange([np.array([sd**2]) for sd in sds.tolist()], precisions=True)
    mean = np.mean(np.concatenate([part[part > 0] for part in weights]))
    weights = [part / mean for part in weights]
    progress.stage("choose", unit="steps")
    steps, gain = _choose_steps(layout, shares, sds, weights, progress)
    goal = layout, layout.arrange(shares), weights
    fits = FITS if steps else 0
    progress.stage("fit", total=fits * steps, unit="steps")

    def one(seed: int) -> _ClassFit:
        fit = _ClassFit(goal, seed, until=steps)
        for _ in range(0, steps, EVERY):
            fit.advance(EVERY)
            progress.advance(EVERY)
        return fit

    made = side_by_side(one, [SEED + SPLITS + number for number in range(fits)]) or [_independent(goal)]
    person, number, kind, event = (np.concatenate([fit.found[at] for fit in made]) for at in range(4))
    classes = LinkedClasses(
        linked=measured.linked,
        person=person,
        number=(number[:, layout.bin_of] * layout.within).astype(np.float32),
        event_class=kind,
        event=event,
    )
    bits, course = digits(measured.blocks, measured.n_people), measured.linked.course
    if course is not None:
        classes = replace(classes, number=graded(measured, classes.number.astype(np.float64)))
    classes = as_stored(classes, bits)
    if course is not None:
        classes = replace(classes, laws=as_stored(fit_course(measured, course, classes), bits))
    return classes, {
        "person_classes": len(person),
        "event_classes": kind.shape[1],
        "steps": steps,
        "fits": fits,
        "gain_over_independence": round(gain, GAIN_DIGITS),
    }


def _independent(goal: _Goal) -> _ClassFit:
    """One class of people with one of events: nothing but margins, by all tables."""
    fit = _ClassFit(goal, SEED, 1, 1, until=_MARGIN_STEPS)
    fit.advance(_MARGIN_STEPS)
    return fit


def _choose_steps(
    layout: _Layout, shares: Sequence[Doubles], sds: Doubles, weights: list[Floats], progress: Progress
) -> tuple[int, float]:
    """How many steps predict held-out tables best, and the share of independence's error that they take away."""

    def follow(seed: np.random.SeedSequence) -> tuple[int, float]:
        generator = np.random.Generator(np.random.SFC64(seed))
        noise = [sd * generator.standard_normal(part.size) for sd, part in zip(sds.tolist(), shares, strict=True)]
        train = layout.arrange([part + GAIN * drawn for part, drawn in zip(shares, noise, strict=True)])
        held = layout.arrange([part - drawn / GAIN for part, drawn in zip(shares, noise, strict=True)])
        goal = layout, train, weights
        plain = _independent(goal).error(held)
        fit, best, best_at, at = _ClassFit(goal, int(seed.generate_state(1)[0])), plain, 0, 0
        while at < MAX_STEPS and at - best_at < PATIENCE + at // 5:
            fit.advance(EVERY)
            progress.advance(EVERY)
            at += EVERY
            error = fit.error(held)
            if error < best * (1 - _PROGRESS):
                best, best_at = error, at
        return best_at, 1 - best / plain

    found = side_by_side(follow, np.random.SeedSequence(SEED).spawn(SPLITS))
    steps = EVERY * round(float(np.mean([best for best, _ in found])) / EVERY)
    return steps, float(np.mean([gain for _, gain in found]))
