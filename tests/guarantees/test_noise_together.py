"""Noise of whole releases, tested together: sums as well as differences, over looks, stages, orders, tables, releases.

Twenty releases of every kind (`trust.audit.kinds`), whose exact answers are those of the kernel's plain routines. Their
whitened residuals are independent standard normals for sound code (`trust.audit.together`). False alarms: below 1e-8
a kind, so below 1e-6 for all of this file. Power: each kind of dependence below is put into sound noise and found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.queries import Block
from sklar.kernel.theorems import Budget, Spend
from sklar.release import measure
from sklar.trust.audit import QUICK
from sklar.trust.audit.by_kind import attack_charge, attack_cost
from sklar.trust.audit.inventions import frame_of, whole_numbers
from sklar.trust.audit.kinds import kinds
from sklar.trust.audit.sensitivity import check_passes
from sklar.trust.audit.together import Drawn, comes_back, drawn_by, normal_scores, odd_together
from sklar.trust.verify.residuals import examine

KINDS = {kind.name: kind for kind in kinds()}
RELEASES, ALPHA = 20, 1e-8
DRAWN: dict[str, list[list[Drawn]]] = {}


def drawn(name: str) -> list[list[Drawn]]:
    """Twenty releases, drawn once for all tests."""
    if name not in DRAWN:
        kind = KINDS[name]
        DRAWN[name] = drawn_by(kind, [kind.measure() for _ in range(RELEASES)])
    return DRAWN[name]


@pytest.mark.parametrize("name", KINDS)
def test_all_noise_of_a_release_is_independent(name: str) -> None:
    assert odd_together(drawn(name), ALPHA) == []


def test_every_query_is_among_the_kinds() -> None:
    names = {each.name.split(" (")[0].split()[0] for name in KINDS for release in drawn(name)[:1] for each in release}
    assert names == {"tables", "parities", "distances", "shares", "common"}
    assert sum(each.name.startswith("tables of order 3") for each in drawn("third stage")[0]) == 1


def with_scores(number: int, made: Callable[[list[Drawn]], np.ndarray]) -> Callable[[list[Drawn]], list[Drawn]]:
    """A change of one block's noise that sees the whole release."""

    def change(release: list[Drawn]) -> list[Drawn]:
        new = release[number].scores.copy()
        own = made(release)[: new.size]
        new[: own.size] = own
        return [*release[:number], replace(release[number], scores=new), *release[number + 1 :]]

    return change


def mixed(r: float, one: int, two: int) -> Callable[[list[Drawn]], list[Drawn]]:
    """The second block's noise has this correlation with the first's, cell by cell."""
    rest = math.sqrt(1 - r * r)

    def made(release: list[Drawn]) -> np.ndarray:
        first, second = release[one].scores, release[two].scores
        k = min(first.size, second.size)
        return np.asarray(r * first[:k] + rest * second[:k])

    return with_scores(two, made)


# The kind, what is made of sound noise, and what must be found. Half-shared noise is missed less often than 1e-6 where
# blocks have 20 x 40 cells: the variance of 800 differences is 0.5 for 1.
DEPENDENT: dict[str, tuple[str, Callable[[list[Drawn]], list[Drawn]], str]] = {
    "shared between stages": ("rows", mixed(1.0, 1, 2), "is shared with"),
    "negated between stages": ("rows", mixed(-1.0, 1, 2), "cancels"),
    "half shared between stages": ("rows", mixed(0.5, 1, 2), "is shared with"),
    "half negated between stages": ("rows, add-remove", mixed(-0.5, 2, 3), "cancels"),
    "negated between looks": ("bits", mixed(-1.0, 0, 1), "cancels"),
    "half shared between looks of people": ("bits of people", mixed(0.5, 0, 1), "is shared with"),
    "shared between Laplace tables": ("Laplace", mixed(1.0, 0, 1), "is shared with"),
    "shared between linked tables": ("linked", mixed(1.0, 0, 1), "is shared with"),
    "half shared between linked tables": ("linked", mixed(0.5, 1, 5), "is shared with"),
    "negated between the number of rows and a cell": ("rows of people", mixed(-1.0, 0, 1), "cancels"),
    "shared between searches": ("private domains", mixed(1.0, 2, 3), "is shared with"),
    "half shared between orders": ("third stage", mixed(0.5, 2, 3), "is shared with"),
    "mirrored": ("bits", with_scores(0, lambda release: release[0].scores[::-1]), ""),
    "sums of nothing": (
        "third stage",
        with_scores(3, lambda release: release[3].scores - np.repeat(
            np.add.reduceat(release[3].scores, np.cumsum(release[3].sizes) - release[3].sizes) / release[3].sizes,
            release[3].sizes,
        )),
        "sums over tables of tables of order 3",
    ),
    "half of the next cell's": (
        "third stage",
        with_scores(3, lambda release: (release[3].scores + np.roll(release[3].scores, 1)) / math.sqrt(2)),
        "that of the next cell",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_noise_is_found(name: str) -> None:
    kind, change, words = DEPENDENT[name]
    found = odd_together([change(release) for release in drawn(kind)], ALPHA)
    if name == "mirrored":
        # The mirror image alone is sound noise: the first half must be kept beside it.
        def folded(release: list[Drawn]) -> np.ndarray:
            half = release[0].scores[: release[0].scores.size // 2]
            return np.concatenate([half, release[0].scores[half.size : release[0].scores.size - half.size], half[::-1]])

        found = odd_together([with_scores(0, folded)(release) for release in drawn(kind)], ALPHA)
    assert found
    assert any(words in each for each, _ in found)


def test_noise_of_one_release_in_the_next_is_found() -> None:
    """Negated, so that the mean of both releases is exact."""
    releases, last = [], drawn("rows")[0]
    for number, release in enumerate(drawn("rows")):
        pair = zip(release, last, strict=True)
        last = [replace(each, scores=-old.scores) for each, old in pair] if number % 2 else release
        releases.append(last)
    assert any("in the next release" in words for words, _ in odd_together(releases, ALPHA))


@pytest.mark.parametrize(("mechanism", "draw"), [("gaussian", discrete_gaussian), ("laplace", discrete_laplace)])
@pytest.mark.parametrize("scale", [2.0, 5.0, 60.0])
def test_scores_are_standard_normal(mechanism: str, draw: Callable[..., np.ndarray], scale: float) -> None:
    """200,000 draws: moments up to the fourth within 5.5 deviations, which sound noise leaves once in 10^7."""
    n = 200_000
    scores = normal_scores(draw(np.array([scale]), np.array([n])), np.full(n, scale), mechanism)  # type: ignore[arg-type]
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(scores**power) - expected) < 5.5 * math.sqrt(variance / n)


def test_a_distance_is_as_rare_as_stated() -> None:
    """The bound on chances holds: of 2,000 short series of sound noise, none is said to be rarer than one in 10^10."""
    generator = np.random.default_rng(3)
    assert min(comes_back(generator.standard_normal(40)) for _ in range(2_000)) > 1e-10


def test_passes_count_the_same_rows_of_people() -> None:
    (found,) = check_passes(Path(), QUICK)
    assert found.passed, found.found


@pytest.mark.parametrize("name", KINDS)
def test_a_charge_covers_all_blocks_and_all_thresholds(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    measured = [kind.measure()]
    assert attack_charge(kind, measured, [], tmp_path).passed
    assert attack_cost(kind, measured).passed


def test_chances_of_thresholds_add_up() -> None:
    one, two = (Spend.of([16.0], lost_delta=lost) for lost in (1e-10, 3e-10))
    assert (one + two).lost_delta == pytest.approx(4e-10)


def test_verify_sees_tables_that_share_noise_in_every_look() -> None:
    """And passes sound ones: each test of a file has a level of 1e-6 / 24."""
    schema = whole_numbers(*[3] * 12)
    measured = measure(frame_of(schema, np.zeros((12, 500), dtype=np.int64)), schema, Budget(epsilon=1.0))
    codes = np.zeros((12, 500), dtype=np.int64)

    def failed(blocks: Sequence[Block]) -> list[str]:
        tests = examine(blocks, measured.schema, "gaussian", measured.n_rows)
        return [each.name for each in tests if not each.passed]

    def shared(block: Block) -> Block:
        query: Any = block.query
        if query.order != 2:
            return block
        exact, every = query.count(codes), np.repeat(block.scales, 9)
        unit = np.resize(((block.values - exact) / every)[:9], exact.size)
        return replace(block, values=exact + np.rint(unit * every).astype(np.int64))

    assert failed(measured.blocks) == []
    assert "the same place of all tables between stages" in failed([shared(block) for block in measured.blocks])
