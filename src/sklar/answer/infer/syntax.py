"""The questions that inference answers, read by hand and never evaluated as code.

    question  = statistic ["where" predicate] | "independent" "(" name "," name ")"
    statistic = ["difference" "of"] measure ["by" name { "," name }] | "corr" "(" name "," name ")" | formula
    measure   = "mean" "(" name ")" | "share" "(" predicate ")" | "share" "(" name ")"
    formula   = outcome "~" name { "+" name }
    outcome   = name | predicate

Names, values and predicates are written as `query` takes them (`answer.predicate`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from sklar.answer.predicate import Expression, QueryError, Token, TokenReader, find_attribute, parse, resolve, tokenize
from sklar.public.schema import Schema

_EXAMPLES = "Ask mean(x), share(x = 'a'), corr(x, y), independent(x, y), or y ~ x + z."
_QUOTED_OR_TILDE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|~""")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistic:
    """What a question asks for, with its attributes by their place in the schema.

    `names` are a formula's regressors, or what else it is about; its outcome is an `event` or the attribute `outcome`.
    """

    text: str
    kind: Literal["mean", "share", "shares", "corr", "independent", "formula"]
    names: tuple[int, ...] = ()
    event: Expression | None = None
    event_text: str = ""
    outcome: tuple[int, ...] = ()
    difference: bool = False
    by: tuple[int, ...] = ()
    given: Expression | None = None
    given_text: str = ""


def read(text: str, schema: Schema) -> Statistic:
    """The statistic that a text asks for of a table with this schema."""
    tildes = [match.start() for match in _QUOTED_OR_TILDE.finditer(text) if match.group() == "~"]
    if len(tildes) > 1:
        raise QueryError("a formula has one '~', got more. Write outcome ~ name + name.")
    if not tildes:
        return _Reader(text, schema).statistic()
    left, reader = text[: tildes[0]], _Reader(text[tildes[0] + 1 :], schema)
    names, given = reader.attributes("+"), reader.condition()
    reader.end("a formula lists names with + between them")
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise QueryError(f"a formula names each attribute once, got '{schema.names[twice[0]]}' twice. Remove one.")
    tokens = tokenize(left)
    if tokens[0].kind == "end":
        raise QueryError("an outcome is expected before '~', got nothing. Write outcome ~ name + name.")
    outcome = (_find(tokens[0], schema),) if len(tokens) == 2 else ()
    if outcome and outcome[0] in names:
        raise QueryError(f"'{schema.names[outcome[0]]}' is the outcome and cannot explain itself. Remove it.")
    event: dict[str, Any] = {} if outcome else {"event": resolve(parse(left), schema), "event_text": left.strip()}
    return Statistic(text=text.strip(), kind="formula", names=names, outcome=outcome, **event, **given)


def _find(token: Token, schema: Schema) -> int:
    if token.kind not in ("name", "word"):
        shown = "the end" if token.kind == "end" else f"'{token.text}'"
        raise QueryError(f"an attribute is expected, got {shown}. {_EXAMPLES}")
    return find_attribute(token, schema)


class _Reader(TokenReader):
    hint = f" {_EXAMPLES}"

    def __init__(self, text: str, schema: Schema) -> None:
        self._text, self._schema, split = text, schema, list[Token]()
        for token in tokenize(text):
            # Words such as a+b are divided at the signs, where they are no name.
            whole = token.kind != "word" or token.text in schema.names
            pieces = [token.text] if whole else re.split(r"(\+)", token.text)
            split += [Token(token.kind, piece, token.at) for piece in pieces if piece or whole]
        super().__init__(split)

    def attributes(self, separator: str) -> tuple[int, ...]:
        """Take names of attributes."""
        names: list[int] = []
        while not names or self.take(separator):
            names.append(_find(self.advance(), self._schema))
        return tuple(names)

    def end(self, why: str) -> None:
        """Nothing may follow."""
        if self.token.kind != "end":
            raise QueryError(f"{self.shown} is not expected here: {why}. {_EXAMPLES}")

    def condition(self) -> dict[str, Any]:
        """The predicate after `where`, if there is one, and its text."""
        if self.take("where") is None:
            return {}
        rest = self._text[self.token.at :]
        self.at = len(self.tokens) - 1
        return {"given": resolve(parse(rest), self._schema), "given_text": rest.strip()}

    def statistic(self) -> Statistic:
        """A statistic that is no formula."""
        difference = self.take("difference") is not None
        if difference:
            self.expect("of", "after 'difference'")
        word = self.take("mean", "share", "shares", "corr", "independent")
        if word is None:
            raise QueryError(f"{self.shown} begins no question that can be answered. {_EXAMPLES}")
        self.expect("(", "to begin what is asked about")
        about = self._share() if word in ("share", "shares") else self._named(word)
        by = self.attributes(",") if self.take("by") else ()
        given = self.condition()
        self.end("a question ends with 'by' names or 'where' a predicate")
        if difference and (not by or word == "corr"):
            raise QueryError("a difference is between groups of a mean or a share. Write difference of mean(x) by z.")
        if word in ("corr", "independent") and by:
            raise QueryError(f"{word} has no groups. Remove 'by', or ask for one group at a time with where.")
        if word == "independent" and given:
            raise QueryError("independent is asked of all rows. Remove 'where'.")
        if len(set(by)) < len(by):
            raise QueryError("groups are by different attributes, got one twice. Remove one.")
        return Statistic(text=self._text.strip(), difference=difference, by=by, **about, **given)

    def _share(self) -> dict[str, Any]:
        """Take the name or the predicate of a share, and what closes it."""
        start, depth = self.at, 1
        while depth:
            token = self.advance()
            if token.kind == "end":
                raise QueryError(f"')' is expected to close '(', got the end. {_EXAMPLES}")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        inside = self.tokens[start : self.at]
        if len(inside) == 2:
            return {"kind": "shares", "names": (_find(inside[0], self._schema),)}
        text = self._text[inside[0].at : inside[-1].at].strip()
        return {"kind": "share", "event": resolve(parse(text), self._schema), "event_text": text}

    def _named(self, word: str) -> dict[str, Any]:
        """Take the names of any other statistic, and what closes them."""
        names, number = self.attributes(","), 1 if word == "mean" else 2
        self.expect(")", "to close '('")
        if len(names) != number:
            raise QueryError(f"{word} takes {number} name{'s'[: number > 1]}, got {len(names)}. {_EXAMPLES}")
        if len(set(names)) < number:
            twice = self._schema.names[names[0]]
            raise QueryError(f"{word} takes two different attributes, got '{twice}' twice. Name another.")
        return {"kind": word, "names": names}
