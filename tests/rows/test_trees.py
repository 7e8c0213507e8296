"""Linked tables: whose rows are whose, which are chosen, to which cells tokens go, and how far a person reaches."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from sklar.budget.plan import GAP, NUMBER, TOKENS, sides_of
from sklar.errors import DataError
from sklar.kernel.queries import Tables
from sklar.public.tree import Tree, none_code
from sklar.rows import trees
from sklar.rows.bounded import Secrets
from sklar.rows.count import Ask, ask_all
from sklar.rows.encode import id_texts
from sklar.rows.trees import LocalTree, People
from tests.linked import EVENTS, PEOPLE, Frames, days, deep, deep_tables, in_order, small, tables, tree

EACH = 1 << 10
# With an age in bins of several numbers, of people and of events, of which no level tells where in it they lie.
SPREAD = 'age = {type = "integer", edges = [0, 10, 100]}'
WIDE = tree(PEOPLE + SPREAD, EVENTS + SPREAD.replace("age", "cost"), at_most=20)
TREES = {"plain": small(), "ordered": in_order(4), "days": in_order(4, follows=""), "deep": deep(), "spread": WIDE}


def asked(tree: Tree, each: int = EACH) -> Ask:
    joint, sides = tree.joint.measured, tuple(side.query for side in sides_of(tree))
    whole = ask_all(joint, inside=True, sides=sides)
    return Ask(**{name: getattr(whole, name) for name in ("attributes", "tables", "inside")}, sides=sides, tree=tree,
        each=each)  # fmt: skip


def opened(data: Any, tree: Tree, secrets: Secrets) -> LocalTree:
    table = LocalTree(data, tree)
    table._secrets = secrets
    return table


def matched(frames: Frames, tree: Tree, secrets: Secrets | None = None) -> People:
    """The rows that count, of all people in one bucket."""
    table = opened(frames, tree, secrets or Secrets())
    return People([each for bucket in table.people(asked(tree)) for each in bucket], asked(tree))


def linked(ids: Any, owners: Any, *, at_most: int = 3, **more: Any) -> People:
    people = pl.DataFrame({"id": ids, "sex": ["F"] * len(ids), "region": ["north"] * len(ids)})
    kinds = ["abc"[i % 3] for i in range(len(owners))]
    events = pl.DataFrame({"person": owners, "kind": kinds, "urgent": [True] * len(owners)}, strict=False)
    return matched({"people": people, "events": events}, tree(at_most=at_most, **more))


@pytest.mark.parametrize(("ids", "owners", "numbers", "lost"), [
    (["x", "y", "z"], ["z", "x", "z", "x"], [0, 2, 2], 0),
    # An event of nobody is dropped, and a person without a key has none. Of people of one key one counts.
    ([1, 2], [2, 3, None, 2], [0, 2], 1), ([None, "a", None], ["a", None], [0, 0, 1], 0),
    ([5, 5, 6], [5, 6, 5], [1, 2], 0),
    # Keys of any type are compared as texts.
    ([1, 2], ["2", "02"], [0, 1], 1), ([1.0, 2.0, None], [1, 2], [0, 1, 1], 0),
    ([dt.date(2020, 1, 1)], ["2020-01-01"], [1], 0), ([Decimal("1.50")], [Decimal("1.50")], [1], 0),
    (["a"], [], [0], 0), ([], ["a"], [], 1),
])  # fmt: skip
def test_whose_rows_are_whose(ids: Any, owners: Any, numbers: list[int], lost: int) -> None:
    found = linked(ids, owners)
    assert repr(found) == "People(private)"
    assert sorted(np.bincount(found.owner[1], minlength=len(numbers)).tolist()) == numbers
    assert found.n_people == len(numbers)
    assert found.read[1] - found.matched[1] == lost


def test_no_key_raises() -> None:
    odd = [[1], b"\xff", object(), float("nan"), 10**30, "", "x" * 9, None]
    assert id_texts(pl.Series(odd, dtype=pl.Object)).null_count() >= 3
    for values in ([[1, 2], [3]], [{"a": 1}], [b"\xff", b"a"], [float("inf"), float("nan")], [True, None]):
        assert len(id_texts(pl.Series(values))) == len(values)


def test_of_too_many_rows_a_random_part_is_chosen_afresh() -> None:
    """Of 12 events 3 are chosen: each with the same chance, and every run anew."""
    ids, owners = list(range(2_000)), np.repeat(range(2_000), 12).tolist()
    found, other = (linked(ids, owners) for _ in range(2))
    assert np.bincount(found.owner[1]).tolist() == [3] * 2_000
    assert (found.matched[1], found.kept[1]) == (24_000, 6_000)
    kinds = found.rows[1]["code 0"].to_numpy()
    # Kinds come in turn, so that a third of each is chosen: 5 sd of 6,000 draws without replacement is below 190.
    assert (abs(np.bincount(kinds) - 2_000) < 190).all()
    assert kinds.tolist() != other.rows[1]["code 0"].to_list()


def test_a_row_hangs_on_rows_of_the_same_person_alone() -> None:
    """Two people whose events have the same id: a step belongs to that of its own person, or to none."""
    people = pl.DataFrame({"id": ["x", "y"], "sex": ["F", "M"], "region": ["north", "south"]})
    events = pl.DataFrame(
        {"event": [1, 1, 2], "person": ["x", "y", "y"], "kind": ["a", "b", "c"], "urgent": [True] * 3}
    )
    steps = pl.DataFrame({"person": ["x", "y", "y", "x", "z", None], "event": [1, 1, 2, 2, 1, 1], "step": ["x"] * 6})
    drugs = pl.DataFrame({"person": ["y"], "drug": ["x"]})
    found = matched({"people": people, "events": events, "steps": steps, "drugs": drugs}, deep())
    kinds, sexes = found.rows[1]["code 0"].to_numpy(), found.rows[0]["code 0"].to_numpy()
    on = found.owner[2]
    assert sorted(zip(sexes[found.owner[1][on]].tolist(), kinds[on].tolist(), strict=True)) == [(0, 0), (1, 1), (1, 2)]
    # An id that a person's events share finds one of them.
    alike = matched({"people": people, "events": events.with_columns(event=pl.lit(1)), "steps": steps, "drugs": drugs},
        deep())  # fmt: skip
    assert alike.matched.tolist() == [2, 3, 2, 1]


def test_rows_that_must_be_unique_stand_once_and_times_in_the_domain() -> None:
    people = pl.DataFrame({"id": ["x", "y"], "sex": ["F", "F"], "region": ["north", "north"]})
    events = pl.DataFrame({
        "person": ["x", "y", "x", "x", "x", "y"], "kind": ["a", "b", "b", "c", "a", "b"], "urgent": [True] * 6,
        "day": [7, 99, 3, 3, None, 99],
    })  # fmt: skip
    frames = {"people": people, "events": events}
    # No time is a time of its own; values outside are the last of the domain.
    assert sorted(matched(frames, in_order(4)).rows[1]["_time"]) == [-1, 3, 3, 7, 9, 9]
    assert sorted(matched(frames, in_order(4, unique=("day",))).rows[1]["_time"]) == [-1, 3, 7, 9]
    assert sorted(matched(frames, in_order(4, unique=("kind", "urgent"))).rows[1]["code 0"]) == [0, 1, 1, 2]
    odd: list[Any] = [
        [None] * 6,
        [[1]] * 6,
        [float("nan"), float("inf"), -float("inf"), 1e300, 0.5, None],
        ["x", "7", "", "9.5", "-1", None],
    ]
    for given in odd:
        of = events.with_columns(day=pl.Series(given, strict=False))
        times = matched({**frames, "events": of}, in_order(4)).rows[1]["_time"].to_numpy()
        assert ((times >= -1) & (times <= 9)).all()


@pytest.mark.parametrize(("change", "message"), [
    ({"people": "id"}, r"no column 'id', which \[people\] names as key"),
    ({"events": "person"}, r"no column 'person', which \[events\] names as key"),
    ({"events": "kind"}, "has no column for 'kind'"), ({"events": None}, "there is no table for 'events'"),
])  # fmt: skip
def test_what_is_lacking_is_told(change: dict[str, Any], message: str) -> None:
    frames = {name: frame.drop(change[name]) if name in change else frame for name, frame in tables(10).items()
        if change.get(name, "") is not None}  # fmt: skip
    with pytest.raises(DataError, match=message):
        LocalTree(frames, small())


@pytest.mark.parametrize(("data", "message"), [(3, "come as a folder"), ("nothing.csv", "come as a folder")])
def test_what_linked_tables_are_not(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        LocalTree(data, small())
    (tmp_path / "people.csv").write_text("id,sex,region\n")
    with pytest.raises(DataError, match="no table for 'events'"):
        LocalTree(tmp_path, small())


def vectors(frames: Frames, tree: Tree, secrets: Secrets | None = None) -> list[NDArray[np.int64]]:
    """The tokens of all tables, one by one."""
    ask = asked(tree)
    answers = opened(frames, tree, secrets or Secrets()).count(ask)
    cut = [np.split(counts, np.cumsum(sizes)[:-1]) for counts, sizes in zip(answers.tables, _sizes(ask), strict=True)]
    return [table for tables in cut for table in tables]


def _sizes(ask: Ask) -> list[list[int]]:
    inside = [[ask.attributes[i].n_levels for i in ask.inside]] if ask.inside else []
    return [*(list(table.sizes) for table in ask.tables), *inside, *(list(query.sizes) for query in ask.sides)]


@pytest.mark.parametrize("name", TREES)
def test_the_tokens_of_a_person_are_one_unit_in_every_table(name: str) -> None:
    """Odd people by chance: values of no level, too many rows, one id for several rows, ties, and none at all."""
    tree, rng = TREES[name], np.random.default_rng(5)
    largest = np.zeros(len(vectors(odd_person(tree, rng), tree)), dtype=np.int64)
    for _ in range(60):
        for place, tokens in enumerate(vectors(odd_person(tree, rng), tree)):
            assert tokens.min() >= 0
            assert tokens.sum() <= EACH
            largest[place] = max(largest[place], tokens.sum())
    # The claim is tight: a smaller one would be wrong.
    inside = sum(_sizes(asked(tree))[2]) and len(asked(tree).inside)
    assert (np.sort(largest)[inside:] == EACH).all()


def odd_person(tree: Tree, rng: np.random.Generator) -> Frames:
    frames = {}
    for branch in tree.branches:
        n = 1 if not branch.of else int(rng.choice([0, 1, 2, 3, 7, 40]))
        columns: dict[str, Any] = {}
        for attribute in branch.schema.attributes:
            levels = [*range(-2, 101), None] if attribute.kind == "integer" else [*attribute.levels, "no level"]
            columns[attribute.name] = pl.Series(rng.choice(np.array(levels, dtype=object), n).tolist(), strict=False)
        columns |= {each: pl.Series(rng.integers(0, 4, n)) for each in branch.ids[1:]}
        frames[branch.name] = pl.DataFrame({branch.key: ["x"] * n} | columns)
    return frames


@pytest.mark.parametrize("name", TREES)
def test_tokens_are_those_of_the_recipe(name: str) -> None:
    """Against fractions that are added up person by person, to a token for each of a person's entries."""
    tree = TREES[name]
    frames = deep_tables(60) if name == "deep" else days(tables(60)) if tree.branches[1].order else tables(60)
    if name == "spread":
        frames = {each: frame.with_columns(pl.int_range(pl.len()).mod(120).alias(new)) for (each, frame), new in
            zip(frames.items(), ("age", "cost"), strict=True)}  # fmt: skip
    secrets = Secrets()
    people, counted = matched(frames, tree, secrets), vectors(frames, tree, secrets)
    expected = [dict[int, Fraction]() for _ in counted]
    for person in range(people.n_people):
        of_sides = (of for side in sides_of(tree) for of in _of_side(people, tree, side, person))
        for total, entries in zip(expected, [*_of_joint(people, tree, person), *of_sides], strict=True):
            for cell, share in entries:
                total[cell] = total.get(cell, Fraction(0)) + share
    for tokens, exact in zip(counted, expected, strict=True):
        wanted = np.array([float(EACH * exact.get(cell, 0)) for cell in range(tokens.size)])
        assert (abs(tokens - wanted) <= 4 * people.n_people).all()
        assert abs(tokens.sum() - wanted.sum()) <= 4 * people.n_people


def _rows_of(people: People, i: int, row: int) -> list[int]:
    return np.flatnonzero(people.owner[i] == row).tolist()


def _combined(people: People, tree: Tree, i: int, row: int) -> list[tuple[dict[int, int], Fraction]]:
    """All ways to choose one row of each table below this one, from the top down."""
    ways: list[tuple[dict[int, int], Fraction]] = [({i: row}, Fraction(1))]
    for child, above in tree.above.items():
        if above != i:
            continue
        rows = _rows_of(people, child, row) if row >= 0 else []
        below = [
            (chosen, share / max(len(rows), 1))
            for each in rows or [-1]
            for chosen, share in _combined(people, tree, child, each)
        ]
        ways = [({**one, **two}, share * part) for (one, share), (two, part) in product(ways, below)]
    return ways


def _of_joint(people: People, tree: Tree, person: int) -> list[list[tuple[int, Fraction]]]:
    joint, known = tree.joint.measured, dict(zip(tree.joint.names, tree.places, strict=True))
    one_way, two_way = (Tables(cells=joint.cells, order=order).members.tolist() for order in (1, 2))
    inside = asked(tree).inside
    found: list[list[tuple[int, Fraction]]] = [[] for _ in (*one_way, *two_way, *inside)]
    for rows, share in _combined(people, tree, 0, person):
        codes, ways = list[int](), list[Fraction | int]()
        for attribute in joint.attributes:
            (i, place), none = known[attribute.name], none_code(attribute)
            if place < 0:
                above = rows[tree.above[i]]
                number = len(_rows_of(people, i, above)) if above >= 0 else -1
                bins = tree.branches[i].bins
                at = sum(begin <= number for begin in bins) - 1
                ways.append(Fraction(number - bins[at], bins[at + 1] - bins[at]) if number >= 0 else 0)
                codes.append(at if number >= 0 or none is None else none)
                continue
            row = rows[i]
            code: Any = people.rows[i].item(row, f"code {place}") if row >= 0 else none
            codes.append(code + bool(row >= 0 and none is not None and code >= none))
            name = f"tokens {place}"
            held = row >= 0 and name in people.rows[i].columns
            ways.append(Fraction(people.rows[i].item(row, name), TOKENS) if held else 0)
        for at, members in enumerate([*one_way, *two_way]):
            own = [codes[member] for member in members]
            if min(own) >= 0:
                cell = 0
                for member, code in zip(members, own, strict=True):
                    cell = cell * joint.attributes[member].n_levels + code
                found[at].append((cell, share))
        for at, index in enumerate(inside, len(one_way) + len(two_way)):
            found[at].append((max(codes[index], 0), share * ways[index]))
    return found


def _of_side(people: People, tree: Tree, side: Any, person: int) -> list[list[tuple[int, Fraction]]]:
    i = tree.branches.index(side.of)
    rows, frame = _rows_of(people, i, person), people.rows[i]
    timed = sorted(row for row in rows if side.of.order and frame.item(row, "_time") >= 0)
    timed.sort(key=lambda row: frame.item(row, "_time"))
    ring = [*pairwise(rows), (rows[-1], rows[0])] if len(rows) > 1 else []
    steps = {"number": [(person, person)], "two": ring, "first": [(row, row) for row in timed[:1]]}.get(
        side.kind, list(pairwise(timed))
    )

    def cell(axes: tuple[int, ...], shape: tuple[int, ...], one: int, two: int) -> Any:
        if side.kind == "number":
            return len(rows)
        codes = []
        for axis, row in zip(axes, (one, two), strict=False):
            if axis == NUMBER:
                codes.append(sum(begin <= len(rows) for begin in side.of.bins) - 3)
            elif axis == GAP:
                gap = frame.item(two, "_time") - frame.item(one, "_time")
                codes.append(sum(begin <= gap for begin in side.of.course.gaps) - 1)
            else:
                codes.append(frame.item(row, f"code {axis}"))
        if min(codes) < 0:
            return None
        if side.kind == "two":
            return list(combinations_with_replacement(range(shape[0]), 2)).index((min(codes), max(codes)))
        return codes[0] * shape[-1] + codes[1] if len(codes) == 2 else codes[0]

    found = []
    for axes, shape in side.tables:
        cells = [cell(axes, shape, one, two) for one, two in steps]
        found.append([(own, Fraction(1, len(steps))) for own in cells if own is not None])
    return found


def test_of_many_combinations_every_row_has_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many combinations a person's rows are dealt to some: of each table evenly."""
    monkeypatch.setattr(trees, "_COMBINED", 12)
    tree = deep(40)
    ids = pl.Series(["x"] * 12)
    frames = {
        "people": pl.DataFrame({"id": ["x"], "sex": ["F"], "region": ["north"]}),
        "events": pl.DataFrame({"person": ids, "event": range(12), "kind": ["a", "b", "c"] * 4, "urgent": [True] * 12}),
        "steps": pl.DataFrame({"person": ids, "event": range(12), "step": ["x", "y"] * 6}),
        "drugs": pl.DataFrame({"person": ids[:2], "drug": ["x", "y"]}),
    }
    ask = asked(tree)
    one, two = LocalTree(frames, tree).count(ask).tables[:2]
    joint = tree.joint.measured
    kind, drug = joint.names.index("events.kind"), joint.names.index("drugs.drug")
    assert one[joint.cells.levels(kind)][:3] == pytest.approx(EACH / 3, abs=12)
    pairs = Tables(cells=joint.cells, order=2)
    at = pairs.members.tolist().index(sorted([kind, drug]))
    table = two[pairs.offsets[at] : pairs.offsets[at + 1]].reshape(4, 3)[:3, :2]
    assert table.sum(axis=0) == pytest.approx([EACH / 2, EACH / 2], abs=12)
    assert table.min() > 0


def test_the_same_secrets_deal_the_same_tokens_whatever_comes_first(tmp_path: Path) -> None:
    frames, ask, secrets = deep_tables(300), asked(deep()), Secrets()
    for name, frame in frames.items():
        frame.write_csv(tmp_path / f"{name}.csv")
    found = []
    for data in (frames, tmp_path, dict(reversed(frames.items()))):
        found.append([counts.tolist() for counts in opened(data, deep(), secrets).count(ask).tables])
    assert found[0] == found[1] == found[2]


def test_a_bucket_of_people_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that go through files give what records in memory do."""
    frames, ask, secrets = days(tables(500)), asked(in_order(4)), Secrets()
    found = []
    for held in (1 << 30, 1 << 12):
        monkeypatch.setattr("sklar.rows.bounded.HELD_BYTES", held)
        found.append([counts.tolist() for counts in opened(frames, in_order(4), secrets).count(ask).tables])
    assert found[0] == found[1]
