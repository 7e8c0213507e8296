"""Two linked tables beside the real ones: people, what their events are, and how events go with people and each other.

PRIVATE, as all evaluations. Every table that a release measures is counted exactly in both, in tokens of people
(`rows.shares`); and beside them how many different levels the events of a person have, and what their numbers sum to.
Shares of events are averaged over people with events: `evaluate` compares each table by itself, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sklar.answer.report import svg
from sklar.answer.report.render import render, short
from sklar.budget.plan import KINDS, TOKENS, LinkedTable, Plan, linked_queries, linked_tables
from sklar.custodian.check import Hidden
from sklar.custodian.evaluate import NOTICE, text_table
from sklar.custodian.evaluate.verdict import LIMITS, Reason, Verdict, badness, chance_of_shares, overall, weigh, worst
from sklar.files.write import check_target, write_text
from sklar.machine.notebook import Tabular
from sklar.machine.progress import SILENT, Progress
from sklar.public.events import Linked
from sklar.public.shown import shown_levels
from sklar.rows.read import as_released
from sklar.rows.shares import Joined, count_tokens, join

# What the axes of tables are: attributes of people or of events, or bins of the number of events. Others are numbers.
_AXES = {"person": "p", "person-person": "pp", "person-event": "pe", "event-event": "ee", "event": "e"}
_AXES |= {"number-person": "bp", "number-event": "be", "two-events": "e"}
# Kinds that are of one table alone; all others say how the two go together.
_ALONE = {"People": ("person", "person-person"), "Events": ("event", "event-event")}
_DISTINCT, _SUMS = "different levels among a person's events", "sums over a person's events, by tenths"
_SUMMED, _TENTHS = ("integer", "real", "duration"), np.linspace(0.1, 0.9, 9)
_BARS = 20


class Judged(NamedTuple):
    """One table: of which part, kind and name, how far shares lie apart, why not to use it; its largest cells."""

    part: str
    kind: str
    name: str
    lost: float
    reasons: tuple[Reason, ...]
    largest: Sequence[tuple[str, float, float]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LinkedEvaluation(Tabular):
    """How near two linked tables come to the real ones, table by table; `sizes` are people and events, real first."""

    sizes: tuple[tuple[int, int], tuple[int, int]]
    fits: tuple[Judged, ...]

    def __repr__(self) -> str:
        return f"LinkedEvaluation({len(self.fits)} tables; {NOTICE})"

    @property
    def summary(self) -> list[tuple[str, Verdict, str]]:
        """People, events, and both together: the verdict on the worst kind of table, and the worst table."""
        told, kinds = [], dict(zip(*(self.to_columns()[name] for name in ("what", "verdict")), strict=True))
        for part in (*_ALONE, "Together"):
            own = [fit for fit in self.fits if fit.part == part]
            reasons = sorted((why for fit in own for why in fit.reasons), key=badness)
            words = f"The worst: {reasons[0].words}" if reasons else "Nothing is lost beyond chance and the limits"
            kept = f"{sum(not fit.reasons for fit in own)} of {len(own)} tables to use"
            told.append((part, worst(kinds[fit.kind] for fit in own), f"{kept}. {words}"))
        return told

    @property
    def worst(self) -> list[Judged]:
        """Of every kind the table that loses most."""
        kinds = dict.fromkeys(fit.kind for fit in self.fits)
        return [max((fit for fit in self.fits if fit.kind == kind), key=lambda fit: fit.lost) for kind in kinds]

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each kind of table: how many, how far they lie apart on average, the worst one, the verdict."""
        kinds = [[fit for fit in self.fits if fit.kind == own.kind] for own in self.worst]
        return {
            "what": [own.kind for own in self.worst],
            "tables": [len(fits) for fits in kinds],
            "distance": [round(float(np.mean([fit.lost for fit in fits])), 3) for fits in kinds],
            "worst": [short(own.name, 36) for own in self.worst],
            "its_distance": [round(own.lost, 3) for own in self.worst],
            "verdict": [overall([worst(why.verdict for why in fit.reasons) for fit in fits]) for fits in kinds],
        }

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = {"notice": NOTICE, "real": self.sizes[0], "synthetic": self.sizes[1], "kinds": self.to_columns()}
        return facts | {part: {"verdict": verdict, "words": words} for part, verdict, words in self.summary}

    def lines(self) -> list[str]:
        """For a person to read, the notice first."""
        real, synthetic = ("{:,} people with {:,} events".format(*each) for each in self.sizes)
        title, form = "Total variation, shares of events averaged over people:", "{:<52}{:>6}{:>9}  {:<36}{:>6}  {}"
        rows = [tuple(map(str, row)) for row in zip(*self.to_columns().values(), strict=True)]
        table = text_table(title, form, ("what", "tables", "mean", "the worst", "its", "verdict"), rows)
        verdicts = [f"{part}: {verdict}. {words}." for part, verdict, words in self.summary]
        return [NOTICE, "", f"Real: {real}. Synthetic: {synthetic}.", *verdicts, *table]


def evaluate_linked(
    real: tuple[object, object],
    synthetic: tuple[object, object],
    schema: Linked | str | Path,
    *,
    report: str | Path | None = None,
    progress: Progress = SILENT,
) -> LinkedEvaluation:
    """Compare two linked synthetic tables, people and events, with the real ones. PRIVATE, for the custodian's eyes.

    `report` (.html) is a file to write, PRIVATE as well.
    """
    page = None if report is None else check_target(report, (".html",), *real, *synthetic, schema)
    linked = Linked.of(schema)
    progress.stage("join")
    drawn = as_released(synthetic[0], linked.people), as_released(synthetic[1], linked.events)
    both = join(*real, linked), join(*drawn, linked)
    progress.stage("compare")
    first, second = ((each.n_people, int(each.begins[-1])) for each in both)
    found = LinkedEvaluation(sizes=(first, second), fits=(*_measured(both, linked), *_by_person(both, linked)))
    if page is not None:
        charts = [(fit, svg.paired_bars(fit.largest, title=fit.kind, description=fit.name)) for fit in found.worst]
        rows = [*zip(*found.to_columns().values(), strict=True)]
        shown = Hidden(banner=NOTICE, linked=linked, found=found, rows=rows, charts=charts, limits=LIMITS["values"])
        write_text(page, render("sklar.custodian.evaluate", "linked.html.j2", shown), private=True)
    return found


def _measured(both: tuple[Joined, Joined], linked: Linked) -> Iterator[Judged]:
    """All tables that a release measures; the halves of one-way tables of events as one."""
    queries = linked_queries(linked, TOKENS, total=False)
    plan, known = Plan(parts=tuple((query, np.ones(query.sizes.size)) for query in queries)), linked_tables(linked)
    for query, *tokens in zip(queries, *(count_tokens(each, linked, plan) for each in both), strict=True):
        split = (np.split(each / query.each, np.cumsum(query.sizes)[:-1]) for each in tokens)
        for table, *cells in zip(known[query.what], *split, strict=True):
            name, labels = _named(table, linked)
            yield _fit(query.what, name, labels, [each.reshape(-1, len(labels)).sum(axis=0) for each in cells])


def _named(table: LinkedTable, linked: Linked) -> tuple[str, list[str]]:
    """The attributes that a table is about, and what its cells are."""
    names, labels, places = list[str](), list[Sequence[str]](), iter((table.first, table.second))
    bins = [f"{low}" if low + 1 == end else f"{low} to {end - 1}" for low, end in pairwise(linked.bins)]
    axes = _AXES.get(table.kind, "n" * len(table.shape))
    for axis, size in zip(axes, table.shape[-len(axes) :], strict=True):
        if axis in "pe":
            attribute = (linked.people if axis == "p" else linked.events).attributes[next(places)]
            names.append(attribute.name)
            labels.append(shown_levels(attribute))
        else:
            labels.append(bins[-size:] if axis == "b" else [str(number) for number in range(size)])
    cells = combinations_with_replacement(labels[0], 2) if table.kind == "two-events" else product(*labels)
    return " x ".join(names), [", ".join(cell) for cell in cells]


def _fit(kind: str, name: str, labels: Sequence[str], cells: Sequence[Any]) -> Judged:
    """The total variation of two tables, in people: chance is that of people with one event each, or less."""
    part = next((part for part, kinds in _ALONE.items() if kind in kinds), "Together")
    kind, totals = KINDS[kind][1] if kind in KINDS else kind, [float(each.sum()) for each in cells]
    real, other = (each / max(total, 1e-300) for each, total in zip(cells, totals, strict=True))
    lost = float(np.abs(real - other).sum()) / 2 if all(totals) else float(any(totals))
    chance = chance_of_shares(real, (max(round(totals[0]), 1), max(round(totals[1]), 1)))
    words = f"{kind}{f' ({name})' if name else ''}, total variation {lost:.3f}"
    largest = np.sort(np.argsort(-np.maximum(real, other), kind="stable")[:_BARS]).tolist()
    bars = [(labels[at], float(real[at]), float(other[at])) for at in largest]
    return Judged(part, kind, name, lost, tuple(weigh("values", lost, chance, words)), bars)


def _by_person(both: tuple[Joined, Joined], linked: Linked) -> Iterator[Judged]:
    """How many different levels a person's events have, and what their numbers sum to, by midpoints of bins."""
    for place, attribute in enumerate(linked.events.attributes):
        size, scores, distinct, sums = attribute.n_levels, np.zeros(attribute.n_levels), list[Any](), list[Any]()
        if attribute.edges:
            edges = np.asarray(attribute.edges, dtype=np.float64)
            scores[attribute.bin_codes], scores[attribute.point_codes] = (edges[:-1] + edges[1:]) / 2, attribute.points
        for joined in both:
            codes, some = joined.events[place].astype(np.int64), joined.numbers > 0
            owner = np.repeat(np.arange(joined.n_people), joined.numbers)[codes >= 0]
            codes = codes[codes >= 0]
            levels = np.bincount(np.unique(owner * size + codes) // size, minlength=joined.n_people)[some]
            distinct.append(np.bincount(levels, minlength=size + 1))
            sums.append(np.bincount(owner, scores[codes], joined.n_people)[some])
        yield _fit(_DISTINCT, attribute.name, [str(number) for number in range(size + 1)], distinct)
        if attribute.edges and attribute.kind in _SUMMED and sums[0].size:
            cuts = np.unique(np.quantile(sums[0], _TENTHS))
            tenths = [np.bincount(np.searchsorted(cuts, each), minlength=cuts.size + 1) for each in sums]
            yield _fit(_SUMS, attribute.name, [*(f"to {cut:,.6g}" for cut in cuts), "above"], tenths)
