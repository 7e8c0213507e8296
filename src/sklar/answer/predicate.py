"""A small language of predicates over a schema's attributes: read by hand, never evaluated as code.

    predicate   = term { "or" term }
    term        = factor { "and" factor }
    factor      = "not" factor | "(" predicate ")" | comparison
    comparison  = name ("=" | "!=") value
                | name ["not"] "in" "(" value { "," value } ")"
                | name "is" ["not"] "missing"
                | name ("<" | "<=" | ">" | ">=") value, also turned around or chained: 30 <= age < 40

Names stand bare, or in double quotes where they hold blanks or signs; values in single quotes, or bare where they are
one word. A quote inside quotes is doubled. `not` is the plain complement: a row whose age is missing satisfies
`not age < 30` and `age != 30`, but neither `age < 30` nor `age >= 30`.
"""

from __future__ import annotations

import difflib
import math
import operator as operators
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.errors import ModelError
from sklar.public.axis import NUMBERS, STEPPED
from sklar.public.schema import BINNED, Attribute, Schema


class QueryError(ModelError):
    """A question that cannot be answered as it is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of the text: a name in double quotes, a value in single quotes, a bare word, or a sign."""

    kind: Literal["name", "value", "word", "sign", "end"]
    text: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One comparison as written: an operator and what stands around it."""

    operator: str
    operands: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Atom:
    """The levels of one attribute in which a comparison holds, shape (levels,)."""

    attribute: int
    levels: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Combined:
    """Predicates joined by `and` or `or`, or one turned around by `not`."""

    operator: Literal["and", "or", "not"]
    parts: tuple[Node, ...]


Node: TypeAlias = "Combined | Atom | Comparison"
Expression: TypeAlias = "Combined | Atom"

_TOKENS = re.compile(
    r"""\s*(?:(?P<name>"(?:[^"]|"")*")|(?P<value>'(?:[^']|'')*')|(?P<sign><=|>=|!=|<>|==|[=<>(),])|(?P<word>[\w.+\-:/]+))"""
)
_ORDER = ("<", "<=", ">", ">=")
COMPARED = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SAME = {"==": "=", "<>": "!="}
_KEYWORDS = ("and", "or", "not", "in", "is")
# A predicate is typed by a person; deeper nesting than this is a mistake, or an attempt to exhaust the stack.
_MAX_DEPTH = 100
_MAX_LENGTH = 100_000


def tokenize(text: str) -> list[Token]:
    """The pieces of a predicate.

    >>> [token.text for token in tokenize("30 <= age and sex='F'")]
    ['30', '<=', 'age', 'and', 'sex', '=', 'F', '']
    """
    if len(text) > _MAX_LENGTH:
        raise QueryError(f"a predicate must have at most {_MAX_LENGTH:,} characters, got {len(text):,}. Shorten it.")
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKENS.match(text, at)
        if found is None:
            rest = text[at:].strip()
            if rest[0] in "'\"":
                raise QueryError(f"a quote is opened and not closed: {rest[:30]}. Close it.")
            raise QueryError(f"'{rest[0]}' is not part of a predicate. Put names that hold it in double quotes.")
        kind = found.lastgroup
        piece = found.group(kind or 0)
        if kind in ("name", "value"):
            piece = piece[1:-1].replace(piece[0] * 2, piece[0])
        tokens.append(Token(kind=kind, text=_SAME.get(piece, piece) if kind == "sign" else piece, at=at))  # type: ignore[arg-type]
        at = found.end()
    return [*tokens, Token(kind="end", text="", at=len(text))]


def parse(text: str) -> Node:
    """The structure of a predicate, names and values as written."""
    parser = _Parser(tokenize(text))
    tree = parser.predicate(0)
    if parser.token.kind != "end":
        raise QueryError(f"'{parser.token.text}' is not expected here: {_around(text, parser.token.at)}. Use and, or.")
    return tree


def _around(text: str, at: int) -> str:
    return f"...{text[at : at + 30].strip()}" if at else text[:30]


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._at = tokens, 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self.token
        self._at += token.kind != "end"
        return token

    def _is(self, *words: str) -> bool:
        kind, text = self.token.kind, self.token.text
        return (kind == "word" and text.lower() in words) or (kind == "sign" and text in words)

    def _expect(self, text: str, why: str) -> None:
        if not self._is(text):
            raise QueryError(f"'{text}' is expected {why}, got {self._seen()}.")
        self._take()

    def _seen(self) -> str:
        return f"'{self.token.text}'" if self.token.kind != "end" else "the end"

    def predicate(self, depth: int) -> Node:
        return self._joined("or", self._term, depth)

    def _term(self, depth: int) -> Node:
        return self._joined("and", self._factor, depth)

    def _joined(self, operator: Literal["and", "or"], part: Callable[[int], Node], depth: int) -> Node:
        parts = [part(depth)]
        while self._is(operator):
            self._take()
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else Combined(operator=operator, parts=tuple(parts))

    def _factor(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise QueryError(f"a predicate must nest at most {_MAX_DEPTH} deep. Simplify it.")
        if self._is("not"):
            self._take()
            return Combined(operator="not", parts=(self._factor(depth + 1),))
        if self._is("("):
            self._take()
            inside = self.predicate(depth + 1)
            self._expect(")", "to close '('")
            return inside
        return self._comparison()

    def _operand(self) -> Token:
        if self.token.kind not in ("name", "value", "word") or self._is(*_KEYWORDS):
            raise QueryError(
                f"an attribute or a value is expected, got {self._seen()}. Example: income = '>50K' and age >= 30."
            )
        return self._take()

    def _comparison(self) -> Node:
        first = self._operand()
        if self._is("is"):
            self._take()
            turned = self._is("not")
            if turned:
                self._take()
            self._expect("missing", "after 'is'")
            return _turned(Comparison(operator="missing", operands=(first,)), turned=turned)
        turned = self._is("not")
        if turned:
            self._take()
            if not self._is("in"):
                raise QueryError(f"'in' is expected after 'not', got {self._seen()}.")
        if self._is("in"):
            self._take()
            self._expect("(", "after 'in'")
            values = [self._operand()]
            while self._is(","):
                self._take()
                values.append(self._operand())
            self._expect(")", "to close the list of values")
            return _turned(Comparison(operator="in", operands=(first, *values)), turned=turned)
        if not self._is("=", "!=", *_ORDER):
            raise QueryError(
                f"a comparison is expected after '{first.text}', got {self._seen()}. "
                "Use =, !=, <, <=, >, >=, in (...) or is missing."
            )
        operator, second = self._take().text, self._operand()
        if not self._is(*_ORDER):
            return Comparison(operator=operator, operands=(first, second))
        then, third = self._take().text, self._operand()
        if operator not in _ORDER or operator[0] != then[0]:
            raise QueryError(
                f"a chain must go one way, got '{first.text} {operator} {second.text} {then} {third.text}'. "
                "Write 30 <= age < 40."
            )
        ends = (
            Comparison(operator=TURNED[operator], operands=(second, first)),
            Comparison(operator=then, operands=(second, third)),
        )
        return Combined(operator="and", parts=ends)


def _turned(node: Node, *, turned: bool) -> Node:
    return Combined(operator="not", parts=(node,)) if turned else node


def evaluate(expression: Expression, atom: Callable[[Atom], NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """The truth of a resolved predicate, given that of its atoms: arrays of one shape."""
    if isinstance(expression, Atom):
        return atom(expression)
    parts = [evaluate(part, atom) for part in expression.parts]  # type: ignore[arg-type]
    if expression.operator == "not":
        return ~parts[0]
    join = np.logical_and if expression.operator == "and" else np.logical_or
    return np.asarray(join.reduce(parts))


def attributes_of(expression: Expression) -> tuple[int, ...]:
    """The attributes that a resolved predicate is about, ascending."""
    if isinstance(expression, Atom):
        return (expression.attribute,)
    found = {attribute for part in expression.parts for attribute in attributes_of(part)}  # type: ignore[arg-type]
    return tuple(sorted(found))


def resolve(node: Node, schema: Schema) -> Expression:
    """The same predicate over level codes; unknown names, unknown values and cut bins are refused."""
    if isinstance(node, Combined):
        return Combined(operator=node.operator, parts=tuple(resolve(part, schema) for part in node.parts))
    if isinstance(node, Atom):
        return node
    operator, operands = node.operator, node.operands
    if len(operands) == 2 and operator != "in" and not is_name(operands[0], schema) and is_name(operands[1], schema):
        operator, operands = TURNED.get(operator, operator), operands[::-1]
    index = _attribute_index(operands[0], schema)
    attribute = schema.attributes[index]
    if operator == "missing":
        levels = _missing(attribute)
    elif operator in _ORDER:
        levels = _range(attribute, operator, operands[1])
    else:
        levels = np.zeros(attribute.n_levels, dtype=bool)
        levels[[_level(attribute, operand) for operand in operands[1:]]] = True
        if operator == "!=":
            levels = ~levels
    return Atom(attribute=index, levels=levels)


def traced(expression: Expression, schema: Schema) -> Expression:
    """The same predicate over the measured attributes: what a rule determines, by the attribute that determines it."""
    if isinstance(expression, Atom):
        source, levels = schema.sources[expression.attribute]
        return Atom(attribute=source, levels=expression.levels[levels])
    return Combined(operator=expression.operator, parts=tuple(traced(part, schema) for part in expression.parts))  # type: ignore[arg-type]


def is_name(token: Token, schema: Schema) -> bool:
    """Whether a token stands for an attribute."""
    return token.kind == "name" or (token.kind == "word" and token.text in schema.names)


def _attribute_index(token: Token, schema: Schema) -> int:
    if token.kind == "value":
        raise QueryError(
            f"an attribute is expected, got the value '{token.text}'. Put names in double quotes, or bare."
        )
    if token.text not in schema.names:
        raise QueryError(f"the schema has no attribute '{token.text}'. {_suggest(token.text, schema.names, 'It has')}")
    return schema.names.index(token.text)


def _suggest(text: str, known: Sequence[str], has: str) -> str:
    near = difflib.get_close_matches(text, known, n=3, cutoff=0.6)
    if not near:
        lowered = {name.lower(): name for name in reversed(known)}
        near = [lowered[text.lower()]] if text.lower() in lowered else []
    if near:
        return f"Did you mean {_listed(near)}?"
    return f"{has}: {_listed(known[:12])}{' and others' if len(known) > 12 else ''}."


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)


def _missing(attribute: Attribute) -> NDArray[np.bool_]:
    if attribute.missing_code is None:
        raise QueryError(f"attribute '{attribute.name}' has no missing level. Leave 'is missing' out.")
    levels = np.zeros(attribute.n_levels, dtype=bool)
    levels[attribute.missing_code] = True
    return levels


def _level(attribute: Attribute, token: Token) -> int:
    """The code of the level that a value names."""
    text = token.text
    if text in attribute.levels:
        return attribute.levels.index(text)
    truth = attribute.truth_of(text) if attribute.kind == "boolean" else None
    if truth is not None:
        return truth
    if attribute.kind in BINNED:
        edge = _edge(attribute, text)
        inside = attribute.edges[0] <= edge <= attribute.edges[-1]
        place = min(int(np.searchsorted(attribute.edges, edge, side="right")) - 1, attribute.n_bins - 1)
        for number, named in zip(attribute.special_numbers, attribute.special_codes, strict=True):
            if number == edge:
                return named
        if edge in attribute.points:
            return int(attribute.point_codes[attribute.points.index(edge)])
        if not inside:
            raise QueryError(
                f"attribute '{attribute.name}': {text} lies outside {_span(attribute)}. Ask for a value inside."
            )
        if attribute.kind in STEPPED and attribute.edges[place + 1] - attribute.edges[place] == 1:
            return int(attribute.bin_codes[place])
        low, high = (attribute.edge_text(edge) for edge in attribute.edges[place : place + 2])
        raise QueryError(
            f"attribute '{attribute.name}': {text} lies within the bin [{low}, {high}), and only whole bins were "
            f"measured. Ask {low} <= {attribute.name} < {high}."
        )
    raise QueryError(
        f"attribute '{attribute.name}' has no value '{text}'. {_suggest(text, attribute.levels, 'Its values are')}"
    )


def _span(attribute: Attribute) -> str:
    return f"[{attribute.edge_text(attribute.edges[0])}, {attribute.edge_text(attribute.edges[-1])}]"


def _edge(attribute: Attribute, text: str) -> int | float:
    edge = attribute.number_of(text)
    if edge is None or (isinstance(edge, float) and math.isnan(edge)):
        what = "a number" if attribute.kind in NUMBERS else f"a {attribute.kind}"
        if attribute.kind in ("date", "datetime"):
            what = "an ISO date such as '2020-01-31'"
        raise QueryError(f"attribute '{attribute.name}' is compared with {what}, got '{text}'.")
    return edge


def _range(attribute: Attribute, operator: str, token: Token) -> NDArray[np.bool_]:
    """The bins and points below or above a border, which must be an edge, or a point that begins a bin.

    Whole numbers and days: x <= 39 is x < 40. Beyond the outer edges every bin is on one side. Special values have no
    order, and are on no side.
    """
    if attribute.ordered:
        return _ranked(attribute, operator, token)
    if attribute.kind not in BINNED:
        raise QueryError(
            f"attribute '{attribute.name}' is {attribute.kind} and has no order. Use = or in with its values."
        )
    border, edges = _edge(attribute, token.text), attribute.edges
    held = np.zeros(attribute.n_levels, dtype=bool)
    for point, code in zip(attribute.points, attribute.point_codes, strict=True):
        held[code] = COMPARED[operator](point, border)
    if border in edges[:-1] and border in attribute.points and operator in ("<=", ">"):
        # The point stands apart from the bin that it begins, so the cut goes between them.
        cut = edges.index(border)
    else:
        cut = _cut(attribute, operator, token)
    if operator[0] == "<":
        held[attribute.bin_codes[:cut]] = True
    else:
        held[attribute.bin_codes[cut:]] = True
    return held


def _ranked(attribute: Attribute, operator: str, token: Token) -> NDArray[np.bool_]:
    """The categories below or above one of them, in the order of the schema."""
    held = np.zeros(attribute.n_levels, dtype=bool)
    named = _level(attribute, token)
    if named >= attribute.n_values:
        raise QueryError(f"attribute '{attribute.name}': '{token.text}' has no place in the order. Use = or in.")
    held[: attribute.n_values] = COMPARED[operator](np.arange(attribute.n_values), named)
    return held


def _cut(attribute: Attribute, operator: str, token: Token) -> int:
    """The number of bins below a border, which must be an edge."""
    border, edges = _edge(attribute, token.text), attribute.edges
    if attribute.kind in STEPPED and border == border // 1:
        border += operator in ("<=", ">")
    elif operator in ("<=", ">") and edges[0] <= border < edges[-1]:
        # Bins hold their lower edge: x <= 40 would cut the one that begins at 40.
        below = operator == "<="
        raise QueryError(
            f"attribute '{attribute.name}': {operator} {token.text} cuts a bin, because bins include their lower edge. "
            f"Ask {attribute.name} {'<' if below else '>='} {_nearest(attribute, float(border))}."
        )
    # The last bin of a real includes its upper edge, unless that is a point.
    at_end = attribute.kind == "real" and border == edges[-1] and border not in attribute.points
    if at_end and operator in ("<", ">="):
        raise QueryError(
            f"attribute '{attribute.name}': the last bin includes {token.text}. Use <= or >, or a lower edge."
        )
    cut = int(np.searchsorted(edges, border, side="left"))
    if edges[0] < border < edges[-1] and edges[cut] != border:
        low, high = (attribute.edge_text(edge) for edge in edges[cut - 1 : cut + 1])
        sign = "<" if operator[0] == "<" else ">="
        raise QueryError(
            f"attribute '{attribute.name}': {operator} {token.text} cuts the bin [{low}, {high}), and only whole bins "
            f"were measured. Ask {attribute.name} {sign} {low} or {attribute.name} {sign} {high}."
        )
    return min(cut, attribute.n_bins)


def _nearest(attribute: Attribute, border: float) -> str:
    edges = np.array(attribute.edges, dtype=np.float64)
    return attribute.edge_text(attribute.edges[int(np.abs(edges - border).argmin())])
