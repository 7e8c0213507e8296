"""Linked tables beside the real ones: each by itself, people with their rows, and how rows go together and follow.

PRIVATE, as all evaluations. Everything that a release measures is counted exactly in both, in tokens of people
(`rows.trees`); and beside it how many different levels the rows of a person have, and what their numbers sum to. Shares
are averaged over people; that rows are alike, row by row, `evaluate` says of each table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report import svg
from sklar.answer.report.render import render, short
from sklar.budget.plan import GAP, NUMBER, TOKENS, Side, said_of, sides_of
from sklar.custodian.check import Hidden
from sklar.custodian.evaluate import NOTICE, Evaluation, evaluate, text_table
from sklar.custodian.evaluate.verdict import LIMITS, Reason, Verdict, badness, chance_of_shares, overall, weigh, worst
from sklar.files.write import check_target, write_text
from sklar.machine.notebook import Tabular
from sklar.machine.progress import SILENT, Progress
from sklar.public.attribute import Attribute
from sklar.public.shown import shown_levels
from sklar.public.tree import Tree
from sklar.rows.count import Ask, Exact, ask_all
from sklar.rows.read import as_released
from sklar.rows.trees import LocalTree, People, tables_of

_DISTINCT, _SUMS = "different levels among a person's {of}", "sums over a person's {of}, by tenths"
_SUMMED, _TENTHS = ("integer", "real", "duration"), np.linspace(0.1, 0.9, 9)
_BARS = 20


class Judged(NamedTuple):
    """One table: its kind and name, how far shares lie apart, why not to use it; its largest cells, and all of both."""

    kind: str
    name: str
    lost: float
    reasons: tuple[Reason, ...]
    largest: Sequence[tuple[str, float, float]]
    shares: tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TreeEvaluation(Tabular):
    """How near linked tables come to the real ones: `rows` of each by itself, and people with all their rows."""

    people: tuple[int, int]
    rows: Mapping[str, Evaluation]
    fits: tuple[Judged, ...]

    def __repr__(self) -> str:
        return f"TreeEvaluation({len(self.rows)} tables, {len(self.fits)} comparisons; {NOTICE})"

    @property
    def summary(self) -> list[tuple[str, Verdict, str]]:
        """Of every kind the verdict, and the worst table; those that are not to be used first."""
        told = []
        for kind, own in self.kinds.items():
            reasons = sorted((why for fit in own for why in fit.reasons), key=badness)
            words = f"The worst: {reasons[0].words}" if reasons else "Nothing is lost beyond chance and the limits"
            kept = f"{sum(not fit.reasons for fit in own)} of {len(own)} tables to use"
            verdict = overall([worst(why.verdict for why in fit.reasons) for fit in own])
            told.append((kind, verdict, f"{kept}. {words}"))
        return told

    @property
    def by_row(self) -> list[tuple[str, str]]:
        """The verdicts on each table by itself, in words."""
        each = ((name, own.summary) for name, own in self.rows.items())
        return [(name, ", ".join(f"{what} {verdict}" for what, verdict, _ in own)) for name, own in each]

    @property
    def kinds(self) -> dict[str, list[Judged]]:
        """All tables by kind."""
        return {
            kind: [fit for fit in self.fits if fit.kind == kind] for kind in dict.fromkeys(f.kind for f in self.fits)
        }

    @property
    def worst(self) -> list[Judged]:
        """Of every kind the table that loses most."""
        return [max(own, key=lambda fit: fit.lost) for own in self.kinds.values()]

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each kind of table: how many, how far they lie apart on average, the worst one, the verdict."""
        kinds = self.kinds.values()
        return {
            "what": [*self.kinds],
            "tables": [*map(len, kinds)],
            "distance": [round(float(np.mean([fit.lost for fit in fits])), 3) for fits in kinds],
            "worst": [short(own.name, 36) for own in self.worst],
            "its_distance": [round(own.lost, 3) for own in self.worst],
            "verdict": [verdict for _, verdict, _ in self.summary],
        }

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = {"notice": NOTICE, "people": {"real": self.people[0], "synthetic": self.people[1]}}
        facts |= {"kinds": self.to_columns(), "rows": {name: own.to_dict() for name, own in self.rows.items()}}
        return facts | {"verdicts": {kind: {"verdict": grade, "words": words} for kind, grade, words in self.summary}}

    def lines(self) -> list[str]:
        """For a person to read, the notice first."""
        title, form = "Total variation, averaged over people:", "{:<58}{:>6}{:>8}  {:<36}{:>6}  {}"
        rows = [tuple(map(str, row)) for row in zip(*self.to_columns().values(), strict=True)]
        table = text_table(title, form, ("what", "tables", "mean", "the worst", "its", "verdict"), rows)
        own = [f"{name}, row by row: {words}." for name, words in self.by_row]
        return [NOTICE, "", "People: {:,} real, {:,} synthetic.".format(*self.people), *own, *table]


def evaluate_tree(
    real: object, synthetic: object, tree: Tree, *, report: str | Path | None = None, progress: Progress = SILENT
) -> TreeEvaluation:
    """Compare linked synthetic tables with the real ones, each given as to a release. PRIVATE."""
    page = None if report is None else check_target(report, (".html",), real, synthetic)
    both = tables_of(real, tree), tables_of(synthetic, tree)
    drawn = {each.name: as_released(both[1][each.name], each.schema) for each in tree.branches}
    progress.stage("join")
    sides = tuple(side.query for side in sides_of(tree))
    ask = replace(ask_all(tree.joint.measured, sides=sides), tree=tree, each=TOKENS)
    opened = LocalTree(both[0], tree), LocalTree(drawn, tree)
    counted = opened[0].count(ask), opened[1].count(ask)
    progress.stage("compare")
    people = counted[0].n_rows, counted[1].n_rows
    by_person, kept = _by_person(opened, tree, ask)
    fits = (*_measured(counted, tree), *by_person)
    rows = {
        each.name: evaluate(both[0][each.name], both[1][each.name], each.schema, progress=progress)
        for each, some in zip(tree.branches, kept, strict=True)
        if some
    }
    found = TreeEvaluation(people=people, rows=rows, fits=fits)
    if page is not None:
        charts = [(fit, _chart(fit, tree)) for fit in found.worst]
        lines = [*zip(*found.to_columns().values(), strict=True)]
        shown = Hidden(banner=NOTICE, tree=tree, found=found, rows=lines, charts=charts, limits=LIMITS["values"])
        write_text(page, render("sklar.custodian.evaluate", "linked.html.j2", shown), private=True)
    return found


def _chart(fit: Judged, tree: Tree) -> Markup:
    """The largest cells of both tables; of steps from a level to the next how they flow."""
    for side in sides_of(tree):
        if side.kind == "next" and fit.kind == said_of(side.what):
            (state, *_), shape = side.tables[0]
            labels, flows = shown_levels(side.of.schema.attributes[state]), [each.reshape(shape) for each in fit.shares]
            return svg.flows([("real", flows[0]), ("synthetic", flows[1])], labels, fit.kind, fit.name)
    return svg.paired_bars(fit.largest, title=fit.kind, description=fit.name)


def _measured(counted: tuple[Exact, Exact], tree: Tree) -> Iterator[Judged]:
    """All tables that a release measures: those of the joint table by the tables that their attributes are of."""
    joint, cells = tree.joint.measured, tree.joint.measured.cells
    labels, known = [*map(shown_levels, joint.attributes)], dict(zip(tree.joint.names, tree.places, strict=True))
    places = (known[name] for name in joint.names)
    of = ["numbers of rows" if place < 0 else tree.branches[i].name for i, place in places]
    for at, name in enumerate(joint.names):
        yield _fit(f"{of[at]}, one attribute", name, labels[at], [each.one_way[cells.levels(at)] for each in counted])
    for one, two in zip(*cells.pairs, strict=True):
        apart = sorted((of[one], of[two]), key=of.index)
        kind = f"{of[one]}, two attributes" if of[one] == of[two] else " and ".join(apart)
        both = [", ".join(pair) for pair in product(labels[one], labels[two])]
        tables = [cells.table(each.pairs, int(one), int(two)).ravel() for each in counted]
        yield _fit(kind, f"{joint.names[one]} x {joint.names[two]}", both, tables)
    for side, *tokens in zip(sides_of(tree), *(each.tables[2:] for each in counted), strict=True):
        split = (np.split(each, np.cumsum(side.lengths)[:-1]) for each in tokens)
        for (axes, shape), *own in zip(side.tables, *split, strict=True):
            named = [side.of.schema.names[axis] for axis in axes if axis >= 0]
            along = [_labels(side, axis, size) for axis, size in zip(axes, (*shape, shape[-1]), strict=False)]
            pairs = combinations_with_replacement(along[0], 2) if side.kind == "two" else product(*along)
            yield _fit(said_of(side.what), " x ".join(named), [", ".join(pair) for pair in pairs], own)


def _labels(side: Side, axis: int, size: int) -> Sequence[str]:
    """What stands along an axis of a side: levels, bins of the number of rows or of gaps, or plain numbers."""
    if axis >= 0:
        return shown_levels(side.of.schema.attributes[axis])
    course = side.of.course
    edges = side.of.bins[2:] if axis == NUMBER else course.gaps if axis == GAP and course else range(size + 1)
    return [f"{low}" if low + 1 == end else f"{low} to {end - 1}" for low, end in pairwise(edges)]


def _fit(kind: str, name: str, labels: Sequence[str], tokens: Sequence[Any]) -> Judged:
    """The total variation of two tables of tokens, or of people: chance is that of people with one row, or less."""
    totals = [float(each.sum()) for each in tokens]
    real, other = (each / max(total, 1e-300) for each, total in zip(tokens, totals, strict=True))
    lost = float(np.abs(real - other).sum()) / 2 if all(totals) else float(any(totals))
    chance = chance_of_shares(real, (max(round(totals[0] / TOKENS), 1), max(round(totals[1] / TOKENS), 1)))
    words = f"{kind}{f' ({name})' if name else ''}, total variation {lost:.3f}"
    largest = np.sort(np.argsort(-np.maximum(real, other), kind="stable")[:_BARS]).tolist()
    bars = [(labels[at], float(real[at]), float(other[at])) for at in largest]
    return Judged(kind, name, lost, tuple(weigh("values", lost, chance, words)), bars, (real, other))


def _by_person(opened: tuple[LocalTree, LocalTree], tree: Tree, ask: Ask) -> tuple[list[Judged], list[bool]]:
    """How many different levels a person's rows have, and what their numbers sum to, by midpoints of bins; and whether
    both have rows of each table.
    """
    seen: dict[tuple[int, int], list[list[tuple[Any, Any]]]] = defaultdict(lambda: [[], []])
    kept, below = np.zeros((2, len(tree.branches)), dtype=np.int64), (i for i, above in tree.above.items() if not above)
    every = [(i, at) for i in below for at in range(tree.branches[i].schema.n_attributes)]
    for which, table in enumerate(opened):
        for people in (People(records, ask) for records in table.people(ask)):
            kept[which] += people.kept
            for i, place in every:
                attribute, codes = tree.branches[i].schema.attributes[place], people.rows[i][f"code {place}"].to_numpy()
                owner, codes = people.owner[i][codes >= 0], codes[codes >= 0].astype(np.int64)
                some, n = np.bincount(people.owner[i], minlength=people.n_people) > 0, people.n_people
                levels = np.bincount(np.unique(owner * attribute.n_levels + codes) // attribute.n_levels, minlength=n)
                seen[i, place][which].append((levels[some], np.bincount(owner, _scores(attribute)[codes], n)[some]))
    fits = []
    for (i, place), both in seen.items():
        name, attribute = tree.branches[i].name, tree.branches[i].schema.attributes[place]
        (one, first), (two, second) = ([np.concatenate(part) for part in zip(*own, strict=True)] for own in both)
        counts = [np.bincount(each, minlength=attribute.n_levels + 1) * TOKENS for each in (one, two)]
        labels = [str(n) for n in range(attribute.n_levels + 1)]
        fits.append(_fit(_DISTINCT.format(of=name), attribute.name, labels, counts))
        if attribute.edges and attribute.kind in _SUMMED and first.size:
            cuts = np.unique(np.quantile(first, _TENTHS))
            found = (np.searchsorted(cuts, each) for each in (first, second))
            tenths = [np.bincount(each, minlength=cuts.size + 1) * TOKENS for each in found]
            labels = [*(f"to {cut:,.6g}" for cut in cuts), "above"]
            fits.append(_fit(_SUMS.format(of=name), attribute.name, labels, tenths))
    return fits, [bool(own.all()) for own in kept.T]


def _scores(attribute: Attribute) -> NDArray[np.float64]:
    """The midpoint of each bin, and each point; 0 for what is no number."""
    scores = np.zeros(attribute.n_levels)
    if attribute.edges:
        edges = np.asarray(attribute.edges, dtype=np.float64)
        scores[attribute.bin_codes], scores[attribute.point_codes] = (edges[:-1] + edges[1:]) / 2, attribute.points
    return scores
