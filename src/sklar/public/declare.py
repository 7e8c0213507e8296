"""The entry of one attribute in a schema file: parsed and checked, and written again.

An error names the attribute, what is required, what was given, and how to mend it.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np

from sklar.errors import SchemaError
from sklar.machine.wording import said, stated
from sklar.public.attribute import NO_WORDS, Attribute, Domain, Outside, Provenance, Words, refuse, repeated, within
from sklar.public.axis import AXES, DAY, SECOND, SERIAL, Axis, Spacing, number_format, parse_number, read_moment
from sklar.public.outputs import exact, grain, least_float32, misfit, multiples, output_of, parse_output

# Two-way tables of all levels have half their square of cells, each of which takes a few times four bytes of memory or
# of disk; `python -m benchmarks.levels` measures how much.
MAX_LEVELS = 40_000
# How many categories, or bins, a release looks for when a domain is private and the schema does not say.
DEFAULT_AT_MOST, DEFAULT_BINS = 50, 20
# Private bounds with this many values or fewer have a level for each.
EVERY_VALUE = 32
# The first characters of a code of digits, of which all are levels.
MOST_DIGITS = 4
# Beyond these a table would get nearly all of the budget, or none.
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0
TABLE_WORDS = ("title", "description")
_MOST_LETTERS = {"title": 200, "description": 4_000, "unit": 60, "label": 200}
# Whole numbers below this are held exactly by the floats of a column, so a value is equal to one of them or it is not.
_EXACT = 2**53

Numbers = tuple[int, ...] | tuple[float, ...]


_TEXTS = stated("sklar.public", "texts.toml")
_KEYS: dict[str, list[Any]] = _TEXTS["keys"]
_TYPES: dict[str, Any] = {"list": list, "text": str, "number": (int, float), "whole": int, "flag": bool, "any": object}
_CHOICES = {"spacing": Spacing, "domain": Domain, "outside": Outside, "provenance": Provenance}
# What a value must be beside its type.
_FITS: dict[str, Callable[[Any], object]] = {
    **{key: get_args(kind).__contains__ for key, kind in _CHOICES.items()},
    **dict.fromkeys(("bins", "at_most"), lambda number: 0 < number <= MAX_LEVELS),
    **dict.fromkeys(("prefix", "length"), lambda number: 0 < number < 100),
    **dict.fromkeys(("points", "special", "part_of"), len),
    "edges": lambda given: len(given) > 1,
    "step": lambda number: 0 < number < _EXACT,
    "clip": lambda number: abs(number) < 2**50,
    "texts": lambda pair: [*map(type, pair)] == [str, str],
    "output": parse_output,
    "reviewed": ("unread", True, False).__contains__,
    "weight": lambda weight: LEAST_WEIGHT <= weight <= MOST_WEIGHT,
}
_DEFAULTS = {key: next(iter(known[3:]), None) for key, known in _KEYS.items()}
# Those that do not state the domain are written, in this order, where they do not have their default.
_WRITTEN = {key: getattr(Attribute(name="", kind="boolean"), key) for key in list(_KEYS)[9:]}
# What a format must tell of a kind, the parts of a moment that must and must not come back, and an example.
_FORMATS: dict[str, list[str]] = _TEXTS["formats"]
_BY_KIND = {kind: {*keys.split()} for kind, keys in _TEXTS["kinds"].items()}
_EVERYWHERE = {"type", "unit", "labels", *TABLE_WORDS, *_KEYS}.difference(*_BY_KIND.values())


def read_key(entry: Mapping[str, Any], key: str) -> Any:
    """What an entry states under a key, checked by itself."""
    given, kind, fits = entry.get(key), _KEYS[key][1], _FITS.get(key, lambda _given: True)
    if given is None:
        return _DEFAULTS[key]
    flag = isinstance(given, bool) and kind not in ("flag", "any")
    if flag or not isinstance(given, _TYPES[kind]) or not fits(given):
        raise _refused(key, given)
    return given


def _refused(key: str, given: object) -> SchemaError:
    must, _, remedy, *_ = _KEYS[key]
    must = must.format(levels=MAX_LEVELS, least=LEAST_WEIGHT, most=MOST_WEIGHT)
    return SchemaError(f"{key} must {must}, got {given!r}.{remedy}")


def require_known_keys(entry: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Refuse a key that is none of these."""
    unknown = sorted(set(entry) - set(keys))
    if unknown:
        raise SchemaError(f"unknown key '{unknown[0]}'. Known keys are {', '.join(sorted(keys))}.")


def build_attribute(name: str, given: object) -> Attribute:
    """The attribute that an entry of a schema file describes."""
    if not name:
        raise SchemaError("an attribute's name must not be empty. Give [attributes.NAME] the name of its column.")
    with within(f"attribute '{name}': "):
        if not isinstance(given, Mapping):
            raise SchemaError(f"must be a table, got {given!r}. Write [attributes.{name}] and its keys below it.")
        kind = given.get("type")
        if not isinstance(kind, str) or kind not in AXES:
            raise SchemaError(f"type must be one of {', '.join(AXES)}, got {kind!r}.")
        require_known_keys(given, _BY_KIND[kind] | _EVERYWHERE)
        attribute = _parse(name, AXES[kind], given)
        _check(attribute)
        # A release may find what a label names, or not.
        words = parse_words(given, attribute.levels if attribute.domain == "public" else None)
        return attribute if words is NO_WORDS else replace(attribute, words=words)


def _parse(name: str, axis: Axis, entry: Mapping[str, Any]) -> Attribute:
    """The attribute, each of its keys checked by itself and with those that it needs."""
    keys = SimpleNamespace(**_DEFAULTS | {key: read_key(entry, key) for key in _KEYS if key in entry})
    categorical, private = axis.kind == "categorical", keys.domain == "private"
    taken = min({"values", "other", "edges", "points", "spacing"} & set(entry), default=None)
    unlisted = categorical and keys.domain == "found" and not keys.other
    unleveled = keys.outside == "missing" and keys.missing is None
    whole = keys.step is not None and keys.step == keys.step // 1
    partial, known = axis.stepped and keys.step is not None and not whole, keys.domain == "public"
    digits, part = keys.prefix if keys.values is None and keys.domain == "public" else 0, keys.part_of is not None
    odd = "special" if keys.special else "outside" if keys.outside != "clip" else None
    refuse(
        (not private and keys.at_most, 'at_most goes with domain = "private". Remove one, or add the other.'),
        (private and taken, f'domain = "private" is found by a release, so it takes no {taken}. Remove one.'),
        (known and keys.clip is not None, 'clip goes with domain = "private". Add it, or remove clip.'),
        (unleveled, "outside = 'missing' needs a missing level. Add missing = '' or another text."),
        (unlisted, "a domain that was found needs other = true. Add it."),
        (partial, f"step of {axis.one} must be whole, got {keys.step!r}. Use 1 or more."),
        (axis.kind == "weekday" and not part, "type = 'weekday' is part of a column. Add part_of = 'COLUMN'."),
        (part and odd, f"a part of a column takes no {odd}. Remove it, or give the column one attribute."),
        (part and name == keys.part_of, f"a part must not have its column's name. Call it '{name}.{axis.kind}'."),
        (keys.length and not 0 < keys.prefix < keys.length, "length must be above prefix. Correct one."),
        (digits > MOST_DIGITS, f"prefix without values must be at most {MOST_DIGITS}, got {digits}. List values."),
    )
    if digits:
        keys.values, keys.other = list(_digits(digits)), True
    # Categories that are not found, or are more than at_most, need a level.
    keys.other |= categorical and private
    if private:
        keys.at_most = keys.bins or DEFAULT_BINS if axis.binned else keys.at_most or DEFAULT_AT_MOST
    keys.at_most, keys.step, keys.weight = keys.at_most or 0, int(keys.step) if whole else keys.step, float(keys.weight)
    keys.format, keys.texts = parse_format(axis, keys.format, part=part), tuple(keys.texts or ())
    keys.output = None if keys.output is None else str(parse_output(keys.output))
    keys.values = _values(keys) if categorical else ()
    keys.clip = None if keys.clip is None else axis.check(keys.clip, what="clip")
    keys.edges = tuple(range(8)) if axis.kind == "weekday" else _edges(axis, keys) if axis.binned else ()
    keys.points = tuple(sorted(axis.check(point, what="points") for point in keys.points or ()))
    keys.special = tuple(_special(axis, keys, each) for each in keys.special or ())
    fields = {key: value for key, value in vars(keys).items() if key not in ("low", "high", "bins", "spacing")}
    attribute = Attribute(name=name, kind=axis.kind, **fields)
    unit = grain(attribute) if private and axis.binned and keys.bins is None else None
    if unit is not None and (keys.edges[-1] - keys.edges[0]) / unit <= EVERY_VALUE:
        return replace(attribute, at_most=max(int((keys.edges[-1] - keys.edges[0]) / unit), 1))
    return attribute


def _digits(number: int) -> tuple[str, ...]:
    """All codes of this many digits."""
    return tuple(f"{code:0{number}}" for code in range(10**number)) if 0 < number <= MOST_DIGITS else ()


def _values(keys: SimpleNamespace) -> tuple[Any, ...]:
    # A release may find nothing: no category may be common enough.
    if keys.domain != "private" and not keys.values and not (keys.domain == "found" and keys.values == []):
        raise _refused("values", keys.values)
    values = tuple(keys.values or ())
    kind = type(values[0]) if values and type(values[0]) is int else str
    for value in values:
        if type(value) is not kind:
            raise SchemaError(f"values must be all texts or all whole numbers, got {value!r}. Quote it.")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise SchemaError(f"whole numbers must fit in 64 bits, got {value}. Quote all values.")
    return values


def _edges(axis: Axis, keys: SimpleNamespace) -> Numbers:
    """The edges that are listed or that low, high and bins imply; of a private domain, its two bounds."""
    spaced = [key for key in ("bins", "high", "low", "spacing") if getattr(keys, key) is not None]
    if keys.domain == "private":
        if keys.low is None or (keys.high is None and keys.clip is None):
            raise SchemaError('domain = "private" needs low and high: wide bounds from public knowledge.')
        if keys.clip is not None:
            past = keys.high is not None and not keys.clip <= axis.check(keys.high)
            refuse((past, f"clip must lie below high, got {keys.clip} and {keys.high}. Lower it, or leave high out."))
            # All that is larger counts as the clip, which the last of whole numbers is.
            keys.high = keys.clip if axis.continuous else keys.clip + (keys.step or 1)
        return _spaced(axis, keys, 1)
    if keys.edges is None:
        if not {"low", "high", "bins"} <= set(spaced):
            raise SchemaError("needs edges = [...], or low, high and bins. Add them from public knowledge.")
        edges = _spaced(axis, keys, keys.bins)
    else:
        if spaced:
            raise SchemaError(f"give either edges or low, high and bins, not both. Remove {spaced[0]}.")
        edges = tuple(axis.check(edge) for edge in keys.edges)
    for before, after in pairwise(edges):
        if not before < after:
            raise SchemaError(f"edges must increase, got {axis.text(after)} after {axis.text(before)}. Remove one.")
    return edges


def _spaced(axis: Axis, keys: SimpleNamespace, bins: int) -> Numbers:
    first, last = axis.check(keys.low), axis.check(keys.high)
    step = axis.told(keys.format) if keys.step is None else exact(keys.step) * (SECOND if axis.timed else 1)
    odd = keys.spacing not in (None, "equal") and not axis.grows
    narrow = (not axis.continuous or step is not None) and last - first < bins * (step or 1)
    refuse(
        (not first < last, f"low must be below high, got {keys.low} and {keys.high}."),
        (odd, f"spacing = '{keys.spacing}' is for integer, real, duration, where zero means nothing. Use 'equal'."),
        (narrow, f"{bins} bins do not fit between {keys.low} and {keys.high}. Use fewer."),
    )
    return axis.spaced(first, last, bins, keys.spacing or "equal", step)


def _special(axis: Axis, keys: SimpleNamespace, given: object) -> str | int | float:
    """A special value: a number where the column holds numbers and it is one, else its text."""
    value = given.isoformat() if isinstance(given, dt.date | dt.time) else given
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _refused("special", given)
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    refuse((not text.strip(), "special must not list an empty text, which is missing. Use missing = ''."))
    whole = isinstance(next(iter(keys.values), None), int)
    number = axis.parse(text) if axis.binned else parse_number(text) if whole else None
    if number is None or (not axis.binned and number != number // 1):
        return text
    late = axis.kind == "time" and number == DAY
    refuse((late, f"special must not list the end of the day, got '{text}'. Use another text."))
    if axis.binned and not axis.numeric:
        return axis.text(number) if keys.format is None else text
    if axis.binned and (not abs(number) < _EXACT or (not axis.continuous and number != number // 1)):
        raise SchemaError(said("public.special", what="finite" if axis.continuous else "whole", got=given))
    return int(number) if number == number // 1 else number


def parse_format(axis: Axis, written: object, *, part: bool = False) -> str | None:
    """The format of dates or times, if what it writes is read back: it must tell all that the kind has. Of numbers, an
    example of one with its signs. That of a part is its column's, which may tell a time too.
    """
    if written is None or (axis.kind == "date" and written == SERIAL):
        return written
    if axis.numeric:
        with suppress(ValueError):
            if isinstance(written, str) and (not number_format(written).places or axis.continuous):
                return written
        raise SchemaError(said("public.real_format" if axis.continuous else "public.whole_format", got=written))
    needed, tells, hides, example = _FORMATS["date" if part else axis.kind]
    needed, hides = (needed.removesuffix(", and no time"), "") if part else (needed, hides)
    sample = dt.datetime(2003, 11, 28, 16, 5, 6)
    read = read_moment(sample.strftime(written), written) if isinstance(written, str) and written else None
    same = [part for part in ("year", "month", "day", "hour") if getattr(read, part, None) == getattr(sample, part)]
    if set(tells.split()) <= set(same) and hides not in same:
        return str(written)
    raise SchemaError(f"format must tell {needed}, in the letters of strptime, got {written!r}. Write '{example}'.")


def _check(attribute: Attribute) -> None:
    """Refuse what contradicts itself: texts, points, an output, a step, special values, a missing text."""
    false, true = attribute.texts or ("false", "true")
    blank = false == true or any(not text or text != text.strip() for text in (false, true))
    turned = false.lower() == "true" or true.lower() == "false"
    axis, points, got = attribute.axis, attribute.points, f"got {list(attribute.texts)!r}"
    twice, past = repeated(map(axis.text, points)), "Move the edges past it, or list it under special"
    outside = next((axis.text(point) for point in points if not attribute.within(point)), None)
    large = next((point for point in points if axis.numeric and abs(point) >= _EXACT), None)
    refuse(
        (blank, f"texts must differ, without blanks around them, {got}. Correct one."),
        (turned, f"texts must be those of false and then true, {got}. Turn them around."),
        (twice is not None, f"points must differ, got {twice} twice. Remove one."),
        (outside is not None, f"points must lie within the edges, got {outside}. {past}."),
        (large is not None, f"points must be smaller than 2**53 in size, got {large}. Leave it in its bin."),
    )
    output = output_of(attribute)
    reason = None if attribute.output is None else misfit(output, attribute)
    refuse((reason, f"output '{output}' {reason}."))
    unit = grain(attribute)
    _check_step(attribute, unit)
    if attribute.special:
        _check_special(attribute)
    if attribute.apart and not attribute.private:
        _check_bins(attribute, unit)
    twice, missing, listed = repeated(attribute.levels), attribute.missing or "", "" in attribute.values
    declared, edge = attribute.missing is not None, attribute.missing_number
    inside = edge is not None and attribute.edges[0] <= edge <= attribute.edges[-1]
    truth = attribute.truth_of(missing) is not None
    moment = attribute.part_of is not None and (edge is not None or attribute.read(missing) is not None)
    odd = next((str(value) for value in attribute.values if attribute.cut(str(value)) != str(value)), None)
    refuse(
        (odd is not None, f"values must be as long as prefix = {attribute.prefix}, got '{odd}'. Cut them."),
        (moment, f"missing must be no date or time in a part of a column, got '{missing}'. Use one datetime."),
        (twice is not None, f"levels must differ, got '{twice}' twice. Remove or rename one."),
        (declared and listed, "values must not list '' beside missing, which takes empty texts. Remove one."),
        (truth, f"missing must not be a text for true or false, got '{missing}'. Use another text."),
        (inside, f"missing must not lie within the edges, got '{missing}'. Move the edges past it."),
    )


def _check_step(attribute: Attribute, unit: Fraction | None) -> None:
    """Refuse edges and points that are no multiples of the step, or that the format cannot write."""
    step, written = attribute.step, attribute.format
    if unit is None or (step is None and written is None):
        return
    for number in (*attribute.edges, *attribute.points):
        if (exact(number) / unit).denominator != 1:
            what = f"the step of {step}" if step is not None else f"what '{written}' tells"
            raise SchemaError(said("public.multiples", what=what, got=attribute.axis.text(number)))
    coarse = written is not None and unit % (attribute.axis.told(written) or 1)
    fine = attribute.axis.continuous and max(map(abs, attribute.edges)) / unit * unit.numerator >= _EXACT
    refuse(
        (coarse, f"the step must be one that '{written}' can tell. Use a larger one."),
        (fine, f"{'format' if step is None else 'step'} must not be that fine, got {step or written}. Leave it out."),
    )


def _check_special(attribute: Attribute) -> None:
    """Refuse special values that are something else too."""
    pairs = list(zip(attribute.special, attribute.special_numbers, strict=True))
    twice = repeated(str(value) if number is None else attribute.axis.text(number) for value, number in pairs)
    listed = min({*map(str, attribute.values)} & {*map(str, attribute.special)}, default=None)
    refuse(
        (twice is not None, f"special values must differ, got '{twice}' twice. Remove one."),
        (listed is not None, f"'{listed}' is listed under values and under special. Remove one."),
    )
    for value, number in pairs:
        absent = str(value) == attribute.missing or (number is not None and number == attribute.missing_number)
        truth = attribute.truth_of(str(value)) is not None
        refuse(
            (absent, f"'{value}' is listed under special and is the missing text too. Remove one."),
            (number in attribute.points, f"{value} is listed under points and under special. Remove one."),
            (truth, f"special must not list a text for true or false, got '{value}'. Use other texts."),
        )


def _check_bins(attribute: Attribute, unit: Fraction | None) -> None:
    """Refuse points and special numbers that leave a bin empty."""
    apart, single = attribute.apart, output_of(attribute).name == "float32"
    for low, high in pairwise(attribute.edges):
        here = apart[bisect_left(apart, low) : bisect_left(apart, high)]
        if unit is not None:
            first, last = multiples((low, high), unit) if here else (0, 1)
            empty = last - first <= sum((exact(point) / unit).denominator == 1 for point in here)
        else:
            # The least number that is none of them, and that a column of this type holds.
            free = np.float32(least_float32(low)) if single else np.float64(low)
            while float(free) in here:
                free = np.nextafter(free, type(free)(np.inf))
            empty = bool(here) and float(free) >= high
        if empty:
            raise SchemaError(said("public.empty_bin", low=attribute.axis.text(low), high=attribute.axis.text(high)))


def describe_attribute(attribute: Attribute) -> dict[str, Any]:
    """The entry that `build_attribute` reads."""
    entry: dict[str, Any] = {"type": attribute.kind} | describe_words(attribute.words)
    edges = [attribute.axis.value(edge) for edge in attribute.edges]
    if attribute.domain != "public":
        entry["domain"] = attribute.domain
    every = attribute.domain == "public" and attribute.other and attribute.values == _digits(attribute.prefix)
    if attribute.categorical:
        values = {} if every else {"values": list(attribute.values)}
        entry |= {"at_most": attribute.at_most} if attribute.private else values
    elif attribute.private:
        entry |= {"low": edges[0], "high": edges[1], "bins": attribute.at_most}
    elif attribute.binned and attribute.kind != "weekday":
        entry["edges"] = edges
    if attribute.points:
        entry["points"] = [attribute.axis.value(point) for point in attribute.points]
    for key, default in _WRITTEN.items():
        value = getattr(attribute, key)
        if value != default and not (key == "other" and (attribute.private or every)):
            entry[key] = list(value) if isinstance(value, tuple) else value
    return entry


def join_parts(parts: Sequence[Attribute]) -> Attribute:
    """The column of which these attributes are parts, as one attribute of what is released: a date or a datetime.

    Its parts say the same of what is missing and how it is written. The date's entry states its output.
    """
    by_kind, twice = {part.kind: part for part in parts}, repeated(part.kind for part in parts)
    with within(f"column '{parts[0].column}': "):
        own = any(part.part_of is None for part in parts)
        same = {(part.missing, part.format, None if part.kind == "date" else part.output) for part in parts}
        refuse(
            (own, "it must be one attribute, or have parts, not both. Remove one."),
            ("date" not in by_kind, "a part with type = 'date' says its day. Add it."),
            (twice, f"it must have one part of each type, got type = '{twice}' twice. Remove one."),
            (len(same) > 1, "its parts must have one missing text and one format, and its date alone an output."),
        )
        whole = replace(by_kind["date"], name=parts[0].column, part_of=None)
        if "time" in by_kind:
            unit, edges = grain(by_kind["time"]), tuple(int(edge) * DAY for edge in whole.edges)
            step = float((unit or Fraction(SECOND)) / SECOND)
            whole = replace(whole, kind="datetime", edges=edges, points=(), step=int(step) if step % 1 == 0 else step)
            parse_format(whole.axis, whole.format)
        _check(whole)
        return whole


def parse_words(entry: Mapping[str, Any], levels: Sequence[str] | None = None) -> Words:
    """The words of an entry, where labels may name these levels only; None where any may be found later."""
    labels = entry.get("labels", {})
    if not isinstance(labels, Mapping):
        raise SchemaError(f"labels must be a table of levels and texts, got {labels!r}. Write F = 'female'.")
    named = {key or "(missing)": _text("label", text, f"labels of '{key}'") for key, text in labels.items()}
    odd = next((key for key in named if levels is not None and key not in levels), None)
    refuse((odd is not None, said("public.odd_label", label=odd)))
    given = {key: _text(key, entry[key], key) for key in ("title", "description", "unit") if key in entry}
    return Words(**given, labels=tuple(named.items())) if given or named else NO_WORDS


def describe_words(words: Words) -> dict[str, Any]:
    """The keys that `parse_words` reads."""
    keys = {"title": words.title, "description": words.description, "unit": words.unit, "labels": dict(words.labels)}
    return {key: value for key, value in keys.items() if value}


def _text(kind: str, text: object, of: str) -> str:
    # A description may have paragraphs.
    paragraphs = kind == "description"
    plain = isinstance(text, str) and (text.replace("\n", "") if paragraphs else text).isprintable()
    if not plain or not isinstance(text, str) or not text.strip() or len(text) > _MOST_LETTERS[kind]:
        letters = f"1 to {_MOST_LETTERS[kind]:,} printable characters{'' if paragraphs else ' in one line'}"
        raise SchemaError(f"{of} must be a text of {letters}, got {text!r:.60}.")
    return text.strip()
