"""Lists of codes that everybody knows: states, countries, months, days of the week, sexes, yes and no.

A column whose values are such codes has a public domain: the list, whatever part of it the rows hold.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import cache
from itertools import product

from sklar.machine.wording import stated


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeList:
    """A public list of codes. Fewer than `least` are a coincidence unless the column's name holds a word of `named`."""

    what: str
    values: tuple[str, ...]
    named: frozenset[str]
    least: int
    ordered: bool = False


# How yes and no, or true and false, are written in pairs: the text for false, then the one for true.
_TRUTHS = [pair.split("/") for pair in ["false/true", "f/t", "no/yes", "n/y", "nein/ja", "non/oui", "off/on", "0/1"]]
_MOST_ODD = 3
_CASES = (str, str.upper, str.capitalize, str.lower)


@cache
def code_lists() -> tuple[CodeList, ...]:
    """The lists of `codelists.toml`, each in the cases in which people write it."""
    found = list[CodeList]()
    for entry in stated("sklar.public", "codelists.toml")["lists"]:
        values = [" ".join(each.split()) for each in entry["values"].split("," if "," in entry["values"] else None)]
        words = {"what": entry["what"], "least": entry["least"], "ordered": entry.get("ordered", False)}
        for spelled in dict.fromkeys(tuple(map(case, values)) for case in _CASES):
            found.append(CodeList(values=spelled, named=frozenset(entry["named"].split()), **words))
    return tuple(found)


def words_of(name: str) -> frozenset[str]:
    """The words of a column's name, in small letters: of PassengerId, passenger and id."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return frozenset(re.findall(r"[^\W\d_]+", parted.lower()))


def find_list(name: str, texts: Set[str]) -> CodeList | None:
    """The public list that holds these texts of a column of this name, or all but three of them and twice as many; None
    when none does, or by chance alone.
    """
    words = words_of(name)
    for most, each in product((0, _MOST_ODD), code_lists()):
        held = len(texts & set(each.values))
        odd = len(texts) - held
        if odd <= min(most, held // 2) and (held >= each.least + odd or words & each.named):
            return each
    return None


def truth_texts(texts: Set[str]) -> tuple[str, str] | None:
    """How a column writes false and true, where its two texts are such a pair."""
    spelled = ((case(false), case(true)) for false, true in _TRUTHS for case in _CASES)
    return next((pair for pair in spelled if texts == set(pair)), None)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts texts as a person does, numbers in them by size."""
    parts = ((part, part.lstrip("0")) for part in re.split(r"([0-9]+)", text) if part)
    # By length and then by letters: Python refuses to read numbers of thousands of digits.
    return [(0, len(bare), bare) if part[0] in "0123456789" else (1, 0, part) for part, bare in parts]
