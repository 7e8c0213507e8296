"""How a text file seems to be written, guessed from its beginning: for the custodian's eyes, to be put into `[table]`.

Each guess says how sure it is and why. It looks at rows, so it is PRIVATE until a person has confirmed it; nothing on
the release path calls it.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any, Literal

from sklar.machine.wording import stated
from sklar.public.settings import PLAIN, Reading
from sklar.rows.read import files_of
from sklar.rows.text import DELIMITERS, SIGNS, begin, kind_of, marks_of, open_bytes, records_of

Sureness = Literal["certain", "likely", "guess"]

_SAID = stated("sklar.custodian.draft", "words.toml")["sniffed"]
# Texts for "no value".
NULL_TEXTS, _QUOTES, _SPOKEN = _SAID["nulls"], _SAID["quotes"], _SAID["signs"]
_BEGINNING, _MOST_BYTES, _RECORDS = 1 << 20, 1 << 28, 2_000
# Ties go to the first. Windows-1252 holds all letters of latin-1.
_WESTERN = ("windows-1252", "cp850", "mac-roman")
_IN_A_WORD = re.compile(r"(?<=[A-Za-z])[^\W\d_\x00-\x7f]|[^\W\d_\x00-\x7f](?=[A-Za-z])")
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(:\d{2})?")
# A number in any notation: its integer part with separators, and its signs.
_NUMBER = re.compile(r"\s*[+-]?((?:\d[\d.,'\u2019_ \u00a0\u202f]*)?\d|[.,]\d+)(?:[eE][+-]?\d+)?\s*")
_KINDS = {"date": _DATE, "number": _NUMBER}
_GROUPED = re.compile(r"\d{1,3}(?:(.)\d{3})(?:\1\d{3})*")
# The share of values that makes a column one of numbers or dates.
_MOST = 0.9


@dataclass(frozen=True, slots=True)
class Remark:
    """A guess at one key of `[table]`, how sure it is, and why. `value` is as the schema would hold it."""

    key: str
    value: Any
    sureness: Sureness
    reason: str


def sniff(path: str | Path) -> tuple[Reading, tuple[Remark, ...]]:
    """Guess how a CSV or TSV file, or the first of a folder, is written; remarks on what is not plain and certain."""
    path = Path(path)
    file = files_of(path)[0] if path.is_dir() else path
    usual = DELIMITERS.get(kind_of(file))
    if usual is None:
        return PLAIN, ()
    encoding = _encoding(file)
    codec, mark = begin(file, encoding.value)
    with open_bytes(file) as stream:
        stream.read(mark)
        data, more = stream.read(_BEGINNING), bool(stream.read(1))
    text = codecs.getincrementaldecoder(codec)(errors="replace").decode(data)
    # The last line may be cut.
    text = text[: text.rfind("\n") + 1] or text if more else text
    delimiter, quote = _signs(text, usual)
    records = _records(text, delimiter.value, quote.value)
    width = len(records[0]) if records else 0
    header = _header(records)
    rows = [record for record in records[bool(header.value) :] if len(record) == width]
    numbers = _numbers([[row[place] for row in rows] for place in range(width)])
    written = {each.key: each.value for each in (encoding, quote, *numbers)}
    written["delimiter"] = None if delimiter.value == usual else delimiter.value
    written["columns"] = () if header.value else tuple(f"column_{place + 1}" for place in range(width))
    reading = replace(PLAIN, **written)
    plain = {"delimiter": usual, "encoding": "utf-8", "quote": '"', "header": True}
    every = (delimiter, *numbers, encoding, quote, header)
    return reading, tuple(each for each in every if each.sureness != "certain" or each.value != plain.get(each.key))


def _encoding(path: Path) -> Remark:
    """The encoding, from up to 256 MiB: letters beyond ASCII may be few."""
    with open_bytes(path) as stream:
        first = stream.read(4096)
    if marks := marks_of(path)[1]:
        name = marks[0][0]
        return Remark("encoding", name, "certain", f"it begins with the mark of {name}")
    for name, zeros in (("utf-16-le", first[1::2]), ("utf-16-be", first[::2])):
        if zeros and zeros.count(0) > len(zeros) / 2:
            return Remark("encoding", name, "likely", "every second byte is zero")
    decoder, done = codecs.getincrementaldecoder("utf-8")(), 0
    with open_bytes(path) as stream:
        while done < _MOST_BYTES and (block := stream.read(_BEGINNING)):
            done += len(block)
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                break
        else:
            return Remark("encoding", "utf-8", "certain", "it holds no bytes that utf-8 forbids")
    # The encoding of Western letters in which most of the bytes that are not ASCII are letters of words.
    lines = b"\n".join(line for line in block.splitlines() if not line.isascii())[: 1 << 16]
    fits = {name: len(_IN_A_WORD.findall(lines.decode(name, errors="replace"))) for name in _WESTERN}
    name, reason = max(_WESTERN, key=lambda each: fits[each]), "it holds bytes that utf-8 forbids, and "
    if 2 * fits[name] >= sum(byte >= 0x80 for byte in lines):
        return Remark("encoding", name, "likely", f"{reason}in {name} most of them are letters inside of words")
    return Remark("encoding", name, "guess", f"{reason}few of them are letters of a Western language")


def _records(text: str, delimiter: str, quote: str) -> list[list[str]]:
    reading = replace(PLAIN, delimiter=delimiter, quote=quote)
    return list(islice(filter(None, records_of(io.StringIO(text, newline=""), reading)), _RECORDS))


def _signs(text: str, usual: str) -> tuple[Remark, Remark]:
    """The delimiter and the quote with which most records have the same number of fields."""
    scores, shares = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for delimiter, quote in product(SIGNS, _QUOTES):
        records = _records(text, delimiter, quote)
        width, times = next(iter(Counter(map(len, records)).most_common(1)), (0, 0))
        if width < 2:
            continue
        cells = [cell for record in records for cell in record]
        foreign = sum(any(sign in cell for sign in SIGNS if sign not in (delimiter, ",")) for cell in cells)
        # A quote that encloses nothing takes whole lines into its field, up to the next one.
        swallowed = sum(cell.count("\n") for cell in cells if "\n" in cell and delimiter in cell)
        share = shares[delimiter, quote] = times / len(records)
        # Ties go to the delimiter that the file's name implies, and to double quotes.
        score = share - foreign / len(cells) - swallowed / (len(records) + swallowed)
        score += 0.2 * (len(records[0]) == width) + 0.05 * _encloses(text, delimiter, quote)
        scores[delimiter, quote] = score + 0.02 * (delimiter == usual) + 0.01 * (2 * (quote == '"') + (quote == ""))
    if not scores:
        alone = Remark("delimiter", usual, "guess", "every record seems to have one field")
        return alone, Remark("quote", '"', "certain", "there is nothing to part")
    best = delimiter, quote = max(scores, key=lambda signs: scores[signs])
    second = max((score for signs, score in scores.items() if signs[0] != delimiter), default=0.0)
    every, most = shares[best] == 1, shares[best] > _MOST
    sure: Sureness = "certain" if every and scores[best] - second > 0.2 else "likely" if most else "guess"
    word = "all" if every else "most" if most else "more than of any other sign"
    reason = f"with {SIGNS[delimiter]} {word} of the first records have the same number of fields"
    sure_of_quote: Sureness = "certain" if quote == '"' or _encloses(text, delimiter, quote) else "likely"
    return Remark("delimiter", delimiter, sure, reason), Remark("quote", quote, sure_of_quote, _QUOTES[quote])


def _encloses(text: str, delimiter: str, quote: str) -> bool:
    """Whether fields begin and end with this quote."""
    pattern = rf"(?:^|{re.escape(delimiter)}){quote}[^{quote}\r\n]*{quote}(?={re.escape(delimiter)}|\r|$)"
    return bool(quote) and re.search(pattern, text, flags=re.MULTILINE) is not None


def _kind(values: Sequence[str]) -> str:
    """Whether most values are numbers or dates; else text."""
    values = [value for value in values if value.strip() and value not in NULL_TEXTS]
    for kind, pattern in _KINDS.items():
        if values and sum(pattern.fullmatch(value) is not None for value in values) >= _MOST * len(values):
            return kind
    return "text" if values else "empty"


def _header(records: Sequence[Sequence[str]]) -> Remark:
    """Whether the first record names the columns: it does not where its values look like those below them."""
    first = records[0] if records else ()
    rows = [record for record in records[1:] if len(record) == len(first)]
    names = alike = odd = 0
    for place, cell in enumerate(first):
        values = [row[place] for row in rows]
        kind = _kind(values)
        if kind in _KINDS:
            like = _KINDS[kind].fullmatch(cell) is not None
            alike += like
            names += not like and bool(cell.strip()) and cell not in NULL_TEXTS
        elif kind == "text" and 2 * len(set(values)) <= len(values):
            # For a column of few repeated texts: is the first cell one of them?
            odd += 1 if cell in values else -1
    sure: Sureness = "likely" if alike else "certain"
    # Years in a row are names of columns, as statistics offices write them.
    numbers = [int(cell) for cell in first if cell.isdecimal()]
    steps = {after - before for before, after in pairwise(numbers)}
    years = len(numbers) > 2 and len(steps) == 1 and steps != {0} and all(1800 <= year <= 2200 for year in numbers)
    guesses: tuple[tuple[bool, bool, Sureness, str], ...] = (
        (len(records) < 2, True, "guess", "there are too few records to tell"),
        (names > 0, True, sure, "the first record holds texts above columns of numbers or dates"),
        (len(set(first)) < len(first), False, "certain", "the first record holds a value twice, which names do not"),
        (alike > 0 and not years, False, "likely", "the first record holds numbers or dates where the others do"),
        (odd > 0 and not alike, False, "likely", "the first record holds texts that the columns below it repeat"),
        (True, True, "likely" if odd < 0 else "guess", "the first record does not look like the others"),
    )
    return next(Remark("header", value, how, why) for holds, value, how, why in guesses if holds)


def _numbers(columns: Sequence[Sequence[str]]) -> list[Remark]:
    """The decimal and the thousands sign, where they are not plain."""
    decimal, thousands, either = Counter[str](), Counter[str](), Counter[str]()
    for values in columns:
        if _kind(values) == "number":
            for tally, signs in zip((decimal, thousands, either), _signs_of(values), strict=True):
                tally.update(signs)
    # A sign that is unambiguous in one column has that meaning in all.
    comma = decimal[","] > decimal["."] or (either["decimal ,"] > 0 and not decimal["."] and not thousands[","])
    if comma:
        thousands["."] += either["thousands ."] + either["decimal ."]
    else:
        thousands[","] += either["thousands ,"]
    remarks = []
    if comma:
        others = ", and numbers of other columns a point" if decimal["."] else ""
        reason = f"numbers have a comma before their last digits{others}"
        remarks.append(Remark("decimal", ",", "guess" if not decimal[","] or decimal["."] else "certain", reason))
    point = "," if comma else "."
    group = next((sign for sign, times in thousands.most_common() if times and sign != point), None)
    if group is not None:
        reason = f"groups of three digits have {_SPOKEN[group]} between them"
        clear = either[f"thousands {group}"] < thousands[group]
        remarks.append(Remark("thousands", group, "certain" if clear else "likely", reason))
    return remarks


def _signs_of(values: Sequence[str]) -> tuple[set[str], set[str], set[str]]:
    """What the numbers of one column show: decimal signs, thousands signs, and which of them a sign might be."""
    points, groups, unclear = set[str](), set[str](), set[str]()
    whole: list[int] = []
    for value in values:
        match = _NUMBER.fullmatch(value)
        if match is None or value in NULL_TEXTS:
            continue
        digits = re.sub("[ \u00a0\u202f]", " ", match[1]).replace("\u2019", "'")
        signs = [sign for sign in digits if not sign.isdigit()]
        if not signs:
            whole.append(len(digits))
            continue
        last, before = signs[-1], set(signs[:-1])
        head, _, tail = digits.rpartition(last)
        if before - {last}:
            # 1.234,56
            if len(before) == 1 and last in ".," and _GROUPED.fullmatch(head):
                points.add(last)
                groups |= before
        elif _GROUPED.fullmatch(digits):
            clear = groups if len(signs) > 1 or last not in ".," else points if digits.startswith("0") else unclear
            clear.add(last)
        elif len(signs) == 1 and last in ".," and (head or tail):
            points.add(last)
    # 1,234 beside 999 has groups; 1,234 beside 1234, or where every number has a comma, has decimals.
    word = "thousands" if whole and max(whole) <= 3 else "decimal"
    return points, groups, {f"{word} {sign}" for sign in unclear - points - groups}
