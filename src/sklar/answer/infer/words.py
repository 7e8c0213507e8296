"""Questions in words: how a text is read. It is never evaluated as code, and its functions are a closed list. More:
docs/derivations.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from sklar.answer.effects import Floats
from sklar.answer.predicate import (
    COMPARED,
    Expression,
    QueryError,
    Token,
    TokenReader,
    borders,
    find_attribute,
    parse,
    resolve,
    tokenize,
)
from sklar.machine.wording import said
from sklar.public.schema import Schema

_EXAMPLES = "Ask mean(x), median(x), share(x = 'a'), corr(x, y), independent(x, y), or y ~ x + z."
# How answers name measures; all but shares, odds and correlations are of one product.
_NAMED = {"share": "share of rows with ", "sd": "standard deviation of ", "corr": "correlation of "}
_MEASURES = ("mean", "share", "odds", "sum", "sd", "median", "quantile", "corr")
FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {"": np.asarray, "log": np.log, "sqrt": np.sqrt}
FAMILIES = {"ols": "linear", "logit": "logistic", "poisson": "Poisson"}
_MOST_CROSSED = 4
_POWERS, QUANTILES = ("2", "3"), ("median", "quantile")


class Factor(NamedTuple):
    """A function of an attribute: of its numbers, or "C", of its categories."""

    function: str
    attribute: int


Product: TypeAlias = tuple[Factor, ...]


class Measure(NamedTuple):
    """A number that rows have: of products, of the rows with an event, or of all levels of an attribute."""

    word: str
    text: str
    products: tuple[Product, ...] = ()
    event: Expression | None = None
    levels: int | None = None
    part: float = 0.5

    @property
    def attributes(self) -> set[int]:
        """What it looks at."""
        named = {factor.attribute for product in self.products for factor in product}
        named |= set() if self.event is None else set(self.event.attributes)
        return named if self.levels is None else {self.levels}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistic:
    """What a question asks for, with its attributes by their place in the schema.

    `measures` are one, or two to divide, or a formula's outcome, whose regressors are `terms`; `names` are what a
    function or a test of independence looks at. Its predicates compare numbers with `borders`, and `cuts` are those of
    them inside bins, by attribute.
    """

    text: str
    kind: Literal["measure", "independent", "formula", "function"]
    measures: tuple[Measure, ...] = ()
    terms: tuple[Product, ...] = ()
    family: str = ""
    names: tuple[int, ...] = ()
    compared: str | None = None
    by: tuple[int, ...] = ()
    weight: int | None = None
    given: Expression | None = None
    given_text: str = ""
    cuts: Mapping[str, set[int | float]] = field(default_factory=dict)
    borders: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def attributes(self) -> set[int]:
        """All that the question names."""
        named = {*self.names, *self.by, *(() if self.weight is None else (self.weight,))}
        named |= {factor.attribute for product in self.terms for factor in product}
        named |= {i for measure in self.measures for i in measure.attributes}
        return named | (set() if self.given is None else set(self.given.attributes))


def is_plain(product: Product) -> bool:
    """Whether a product is an attribute as it is."""
    return len(product) == 1 and product[0].function == ""


def shown(product: Product, schema: Schema) -> str:
    """A product as a person writes it."""
    texts = [schema.names[i] if not function else f"{function}({schema.names[i]})" for function, i in product]
    return ":".join(f"{each}^{texts.count(each)}" if texts.count(each) > 1 else each for each in dict.fromkeys(texts))


def read_question(text: str, schema: Schema) -> Statistic:
    """The statistic that a text asks for of a table with this schema."""
    return _Reader(text, schema).question()


def read_predicate(text: str, schema: Schema, *, exact: bool = False) -> Statistic:
    """The share of rows that satisfy a predicate; `exact` refuses one that cuts bins."""
    reader = _Reader("", schema, exact=exact)
    share = Measure("share", _NAMED["share"] + text.strip(), event=reader.predicate(text))
    return Statistic(text=text.strip(), kind="measure", measures=(share,), cuts=reader.cuts, borders=reader.borders)


class _Reader(TokenReader):
    hint = f" {_EXAMPLES}"

    def __init__(self, text: str, schema: Schema, *, exact: bool = False) -> None:
        self._text, self._schema, split = text, schema, list[Token]()
        self._exact, self.cuts, self.borders = exact, dict[str, set[int | float]](), dict[str, list[float]]()
        for token in tokenize(text):
            # Words such as a+b are divided at the signs, where they are no name.
            whole = token.kind != "word" or token.text in schema.names
            pieces = [token.text] if whole else re.split(r"([+:/])", token.text)
            split += [Token(token.kind, piece, token.at) for piece in pieces if piece or whole]
        super().__init__(split)

    def question(self) -> Statistic:
        """The whole text."""
        compared = self.take("difference", "ratio")
        if compared:
            self.expect("of", f"after '{compared}'")
        tildes = [at for at, token in enumerate(self.tokens) if (token.kind, token.text) == ("sign", "~")]
        if len(tildes) > 1:
            raise QueryError("a formula has one '~', got more. Write outcome ~ name + name.")
        if tildes:
            asked = self._formula(tildes[0])
        elif self.take("independent"):
            self.expect("(", "to begin what is asked about")
            names = self._attributes()
            self.expect(")", "to close '('")
            self._require("independent", tuple((Factor("", each),) for each in names), 2)
            asked = {"kind": "independent", "names": names}
        else:
            first = self._measure()
            asked = {"kind": "measure", "measures": (first, self._measure()) if self.take("/") else (first,)}
        by = self._attributes() if self.take("by") else ()
        if self.take("weighted"):
            self.expect("by", "after 'weighted'")
            asked["weight"] = self._find()
        if self.take("where"):
            rest = self._text[self.token.at :]
            self.at = len(self.tokens) - 1
            # A test has no bounds that hold whatever the share of a cut bin is.
            self._exact = self._exact or asked["kind"] == "independent"
            asked |= {"given": self.predicate(rest), "given_text": rest.strip()}
        if self.token.kind != "end":
            why = "a formula lists names with +, : or * between them" if tildes else "a question ends with 'by' names"
            raise QueryError(f"{self.shown} is not expected here: {why}, or 'where' a predicate. {_EXAMPLES}")
        if compared and not by and not (tildes and compared == "ratio"):
            raise QueryError(f"a {compared} is between groups of a measure. Write {compared} of mean(x) by z.")
        if (by and asked["kind"] != "measure") or (asked["kind"] == "independent" and "weight" in asked):
            what = "a formula" if tildes else "a test of independence"
            raise QueryError(f"{what} has no groups{' and no weights' * (not tildes)}. Ask for some rows with where.")
        if len(set(by)) < len(by):
            raise QueryError("groups are by different attributes, got one twice. Remove one.")
        quantiles = any(measure.word in QUANTILES for measure in asked.get("measures", ()))
        if quantiles and (compared or len(asked["measures"]) > 1):
            raise QueryError("a quantile is known up to a bin, and is not compared. Ask for it alone, or by groups.")
        asked |= {"cuts": self.cuts, "borders": self.borders}
        return Statistic(text=self._text.strip(), compared=compared, by=by, **asked)

    def predicate(self, text: str) -> Expression:
        """A predicate, which may cut bins."""
        stated = parse(text)
        for name, numbers in borders(stated, self._schema).items():
            self.borders.setdefault(name, []).extend(numbers)
        return resolve(stated, self._schema, None if self._exact else self.cuts)

    def _find(self) -> int:
        if self.token.kind not in ("name", "word"):
            raise QueryError(f"an attribute is expected, got {self.shown}. {_EXAMPLES}")
        return find_attribute(self.advance(), self._schema)

    def _attributes(self) -> tuple[int, ...]:
        names = [self._find()]
        while self.take(","):
            names.append(self._find())
        return tuple(names)

    def _require(self, word: str, found: tuple[Product, ...], number: int) -> None:
        if len(found) != number:
            raise QueryError(f"{word} takes {number} name{'s'[: number > 1]}, got {len(found)}. {_EXAMPLES}")
        if len(set(found)) < number:
            twice = shown(found[0], self._schema)
            raise QueryError(f"{word} takes two different attributes, got '{twice}' twice. Name another.")

    def _measure(self) -> Measure:
        word, part = self.take(*_MEASURES), 0.5
        if word is None:
            raise QueryError(f"{self.shown} begins no question that can be answered. {_EXAMPLES}")
        self.expect("(", "to begin what is asked about")
        if word in ("share", "odds"):
            return self._event(word)
        products = [self._product("*", ":")]
        if word in QUANTILES and not is_plain(products[0]):
            raise QueryError(said("answer.quantile", got=shown(products[0], self._schema)))
        if word == "quantile":
            self.expect(",", "before the part of rows that lies below, such as quantile(x, 0.9)")
            text = self.advance().text
            if not re.fullmatch(r"0?\.\d*[1-9]\d*", text):
                raise QueryError(f"a quantile is of a part between 0 and 1, got '{text}'. Write quantile(x, 0.9).")
            part = float(text)
        while self.take(","):
            products.append(self._product("*", ":"))
        self.expect(")", "to close '('")
        if any(factor.function == "C" for product in products for factor in product):
            raise QueryError(f"C(...) takes a number by its bins, which have no {word}. Use it in formulas, or share.")
        self._require(word, tuple(products), 1 + (word == "corr"))
        named = " and ".join(shown(each, self._schema) for each in products)
        begins = f"{part:g} " if word == "quantile" else ""
        return Measure(word, begins + _NAMED.get(word, f"{word} of ") + named, tuple(products), part=part)

    def _event(self, word: str) -> Measure:
        """Take the name or the predicate of a share or of odds, and what closes it."""
        start, depth = self.at, 1
        while depth:
            token = self.advance()
            if token.kind == "end":
                raise QueryError(f"')' is expected to close '(', got the end. {_EXAMPLES}")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        inside = self.tokens[start : self.at]
        if len(inside) == 2 and word == "share":
            end, self.at = self.at, start
            index, self.at = self._find(), end
            return Measure(word, f"shares of {self._schema.names[index]}", levels=index)
        text = self._text[inside[0].at : inside[-1].at].strip()
        return Measure(word, _NAMED.get(word, "odds of ") + text, event=self.predicate(text))

    def _product(self, *signs: str) -> Product:
        factors = self._factor()
        while self.take(*signs):
            factors += self._factor()
        return tuple(sorted(factors, key=lambda each: each.attribute)) if len(signs) == 1 else factors

    def _factor(self) -> Product:
        function = ""
        if self.tokens[min(self.at + 1, len(self.tokens) - 1)].text == "(":
            function = (self.take("c", *filter(None, FUNCTIONS)) or "").replace("c", "C")
            if not function:
                raise QueryError(f"{self.shown} is no function that questions know. They are log, sqrt and C.")
            self.expect("(", "to begin what it is of")
        index = self._find()
        if function:
            self.expect(")", "to close '('")
        power = 1
        if self.take("^"):
            if self.token.text not in _POWERS:
                raise QueryError(f"a power is {' or '.join(_POWERS)}, got {self.shown}. Write x^2.")
            power = int(self.advance().text)
        return (Factor(function, index),) * power

    def _formula(self, tilde: int) -> dict[str, Any]:
        family = self.take(*FAMILIES) if self.tokens[self.at + 1].text == "(" else None
        if family:
            self.expect("(", "to begin a formula")
        if self.at >= tilde:
            raise QueryError("an outcome is expected before '~', got nothing. Write outcome ~ name + name.")
        text = self._text[self.token.at : self.tokens[tilde].at].strip()
        left = self.tokens[self.at : tilde]
        if any(token.text.lower() in ("=", "!=", "in", "is", *COMPARED) and token.kind != "name" for token in left):
            outcome = Measure("outcome", text, event=self.predicate(text))
            self.at = tilde
        else:
            outcome = Measure("outcome", text, (self._product("*", ":"),))
        self.expect("~", "after the outcome")
        terms = self._terms()
        if family:
            self.expect(")", "to close '('")
        return {"kind": "formula", "measures": (outcome,), "terms": terms, "family": family or ""}

    def _terms(self) -> tuple[Product, ...]:
        terms: list[Product] = []
        while not terms or self.take("+"):
            crossed = [self._product(":")]
            while self.take("*"):
                crossed.append(self._product(":"))
            if len(crossed) > _MOST_CROSSED:
                raise QueryError(said("answer.many_crossed", most=_MOST_CROSSED, got=len(crossed)))
            for size in range(1, len(crossed) + 1):
                for chosen in combinations(crossed, size):
                    product = tuple(sorted(sum(chosen, ()), key=lambda each: each.attribute))
                    if product in terms:
                        twice = shown(product, self._schema)
                        raise QueryError(f"a formula names each term once, got '{twice}' twice. Remove one.")
                    terms.append(product)
        return tuple(terms)
