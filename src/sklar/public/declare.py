"""The entry of one attribute in a schema file: parsed and checked, and written again.

An error names the attribute, what is required, what was given, and how to mend it.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast, get_args

from sklar.errors import SchemaError
from sklar.public.attribute import NO_WORDS, Attribute, Domain, Outside, Provenance, Words, refuse, repeated
from sklar.public.axis import AXES, DAY, SECOND, Axis, format_grain, parse_number, read_moment
from sklar.public.outputs import exact, grain, least_float32, misfit, multiples, output_of, parse_output
from sklar.public.spacing import GROWING, Spacing, spaced_edges

# Two-way tables of all levels have half their square of cells, each of which takes a few times four bytes of memory or
# of disk; `python -m benchmarks.levels` measures how much.
MAX_LEVELS = 40_000
# How many categories, or bins, a release looks for when a domain is private and the schema does not say.
DEFAULT_AT_MOST, DEFAULT_BINS = 50, 20
# Private bounds with this many values or fewer have a level for each.
EVERY_VALUE = 32
# Beyond these a table would get nearly all of the budget, or none.
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0
TABLE_WORDS = ("title", "description")
ATTRIBUTE_WORDS = (*TABLE_WORDS, "unit", "labels")
_MOST_LETTERS = {"title": 200, "description": 4_000, "unit": 60, "label": 200}
# Whole numbers below this are held exactly by the floats of a column, so a value is equal to one of them or it is not.
_EXACT = 2**53

# What a format must tell of a kind, the parts of a moment that must and must not come back, and an example.
_FORMATS = {
    "date": ("a day, a month and a year, and no time", "year month day", "hour", "%d.%m.%Y"),
    "datetime": ("a day, a month, a year and one of 24 hours", "year month day hour", "", "%d.%m.%Y %H:%M"),
    "time": ("one of 24 hours", "hour", "", "%H:%M"),
    "yearmonth": ("a month and a year", "year month", "hour", "%m/%Y"),
}
_BINNED = {"edges", "low", "high", "bins", "spacing", "points", "step", "missing", "outside", "domain"}
_KEYS = {kind: _BINNED | ({"format"} if kind in _FORMATS else set()) for kind in AXES} | {
    "categorical": {"values", "ordered", "missing", "other", "domain", "at_most"},
    "boolean": {"texts", "missing"},
}
_EVERYWHERE = {"type", "special", "output", "reviewed", "provenance", "weight", *ATTRIBUTE_WORDS}
# Keys that are written, in this order, where they do not have their default.
_OPTIONAL = (
    *("step", "texts", "format", "ordered", "special", "missing", "other", "outside", "output"),
    *("reviewed", "provenance", "weight"),
)

Numbers = tuple[int, ...] | tuple[float, ...]


def build_attribute(name: str, given: object) -> Attribute:
    """The attribute that an entry of a schema file describes."""
    if not name:
        raise SchemaError("an attribute's name must not be empty. Give [attributes.NAME] the name of its column.")
    where = f"attribute '{name}'"
    if not isinstance(given, Mapping):
        raise SchemaError(f"{where}: must be a table, got {given!r}. Write [attributes.{name}] and its keys below it.")
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in AXES:
        raise SchemaError(f"{where}: type must be one of {', '.join(AXES)}, got {kind!r}.")
    require_known_keys(where, given, _KEYS[kind] | _EVERYWHERE)
    entry = AttributeEntry(where, AXES[kind], given)
    domain, at_most = entry.domain()
    missing, other, categorical = given.get("missing"), entry.flag("other"), kind == "categorical"
    outside = cast(Outside, entry.choice("outside", get_args(Outside), "clip", "'clip' or 'missing'"))
    said = "'public' (public knowledge) or 'rows' (read from the rows)"
    text, level = missing is None or isinstance(missing, str), outside != "missing" or missing is not None
    unlisted = categorical and domain == "found" and not other
    refuse(
        f"{where}: ",
        (not text, f"missing must be the text that stands for a missing value, got {missing!r}."),
        (not level, "outside = 'missing' needs a missing level. Add missing = '' or another text."),
        (unlisted, "a domain that was found needs other = true. Add it."),
    )
    values, edges = entry.values(domain), entry.edges(domain)
    attribute = Attribute(
        name=name,
        kind=entry.axis.kind,
        values=values,
        edges=edges,
        missing=missing,
        # Categories that are not found, or are more than at_most, need a level.
        other=other or (categorical and domain == "private"),
        outside=outside,
        output=given.get("output"),
        reviewed=entry.flag("reviewed", default=True),
        domain=domain,
        at_most=at_most,
        provenance=cast(Provenance, entry.choice("provenance", get_args(Provenance), None, said)),
        points=entry.points(edges),
        special=entry.special(values),
        step=entry.step(),
        texts=entry.texts(),
        format=entry.format(),
        ordered=entry.flag("ordered"),
        weight=weight_of(where, given),
    )
    if attribute.output is not None:
        attribute = replace(attribute, output=_output(entry, attribute))
    unit = grain(attribute) if attribute.private and attribute.binned and "bins" not in given else None
    if unit is not None and (edges[-1] - edges[0]) / unit <= EVERY_VALUE:
        attribute = replace(attribute, at_most=max(int((edges[-1] - edges[0]) / unit), 1))
    for check in (_check_step, _check_special, _check_bins):
        check(entry, attribute)
    twice = repeated(attribute.levels)
    refuse(f"{where}: ", (twice is not None, f"levels must differ, got '{twice}' twice. Remove or rename one."))
    _check_missing(entry, attribute)
    # A release may find what a label names, or not.
    return replace(attribute, words=parse_words(where, given, attribute.levels if domain == "public" else None))


def describe_attribute(attribute: Attribute) -> dict[str, Any]:
    """The entry that `build_attribute` reads."""
    entry: dict[str, Any] = {"type": attribute.kind} | describe_words(attribute.words)
    edges = [attribute.axis.value(edge) for edge in attribute.edges]
    if attribute.domain != "public":
        entry["domain"] = attribute.domain
    if attribute.categorical:
        entry |= {"at_most": attribute.at_most} if attribute.private else {"values": list(attribute.values)}
    elif attribute.private:
        entry |= {"low": edges[0], "high": edges[1], "bins": attribute.at_most}
    elif attribute.binned:
        entry["edges"] = edges
    if attribute.points:
        entry["points"] = [attribute.axis.value(point) for point in attribute.points]
    for key in _OPTIONAL:
        value = getattr(attribute, key)
        if value != getattr(_PLAIN, key) and not (key == "other" and attribute.private):
            entry[key] = list(value) if isinstance(value, tuple) else value
    return entry


_PLAIN = Attribute(name="", kind="boolean")


def require_known_keys(where: str, entry: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Refuse a key that is none of these."""
    unknown = sorted(set(entry) - set(keys))
    if unknown:
        raise SchemaError(f"{where}: unknown key '{unknown[0]}'. Known keys are {', '.join(sorted(keys))}.")


def weight_of(where: str, entry: Mapping[str, Any]) -> float:
    """The weight that an entry states; 1 without one."""
    weight = entry.get("weight", 1)
    if type(weight) not in (int, float) or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise SchemaError(f"{where}: weight must be a number from {LEAST_WEIGHT} to {MOST_WEIGHT:g}, got {weight!r}.")
    return float(weight)


class AttributeEntry:
    """What a schema file states of one attribute, key by key; `where` begins every error."""

    def __init__(self, where: str, axis: Axis, given: Mapping[str, Any]) -> None:
        self.where, self.axis, self.given = where, axis, given

    def error(self, message: str) -> SchemaError:
        """The error that says this of the attribute."""
        return SchemaError(f"{self.where}: {message}")

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A key that is true or false."""
        value = self.given.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key} must be true or false, got {value!r}.")
        return value

    def choice(self, key: str, known: Iterable[str], default: str | None, listed: str) -> str | None:
        """A key that is one of a few words."""
        value = self.given.get(key)
        if value is not None and value not in known:
            raise self.error(f"{key} must be {listed}, got {value!r}.")
        return default if value is None else cast(str, value)

    def count(self, key: str, default: int | None = None) -> int:
        """A key that is a number of levels."""
        value = self.given.get(key, default)
        if type(value) is not int or not 1 <= value <= MAX_LEVELS:
            raise self.error(f"{key} must be a whole number from 1 to {MAX_LEVELS}, got {value!r}.")
        return value

    def domain(self) -> tuple[Domain, int]:
        """Whether the domain is public, and if it is private, the most categories or bins that a release looks for."""
        known = get_args(Domain)
        domain = cast(Domain, self.choice("domain", known, "public", f"one of {', '.join(known)}"))
        if domain != "private":
            if "at_most" in self.given:
                raise self.error('at_most goes with domain = "private". Remove one, or add the other.')
            return domain, 0
        stated = sorted({"values", "other", "edges", "points", "spacing"} & set(self.given))
        if stated:
            raise self.error(f'domain = "private" is found by a release, so it takes no {stated[0]}. Remove one.')
        return domain, self.count("bins", DEFAULT_BINS) if self.axis.binned else self.count("at_most", DEFAULT_AT_MOST)

    def values(self, domain: Domain) -> tuple[str, ...] | tuple[int, ...]:
        """The categories, in their order."""
        values = self.given.get("values")
        # A release may find nothing: no category may be common enough.
        if self.axis.kind != "categorical" or domain == "private" or (domain == "found" and values == []):
            return ()
        if not isinstance(values, list) or not values:
            raise self.error(f"values must list the categories, got {values!r}. Write values = ['a', 'b'].")
        kind = type(values[0]) if type(values[0]) in (str, int) else str
        for value in values:
            if type(value) is not kind:
                raise self.error(f"values must be all texts or all whole numbers, got {value!r}. Quote it.")
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise self.error(f"whole numbers must fit in 64 bits, got {value}. Quote all values.")
        return tuple(values)

    def edges(self, domain: Domain) -> Numbers:
        """The edges that are listed or that low, high and bins imply; of a private domain, its two bounds."""
        axis, raw = self.axis, self.given.get("edges")
        if not axis.binned:
            return ()
        spaced = {"low", "high", "bins"} & set(self.given)
        if domain == "private":
            if not {"low", "high"} <= spaced:
                raise self.error('domain = "private" needs low and high: wide bounds from public knowledge.')
            return self._spaced(1)
        if raw is not None and (spaced or "spacing" in self.given):
            raise self.error(f"give either edges or low, high and bins, not both. Remove {min(spaced or ['spacing'])}.")
        if raw is None:
            if len(spaced) < 3:
                raise self.error("needs edges = [...], or low, high and bins. Add them from public knowledge.")
            edges = self._spaced(self.count("bins"))
        else:
            if not isinstance(raw, list) or len(raw) < 2:
                raise self.error(f"edges must list at least two numbers or dates, got {raw!r}.")
            edges = tuple(axis.check(self.where, edge) for edge in raw)
        for before, after in pairwise(edges):
            if not before < after:
                raise self.error(f"edges must increase, got {axis.text(after)} after {axis.text(before)}. Remove one.")
        return edges

    def _spaced(self, bins: int) -> Numbers:
        axis, low, high = self.axis, self.given["low"], self.given["high"]
        first, last = (axis.check(self.where, bound) for bound in (low, high))
        if not first < last:
            raise self.error(f"low must be below high, got {low} and {high}.")
        known = get_args(Spacing)
        spacing = cast(Spacing, self.choice("spacing", known, "equal", f"one of {', '.join(known)}"))
        if spacing != "equal" and axis.kind not in GROWING:
            growing = ", ".join(GROWING)
            raise self.error(f"spacing = '{spacing}' is for {growing}, where zero means nothing. Use 'equal'.")
        stated, written = self.step(), self.format()
        step = None if stated is None else exact(stated) * (SECOND if axis.timed else 1)
        if step is None and written is not None and axis.timed:
            step = Fraction(format_grain(written))
        if (axis.kind != "real" or step is not None) and last - first < bins * (step or 1):
            raise self.error(f"{bins} bins do not fit between {low} and {high}. Use fewer.")
        return spaced_edges(axis.kind, first, last, bins, spacing, step)

    def points(self, edges: Numbers) -> tuple[Any, ...]:
        """The points, ascending; an error where one is not a number within the edges."""
        raw, axis = self.given.get("points"), self.axis
        if raw is None:
            return ()
        if not isinstance(raw, list) or not raw:
            raise self.error(f"points must list numbers within the edges, got {raw!r}. Write points = [0, 40].")
        points = sorted(axis.check(self.where, point, what="points") for point in raw)
        twice = repeated(map(axis.text, points))
        if twice is not None:
            raise self.error(f"points must differ, got {twice} twice. Remove one.")
        for point in points:
            if not (edges[0] <= point < edges[-1] or (axis.continuous and point == edges[-1])):
                remedy = "Move the edges past it, or list it under special"
                raise self.error(f"points must lie within the edges, got {axis.text(point)}. {remedy}.")
            if axis.numeric and abs(point) >= _EXACT:
                raise self.error(f"points must be smaller than 2**53 in size, got {point}. Leave it in its bin.")
        return tuple(points)

    def special(self, values: tuple[object, ...]) -> tuple[Any, ...]:
        """The special values: numbers where the column holds numbers, else texts."""
        raw = self.given.get("special")
        if raw is None:
            return ()
        if not isinstance(raw, list) or not raw:
            raise self.error(f"special must list texts or numbers, got {raw!r}. Write special = ['N', -9].")
        whole = bool(values) and isinstance(values[0], int)
        special = tuple(self._special(value, whole=whole) for value in raw)
        twice, listed = repeated(map(str, special)), set(map(str, values))
        if twice is not None:
            raise self.error(f"special values must differ, got '{twice}' twice. Remove one.")
        for value in special:
            if str(value) in listed:
                raise self.error(f"'{value}' is listed under values and under special. Remove one.")
        return special

    def _special(self, given: object, *, whole: bool) -> str | int | float:
        """One special value: a number if the attribute's values are numbers and it is one, else its text."""
        value, axis = given.isoformat() if isinstance(given, dt.date | dt.time) else given, self.axis
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(f"special must list texts or numbers, got {given!r}. Write special = ['N', -9].")
        text = str(int(value) if isinstance(value, float) and value == value // 1 and math.isfinite(value) else value)
        if not text.strip():
            raise self.error("special must not list an empty text, which is missing. Use missing = ''.")
        number = axis.parse(text) if axis.binned else parse_number(text) if whole else None
        if number is None or (not axis.binned and number != number // 1):
            return text
        if axis.kind == "time" and number == DAY:
            raise self.error(f"special must not list the end of the day, got '{text}'. Use another text.")
        if axis.binned and not axis.numeric:
            return text if "format" in self.given else axis.text(number)
        if axis.binned and (not abs(number) < _EXACT or (axis.kind != "real" and number != number // 1)):
            needed = "finite numbers" if axis.kind == "real" else "whole numbers"
            raise self.error(f"special numbers must be {needed} smaller than 2**53 in size, got {given!r}.")
        return int(number) if number == number // 1 else number

    def step(self) -> int | float | None:
        """The grain of the numbers: a positive number, whole where the axis has whole steps."""
        step = self.given.get("step")
        if step is None:
            return None
        if type(step) not in (int, float) or not 0 < step < _EXACT:
            raise self.error(f"step must be a positive number, got {step!r}. Write step = 100, or step = 0.01.")
        if step == step // 1:
            return int(step)
        if self.axis.stepped:
            raise self.error(f"step of a {self.axis.kind} must be whole, got {step!r}. Use 1 or more.")
        return float(step)

    def texts(self) -> tuple[str, str] | tuple[()]:
        """The texts of false and true, in this order."""
        texts = self.given.get("texts")
        if texts is None:
            return ()
        if not isinstance(texts, list) or len(texts) != 2 or any(not isinstance(text, str) for text in texts):
            raise self.error(f"texts must be those of false and true, got {texts!r}. Write texts = ['N', 'Y'].")
        false, true = texts
        if false == true or any(not text or text != text.strip() for text in texts):
            raise self.error(f"texts must differ, without blanks around them, got {texts!r}. Correct one.")
        if false.lower() == "true" or true.lower() == "false":
            raise self.error(f"texts must be those of false and then true, got {texts!r}. Turn them around.")
        return false, true

    def format(self) -> str | None:
        """The format of dates or times, if what it writes is read back: it must tell all that the kind has."""
        written = self.given.get("format")
        if written is None:
            return None
        needed, tells, hides, example = _FORMATS[self.axis.kind]
        sample = dt.datetime(2003, 11, 28, 16, 5, 6)
        read = read_moment(sample.strftime(written), written) if isinstance(written, str) and written else None
        same = [part for part in ("year", "month", "day", "hour") if getattr(read, part, None) == getattr(sample, part)]
        if set(tells.split()) <= set(same) and hides not in same:
            return str(written)
        raise self.error(f"format must tell {needed}, in the letters of strptime, got {written!r}. Write '{example}'.")


def _output(entry: AttributeEntry, attribute: Attribute) -> str:
    """The output type in its standard spelling, if it holds every value of the domain."""
    output = parse_output(attribute.output) if isinstance(attribute.output, str) else None
    if output is None:
        examples = "'int32', 'decimal(10, 2)', 'timestamp[us, tz=UTC]', 'string' or 'category'"
        raise entry.error(f"output must be a column type such as {examples}, got {attribute.output!r}.")
    reason = misfit(output, attribute)
    if reason is not None:
        raise entry.error(f"output '{output}' {reason}.")
    return str(output)


def _check_missing(entry: AttributeEntry, attribute: Attribute) -> None:
    """Refuse a missing text that also reads as a value of the domain, or that a listed value hides."""
    missing = attribute.missing
    if missing is None:
        return
    edge, truth = attribute.number_of(missing), attribute.truth_of(missing) is not None
    listed = attribute.categorical and "" in attribute.values
    inside = edge is not None and attribute.edges[0] <= edge <= attribute.edges[-1]
    refuse(
        f"{entry.where}: ",
        (listed, "values must not list '' beside missing, which takes empty texts. Remove one."),
        (truth, f"missing must not be a text for true or false, got '{missing}'. Use another text."),
        (inside, f"missing must not lie within the edges, got '{missing}'. Move the edges past it."),
    )


def _check_step(entry: AttributeEntry, attribute: Attribute) -> None:
    """Refuse edges and points that are no multiples of the step, or that the format cannot write."""
    unit, step, written = grain(attribute), attribute.step, attribute.format
    if unit is None or (step is None and written is None):
        return
    for number in (*attribute.edges, *attribute.points):
        if (exact(number) / unit).denominator != 1:
            what = f"the step of {step}" if step is not None else f"what '{written}' tells"
            shown = attribute.edge_text(number)
            raise entry.error(f"edges and points must be multiples of {what}, got {shown}. Move it.")
    if written is not None and unit % (format_grain(written) if attribute.axis.timed else 1):
        raise entry.error(f"the step must be one that '{written}' can tell. Use a larger one.")
    if attribute.kind == "real" and max(map(abs, attribute.edges)) / unit * unit.numerator >= _EXACT:
        raise entry.error(f"step must not be that fine, got {step}. Leave it out.")


def _check_special(entry: AttributeEntry, attribute: Attribute) -> None:
    """Refuse special values that are something else too."""
    missing = attribute.number_of(attribute.missing or "")
    twice = repeated(attribute.edge_text(number) for number in attribute.special_numbers if number is not None)
    if twice is not None:
        raise entry.error(f"special values must differ, got {twice} twice. Remove one.")
    for value, number in zip(attribute.special, attribute.special_numbers, strict=True):
        absent = str(value) == attribute.missing or (number is not None and number == missing)
        truth = attribute.truth_of(str(value)) is not None
        refuse(
            f"{entry.where}: ",
            (absent, f"'{value}' is listed under special and is the missing text too. Remove one."),
            (number in attribute.points, f"{value} is listed under points and under special. Remove one."),
            (truth, f"special must not list a text for true or false, got '{value}'. Use other texts."),
        )


def _check_bins(entry: AttributeEntry, attribute: Attribute) -> None:
    """Refuse points and special numbers that leave a bin empty."""
    apart, unit = attribute.apart, grain(attribute)
    if not apart or attribute.private:
        return
    for low, high in pairwise(attribute.edges):
        here = apart[bisect_left(apart, low) : bisect_left(apart, high)]
        if unit is None:
            empty = bool(here) and _first_free(attribute, float(low), set(here)) >= high
        else:
            first, last = multiples((low, high), unit) if here else (0, 1)
            empty = last - first <= sum((exact(point) / unit).denominator == 1 for point in here)
        if empty:
            shown = f"[{attribute.edge_text(low)}, {attribute.edge_text(high)})"
            what = f"the bin {shown} holds nothing but points and special values, so it would stay empty"
            raise entry.error(f"{what}. Remove an edge, or leave them in their bin.")


def _first_free(attribute: Attribute, low: float, taken: set[int | float]) -> float:
    """The least number from `low` on that is not taken and that a column of the attribute's type holds."""
    import numpy as np

    single = output_of(attribute).name == "float32"
    number = np.float32(least_float32(low)) if single else np.float64(low)
    while float(number) in taken:
        number = np.nextafter(number, type(number)(np.inf))
    return float(number)


def parse_words(where: str, entry: Mapping[str, Any], levels: Sequence[str] | None = None) -> Words:
    """The words of an entry, where labels may name these levels only; None where any may be found later."""
    labels = entry.get("labels", {})
    if not isinstance(labels, Mapping):
        raise SchemaError(f"{where}: labels must be a table of levels and texts, got {labels!r}. Write F = 'female'.")
    named = {key or "(missing)": _text(where, "label", text, f"labels of '{key}'") for key, text in labels.items()}
    odd = next((key for key in named if levels is not None and key not in levels), None)
    if odd is not None:
        remedy = "Write values as the schema lists them, a bin as '[0, 18)'; or remove it"
        raise SchemaError(f"{where}: labels must name levels, got '{odd}'. {remedy}.")
    given = {key: _text(where, key, entry[key], key) for key in ("title", "description", "unit") if key in entry}
    return Words(**given, labels=tuple(named.items())) if given or named else NO_WORDS


def describe_words(words: Words) -> dict[str, Any]:
    """The keys that `parse_words` reads."""
    said = {"title": words.title, "description": words.description, "unit": words.unit, "labels": dict(words.labels)}
    return {key: value for key, value in said.items() if value}


def _text(where: str, kind: str, text: object, of: str) -> str:
    # A description may have paragraphs.
    paragraphs = kind == "description"
    plain = isinstance(text, str) and (text.replace("\n", "") if paragraphs else text).isprintable()
    if not plain or not isinstance(text, str) or not text.strip() or len(text) > _MOST_LETTERS[kind]:
        letters = f"1 to {_MOST_LETTERS[kind]:,} printable characters{'' if paragraphs else ' in one line'}"
        raise SchemaError(f"{where}: {of} must be a text of {letters}, got {text!r:.60}.")
    return text.strip()
