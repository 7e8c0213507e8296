"""The custodian's own report, PRIVATE everywhere: what is shown here, in the words of `templates/private.html.j2`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sklar.answer.report import svg
from sklar.answer.report.render import short
from sklar.custodian.check import Hidden
from sklar.custodian.evaluate import NOTICE, Evaluation
from sklar.custodian.evaluate.conjunctions import Answers
from sklar.custodian.evaluate.dependence import PairFit
from sklar.custodian.evaluate.raw import Floats
from sklar.custodian.evaluate.verdict import LIMITS, PERCENTILES, VERDICTS, ColumnFit, Numbers, text
from sklar.public.schema import Attribute
from sklar.public.shown import shown_levels, shown_name, with_unit

MARK = "PRIVATE"
# These limits keep the page readable however wide the table is.
MAX_ATTRIBUTES = MAX_CHARTS = 300
MAX_PAIRS = 100
_BARS, _CELLS = 20, 9


def view(evaluation: Evaluation, true: Answers, given: Answers) -> Hidden:
    """What the report on an evaluation of these answers shows; counts are scaled to the number of real rows."""
    above = [each.name for each, _ in evaluation.worst if isinstance(each, ColumnFit)]
    rest = [each for each in evaluation.ranked if each.name not in above]
    shown = Hidden(banner=NOTICE, evaluation=evaluation, limits=LIMITS, dependence=[*_dependence(evaluation)], worst=[])
    for each, why in evaluation.worst:
        pair = {"why": why, "is_pair": isinstance(each, PairFit)}
        shown["worst"].append(_chart(evaluation, each, true, given) | pair)
    shown["verdicts"] = list(zip(*evaluation.to_columns().values(), strict=True))[:MAX_ATTRIBUTES]
    shown["charts"] = [_chart(evaluation, each, true, given) for each in rest[:MAX_CHARTS]]
    shown["percentiles"] = [f"{at}%" for at in PERCENTILES]
    shown["quantiles"] = [*_quantiles(evaluation.ranked[:MAX_ATTRIBUTES])]
    return shown


def _quantiles(columns: Sequence[ColumnFit]) -> Iterator[tuple[str, ...]]:
    """Percentiles of the numbers of each column, the real ones first."""
    for each in columns:
        name = short(shown_name(each.attribute), 60)
        for title, held in () if each.numbers is None else ((name, each.numbers.real), ("", each.numbers.synthetic)):
            points = (text(each.attribute, value) for value in held.percentiles(PERCENTILES))
            yield title, "real" if title else "synthetic", *points


def _chart(evaluation: Evaluation, column: ColumnFit | PairFit, true: Answers, given: Answers) -> Hidden:
    """The chart of one column, or of a pair. Where numbers were not compared, levels are drawn."""
    if isinstance(column, PairFit):
        return _pair(column, true, given)
    title = short(with_unit(column.attribute, shown_name(column.attribute)), 90)
    if column.numbers is not None:
        return draw_numbers(title, column, column.numbers, (evaluation.real_rows, evaluation.synthetic_rows))
    own = true.schema.cells.levels(true.schema.names.index(column.name))
    real, other = (each.one_way[own] / each.n_rows for each in (true, given))
    # The levels in the order of the schema: all, or the largest.
    largest, levels = np.argsort(-np.maximum(real, other), kind="stable")[:_BARS], shown_levels(column.attribute)
    entries = [(levels[k], float(real[k]), float(other[k])) for k in np.sort(largest)]
    left_out = len(levels) - len(entries)
    told = f"{column.told}" + (f"; {left_out:,} smaller levels not shown" if left_out else "")
    bars = svg.paired_bars(entries, title=f"Levels of {title}", description=told)
    return Hidden(name=title, told=told, verdict=column.verdict, numbers=None, bars=bars)


def _pair(pair: PairFit, true: Answers, given: Answers) -> Hidden:
    """A pair's table of levels in both tables, and their difference; neighbors, or all rare levels, are together."""
    first, second = sorted(map(true.schema.names.index, pair.columns))
    own = [true.schema.attributes[at] for at in (first, second)]
    tables = [true.schema.cells.table(each.two_way, first, second) / each.n_rows for each in (true, given)]
    parts = [together(each, (tables[0] + tables[1]).sum(axis=1 - at)) for at, each in enumerate(own)]
    real, other = (parts[0][1] @ table @ parts[1][1].T for table in tables)
    name, labels = short(pair.name, 90), (parts[0][0], parts[1][0])
    told = f"association {pair.association[1]:.2f} for {pair.association[0]:.2f}"
    shown = {"real": real, "synthetic": other, "difference": other - real}
    drawn = svg.grids(shown, labels, title=f"Rows by {name}", description=told)
    return Hidden(name=name, told=told, verdict=pair.verdict, numbers=drawn, bars=None)


def together(attribute: Attribute, shares: Floats) -> tuple[list[str], Floats]:
    """At most `_CELLS` groups of levels, of neighbors or of rare ones: labels, and shape (groups, levels) who is in."""
    levels, places = shown_levels(attribute), np.arange(attribute.n_levels)
    if places.size <= _CELLS:
        return list(levels), np.eye(places.size)
    if attribute.binned:
        groups = places * _CELLS // places.size
        held = [np.flatnonzero(groups == at) for at in range(_CELLS)]
        labels = [levels[each[0]] + " …" * (each.size > 1) for each in held]
    else:
        common = np.sort(np.argsort(-shares, kind="stable")[: _CELLS - 1])
        groups = np.where(np.isin(places, common), np.searchsorted(common, places), _CELLS - 1)
        labels = [*(levels[k] for k in common), "all others"]
    return labels, (groups == np.arange(_CELLS)[:, None]).astype(float)


def draw_numbers(name: str, column: ColumnFit, numbers: Numbers, rows: tuple[int, int]) -> Hidden:
    """The numbers of a column on an axis, and its missing values and texts as bars below: shares of all rows."""
    both = numbers.real, numbers.synthetic
    told = column.told
    entries = [(each.what, each.real, each.synthetic) for each in column.absent]
    shares = [(each.center, each.counts / n) for each, n in zip(both, rows, strict=True)]
    drawn = svg.bins(svg.histogram(column.attribute, shares), title=f"Numbers of {name}", description=told)
    bars = svg.paired_bars(entries, title=f"Gaps of {name}", description=told) if entries else None
    return Hidden(name=name, told=told, verdict=column.verdict, numbers=drawn, bars=bars)


def _dependence(evaluation: Evaluation) -> Iterator[tuple[str, ...]]:
    """The pairs that lose most."""

    def loss(pair: PairFit) -> tuple[int, float]:
        return VERDICTS.index(pair.verdict), abs(pair.association[0] - pair.association[1])

    for pair in sorted(evaluation.pairs, key=loss, reverse=True)[:MAX_PAIRS]:
        why = "; ".join(why.words for why in pair.reasons) or "as its columns" * (pair.verdict != "use")
        yield short(pair.name, 80), pair.verdict, *(f"{value:.2f}" for value in pair.association), why
