"""What a release lost, by pandas and NumPy on raw values, with definitions of its own: no sklar here.

`judge(real, synthetic)` takes two data frames of texts and calls columns and pairs bad by the thresholds below. It is
written to contradict `sklar evaluate`: whatever it calls bad, evaluate may not call "use". Every threshold has an
allowance for chance, so that two halves of one table are not bad (`python -m benchmarks.raw --halves` tries that).

Relative errors are of the real figure where no number is negative, else of at least a standard deviation.
A column is a number where 95% of its real values are numbers, more than 20 of them different; a time likewise; anything
else is a category. Of categories, the value itself is compared, whatever a release made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

# A column is bad beyond these, plus chance.
OVERLAP_LOST, KS, RELATIVE, MISSING, CLOCK = 0.2, 0.1, 0.25, 0.1, 0.2
# A pair is bad when its association is off by this, or the medians of its groups by this share of the ranks.
ASSOCIATION, RANKS = 0.2, 0.15
# Standard errors that chance may take.
SURE = 4.0
FEW_VALUES, LEAST_GROUP, MAX_PAIRS, MAX_ROWS, MAX_LEVELS = 20, 50, 400, 20_000, 30
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
_NOTHING = ("", "NA", "NaN", "nan", "None", "null", "?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one column or pair lost: its figures, and why it is bad, if it is."""

    names: tuple[str, ...]
    kind: str
    figures: dict[str, float] = field(default_factory=dict)
    bad: tuple[str, ...] = ()


def numbers(texts: pd.Series) -> pd.Series:
    """The numbers among texts, nan elsewhere."""
    return pd.to_numeric(texts, errors="coerce").astype(float).replace([np.inf, -np.inf], np.nan)


def times(texts: pd.Series) -> pd.Series:
    """The moments among texts as seconds since 1970 (times of day since midnight), nan elsewhere."""
    dated = texts.where(~texts.str.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", na=False), "1970-01-01 " + texts)
    dated = dated.str.replace("/", "-", regex=False)
    written = dated.where(dated.str.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?Z?", na=False))
    read = pd.to_datetime(written.str.rstrip("Z"), errors="coerce", format="ISO8601")
    return ((read - pd.Timestamp(0)) / pd.Timedelta(seconds=1)).astype(float)


def kind_of(texts: pd.Series) -> str:
    """Number, time or category, by the real values alone."""
    held = texts[~texts.isin(_NOTHING)].dropna()
    for kind, read in (("number", numbers), ("time", times)):
        found = read(held).dropna()
        if held.size and found.size >= 0.95 * held.size and found.nunique() > FEW_VALUES:
            return kind
    return "category"


def labels(texts: pd.Series) -> pd.Series:
    """Values as texts, equal where a person calls them equal: 1.0 is 1, and all that is missing is one value."""
    read = numbers(texts)
    short = read.map(lambda value: f"{value:.10g}", na_action="ignore")
    return texts.where(read.isna(), short).mask(texts.isna() | texts.isin(_NOTHING), "(missing)")


def overlap(real: pd.Series, synthetic: pd.Series) -> float:
    """The sum over values of the smaller of both shares: 1 less total variation."""
    one, two = (each.value_counts(normalize=True) for each in (real, synthetic))
    return float(np.minimum(one, two.reindex(one.index, fill_value=0.0)).sum())


def overlap_by_chance(real: pd.Series, rows: int, generator: np.random.Generator) -> float:
    """The overlap of as many rows drawn from the real values themselves."""
    shares = real.value_counts(normalize=True).to_numpy()
    drawn = generator.multinomial(rows, shares / shares.sum(), size=5) / rows
    return float(np.minimum(drawn, shares).sum(axis=1).mean())


def ks(real: np.ndarray, synthetic: np.ndarray) -> float:
    """The largest difference of the distribution functions."""
    at = np.unique(np.concatenate([real, synthetic]))
    shares = [np.searchsorted(np.sort(each), at, side="right") / each.size for each in (real, synthetic)]
    return float(np.abs(shares[0] - shares[1]).max())


def _spread(shares: np.ndarray, n: int, m: int) -> float:
    """By how much chance may move a sum of |differences| of shares, halved."""
    return float(SURE / 2 * np.sqrt(shares * (1 - shares)).sum() * np.sqrt(1 / n + 1 / m) / np.sqrt(shares.size))


def column(name: str, kind: str, real: pd.Series, synthetic: pd.Series, generator: np.random.Generator) -> Loss:
    """One column's losses."""
    figures: dict[str, float] = {}
    bad: list[str] = []
    if kind == "category":
        one, two = labels(real), labels(synthetic)
        figures["overlap"], usual = overlap(one, two), overlap_by_chance(one, two.size, generator)
        figures["present"] = float(one.isin(set(two)).mean())
        if figures["overlap"] < usual - OVERLAP_LOST:
            bad.append(f"{figures['overlap']:.0%} of the values survive, {usual:.0%} by chance")
        return Loss(names=(name,), kind=kind, figures=figures, bad=tuple(bad))
    read = numbers if kind == "number" else times
    one, two = (read(each) for each in (real, synthetic))
    gone = [float(each.isna().mean()) for each in (one, two)]
    figures["missing"] = abs(gone[0] - gone[1])
    if figures["missing"] > MISSING + SURE * 0.5 * np.sqrt(1 / one.size + 1 / two.size):
        bad.append(f"missing {gone[1]:.0%} for {gone[0]:.0%}")
    a, b = (each.dropna().to_numpy() for each in (one, two))
    if a.size < 2 or b.size < 2:
        return Loss(names=(name,), kind=kind, figures=figures, bad=(*bad, "no numbers"))
    n, m = a.size, b.size
    figures["ks"] = ks(a, b)
    if figures["ks"] > KS + 1.95 * np.sqrt(1 / n + 1 / m):
        bad.append(f"KS {figures['ks']:.2f}")
    if kind == "number":
        size = max(abs(a.mean()), least := 1e-300 if a.min() >= 0 else a.std())
        figures["mean"] = abs(b.mean() - a.mean()) / size
        if figures["mean"] > RELATIVE and abs(b.mean() - a.mean()) > SURE * a.std() * np.sqrt(1 / n + 1 / m):
            bad.append(f"mean {b.mean():.4g} for {a.mean():.4g}")
        off = []
        for q in QUANTILES:
            true, given, slack = np.quantile(a, q), np.quantile(b, q), SURE * np.sqrt(q * (1 - q) * (1 / n + 1 / m))
            low, high = np.quantile(a, [max(q - slack, 0.0), min(q + slack, 1.0)])
            relative = abs(given - true) / max(abs(true), least, 0.01 * a.std())
            off.append(relative)
            # At the end of the numbers nothing is known of what lies beyond.
            beyond = given < low or (given > high and q + slack < 1)
            if relative > 2 * RELATIVE and beyond:
                bad.append(f"{q:.0%} quantile {given:.4g} for {true:.4g}")
        figures["quantiles"] = float(np.median(off))
    else:
        for what, unit, size in (("hour", 3_600, 24), ("weekday", 86_400, 7)):
            counts = [np.bincount((each // unit % size).astype(int), minlength=size) / each.size for each in (a, b)]
            figures[what] = float(np.abs(counts[0] - counts[1]).sum() / 2)
            if figures[what] > CLOCK + _spread(counts[0], n, m):
                bad.append(f"{what} of the {'day' if what == 'hour' else 'week'} off by {figures[what]:.2f}")
    return Loss(names=(name,), kind=kind, figures=figures, bad=tuple(bad))


def _codes(texts: pd.Series, kept: pd.Index) -> np.ndarray:
    """The places of the commonest real values, and one more for all others."""
    places = kept.get_indexer(texts)
    return np.asarray(np.where(places < 0, kept.size, places))


def _ranked(values: np.ndarray) -> np.ndarray:
    return np.asarray(pd.Series(values).rank())


def associate(kinds: tuple[str, ...], one: np.ndarray, two: np.ndarray) -> float:
    """Spearman's correlation, the correlation ratio of ranks by groups, or Cramer's V; the last two without bias."""
    n = one.size
    if n < 3:
        return 0.0
    if kinds == ("number", "number"):
        first, second = _ranked(one), _ranked(two)
        if first.std() == 0 or second.std() == 0:
            return 0.0
        return float(np.corrcoef(first, second)[0, 1])
    if "number" in kinds:
        ranks, groups = (one, two) if kinds[0] == "number" else (two, one)
        ranks = _ranked(ranks)
        if ranks.std() == 0:
            return 0.0
        held = np.unique(groups, return_inverse=True)[1]
        sizes, sums = np.bincount(held), np.bincount(held, weights=ranks)
        between = float((sums**2 / sizes).sum() / n - ranks.mean() ** 2) / ranks.var()
        # Epsilon squared: what chance makes of as many groups is taken off.
        return float(np.sqrt(max(0.0, 1 - (1 - between) * (n - 1) / max(n - sizes.size, 1))))
    table = pd.crosstab(one, two).to_numpy().astype(float)
    expected = np.outer(table.sum(1), table.sum(0)) / n
    phi = float(((table - expected) ** 2 / expected).sum()) / n
    rows, columns = table.shape
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (n - 1))
    rows, columns = rows - (rows - 1) ** 2 / (n - 1), columns - (columns - 1) ** 2 / (n - 1)
    return float(np.sqrt(phi / max(min(rows, columns) - 1, 1e-9))) if min(rows, columns) > 1 else 0.0


def _values(kind: str, real: pd.Series, synthetic: pd.Series) -> tuple[np.ndarray, np.ndarray, pd.Index | None]:
    if kind == "category":
        one, two = labels(real), labels(synthetic)
        kept = one.value_counts().index[:MAX_LEVELS]
        return _codes(one, kept).astype(float), _codes(two, kept).astype(float), kept
    read = numbers if kind == "number" else times
    return read(real).to_numpy(), read(synthetic).to_numpy(), None


def pair(names: tuple[str, str], kinds: tuple[str, str], one: Any, two: Any) -> Loss:
    """One pair's losses: `one` and `two` are the (real, synthetic, kept) values of both columns."""
    scale = tuple("number" if kind == "time" else kind for kind in kinds)
    figures: dict[str, float] = {}
    bad: list[str] = []
    sides = []
    for side in (0, 1):
        here = ~(np.isnan(one[side]) | np.isnan(two[side]))
        sides.append((one[side][here], two[side][here]))
    (a, b), (c, d) = sides
    figures["real"], figures["synthetic"] = (associate(scale, *each) for each in sides)
    figures["apart"] = abs(figures["real"] - figures["synthetic"])
    n, m = a.size, c.size
    if n < LEAST_GROUP:
        return Loss(names=names, kind=" x ".join(kinds), figures=figures)
    chance = SURE * np.sqrt(1 / n + 1 / max(m, 1))
    if figures["apart"] > ASSOCIATION + chance:
        bad.append(f"association {figures['synthetic']:.2f} for {figures['real']:.2f}")
    if sorted(scale) == ["category", "number"]:
        (values, groups), (other, given) = ((a, b), (c, d)) if scale[0] == "number" else ((b, a), (d, c))
        ordered, off, weight = np.sort(values), 0.0, 0
        for group in np.unique(groups):
            mine, theirs = values[groups == group], other[given == group]
            if mine.size < LEAST_GROUP:
                continue
            ranks = [
                (np.searchsorted(ordered, np.median(each), "left") + np.searchsorted(ordered, np.median(each), "right"))
                / (2 * ordered.size)
                if each.size
                else 1.0 + i
                for i, each in enumerate((mine, theirs))
            ]
            least = max(min(mine.size, theirs.size), 1)
            # A tie in the middle may take the median anywhere within it.
            tie = max(float((each == np.median(each)).mean()) for each in (mine, theirs) if each.size)
            apart = max(0.0, min(1.0, abs(ranks[0] - ranks[1])) - SURE * 0.5 / np.sqrt(least) - tie / 2)
            off, weight = off + mine.size * apart, weight + mine.size
        figures["medians"] = off / weight if weight else 0.0
        if figures["medians"] > RANKS:
            bad.append(f"medians of groups off by {figures['medians']:.0%} of the ranks")
    return Loss(names=names, kind=" x ".join(kinds), figures=figures, bad=tuple(bad))


def judge(real: pd.DataFrame, synthetic: pd.DataFrame, *, seed: int = 1) -> tuple[list[Loss], list[Loss]]:
    """The losses of all columns that both have, and of their pairs (at most `MAX_PAIRS`, of `MAX_ROWS` rows)."""
    generator, names = np.random.default_rng(seed), [name for name in real.columns if name in synthetic.columns]
    kinds = {name: kind_of(real[name]) for name in names}
    columns = [column(name, kinds[name], real[name], synthetic[name], generator) for name in names]
    few = [each.sample(min(MAX_ROWS, len(each)), random_state=seed) for each in (real, synthetic)]
    values = {name: _values(kinds[name], few[0][name], few[1][name]) for name in names}
    chosen = list(combinations(names, 2))
    if len(chosen) > MAX_PAIRS:
        chosen = [chosen[k] for k in sorted(generator.choice(len(chosen), MAX_PAIRS, replace=False))]
    pairs = [pair((i, j), (kinds[i], kinds[j]), values[i], values[j]) for i, j in chosen]
    return columns, pairs
