"""A release of every kind, over a table and a neighbor of it whose exact answers are known.

Exact answers are those of the kernel's plain routines to codes that are written down here. What those cannot give (the
tables of domains that were found, tokens of linked tables) is measured with a budget that needs no noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.budget.method import Method
from sklar.budget.plan import TOKENS
from sklar.budget.receipt import LedgerLike
from sklar.budget.search import asked_of, ladder_of, next_cells
from sklar.fitting.density import searched
from sklar.kernel.people import deal
from sklar.kernel.queries import Block, Common, Distances, Shares
from sklar.kernel.theorems import Budget, Neighbors
from sklar.public.schema import Attribute, Schema
from sklar.public.tree import Branch, Known, Tree
from sklar.release import measure
from sklar.rows.encode import encode
from sklar.trust.audit.inventions import EXACT, frame_of, people_of, whole_numbers

AUTO = Method()
# Tokens that audited people deal at once: they have one, two or four events, and as many steps, or fewer.
_DEALT = TOKENS // 4
# One table by no name, or several by theirs.
Frames: TypeAlias = dict[str, pl.DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """A kind of release: its schema and budget, a table, and a neighbor of it in which one row or person moved far."""

    name: str
    schema: Known
    budget: Budget
    tables: tuple[Frames, Frames]
    method: Method = AUTO

    def measure(self, which: int = 0, *, budget: Budget | None = None, ledger: LedgerLike = None) -> Measured:
        """Release the table (0) or its neighbor (1), through the public interface."""
        charged: dict[str, Any] = {"ledger": ledger, "dataset": None if ledger is None else "audit"}
        return measure(self.data(which), self.schema, budget or self.budget, method=self.method, **charged)

    def data(self, which: int = 0) -> Any:
        """The table, or its neighbor, as a release takes it."""
        return self.tables[which].get("", self.tables[which])

    def exact(self, measured: Measured, which: int = 0) -> list[NDArray[np.int64]]:
        """What every block of a release would hold without noise, if this were the table."""
        asked: list[Any] = [block.query for block in measured.blocks]
        if measured.tree is not None:
            codes, tokens = _joint(self.tables[which], measured.tree, measured.certificate.tokens or 1)
            known = _bare(self, which)
            return [
                known[query.what] // (TOKENS // query.each) if isinstance(query, Shares)
                else query.answer(query.of.count(codes, tokens)) if isinstance(query, Distances)
                else query.count(codes, tokens)
                for query in asked
            ]  # fmt: skip
        frame, person = self.tables[which][""], measured.schema.person
        if person is not None:
            # Who has more rows than are counted has equal ones.
            frame = frame.group_by("id", maintain_order=True).head(person.rows_per_person)
        sought = [
            counts
            for finding, own in searched(measured.certificate.domains, measured.blocks)
            for counts in _sought(finding, own, frame, measured.schema)
        ]
        if sought:
            # Over the domains that were found, which are public now.
            found = measure(frame, measured.schema, replace(self.budget, epsilon=EXACT.epsilon))
            inside = {type(block.query): block.values for block in found.blocks}
            codes, left = encode(frame, measured.schema).astype(np.int64), asked[len(sought) :]
            return [*sought, *(inside[Shares] if isinstance(each, Shares) else each.count(codes) for each in left)]
        plain = frame.select(measured.schema.names).fill_null(-1).to_numpy().T
        return [query.count(plain) for query in asked]


def scales_of(measured: Measured) -> NDArray[np.float64]:
    """The noise scale of every cell of a release."""
    own = ((block, [block.values.size] if block.keys is not None else block.query.sizes) for block in measured.blocks)
    return np.concatenate([np.repeat(block.scales, sizes) for block, sizes in own])


@cache
def _bare(kind: Kind, which: int) -> dict[str, NDArray[Any]]:
    """The exact tokens of what is measured beside the joint table of linked tables, by name."""
    bare = kind.measure(which, budget=replace(kind.budget, epsilon=EXACT.epsilon))
    held = {getattr(block.query, "what", ""): block for block in bare.blocks}
    # Noise of a token or two is what such a budget leaves: people deal many at a time.
    return {what: (np.rint(own.values / _DEALT) * _DEALT).astype(np.int64) for what, own in held.items()}


def _joint(frames: Frames, tree: Tree, each: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Codes of the joint table of people and their events, and tokens: a row an event, or one of who has none."""
    people, events = (frames[branch.name].fill_null(-1) for branch in tree.branches)
    owner, below = events["person"].to_numpy(), tree.branches[1].schema
    whose = np.concatenate([owner, np.setdiff1d(people["id"].to_numpy(), owner)])
    own = events.select(below.names).to_numpy().T
    none = np.repeat(below.sizes[:, None], whose.size - owner.size, axis=1)
    place = np.searchsorted(people["id"].to_numpy(), whose)
    number = np.bincount(owner, minlength=int(whose.max()) + 1)[whose]
    bins = np.searchsorted(np.array(tree.branches[1].bins), number, side="right") - 1
    codes = [*people.select(tree.root.schema.names).to_numpy().T[:, place], bins, *np.hstack([own, none])]
    return np.array(codes), deal(whose, np.ones_like(whose), each)


def _sought(finding: Any, blocks: list[Block], frame: pl.DataFrame, schema: Schema) -> list[NDArray[np.int64]]:
    """Exact answers to one search: of common values those that were listed, of numbers every table."""
    column = frame[finding.attribute]
    if isinstance(blocks[0].query, Common):
        count = blocks[0].query.count(column.to_list())
        return [np.array([count.get(key, 0) for key in blocks[0].keys or ()], dtype=np.int64)]
    ladder = ladder_of(asked_of(finding, schema.attribute(finding.attribute)))
    units = np.clip(column.to_numpy(), ladder.low, ladder.high - 1)
    if finding.of == "rounding":
        return [np.bincount(ladder.rounding_cells(units), minlength=ladder.rounding_size)]
    noisy = [block.values for block in blocks]
    edges = [next_cells(ladder, noisy[:number], finding.scale)[-1] for number in range(len(noisy))]
    return [np.histogram(units, each - 0.5)[0] for each in edges]


def _numbers(sizes: tuple[int, ...], rows: int) -> NDArray[np.int64]:
    """Codes, shape (m, rows): low levels are common, some cells are empty; one may follow from two others, or all."""
    generator = np.random.default_rng(rows)
    codes = np.array([size * (0.85 * generator.random(rows)) ** 2 for size in sizes]).astype(np.int64)
    codes[-1, ::2] = (codes[0] + codes[1])[::2] % sizes[-1]
    codes[-1, 1::4] = codes[:-1].sum(axis=0)[1::4] % sizes[-1]
    # A row that is in no cell of one attribute.
    codes[1, -1] = -1
    return codes


def rows_of(
    name: str, sizes: tuple[int, ...], rows: int, budget: Budget, people: int = 0, method: Method = AUTO
) -> Kind:
    """A row, or a person of up to `people` rows, at the lowest levels in the table and at the highest in its neighbor.

    Of bits half are changed: so many parities change.
    """
    schema, codes, most = whole_numbers(*sizes), _numbers(sizes, rows), max(people, 1)
    changed = len(sizes) // 2 if max(sizes) == 2 and not method.paper else len(sizes)
    first, ids = codes.copy(), pl.Series("id", np.arange(rows) // most)
    codes[:changed, :most] = np.array(sizes)[:changed, None] - 1
    first[:, :most] = 0
    one, two = (frame_of(schema, each).with_columns(ids) for each in (first, codes))
    other = one if budget.neighbors == "replace-one" else two[most:]
    if people:
        schema = people_of(schema, "people" if people == 1 else "rows", people)
        # The first person has more rows than are counted.
        two = two.vstack(two[[0] * (people + 1)])
    return Kind(name=name, schema=schema, budget=budget, tables=({"": two}, {"": other}), method=method)


def _searching(name: str, budget: Budget) -> Kind:
    generator, rows = np.random.default_rng(1), 2_500
    names = ("town", "shop")
    sought = [Attribute(name=each, kind="categorical", other=True, domain="private", at_most=3) for each in names]
    sought.append(Attribute(name="amount", kind="integer", edges=(0, 5_000), domain="private", at_most=5))
    schema = Schema(name="audit", attributes=(*sought, *whole_numbers(3).attributes))
    texts = {each: generator.choice(["Bern", "Rome", "Oslo"], rows, p=[0.5, 0.3, 0.2]) for each in names}
    table = pl.DataFrame(texts | {"amount": generator.integers(0, 5_000, rows), "a0": generator.integers(0, 3, rows)})
    first, last = (
        pl.DataFrame({"town": [text], "shop": [text], "amount": [amount], "a0": [code]})
        for text, amount, code in (("Bern", 0, 0), ("Rome", 4_999, 2))
    )
    other = table if budget.neighbors == "add-remove" else last.vstack(table)
    return Kind(name=name, schema=schema, budget=budget, tables=({"": first.vstack(table)}, {"": other}))


def _linked(name: str, budget: Budget, n: int = 400, most: int = 4, *, order: bool = False) -> Kind:
    """People with up to two events; the first has four, of one level in the table and of another in its neighbor.

    Where events have an `order`, hers are at one time: all of her steps are alike, too. So tokens are dealt evenly.
    """
    schemas = people, events = whole_numbers(2, 3), whole_numbers(3, 2, *((4,) if order else ()))
    after: dict[str, Any] = {"order": "a2", "follows": "a0"} if order else {}
    below = Branch(name="events", schema=events, key="person", of="people", at_most=most, **after)
    tree = Tree(branches=(Branch(name="people", schema=people, key="id"), below))
    owner = np.repeat(np.arange(n), [most, *(i % 3 for i in range(1, n))])
    codes = [_numbers(tuple(each.sizes.tolist()), rows) for each, rows in zip(schemas, (n, owner.size), strict=True)]
    if order:
        # No two events of a person at one time: what follows what is no matter of chance.
        codes[1][2] = (np.arange(owner.size) - np.searchsorted(owner, owner)) * 2 % 4
    tables = []
    for last in (False, True):
        for each, schema, moved in zip(codes, schemas, (1, most), strict=True):
            each[:, :moved] = (schema.sizes - 1)[:, None] if last else 0
        one, two = (frame_of(schema, each.copy()) for schema, each in zip(schemas, codes, strict=True))
        tables.append({"people": one.with_columns(id=np.arange(n)), "events": two.with_columns(person=owner)})
    if budget.neighbors == "add-remove":
        tables[1] = {"people": tables[0]["people"][1:], "events": tables[0]["events"][most:]}
    return Kind(name=name, schema=tree, budget=budget, tables=(tables[0], tables[1]))


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds of releases, under both neighbor relations."""
    made: list[Kind] = []
    relations: tuple[tuple[Neighbors, str], ...] = (("replace-one", ""), ("add-remove", ", add-remove"))
    for neighbors, after in relations:
        one, two = (Budget(epsilon=epsilon, neighbors=neighbors) for epsilon in (1.0, 2.0))
        laplace = Budget(epsilon=1.0, neighbors=neighbors, mechanism="laplace", composition="basic")
        made += [
            rows_of(f"rows{after}", (4, 5, 3), 600, one),
            rows_of(f"Laplace{after}", (4, 5, 3), 600, laplace),
            rows_of(f"Laplace of people{after}", (4, 5, 3), 600, replace(laplace, composition="tight"), people=3),
            rows_of(f"people{after}", (4, 5, 3), 600, one, people=1),
            rows_of(f"rows of people{after}", (4, 5, 3), 600, one, people=3),
            rows_of(f"bits{after}", (2,) * 6, 4_000, one),
            rows_of(f"bits of people{after}", (2,) * 6, 4_000, one, people=1),
            _searching(f"private domains{after}", one),
            rows_of(f"third stage{after}", (4, 5, 3, 4), 20_000, two),
            _linked(f"linked{after}", one),
            _linked(f"linked in order{after}", one, order=True),
        ]
    return tuple(made)
