"""Any block of the rows of a model and a seed, here or on another machine, in any thread; of linked tables too."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Copula, Sampler, blocks, stream
from sklar.draw.course import Chain, kinds_of, level_drawer
from sklar.draw.decode import AxisDecoder, Decoder, Shape, decode_dummies, dummy_schema, record_schema
from sklar.draw.repair import RecordSampler, component_odds, pick, repair
from sklar.errors import ModelError
from sklar.kernel.cells import Cells, Codes, Ints
from sklar.machine.extras import lazily
from sklar.public.tree import Branch, Tree

if TYPE_CHECKING:
    import polars as pl

    from sklar.draw.given import Condition
    from sklar.fitting.latent import LatentModel
    from sklar.fitting.order import CourseLaws
else:
    pl = lazily("polars")

# People whose classes are weighed at once; and a chance that is hardly one.
_WEIGHED, _LITTLE = 2048, 1e-9


class BlockSampler:
    """Draws blocks of rows, under a `condition` those of the model given it; then shapes are of its divided bins."""

    def __init__(
        self,
        copula: Copula,
        seed: int,
        *,
        shapes: Mapping[str, Shape] | None = None,
        enums: bool = False,
        condition: Condition | None = None,
    ) -> None:
        self._seed, self._schema = seed, copula.schema.whole or copula.schema
        self._sampler: Sampler = RecordSampler(copula)
        if condition is not None:
            # Imported here: most rows are drawn without a condition.
            from sklar.draw.given import given_sampler

            self._schema, self._sampler = condition.schema, given_sampler(copula, condition)
        self._decoder = None if copula.dummies else Decoder(self._schema, shapes=shapes, enums=enums)
        self.columns = dummy_schema(self._schema) if self._decoder is None else self._decoder.columns
        self.block_rows = self._sampler.block_rows

    def blocks(self, rows: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
        """Number and size of the blocks of this many rows, from block `first` up to and without `last`."""
        return blocks(rows, self.block_rows, first, last)

    def draw(self, block: tuple[int, int]) -> pl.DataFrame:
        """The rows of a block, given as its number and its size."""
        return self.decoded(self.codes(block), block[0])

    def codes(self, block: tuple[int, int]) -> Codes:
        """Codes of the measured attributes, or dummies, of a block."""
        return self._sampler.draw(self._seed, *block)

    def decoded(self, codes: Codes, number: int) -> pl.DataFrame:
        """The rows of these codes, of the block of this number."""
        if self._decoder is None:
            return decode_dummies(codes.view(np.bool_), self._schema)
        # A stream of its own, so that where a value lies in its bin says nothing about the copula's draw.
        return self._decoder.decode(self._schema.complete(codes), stream(self._seed, number, 1))


def check_draw(rows: int | None, seed: int | None) -> tuple[int | None, int]:
    """The number of rows to draw (None: as many as the original has) and a seed, fresh where none is given."""
    if rows is not None and (type(rows) is not int or rows < 1):
        raise ModelError(f"rows must be a whole number of at least 1, got {rows!r}.")
    if seed is None:
        seed = secrets.randbits(63)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ModelError(f"seed must be a whole number from 0 to 2**64 - 1, got {seed!r}.")
    return rows, seed


def tree_columns(tree: Tree) -> dict[str, pl.Schema]:
    """Names and types of the columns of released tables, by name: the person's key, ids, then the attributes."""
    each = ((branch.name, dict.fromkeys(branch.ids, pl.Int64()), branch.schema) for branch in tree.branches)
    return {name: pl.Schema({**ids, **record_schema(schema)}) for name, ids, schema in each}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TableRows:
    """Rows of a table: whose each is, the id of the row above, its class or component, its id, codes, and times."""

    person: Ints
    parents: Ints
    component: Ints
    ids: Ints
    codes: Codes
    times: Ints | None = None


class TreeSampler:
    """Draws any block of people, with keys 1, 2, ..., and all their rows: a function of (model, seed, number, people).

    People are drawn as rows of any table are, with the numbers of their rows, from what the model of the joint table
    says of them as a whole; their class by how likely it is given that; and their rows by their class.
    """

    def __init__(
        self,
        copula: LatentModel,
        tree: Tree,
        laws: Mapping[str, CourseLaws],
        seed: int,
        *,
        shapes: Mapping[str, Shape],
        enums: bool = False,
        condition: tuple[Condition, Mapping[str, Shape]] | None = None,
    ) -> None:
        people = copula.of_people(tree.people.measured)
        self._tree, self._seed, self._model, self._joint = tree, seed, copula, tree.joint
        self._classes, self._cells = people.probabilities, people.schema.cells
        given: tuple[Condition | None, Mapping[str, Shape]] = condition or (None, shapes)
        self._condition, finer = given
        self._people = BlockSampler(people, seed, shapes=finer, enums=enums, condition=self._condition)
        self.block_rows, self.blocks = self._people.block_rows, self._people.blocks
        self._kinds = {i: kinds_of(copula.probabilities, copula.kinds, tree, i) for i in range(1, len(tree.branches))}
        cells = {i: tree.branches[i].schema.measured.cells for i in self._kinds}
        self._levels = {i: level_drawer(own.levels, cells[i]) for i, own in self._kinds.items()}
        self._decoders, self._numbers = dict[int, Decoder](), dict[int, AxisDecoder]()
        for i, branch in enumerate(tree.branches):
            below = f"{branch.name}."
            own = {name.removeprefix(below): shape for name, shape in shapes.items() if name.startswith(below)}
            self._decoders[i] = Decoder(branch.schema, shapes=own, enums=enums)
            if i:
                self._numbers[i] = AxisDecoder(tree.joint.attribute(branch.name), shapes.get(branch.name))
        self._chains = {name: Chain(own) for name, own in laws.items()}
        # As they are drawn: texts may be held as an Enum.
        self.columns = {
            branch.name: pl.Schema({**dict.fromkeys(branch.ids, pl.Int64()), **self._decoders[i].columns})
            for i, branch in enumerate(tree.branches)
        }

    def draw(self, block: tuple[int, int]) -> dict[str, pl.DataFrame]:
        """All rows of the people of a block, given as its number and its size, those that have an order in it."""
        number, people = block
        rng, values, tree = stream(self._seed, number, 2), stream(self._seed, number, 3), self._tree
        codes: Codes = self._people.codes(block)
        frame, keys = self._people.decoded(codes, number), number * self.block_rows + 1 + np.arange(people)
        if self._condition is not None:
            finer = self._condition.schema.measured.offsets[:-1, None] + codes.astype(np.int64)
            codes = self._condition.origin[finer] - self._cells.offsets[:-1, None]
        own: dict[str, Any] = {"component": self._class_of(codes, rng), "codes": codes}
        drawn = {0: _TableRows(person=keys - keys[0], parents=keys, ids=keys, **own)}
        frames = {tree.name: frame.select(pl.Series(tree.root.key, keys), *self.columns[tree.name].names()[1:])}
        for i, branch in enumerate(tree.branches[1:], start=1):
            above = drawn[tree.above[i]]
            if branch.of == tree.name:
                counts = frame[branch.name].to_numpy().astype(np.int64)
            else:
                bins = level_drawer(self._kinds[i].number, Cells([len(branch.bins) - 1]))(above.component, rng)[0]
                counts = self._numbers[i].numbers(bins, rng)
            drawn[i] = self._rows(i, branch, drawn, counts, rng)
            frames[branch.name] = self._frame(i, branch, drawn[i], keys, values)
        return frames

    def _class_of(self, codes: Codes, rng: np.random.Generator) -> Ints:
        """The class of each person, by how likely it is given what they are like."""
        offsets, places = self._cells.offsets, range(len(codes))
        parts = np.array_split(codes.astype(np.int64), -(-codes.shape[1] // _WEIGHED), axis=1)
        odds = (component_odds(self._classes, offsets, part, places) for part in parts)
        return np.concatenate([pick(own.cumsum(axis=1), rng) for own in odds])

    def _rows(
        self, i: int, branch: Branch, drawn: Mapping[int, _TableRows], counts: Ints, rng: np.random.Generator
    ) -> _TableRows:
        """So many rows on each row above."""
        above, kinds, schema = drawn[self._tree.above[i]], self._kinds[i], branch.schema.measured
        owner, times, known = np.repeat(np.arange(counts.size), counts), None, dict[int, Ints]()
        component = above.component[owner]
        if branch.of == self._tree.name:
            weights = kinds.kind[component]
            if branch.name in self._chains and (course := branch.course) is not None:
                states, times, dates = self._chains[branch.name].draw(above.component, counts, rng)
                known = {schema.names.index(branch.order): dates}
                known |= {schema.names.index(branch.follows): states} if course.follows is not None else {}
                # Other attributes of a row go by its kind, given these levels.
                each = component[:, None] * self._model.kinds + np.arange(self._model.kinds)
                for place, levels in known.items():
                    weights = weights * kinds.levels[each, (schema.offsets[place] + levels)[:, None]]
            component = component * self._model.kinds + pick(weights.cumsum(axis=1), rng)
        codes: Codes = self._levels[i](component, rng)
        for place, levels in known.items():
            codes[place] = levels
        person = above.person[owner]
        codes, kept = self._repaired(branch, codes, drawn[0].codes[:, person], list(known), rng)
        at = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
        ids = above.ids[owner] * (branch.at_most + 1) + at + 1
        # Of rows that may not be alike the first: with strict times there are none.
        if branch.unique and not (branch.course is not None and branch.course.strict):
            held = {branch.order: times} if times is not None else {}
            unlike = (held.get(name, codes[schema.names.index(name)]) for name in branch.unique)
            alike = pl.DataFrame({str(at): own for at, own in enumerate([owner, *unlike])})
            kept &= alike.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
        own: dict[str, Any] = {"person": person[kept], "parents": above.ids[owner[kept]], "ids": ids[kept]}
        own |= {"component": component[kept], "codes": codes[:, kept]}
        return _TableRows(**own, times=None if times is None else times[kept])

    def _repaired(
        self, branch: Branch, codes: Codes, of_people: Codes, known: list[int], rng: np.random.Generator
    ) -> tuple[Codes, NDArray[np.bool_]]:
        """Rows that honor all rules, with what is known of people and of their order as it is; and which of them do:
        some rules leave a person no row.
        """
        joint = self._joint.measured
        own = [joint.names.index(f"{branch.name}.{name}") for name in branch.schema.measured.names]
        people = [joint.names.index(name) for name in self._tree.root.schema.measured.names]
        part = joint.part([*people, *own])
        if not part.allowed or not codes.size:
            return codes, np.full(codes.shape[1], True)  # noqa: FBT003
        none = np.array([joint.attributes[at].special_codes[-1] for at in own])[:, None]
        both = np.concatenate([of_people[: len(people)], codes + (codes >= none)]).astype(np.int64)
        fixed = [*range(len(people)), *(len(people) + place for place in known)]
        model = self._model.part([*people, *own])
        some = np.maximum(model.probabilities, np.float32(_LITTLE))
        # Whoever has a row has one of its levels.
        some[:, part.measured.offsets[len(people) : -1] + none[:, 0]] = 0
        repair(both, replace(model, probabilities=some), part.allowed, rng, fixed)
        codes = both[len(people) :]
        return codes - (codes > none), (codes != none).all(axis=0)

    def _frame(self, i: int, branch: Branch, own: _TableRows, keys: Ints, values: np.random.Generator) -> pl.DataFrame:
        """Drawn rows as they are released."""
        frame = self._decoders[i].decode(branch.schema.complete(own.codes), values)
        if own.times is not None and (course := branch.course) is not None:
            timed = AxisDecoder(branch.schema.attributes[course.order])
            column = timed.column((course.first + own.times) * course.step)
            frame.replace_column(frame.columns.index(branch.order), column.alias(branch.order))
        held = {branch.key: keys[own.person], branch.id: own.ids, branch.parent: own.parents}
        ids = [pl.Series(name, held[name], dtype=pl.Int64) for name in branch.ids]
        return pl.DataFrame([*ids, *frame.iter_columns()])
