"""How an attribute and its levels read to a person: titles, labels, and intervals such as "40 to 44".

A schema names a level by its edges, `[40, 45)`, which is exact and which questions use. Where the grain of the numbers
is known, the last number in the bin is, too: whole numbers from 40 to 44. Else the bin reads "40 up to 45".
"""

from __future__ import annotations

from itertools import pairwise

from sklar.public.attribute import Attribute
from sklar.public.outputs import exact, grain
from sklar.public.schema import Schema

# From here on digits are hard to read without separators; four of them may be a year.
_MANY = 10_000
_MOST_APART = 3


def shown_table(schema: Schema) -> str:
    """What people call the table."""
    return schema.words.title or schema.name


def shown_name(attribute: Attribute) -> str:
    """What people call the attribute."""
    return attribute.words.title or attribute.name


def shown_levels(attribute: Attribute) -> tuple[str, ...]:
    """How each level reads to a person, in code order. Unlike `levels`, two of them may read alike."""
    named = list(attribute.levels)
    if attribute.boolean and not attribute.texts:
        named[:2] = ["no", "yes"]
    elif attribute.binned and not attribute.private:
        for code, (low, high) in zip(attribute.bin_codes.tolist(), pairwise(attribute.edges), strict=True):
            named[code] = _interval(attribute, low, high)
        for code, point in zip(attribute.point_codes.tolist(), attribute.points, strict=True):
            named[code] = shown_number(attribute, point)
    if attribute.missing_code is not None:
        named[attribute.missing_code] = f"missing ({attribute.missing})" if attribute.missing else "missing"
    labels = dict(attribute.words.labels)
    return tuple(labels.get(level, text) for level, text in zip(attribute.levels, named, strict=True))


def _interval(attribute: Attribute, low: float, high: float) -> str:
    unit = None if attribute.axis.timed else grain(attribute)
    apart = [point for point in attribute.points if low < point < high]
    begins_after = low in attribute.points
    ends = attribute.axis.continuous and high == attribute.edges[-1]
    if unit is None:
        text = f"{shown_number(attribute, low)} {'to' if ends else 'up to'} {shown_number(attribute, high)}"
        text = f"above {text}" if begins_after else text
    else:
        first = exact(low) + (unit if begins_after else 0)
        final = exact(high) - (0 if ends and high not in attribute.points else unit)
        while apart and exact(apart[-1]) == final:
            final -= unit
            apart.pop()
        bounds = [int(each) if each.denominator == 1 else float(each) for each in (first, final)]
        text = " to ".join(shown_number(attribute, each) for each in bounds[: 1 if first >= final else 2])
    if not apart:
        return text
    many = len(apart) > _MOST_APART
    return f"{text} without {f'{len(apart)} points' if many else ', '.join(shown_number(attribute, p) for p in apart)}"


def shown_number(attribute: Attribute, number: float) -> str:
    """A number on an attribute's axis as a person reads it; with separators where the axis has long numbers."""
    text = attribute.axis.text(number)
    if attribute.kind in ("datetime", "time"):
        # Whole minutes need no seconds, and midnight needs no time.
        return text.replace("T", " ").removesuffix(":00").removesuffix(" 00:00" if attribute.kind == "datetime" else "")
    if attribute.kind not in ("integer", "real") or "e" in text:
        return text
    whole, _, rest = text.partition(".")
    ends = attribute.edges[:1] + attribute.edges[-1:]
    if max(abs(number), *map(abs, ends)) >= _MANY:
        whole = f"{'-' if whole.startswith('-') else ''}{abs(int(whole)):,}"
    return whole if rest in ("", "0") else f"{whole}.{rest}"


def with_unit(attribute: Attribute, text: str) -> str:
    """A text with the attribute's unit behind it, where it has one."""
    return text if attribute.words.unit is None else f"{text} ({attribute.words.unit})"
