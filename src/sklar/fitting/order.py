"""How the events of people follow one another: a chain a class of people, gaps, and dates, from noisy tables of steps.
The derivation: docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.budget.plan import sides_of
from sklar.draw.blocks import ReadArray, stream
from sklar.draw.course import Chain, kinds_of, level_drawer
from sklar.draw.decode import Shape
from sklar.errors import ModelError
from sklar.fitting.latent import LatentModel
from sklar.fitting.margins import drawn_to, estimate_rows, project
from sklar.kernel.cells import Cells, Doubles, Floats
from sklar.kernel.queries import Shares
from sklar.public.tree import Course, Tree

# Rounds of iterations, all of them few enough to be done whatever the tables are; the last one's changes are small.
_FIRST_ROUNDS, _ROUNDS, _SCALINGS, _DATE_ROUNDS = 20, 40, 4, 8
# How much of what a class has more of than others its steps lead to.
_KEPT = 0.8
# People and events that are drawn to learn where dates come to lie, and the seed by which they are.
_PEOPLE, _EVENTS, _SEED = 60_000, 400_000, 20_260_204
# What is as good as nothing, and the share that is given to levels that noise has emptied.
_TINY, _RARE = 1e-9, 1e-3
_IN_ORDER = ("first", "next", "gap", "gaps")
# A file holds probabilities in single precision.
_ROUNDING = 1e-3
ARRAYS = ("first", "following", "gap", "when", "season")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CourseLaws:
    """Probabilities: `first` (H, S) of a first event, `following` (H, S, S) of the next one, `gap` (bins of k, S, gaps)
    of the gap before it, and `when` (H, bins) of the date of an event at random, which is kept by `season` (bins of k,
    bins), in proportion to it, and drawn again otherwise.
    """

    course: Course
    first: Floats
    following: Floats
    gap: Floats
    when: Floats
    season: Floats


def laws_in(tree: Tree, classes: int, array: ReadArray) -> dict[str, CourseLaws]:
    """The laws that a model file holds."""
    laws = {}
    for branch in tree.branches:
        if (course := branch.course) is None:
            continue
        held = {}
        for name, shape in zip(ARRAYS, law_shapes(course, classes), strict=True):
            chances = array(f"{branch.name}_{name}", np.float32, math.prod(shape)).reshape(shape)
            # Comparisons that fail for what is no number.
            if not (chances >= 0).all() or not (abs(chances.sum(axis=-1) - 1) < _ROUNDING).all():
                raise ModelError(f"its array '{branch.name}_{name}' must hold probabilities.")
            held[name] = chances
        laws[branch.name] = CourseLaws(course=course, **held)
    return laws


def arrays_in(laws: Mapping[str, CourseLaws]) -> dict[str, NDArray[Any]]:
    """What a model file holds of them, flat."""
    return {f"{table}_{name}": getattr(own, name).ravel() for table, own in laws.items() for name in ARRAYS}


def law_shapes(course: Course, classes: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of the arrays of so many classes of people."""
    states, dates, gaps, bins = (
        course.states,
        *(len(each) - 1 for each in (course.edges, course.gaps, course.numbers)),
    )
    return (classes, states), (classes, states, states), (bins - 2, states, gaps), (classes, dates), (bins - 1, dates)


def fit_laws(measured: Measured, model: LatentModel, shapes: Mapping[str, Shape]) -> dict[str, CourseLaws]:
    """The laws of the order of rows, by table, for fitted classes of people; `shapes` are of numbers of rows."""
    n = estimate_rows(measured.counted, measured.certificate.mechanism, measured.n_rows)
    tree, laws = measured.tree, dict[str, CourseLaws]()
    if tree is None:
        return laws
    held = {block.query.what: block for block in measured.counted if isinstance(block.query, Shares)}
    for i, branch in enumerate(tree.branches):
        course, schema = branch.course, branch.schema.measured
        if course is None:
            continue
        kinds, bins = kinds_of(model.probabilities, model.kinds, tree, i), np.array(branch.bins)
        number = kinds.number[:, np.repeat(np.arange(bins.size - 1), np.diff(bins))] * shapes[branch.name].masses(bins)
        own = [side for side in sides_of(tree) if side.of == branch and side.kind in _IN_ORDER]
        noisy = [(side, held[side.what]) for side in own]
        tables = {s.kind: (b.values.reshape(s.tables[0][1]) / n, float(b.scales[0] / n) ** 2) for s, b in noisy}
        levels = kinds.levels.reshape(*kinds.kind.shape, -1)
        mean = np.einsum("hg,hgd->hd", kinds.kind, levels)
        when, state = mean[:, schema.cells.levels(schema.names.index(branch.order))], np.ones((len(mean), 1))
        if branch.follows:
            state = mean[:, schema.cells.levels(schema.names.index(branch.follows))]
        first, following = _chain(state, number, tables) if branch.follows else (state, state[:, None])
        gap, season = _gaps(tables, course.states), np.ones((len(course.numbers) - 2, when.shape[1]))
        each = (chances.astype(np.float32) for chances in (first, following, gap, when, season))
        laws[branch.name] = _dated(CourseLaws(course=course, **dict(zip(ARRAYS, each, strict=True))), number)
    return laws


def _chain(state: Doubles, number: Doubles, tables: Mapping[str, tuple[Doubles, float]]) -> tuple[Doubles, Doubles]:
    """The first law and the transitions of each class."""
    ks = np.arange(1, number.shape[1])
    several = number[:, 2:] / np.arange(1, ks.size)
    some, alone = number[:, 1:].sum(axis=1, keepdims=True), (number[:, 1:] @ (1 / ks))[:, None]
    whole = state * some
    # A first event is one of all: no class has more of a level at first than in all.
    most, ratio, first = 0.98 * whole / alone, np.ones(state.shape[1]), state
    wanted = drawn_to(tables["first"][0], whole.mean(axis=0), tables["first"][1])
    for _ in range(_FIRST_ROUNDS):
        ratio *= wanted / (first * some).mean(axis=0)
        first = state * ratio
        for _ in range(_SCALINGS):
            first = np.minimum(first / first.sum(axis=1, keepdims=True), most)
        first /= first.sum(axis=1, keepdims=True)
    into = np.maximum(whole - alone * first, _TINY)
    # How much of its steps a class has left to do after each event, per step.
    left = np.cumsum(several[:, ::-1], axis=1)[:, ::-1]
    last, common, target = alone * state, np.ones((state.shape[1],) * 2), None
    rows = np.ones_like(state)
    for _ in range(_ROUNDS):
        out = np.maximum(whole - last, _TINY)
        out *= into.sum(axis=1, keepdims=True) / out.sum(axis=1, keepdims=True)
        for _ in range(_SCALINGS):
            columns = into / (rows @ common)
            rows = out / (columns @ common.T)
        following = common * (columns / columns.max(axis=1, keepdims=True))[:, None, :] ** _KEPT
        following /= following.sum(axis=2, keepdims=True)
        law, last, leaving = first, np.zeros_like(state), np.zeros_like(state)
        for k in ks:
            last = last + number[:, k : k + 1] / k * law
            if k < ks.size:
                leaving += left[:, k - 1 : k] * law
                law = np.einsum("hs,hst->ht", law, following)
        steps = np.einsum("hs,hst->st", leaving, following) / len(state)
        if target is None:
            target = drawn_to(tables["next"][0], steps, tables["next"][1])
        common *= target / steps
    return first, following


def _gaps(tables: Mapping[str, tuple[Doubles, float]], states: int) -> Doubles:
    """The law of gaps by the bin of the number of events and by the state before: as if the two went apart."""
    by_number, variance = tables["gaps"]
    precision = 1 / (variance * len(by_number))
    overall: Doubles = by_number.sum(axis=0) * precision
    if "gap" in tables:
        by_state, of_state = tables["gap"]
        each = 1 / (of_state * states)
        overall, precision = overall + by_state.sum(axis=0) * each, precision + each
    total = max(float(overall.sum() / precision), _TINY)
    # Of a gap that is rarer than noise can tell, no state and no number of events has many times more.
    unsure = 1 / (math.sqrt(precision) * total)
    overall = project(overall / precision, total) / total + _RARE / overall.size

    def law(noisy: Doubles, variance: float) -> Doubles:
        rows = np.maximum(noisy.sum(axis=1, keepdims=True), _TINY)
        found = drawn_to(noisy, rows * overall, variance)
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    of_number = law(by_number, variance)
    ratio = (law(by_state, of_state) + unsure) / (overall + unsure) if "gap" in tables else np.ones((1, 1))
    gap = of_number[:, None, :] * ratio
    return np.asarray(gap / gap.sum(axis=2, keepdims=True))


def _dated(laws: CourseLaws, number: Doubles) -> CourseLaws:
    """The laws with seasons such that drawn events, each weighing 1/k, have the wanted dates for every bin of k."""
    course, wanted = laws.course, laws.when.astype(np.float64)
    edges, ks = np.array(course.edges), np.arange(number.shape[1])
    bin_of = np.searchsorted(np.array(course.numbers), ks, side="right") - 2
    of_bins = np.add.reduceat(number, course.numbers[1:-1], axis=1)
    target = of_bins.T @ wanted / np.maximum(of_bins.sum(axis=0), _TINY)[:, None] + _RARE / edges.size
    people, rng = int(min(_PEOPLE, _EVENTS / max(float((number @ ks).mean()), 1))), stream(_SEED, 3)
    of_class, season = np.arange(people) % len(wanted), np.ones_like(target)
    counts = level_drawer(number, Cells([ks.size]))(of_class, rng)[0]
    whose = np.repeat(counts, counts)
    for _ in range(_DATE_ROUNDS):
        # The same random numbers: what is drawn differs from round to round by the seasons alone.
        _, _, dates = Chain(laws).draw(of_class, counts, stream(_SEED, 4))
        place = bin_of[whose] * target.shape[1] + dates
        here = np.bincount(place, weights=1 / whose, minlength=target.size).reshape(target.shape)
        # Counts of nothing are whole numbers, whatever weights they have.
        here = here / np.maximum(here.sum(axis=1, keepdims=True), _TINY)
        season *= np.clip(target / (here + _RARE / edges.size), 0.5, 2.0)
        season /= season.sum(axis=1, keepdims=True)
        laws = replace(laws, season=season.astype(np.float32))
    return laws
