"""The tests of noise: right for genuine noise at every level, and able to see what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from sklar.budget.certificate import Measured, certify
from sklar.budget.method import Method
from sklar.budget.plan import TOKENS, beside_of, in_tokens, plan_release
from sklar.budget.search import ladder_of, next_cells
from sklar.kernel.cells import Cells
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.queries import Block, Shares, Tables
from sklar.kernel.theorems import Budget, Mechanism, round_up_scale
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.verify import residuals as under_test
from sklar.trust.verify.residuals import ALL, FALSE_ALARM, LEVEL, TESTS, Grid, NoiseResiduals, NoiseTest, visible
from tests.linked import days, exact_of, in_order, tables
from tests.trust.conftest import schema

Draw = Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.int64]]


def counts_of(cells: Cells, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return Tables(cells=cells, order=1).count(codes), Tables(cells=cells, order=2).count(codes)


def counts(cells: Cells, rows: int, outside: float = 0.0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Exact tables of random rows, of which some are in no cell."""
    generator = np.random.default_rng(3)
    codes = np.stack([generator.integers(0, size, rows) for size in cells.sizes])
    codes[generator.random(codes.shape) < outside] = -1
    return counts_of(cells, codes)


def measured(
    cells: Cells,
    exact: tuple[NDArray[np.int64], NDArray[np.int64]],
    *,
    mechanism: Mechanism = "gaussian",
    scale: float = 12.0,
    stages: int = 2,
    total: bool = False,
    draw: Draw | None = None,
) -> list[Block]:
    """Noisy tables at uneven scales: the number of rows (900), one-way tables, two-way tables of every stage."""
    draw = draw or (discrete_gaussian if mechanism == "gaussian" else discrete_laplace)
    spread = 1.5 * np.ones(cells.n_pairs) if mechanism == "laplace" else np.linspace(1.2, 1.9, cells.n_pairs)
    parts = [(0, np.array([900]), np.array([scale]))] if total else []
    parts.append((1, exact[0], np.full(cells.n_attributes, scale)))
    parts += [(2, exact[1], scale * spread * (1 + 0.3 * stage)) for stage in range(stages)]
    blocks = []
    for order, counted, given in parts:
        query, scales = Tables(cells=cells, order=order), round_up_scale(given)
        blocks.append(Block(query=query, scales=scales, values=counted + draw(scales, query.sizes)))
    return blocks


def examine(
    blocks: list[Block], known: Schema, *grids: Grid, mechanism: Mechanism = "gaussian", rows: int | None = 900
) -> list[NoiseTest]:
    return under_test.examine(blocks, known, mechanism, rows, grids)


SIZES = (2, 3, 4, 3)
RUNS = 50


@pytest.mark.parametrize(
    ("mechanism", "scale", "stages", "rows", "outside"),
    [
        ("gaussian", 12.0, 2, 900, 0.0),
        ("gaussian", 1.0, 2, None, 0.0),
        ("gaussian", 5.0, 1, 900, 0.1),
        ("laplace", 4.0, 1, 900, 0.0),
        ("laplace", 1.0, 1, None, 0.1),
    ],
)
def test_false_alarms_are_as_rare_as_they_are_said_to_be(
    mechanism: Mechanism, scale: float, stages: int, rows: int | None, outside: float
) -> None:
    """Each chance is below p at most p of the time, at p = 0.02, 0.1 and 0.5, by the exact sampler.

    Numbers below p are at most binomial: a test of 16 names and three levels fails with less than 1e-6, as each is
    allowed what a binomial exceeds with 2e-8.
    """
    known = schema(SIZES, complete=outside == 0)
    exact = counts(known.cells, 900, outside)
    seen: dict[str, list[float]] = {}
    for _ in range(RUNS):
        drawn = measured(known.cells, exact, mechanism=mechanism, scale=scale, stages=stages, total=rows is None)
        for test in examine(drawn, known, mechanism=mechanism, rows=rows):
            seen.setdefault(test.name, []).append(test.chance)
    assert {ALL, "margins of two-way tables", "one-way tables against margins"} <= seen.keys()
    assert ("covariance between stages" in seen) == (stages == 2)
    for name, chances in seen.items():
        for p in (0.02, 0.1, 0.5):
            below = int(np.sum(np.array(chances) < p))
            assert below <= binom.isf(2e-8, RUNS, p), (name, p, below)


def test_levels_add_up_to_the_stated_false_alarms() -> None:
    drawn = measured(LARGE.cells, LARGE_EXACT, scale=40.0)
    edges = np.arange(5) * 4, np.arange(17)
    grid = Grid(tables=(np.zeros(4, dtype=np.int64), np.zeros(16, dtype=np.int64)), edges=edges, scale=40.0)
    tests = examine(drawn, LARGE, grid)
    assert len(tests) <= TESTS
    assert {"parity", "remainders by 3", "remainders by 16", "tables of searches"} <= {test.name for test in tests}
    assert TESTS * LEVEL == pytest.approx(FALSE_ALARM) == 1e-6


def test_chances_are_not_only_small_but_right() -> None:
    """Of Gaussian noise in two stages they are uniform: not wasted on being too careful.

    80 runs: the share below one half is off by 0.32 with less than 1e-7.
    """
    known = schema(SIZES)
    exact = counts(known.cells, 900)
    runs = [{test.name: test.chance for test in examine(measured(known.cells, exact), known)} for _ in range(80)]
    for name in (ALL, "between stages", "margins of two-way tables", "covariance between stages"):
        share = np.mean([run[name] < 0.5 for run in runs])
        assert abs(share - 0.5) < 0.32, name


def failing(tests: list[NoiseTest]) -> set[str]:
    return {test.name for test in tests if not test.passed}


def test_scales_that_were_chosen_by_the_first_stage_raise_no_alarm() -> None:
    """Very many small tables: the choice alone makes the mean square 1.02, at 300,000 residuals eight sds above 1.

    Fails by chance less than once in a million, as a genuine file does: two sds are six less than eight.
    """
    known = Schema(
        name="many", attributes=tuple(Attribute(name=f"a{i}", kind="integer", edges=(0, 1, 2, 3)) for i in range(260))
    ).checked()
    rows = np.random.default_rng(0).integers(0, 3, (2_000, 260))
    blocks = list(measure(pl.DataFrame(rows, schema=known.names), known, Budget(epsilon=1.0)).blocks)
    tests = examine(blocks, known, rows=2_000)
    assert not failing(tests)
    (between,) = [test for test in tests if test.name == "between stages"]
    assert between.chosen == pytest.approx(known.cells.n_pairs * (9 / 2) ** 0.5)
    squares = NoiseResiduals(blocks, known.cells, "gaussian", 2_000, ()).squares["between stages"].total
    assert squares > between.freedom * (1 + 2 * (2 / between.freedom) ** 0.5)
    # Scales that are stated too large, or much too small, are found all the same.
    second = blocks.pop()
    for factor in (1.1, 0.6):
        stated = replace(second, scales=round_up_scale(factor * second.scales))
        assert "between stages" in failing(examine([*blocks, stated], known, rows=2_000))


WIDE = schema((4, 5, 6, 7, 8, 9, 10, 11))
EXACT = counts(WIDE.cells, 900)
LARGE = schema((20,) * 12)
LARGE_EXACT = counts(LARGE.cells, 900)


def times(factor: float) -> Draw:
    return lambda scales, sizes: discrete_gaussian(round_up_scale(scales * factor), sizes)


def uniform(scales: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    half = np.repeat(scales, sizes) * np.sqrt(3)
    return np.asarray(np.rint(np.random.default_rng(5).uniform(-half, half)), dtype=np.int64)


def sparse(scales: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Twice the noise on a quarter of the cells, none on the others."""
    noise, kept = times(2.0)(scales, sizes), np.random.default_rng(6).random(sizes.sum()) < 0.25
    return np.where(kept, noise, 0)


# Other noise, and the test that sees it; the last four have the right variance.
OTHER: dict[str, tuple[Draw, str]] = {
    "a 64th": (times(1 / 64), ALL),
    "70%": (times(0.7), "between stages"),
    "80%": (times(0.8), ALL),
    "130%": (times(1.3), "between stages"),
    "uniform": (uniform, "distribution between stages"),
    "sparse": (sparse, "distribution between stages"),
    "Laplace": (lambda s, sizes: discrete_laplace(round_up_scale(s / 2**0.5), sizes), "distribution between stages"),
    # With counts in tens, as statistical offices round them.
    "tens": (lambda scales, sizes: times(0.1)(scales, sizes) * 10, "remainders by 10"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_noise_is_seen(name: str) -> None:
    """All are seen with near certainty: at 80% the mean square of 1,954 residuals is nine deviations too low."""
    draw, seen_by = OTHER[name]
    known, exact = (LARGE, LARGE_EXACT) if name in ("Laplace", "tens") else (WIDE, EXACT)
    if name == "tens":
        exact = exact[0] // 10 * 10, exact[1] // 10 * 10
    tests = examine(measured(known.cells, exact, scale=40.0, draw=draw), known)
    assert seen_by in failing(tests), tests


def test_stages_that_share_noise_are_seen() -> None:
    """And noise that is moved between stages on paper, so that the sum of both variances is what it was."""
    ones, one, two = measured(WIDE.cells, EXACT, scale=40.0)
    assert "between stages" in failing(examine([ones, one, replace(two, values=one.values.copy())], WIDE))
    # Half of it, and the second stage's scale is stated as it then is.
    other = EXACT[1] + (one.values - EXACT[1]) // 2 + discrete_gaussian(two.scales, WIDE.cells.pair_sizes)
    stated = replace(two, values=other, scales=round_up_scale(np.hypot(two.scales, one.scales / 2)))
    assert failing(examine([ones, one, stated], WIDE))
    whole = one.scales**2 + two.scales**2
    moved = [replace(each, scales=round_up_scale(np.sqrt(share * whole))) for each, share in ((one, 0.8), (two, 0.2))]
    found = failing(examine([ones, *moved], WIDE))
    assert "covariance between stages" in found
    assert "between stages" not in found


def test_one_way_tables_without_noise_are_seen_by_their_totals() -> None:
    ones, pairs = measured(WIDE.cells, EXACT, scale=40.0, stages=1)
    assert "totals of one-way tables" in failing(examine([replace(ones, values=EXACT[0]), pairs], WIDE))


@pytest.mark.parametrize("coarse", [None, [0, 1, 2, 0, 0, 1, 1, 0, 1, 2, 2, 3, 3]], ids=["levels", "coarse levels"])
def test_margins_of_three_way_tables(coarse: list[int] | None) -> None:
    """They are seen elsewhere, too. Too little noise is found, and genuine noise has a mean square of 1, to 7 sds."""
    known = schema((3, 4, 6))
    codes = np.stack([np.random.default_rng(4).integers(0, size, 900) for size in known.sizes])
    groups = None if coarse is None else np.array(coarse)
    query = Tables(cells=known.cells, order=3, sets=np.array([[0, 1, 2]]), coarse=groups)
    total, freedom, scales = 0.0, 0, np.array([30.0])
    for run in range(24):
        other = measured(known.cells, counts_of(known.cells, codes), scale=40.0)
        fresh = Block(query=query, scales=scales, values=query.count(codes) + discrete_gaussian(scales, query.sizes))
        found = NoiseResiduals([*other, fresh], known.cells, "gaussian", 900, ()).squares["margins of three-way tables"]
        total, freedom = total + found.total, freedom + found.freedom
        if run < 4:
            assert not failing(examine([*other, fresh], known))
    assert abs(total / freedom - 1) < 7 * (2 / freedom) ** 0.5
    bare = Block(query=query, scales=scales * 20, values=query.count(codes))
    assert "margins of three-way tables" in failing(examine([*other, bare], known))


def search(scale: float, stated: float = 30.0) -> Grid:
    """The tables of a search for 2,000 numbers: cells are divided by noisy counts."""
    numbers = np.random.default_rng(1).geometric(0.004, 2_000)
    ladder = ladder_of(Attribute(name="x", kind="integer", edges=(0, 4_000), domain="private", at_most=5))
    tables: list[NDArray[np.int64]] = []
    for _ in range(ladder.tables):
        edges = next_cells(ladder, tables, stated)
        exact = np.histogram(numbers, edges[-1] - 0.5)[0]
        noise = discrete_gaussian(np.array([scale]), np.array([exact.size])) if scale else 0
        tables.append(np.asarray(exact + noise, dtype=np.int64))
    return Grid(tables=tuple(tables), edges=tuple(edges), scale=stated)


def test_searches_without_noise_are_seen() -> None:
    drawn = measured(WIDE.cells, EXACT, scale=40.0)
    for _ in range(8):
        assert not failing(examine(drawn, WIDE, search(30.0)))
    for scale in (6.0, 0.0):
        assert "tables of searches" in failing(examine(drawn, WIDE, search(scale)))


def test_rows_in_no_cell_raise_no_alarm() -> None:
    """A third of all values: margins fall far short of one-way counts, and nothing is said of that."""
    loose = schema((4, 5, 6, 7), complete=False)
    drawn = measured(loose.cells, counts(loose.cells, 90_000, 0.33), scale=5.0)
    assert not failing(examine(drawn, loose, rows=90_000))
    # Where the schema gives every value a level, they cannot be.
    assert failing(examine(drawn, schema((4, 5, 6, 7)), rows=90_000))
    # The other way round, margins above counts, they never can.
    drawn[0] = replace(drawn[0], values=drawn[0].values - 20_000)
    assert "largest margin above its one-way count" in failing(examine(drawn, loose, rows=90_000))


def test_squares_are_those_of_least_squares() -> None:
    """The recursive residuals' squares add up to the generalized least squares residual, found by brute force."""
    known = schema((2, 3, 2))
    cells = known.cells
    drawn = measured(cells, counts(cells, 300), scale=9.0, total=True)
    found = NoiseResiduals(drawn, cells, "gaussian", None, ())
    levels = np.stack([code.ravel() for code in np.indices(tuple(cells.sizes.tolist()))])
    # What one row of each kind does to all cells: their design.
    design = np.hstack([np.array([block.query.count(row[:, None]) for row in levels.T]) for block in drawn]).T
    variances = np.concatenate([np.repeat(block.scales**2 + 4, block.query.sizes) for block in drawn])
    assert found.together.freedom == len(design) - np.linalg.matrix_rank(design)
    # The same cells with nothing added to them: least squares by brute force, and by residuals of enormous tables.
    weights = np.diag(variances**-0.5)
    seen = weights @ (np.concatenate([block.values for block in drawn]) * 1e6)
    fitted = weights @ design
    left = seen - fitted @ np.linalg.lstsq(fitted, seen, rcond=None)[0]
    large = [replace(block, values=block.values * 10**6) for block in drawn]
    found = NoiseResiduals(large, cells, "gaussian", None, ())
    assert found.together.total == pytest.approx(float(left @ left), rel=1e-4)


def test_what_can_be_seen_grows_with_the_tables_and_not_at_small_scales() -> None:
    assert visible(0, "gaussian") == 0
    assert visible(10, "gaussian") < visible(100, "gaussian") < visible(10_000, "gaussian") < 1
    assert visible(100, "laplace") < visible(100, "gaussian")
    assert not failing(examine(measured(WIDE.cells, EXACT, scale=0.5), WIDE))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_one_small_scale_switches_nothing_off(mechanism: Mechanism) -> None:
    """Exact counts at large scales on paper, beside a total below scale 1; and noise below 1 raises no alarm."""
    blocks = measured(WIDE.cells, EXACT, mechanism=mechanism, scale=40.0, stages=1, total=True)
    blocks = [replace(block, values=exact) for block, exact in zip(blocks, (np.array([900]), *EXACT), strict=True)]
    blocks[0] = replace(blocks[0], scales=round_up_scale(np.array([0.984])))
    assert ALL in failing(examine(blocks, WIDE, mechanism=mechanism, rows=None))
    for scale in (0.3, 0.5, 0.8):
        drawn = measured(LARGE.cells, LARGE_EXACT, mechanism=mechanism, scale=scale, total=True)
        assert not failing(examine(drawn, LARGE, mechanism=mechanism, rows=None))


@pytest.mark.parametrize("scale", [0.2, 0.4, 0.5, 0.7, 0.9])
def test_the_law_of_smeared_noise_below_scale_one(scale: float) -> None:
    """Its variance, its distance from the normal law, its kurtosis: added up over whole numbers."""
    k = np.arange(-12, 13)
    mass = np.exp(-(k**2) / (2 * scale**2))
    mass /= mass.sum()
    variance = float(under_test._variance("gaussian", np.array([scale]))[0])
    assert variance == pytest.approx(float(mass @ k**2) + 4)
    x = np.linspace(-9, 9, 400)
    law = ndtr((x[:, None] - k) / 2) @ mass
    assert np.abs(law - ndtr(x / variance**0.5)).max() < 1.2e-4 < under_test._ROUGH
    assert float(mass @ k**4.0) - 3 * (variance - 4) ** 2 < 0.005 * variance**2
    assert (scale**2 + 4) / variance < under_test._ABOVE**2


def test_what_is_visible_leaves_out_what_the_verifier_adds() -> None:
    """Exact counts at scale 3 have a mean square of 4 / 13; noise of a tenth would not be told from none."""
    (test,) = (test for test in examine(measured(WIDE.cells, EXACT, scale=2.0), WIDE) if test.name == ALL)
    assert 0.2 < test.hidden < 0.6
    assert visible(test.freedom, "gaussian", 0.0, test.hidden) < visible(test.freedom, "gaussian")
    assert visible(1_000, "gaussian", 0.0, 0.999) == 0


def test_sides_of_linked_tables_are_as_likely_as_they_are_said_to_be() -> None:
    """One-sided: each chance is below 0.1 at most a tenth of the time, of 40 releases (off by a factor 4: 1e-6)."""
    tree, budget = in_order(), Budget(epsilon=3.0, rows_per_person=1)
    exact, joint = exact_of(tree, days(tables())), tree.joint.measured
    stages = plan_release(joint.cells, budget, Method(), n_rows=400, beside=beside_of(tree))
    parts = [in_tokens(*part, TOKENS) for part in stages.first.parts]
    below: dict[str, int] = {}

    def examined(*, noisy: bool) -> list[NoiseTest]:
        blocks = [
            Block(query=query, scales=scales, values=exact[query.what] + noisy * discrete_gaussian(scales, query.sizes))
            for query, scales in parts
            if isinstance(query, Shares) and query.what in exact
        ]
        certificate = certify(joint, budget, blocks, 400, tree=tree)
        found = Measured(schema=joint, blocks=tuple(blocks), certificate=certificate, tree=tree)
        return under_test.examine_sides(found)[0]

    for _ in range(40):
        for test in examined(noisy=True):
            below[test.name] = below.get(test.name, 0) + (test.chance < 0.1)
    assert set(below) == {"tables of rows", "each of the tables of rows"}
    assert max(below.values()) <= binom.isf(1e-6, 40, 0.1)
    # Exact ones are refused.
    assert under_test.SIDES_TOGETHER in failing(examined(noisy=False))
