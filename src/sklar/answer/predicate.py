"""A small language of predicates over a schema's attributes: read by hand, never evaluated as code. More:
docs/derivations.md.
"""

from __future__ import annotations

import difflib
import math
import operator as operators
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklar.errors import ModelError
from sklar.machine.wording import said
from sklar.public.outputs import exact, grain
from sklar.public.schema import Attribute, Divided, Schema, divide_schema


class QueryError(ModelError):
    """A question that cannot be answered as it is asked."""


class Token(NamedTuple):
    """A name in double quotes, a value in single quotes, a bare word, a sign, or the end of the text."""

    kind: Literal["name", "value", "word", "sign", "end"]
    text: str
    at: int = 0


class Expression:
    """A predicate: a comparison as written (`Relation`), the levels in which one holds (`Atom`), or some combined."""

    __slots__ = ()

    def leaves(self) -> list[Any]:
        """The comparisons."""
        return [leaf for part in self.parts for leaf in part.leaves()] if isinstance(self, Combined) else [self]

    def mapped(self, leaf: Callable[[Any], Expression]) -> Expression:
        """The same with every comparison replaced."""
        if isinstance(self, Combined):
            return Combined(operator=self.operator, parts=tuple(part.mapped(leaf) for part in self.parts))
        return leaf(self)

    @property
    def attributes(self) -> tuple[int, ...]:
        """The attributes that it is about, ascending."""
        return tuple(sorted({leaf.attribute for leaf in self.leaves()}))

    def evaluate(self, atom: Callable[[Any], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """The truth, given that of the atoms: arrays of shapes that broadcast together."""
        if not isinstance(self, Combined):
            return atom(self)
        parts = [part.evaluate(atom) for part in self.parts]
        join = np.logical_and if self.operator == "and" else np.logical_or
        return ~parts[0] if self.operator == "not" else reduce(join, parts)

    def holds(self, codes: Mapping[int, NDArray[Any]]) -> NDArray[np.bool_]:
        """The truth for these codes of the attributes, which broadcast together."""
        return self.evaluate(lambda leaf: np.asarray(leaf.levels[codes[leaf.attribute]]))

    def cells(self, levels: Mapping[int, ArrayLike]) -> NDArray[np.bool_]:
        """The cells of the table of these attributes, over some or all of their levels, in which it holds."""
        grid = np.ix_(*(np.asarray(each) for each in levels.values()))
        held = self.holds(dict(zip(levels, grid, strict=True)))
        return np.broadcast_to(held, tuple(each.size for each in grid))

    def traced(self, schema: Schema) -> Expression:
        """The same over the measured attributes: what a rule determines, by the attribute that determines it."""

        def trace(leaf: Atom) -> Atom:
            source, levels = schema.sources[leaf.attribute]
            return Atom(attribute=source, levels=leaf.levels[levels])

        return self.mapped(trace)


@dataclass(frozen=True, slots=True, eq=False)
class Relation(Expression):
    """One comparison as written: of an attribute with values, in either order."""

    operator: str
    operands: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Atom(Expression):
    """The levels of one attribute in which a comparison holds, shape (levels,)."""

    attribute: int
    levels: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Combined(Expression):
    """Predicates joined by `and` or `or`, or one turned around by `not`."""

    operator: Literal["and", "or", "not"]
    parts: tuple[Expression, ...]


_TOKENS = re.compile(
    r"""\s*(?:(?P<name>"(?:[^"]|"")*")|(?P<value>'(?:[^']|'')*')|(?P<sign><=|>=|!=|<>|==|\*\*|[=<>(),*^~])|(?P<word>[\w.+\-:/]+))"""
)
COMPARED = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SAME = {"==": "=", "<>": "!=", "**": "^"}
_KEYWORDS = ("and", "or", "not", "in", "is")
# A predicate is typed by a person; deeper nesting than this is a mistake, or an attempt to exhaust the stack.
_MAX_DEPTH = 100
_MAX_LENGTH = 100_000


def tokenize(text: str) -> list[Token]:
    """The pieces of a predicate, and its end."""
    if len(text) > _MAX_LENGTH:
        raise QueryError(f"a predicate must have at most {_MAX_LENGTH:,} characters, got {len(text):,}. Shorten it.")
    tokens, at = [], 0
    while rest := text[at:].strip():
        match = _TOKENS.match(text, at)
        if match is None and rest[0] in "'\"":
            raise QueryError(f"a quote is opened and not closed: {rest[:30]}. Close it.")
        if match is None:
            raise QueryError(f"'{rest[0]}' is not part of a predicate. Put names that hold it in double quotes.")
        kind: Any = match.lastgroup
        piece = match.group(kind)
        if kind in ("name", "value"):
            piece = piece[1:-1].replace(piece[0] * 2, piece[0])
        tokens.append(Token(kind, _SAME.get(piece, piece) if kind == "sign" else piece, at))
        at = match.end()
    return [*tokens, Token("end", "", len(text))]


def parse(text: str) -> Expression:
    """The structure of a predicate, names and values as written."""
    parser = _Parser(tokenize(text))
    tree, last = parser.predicate(0), parser.token
    if last.kind != "end":
        around = f"...{text[last.at : last.at + 30].strip()}" if last.at else text[:30]
        raise QueryError(f"'{last.text}' is not expected here: {around}. Use and, or.")
    return tree


class TokenReader:
    """Reads tokens one after the other; `hint` ends its messages."""

    hint = ""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens, self.at = tokens, 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    @property
    def shown(self) -> str:
        """The next token, as messages write it."""
        return "the end" if self.token.kind == "end" else f"'{self.token.text}'"

    def advance(self) -> Token:
        """Take the next token, but for the end."""
        token = self.token
        self.at += token.kind != "end"
        return token

    def take(self, *words: str) -> str | None:
        """Take the next token if it is one of these words or signs, in small letters."""
        if self.token.kind not in ("word", "sign") or self.token.text.lower() not in words:
            return None
        return self.advance().text.lower()

    def expect(self, word: str, why: str) -> None:
        """Take a word or sign that must stand here."""
        if self.take(word) is None:
            raise QueryError(f"'{word}' is expected {why}, got {self.shown}.{self.hint}")


class _Parser(TokenReader):
    def predicate(self, depth: int) -> Expression:
        terms: list[Expression] = []
        while not terms or self.take("or"):
            factors: list[Expression] = []
            while not factors or self.take("and"):
                factors.append(self._factor(depth))
            terms.append(joined("and", *factors))
        return joined("or", *terms)

    def _factor(self, depth: int) -> Expression:
        if depth > _MAX_DEPTH:
            raise QueryError(f"a predicate must nest at most {_MAX_DEPTH} deep. Simplify it.")
        if self.take("not"):
            return joined("not", self._factor(depth + 1))
        if self.take("("):
            inside = self.predicate(depth + 1)
            self.expect(")", "to close '('")
            return inside
        return self._comparison()

    def _operand(self) -> Token:
        token = self.token
        keyword = token.kind == "word" and token.text.lower() in _KEYWORDS
        if token.kind not in ("name", "value", "word") or keyword:
            raise QueryError(said("answer.no_operand", got=self.shown))
        return self.advance()

    def _comparison(self) -> Expression:
        first, is_ = self._operand(), self.take("is")
        negated = self.take("not")
        if is_ or self.take("in"):
            relation = Relation("missing", (first,))
            if is_:
                self.expect("missing", "after 'is'")
            else:
                self.expect("(", "after 'in'")
                values = [self._operand()]
                while self.take(","):
                    values.append(self._operand())
                self.expect(")", "to close the list of values")
                relation = Relation("in", (first, *values))
            return joined("not" if negated else "and", relation)
        if negated:
            raise QueryError(f"'in' is expected after 'not', got {self.shown}.")
        operator = self.take("=", "!=", *COMPARED)
        if operator is None:
            raise QueryError(said("answer.no_comparison", name=first.text, got=self.shown))
        second, then = self._operand(), self.take(*COMPARED)
        if then is None:
            return Relation(operator, (first, second))
        third = self._operand()
        if operator not in COMPARED or operator[0] != then[0]:
            raise QueryError(
                said(
                    "answer.chain", first=first.text, operator=operator, second=second.text, then=then, third=third.text
                )
            )
        low, high = Relation(TURNED[operator], (second, first)), Relation(then, (second, third))
        return joined("and", low, high)


def joined(operator: Literal["and", "or", "not"], *parts: Expression) -> Expression:
    """Predicates joined by `and` or `or`, where one is itself; or one turned around by `not`."""
    return parts[0] if len(parts) == 1 and operator != "not" else Combined(operator=operator, parts=parts)


def resolve(
    node: Expression, schema: Schema, cuts: dict[str, set[int | float]] | None = None, *, heaps: bool = True
) -> Expression:
    """The same predicate over level codes; unknown names and unknown values are refused.

    Cut bins are refused, too, or, where `cuts` notes them by attribute, leave comparisons that are intervals. Bins of
    reals include their lower edges, and the last its upper one: with `heaps` at edges, x > 0 cuts the bin from 0 on.
    """
    return node.mapped(lambda leaf: _resolved(leaf, schema, cuts, heaps=heaps))


def divide(node: Expression, schema: Schema) -> tuple[Expression, Divided]:
    """The predicate over a schema whose bins are divided where it cuts them, and that schema.

    The caller must say what share of a bin each part has. What a rule determines is not divided.
    """
    cuts: dict[str, set[int | float]] = {}
    tree = resolve(node, schema, cuts, heaps=False)
    divided = divide_schema(schema, {name: sorted(own) for name, own in cuts.items()})
    return lift(tree, divided), divided


def cut_bins(schema: Schema, cuts: Mapping[str, Iterable[int | float]]) -> tuple[str, ...]:
    """The names of bins that these numbers cut."""
    split = []
    for name, own in cuts.items():
        attribute = schema.attribute(name)
        bins = {int(attribute.bin_codes[attribute.bin_of(cut)]) for cut in own}
        split += [f"{name} {attribute.levels[code]}" for code in sorted(bins)]
    return tuple(split)


def lift(tree: Expression, divided: Divided) -> Expression:
    """A resolved predicate over the levels of a schema whose bins are divided."""

    def lifted(leaf: Atom | _Interval) -> Atom:
        if isinstance(leaf, _Interval):
            return leaf.atom(divided.schema.attributes[leaf.attribute])
        return Atom(attribute=leaf.attribute, levels=leaf.levels[divided.parts[leaf.attribute]])

    return tree.mapped(lifted)


def borders(node: Expression, schema: Schema) -> dict[str, list[float]]:
    """The numbers that a predicate compares numbers with, by attribute; of > and <= what is next above."""
    found: dict[str, list[float]] = {}

    def note(leaf: Relation) -> Relation:
        named = [(at, schema.attribute(each.text)) for at, each in enumerate(leaf.operands) if is_name(each, schema)]
        for place, own in named[:1]:
            numbers = [own.number_of(each.text) for each in leaf.operands if own.binned and each.text != own.name]
            past = leaf.operator in ((">", "<=") if place == 0 else ("<", ">="))
            above = [np.nextafter(each, np.inf if past else each) for each in numbers if each is not None]
            found.setdefault(own.name, []).extend(map(float, above))
        return leaf

    node.mapped(note)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Interval(Expression):
    """Numbers of an attribute from `low` up to but without `high`, and the points that a comparison holds for."""

    attribute: int
    low: int | float
    high: int | float
    at_point: Callable[[float], bool]

    def atom(self, attribute: Attribute) -> Atom:
        """The levels that lie inside; a bin lies inside as a whole or not at all."""
        held = np.zeros(attribute.n_levels, dtype=bool)
        held[attribute.bin_codes] = [self.low <= low and high <= self.high for low, high in pairwise(attribute.edges)]
        held[attribute.point_codes] = [self.at_point(point) for point in attribute.points]
        return Atom(attribute=self.attribute, levels=held)


def _resolved(node: Relation, schema: Schema, cuts: dict[str, set[int | float]] | None, *, heaps: bool) -> Expression:
    operator, (name, *values) = node.operator, node.operands
    if len(values) == 1 and operator != "in" and not is_name(name, schema) and is_name(values[0], schema):
        operator, name, values = TURNED.get(operator, operator), values[0], [name]
    index = find_attribute(name, schema)
    if operator in ("in", "!="):
        either = joined("or", *(Relation("=", (name, value)) for value in values))
        return resolve(joined("or" if operator == "in" else "not", either), schema, cuts, heaps=heaps)
    attribute = schema.attributes[index]
    codes = np.arange(attribute.n_levels)
    if operator == "missing":
        if attribute.missing_code is None:
            raise QueryError(f"attribute '{attribute.name}' has no missing level. Leave 'is missing' out.")
        return Atom(attribute=index, levels=codes == attribute.missing_code)
    text = values[0].text
    if operator != "=" and not attribute.binned:
        # Categories below or above one of them, in the order of the schema.
        if not attribute.ordered:
            raise QueryError(said("answer.no_order", name=attribute.name, kind=attribute.kind))
        rank = _level(attribute, text)
        if rank is None or rank >= attribute.n_values:
            raise QueryError(f"attribute '{attribute.name}': '{text}' has no place in the order. Use = or in.")
        return Atom(attribute=index, levels=COMPARED[operator](codes, rank) & (codes < attribute.n_values))
    code = _level(attribute, text) if operator == "=" else None
    if code is not None:
        return Atom(attribute=index, levels=codes == code)
    interval = _interval(index, attribute, operator, _edge(attribute, text), heaps=heaps)
    inside = {end for end in (interval.low, interval.high) if attribute.edges[0] < end < attribute.edges[-1]}
    inside -= set(attribute.edges)
    if cuts is None or attribute.name in schema.determined or attribute.private:
        _require_edges(attribute, operator, text, inside)
    elif inside:
        cuts.setdefault(attribute.name, set()).update(inside)
        return interval
    return interval.atom(attribute)


def is_name(token: Token, schema: Schema) -> bool:
    """Whether a token stands for an attribute."""
    return token.kind == "name" or (token.kind == "word" and token.text in schema.names)


def find_attribute(token: Token, schema: Schema) -> int:
    """The place of the attribute that a token names; unknown names are refused, with suggestions."""
    if token.kind == "value":
        raise QueryError(said("answer.no_name", got=token.text))
    if token.text not in schema.names:
        known = f"the schema has no attribute '{token.text}'. {_suggest(token.text, schema.names, 'It has')}"
        raise QueryError(schema.parts_of(token.text) or known)
    return schema.names.index(token.text)


def _suggest(text: str, known: Sequence[str], has: str) -> str:
    near = difflib.get_close_matches(text, known, n=3, cutoff=0.6)
    near = near or [name for name in known if name.lower() == text.lower()][:1]
    listed = ", ".join(f"'{text}'" for text in near or known[:12])
    return f"Did you mean {listed}?" if near else f"{has}: {listed}{' and others' if len(known) > 12 else ''}."


def _level(attribute: Attribute, text: str) -> int | None:
    """The code of the level that a value names; None for a whole number inside a wider bin."""
    code = attribute.code_named(text)
    if code is not None:
        return code
    if not attribute.binned:
        raise QueryError(
            said(
                "answer.no_value",
                name=attribute.name,
                got=text,
                hint=_suggest(text, attribute.levels, "Its values are"),
            )
        )
    number, edges = _edge(attribute, text), attribute.edges
    code = attribute.code_at(number)
    if code is None:
        first, last = (attribute.axis.text(edges[end]) for end in (0, -1))
        raise QueryError(
            f"attribute '{attribute.name}': {text} lies outside [{first}, {last}]. Ask for a value inside."
        )
    if number in attribute.apart or attribute.one_step(attribute.bin_of(number)):
        return code
    # Only values that a step separates from the next have rows of their own.
    if not attribute.axis.stepped or grain(attribute) != 1 or number != number // 1 or number == edges[-1]:
        _require_edges(attribute, "=", text, {number})
    return None


def _edge(attribute: Attribute, text: str) -> int | float:
    edge = attribute.number_of(text)
    if edge is None or math.isnan(edge):
        what = "a number" if attribute.axis.numeric else f"a {attribute.kind}"
        if attribute.kind in ("date", "datetime"):
            what = "an ISO date such as '2020-01-31'"
        raise QueryError(f"attribute '{attribute.name}' is compared with {what}, got '{text}'.")
    return edge


def _interval(index: int, attribute: Attribute, operator: str, border: int | float, *, heaps: bool) -> _Interval:
    """The numbers for which a comparison holds, no special ones; with a grain, x <= 39 is x < 40."""
    if operator == "=":
        return _Interval(index, int(border), int(border) + 1, lambda point: point == border)
    unit, at, upper = grain(attribute), border, operator in ("<=", ">")
    edges, apart = attribute.edges, border in attribute.points
    # A point stands apart from the bin that it begins, so the cut goes between them.
    begins = upper and apart and border in edges[:-1]
    ends = border == edges[-1] and attribute.axis.continuous and not upper and not apart
    if heaps and (ends or (unit is None and upper and not begins)):
        at = math.nextafter(border, math.inf if upper else -math.inf)
    elif unit is not None and math.isfinite(border) and not begins:
        steps = exact(border) / unit
        # The first multiple of the grain on the upper side.
        multiple = (math.floor(steps) + 1 if upper else math.ceil(steps)) * unit
        at = float(multiple) if attribute.axis.continuous else int(multiple)
    low, high = (-math.inf, at) if operator[0] == "<" else (at, math.inf)
    return _Interval(index, low, high, lambda point: bool(COMPARED[operator](point, border)))


def _require_edges(attribute: Attribute, operator: str, text: str, inside: Iterable[int | float]) -> None:
    """Refuse a comparison that cuts a bin, `inside` which these numbers lie."""
    name, edges = attribute.name, attribute.edges
    for cut in inside:
        place = attribute.bin_of(cut)
        low, high = (attribute.axis.text(edge) for edge in edges[place : place + 2])
        if operator == "=":
            what, ask = f"{text} lies within", f"{low} <= {name} < {high}"
        else:
            what, first = f"{operator} {text} cuts", "<" if operator[0] == "<" else ">="
            # The last bin of a real includes its upper edge.
            last = attribute.axis.continuous and place == len(edges) - 2
            ask = f"{name} {first} {low} or {name} {operator[0] + '=' * (first == '<') if last else first} {high}"
        raise QueryError(said("answer.cuts", name=name, what=what, low=low, high=high, ask=ask))
