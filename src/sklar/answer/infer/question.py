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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sklar.answer.predicate import Expression, QueryError, Token, parse, resolve, tokenize
from sklar.public.schema import Schema

_EXAMPLES = "Ask mean(x), share(x = 'a'), corr(x, y), independent(x, y), or y ~ x + z."
_QUOTED_OR_TILDE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|~""")

Kind = Literal["mean", "share", "shares", "corr", "independent", "formula"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A question with its attributes by their place in the schema.

    `names` are the attributes that the statistic is about: the two of `corr` and `independent`, the one of `mean` and
    of `shares`, the regressors of a formula. `event` is the predicate of a share, or that of a formula whose outcome is
    one; `outcome` holds the attribute otherwise.
    """

    text: str
    kind: Kind
    names: tuple[int, ...] = ()
    event: Expression | None = None
    outcome: tuple[int, ...] = ()
    difference: bool = False
    by: tuple[int, ...] = ()
    given: Expression | None = None
    given_text: str = ""
    event_text: str = ""


def read(text: str, schema: Schema) -> Question:
    """The question that a text asks of a table with this schema."""
    tildes = [found.start() for found in _QUOTED_OR_TILDE.finditer(text) if found.group() == "~"]
    if len(tildes) > 1:
        raise QueryError("a formula has one '~', got more. Write outcome ~ name + name.")
    if tildes:
        return _formula(text, tildes[0], schema)
    return _Reader(text, schema).question()


def _formula(text: str, at: int, schema: Schema) -> Question:
    left, right = text[:at], text[at + 1 :]
    reader = _Reader(right, schema)
    names = [reader.attribute()]
    while reader.take("+"):
        names.append(reader.attribute())
    given, given_text = reader.condition()
    reader.end("a formula lists names with + between them")
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise QueryError(f"a formula names each attribute once, got '{schema.names[twice[0]]}' twice. Remove one.")
    tokens = tokenize(left)
    if tokens[0].kind == "end":
        raise QueryError("an outcome is expected before '~', got nothing. Write outcome ~ name + name.")
    event: Expression | None = None
    outcome: tuple[int, ...] = ()
    if len(tokens) == 2:
        outcome = (find(tokens[0], schema),)
        if outcome[0] in names:
            raise QueryError(f"'{schema.names[outcome[0]]}' is the outcome and cannot explain itself. Remove it.")
    else:
        event = resolve(parse(left), schema)
    return Question(
        text=text.strip(),
        kind="formula",
        names=tuple(names),
        event=event,
        event_text="" if event is None else left.strip(),
        outcome=outcome,
        given=given,
        given_text=given_text,
    )


def find(token: Token, schema: Schema) -> int:
    """The place of the attribute that a token names."""
    if token.kind not in ("name", "word"):
        raise QueryError(f"an attribute is expected, got '{token.text}'. {_EXAMPLES}")
    # An atom of the language of predicates finds and suggests names in the same words.
    if token.text not in schema.names:
        resolve(parse(f'"{token.text.replace(chr(34), chr(34) * 2)}" = 0'), schema)
    return schema.names.index(token.text)


class _Reader:
    """Reads tokens one after the other."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._text, self._schema, self._at = text, schema, 0
        self._tokens = _split(tokenize(text), schema)

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def take(self, *words: str) -> str | None:
        """The next token where it is one of these words or signs, in small letters."""
        token = self._token
        if token.kind in ("word", "sign") and token.text.lower() in words:
            self._at += 1
            return token.text.lower()
        return None

    def expect(self, word: str, why: str) -> None:
        """Take a word or sign that must stand here."""
        if self.take(word) is None:
            raise QueryError(f"'{word}' is expected {why}, got {self._seen()}. {_EXAMPLES}")

    def attribute(self) -> int:
        """Take the name of an attribute."""
        token = self._token
        if token.kind == "end":
            raise QueryError(f"an attribute is expected, got the end. {_EXAMPLES}")
        self._at += 1
        return find(token, self._schema)

    def _seen(self) -> str:
        return "the end" if self._token.kind == "end" else f"'{self._token.text}'"

    def end(self, why: str) -> None:
        """Nothing may follow."""
        if self._token.kind != "end":
            raise QueryError(f"{self._seen()} is not expected here: {why}. {_EXAMPLES}")

    def condition(self) -> tuple[Expression | None, str]:
        """The predicate after `where`, if there is one, and its text."""
        if self.take("where") is None:
            return None, ""
        rest = self._text[self._token.at :]
        self._at = len(self._tokens) - 1
        return resolve(parse(rest), self._schema), rest.strip()

    def _inside(self) -> Sequence[Token]:
        """Take what stands between parentheses."""
        self.expect("(", "to begin what is asked about")
        start, depth = self._at, 1
        while depth:
            token = self._token
            if token.kind == "end":
                raise QueryError(f"')' is expected to close '(', got the end. {_EXAMPLES}")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
            self._at += 1
        return self._tokens[start : self._at]

    def question(self) -> Question:
        """A question that is no formula."""
        difference = False
        if self.take("difference"):
            self.expect("of", "after 'difference'")
            difference = True
        asked = self.take("mean", "share", "shares", "corr", "independent")
        if asked is None:
            raise QueryError(f"{self._seen()} begins no question that can be answered. {_EXAMPLES}")
        inside = self._inside()
        text = self._text[inside[0].at : inside[-1].at].strip()
        names: tuple[int, ...] = ()
        event, kind = None, asked
        if asked in ("share", "shares") and len(inside) == 2:
            names, kind = (find(inside[0], self._schema),), "shares"
        elif asked in ("share", "shares"):
            event, kind = resolve(parse(text), self._schema), "share"
        else:
            names = self._listed(inside, 1 if asked == "mean" else 2, asked)
        by: list[int] = []
        if self.take("by"):
            by.append(self.attribute())
            while self.take(","):
                by.append(self.attribute())
        given, given_text = self.condition()
        self.end("a question ends with 'by' names or 'where' a predicate")
        self._check(asked, difference=difference, by=by, given=given)
        return Question(
            text=self._text.strip(),
            kind=kind,  # type: ignore[arg-type]
            names=names,
            event=event,
            event_text=text if event is not None else "",
            difference=difference,
            by=tuple(by),
            given=given,
            given_text=given_text,
        )

    def _listed(self, inside: Sequence[Token], wanted: int, asked: str) -> tuple[int, ...]:
        names = [token for token in inside[:-1] if token.text != "," or token.kind != "sign"]
        if len(names) != wanted or len(inside) != 2 * wanted:
            raise QueryError(f"{asked} takes {wanted} name{'s'[: wanted > 1]}, got {len(names)}. {_EXAMPLES}")
        found = tuple(find(token, self._schema) for token in names)
        if len(set(found)) < len(found):
            raise QueryError(f"{asked} takes two different attributes, got '{names[0].text}' twice. Name another.")
        return found

    def _check(self, asked: str, *, difference: bool, by: Sequence[int], given: Expression | None) -> None:
        if difference and (not by or asked == "corr"):
            raise QueryError("a difference is between groups of a mean or a share. Write difference of mean(x) by z.")
        if asked in ("corr", "independent") and by:
            raise QueryError(f"{asked} has no groups. Remove 'by', or ask for one group at a time with where.")
        if asked == "independent" and given is not None:
            raise QueryError("independent is asked of all rows. Remove 'where'.")
        if len(set(by)) < len(by):
            raise QueryError("groups are by different attributes, got one twice. Remove one.")


def _split(tokens: Sequence[Token], schema: Schema) -> list[Token]:
    """The same tokens, with words such as a+b divided at the signs, where they are no name."""
    found: list[Token] = []
    for token in tokens:
        if token.kind == "word" and "+" in token.text and token.text not in schema.names:
            pieces = [piece for piece in re.split(r"(\+)", token.text) if piece]
            found += [Token(kind="word", text=piece, at=token.at) for piece in pieces]
        else:
            found.append(token)
    return found
