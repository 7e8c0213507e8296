"""The noise sampler: exact against big integers, fitting against its law, refusing what it cannot draw.

A statistical test states how often it fails although the sampler is right. The entropy is the operating system's, so
these rates are real; together they stay below 1e-5 per run.
"""

import inspect
import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import count

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from numpy.typing import NDArray
from scipy import stats

from sklar.errors import NoiseError
from sklar.kernel import noise
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.theorems import round_up_scale

Ints = NDArray[np.int64]
Sampler = Callable[..., Ints]

SAMPLERS: list[Sampler] = [discrete_laplace, discrete_gaussian]
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=["laplace", "gaussian"])
each_kind = pytest.mark.parametrize("gaussian", [False, True], ids=["laplace", "gaussian"])


def float32(value: float) -> float:
    """The next float32 number that is not smaller, as the budget rounds its scales."""
    return float(round_up_scale(value))


def draw(sampler: Sampler, scale: float, size: int) -> Ints:
    return sampler(np.array([scale]), np.array([size]))


# The law of the noise, and the decision whether a sample follows it.


@cache
def law(sampler: Sampler, scale: float) -> tuple[Ints, NDArray[np.float64]]:
    """Runs of integers of probability 1/1000 or more, as their last integers and their probabilities."""
    # Outside lies less than exp(-30).
    reach = int(30 * scale) + 30
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(x) / scale) if sampler is discrete_laplace else np.exp(-((x / scale) ** 2) / 2)
    lasts, masses, mass = [], [], 0.0
    for value, probability in zip(x.tolist(), (weights / weights.sum()).tolist(), strict=True):
        mass += probability
        if mass >= 1e-3:
            lasts.append(value)
            masses.append(mass)
            mass = 0.0
    masses[-1] += mass
    # With one run nothing could be told apart, and scipy would answer nan.
    assert len(lasts) >= 3
    return np.array(lasts), np.array(masses)


def fits(sample: Ints, sampler: Sampler, scale: float) -> bool:
    """Chi-square at level 1e-7; every run expects at least size/1000 samples, so the level is what it says."""
    lasts, masses = law(sampler, scale)
    runs = np.minimum(np.searchsorted(lasts, sample), lasts.size - 1)
    observed = np.bincount(runs, minlength=lasts.size)
    return bool(stats.chisquare(observed, masses * sample.size).pvalue > 1e-7)


FITTED = [0.5, 1.0, float32(3.7), 50.0, 5000.0]


@each_sampler
@pytest.mark.parametrize("scale", FITTED)
def test_right_scale_fits(sampler: Sampler, scale: float) -> None:
    # Fails wrongly once in 1e7 runs.
    assert fits(draw(sampler, scale, 300_000), sampler, scale)


@each_sampler
@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize("scale", FITTED)
def test_wrong_scale_is_rejected(sampler: Sampler, scale: float, factor: float) -> None:
    # Chi-square here is above 1000 on average; wrongly accepted less often than once in 1e12 runs.
    assert not fits(draw(sampler, float32(factor * scale), 200_000), sampler, scale)


@each_sampler
@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 1.0, float32(3.7), float32(79.9)])
def test_small_errors_of_scale_are_rejected(sampler: Sampler, scale: float) -> None:
    # 1% off at 10 million draws: the decision has the power to see it. Wrong once in 1e7 runs.
    assert fits(draw(sampler, scale, 10_000_000), sampler, scale)
    assert not fits(draw(sampler, float32(1.01 * scale), 10_000_000), sampler, scale)


def test_other_laws_are_rejected() -> None:
    for sigma in (0.5, 1.0):
        rounded = np.rint(np.random.default_rng(1).normal(scale=sigma, size=1_000_000)).astype(np.int64)
        assert not fits(rounded, discrete_gaussian, sigma)
    # Scales of equal variance. Wrongly accepted less often than once in 1e12 runs.
    assert not fits(draw(discrete_laplace, 5.0, 200_000), discrete_gaussian, math.sqrt(50))
    assert not fits(draw(discrete_gaussian, 5.0, 200_000), discrete_laplace, 5 / math.sqrt(2))


@each_sampler
def test_tiny_scales_are_zero(sampler: Sampler) -> None:
    # P(x != 0) is below 5e-9 at 0.05, so 50 cells fail wrongly once in 4e6 runs; at 2**-38 it is below exp(-2**37).
    assert not draw(sampler, float32(0.05), 50).any()
    assert not draw(sampler, 2.0**-38, 1000).any()


@each_sampler
def test_signs_are_fair_and_neighboring_cells_independent(sampler: Sampler) -> None:
    sample = draw(sampler, 2.0, 1_000_000)
    for size in range(1, 4):
        positive, negative = (sample == size).sum(), (sample == -size).sum()
        # Six standard deviations of a fair coin, three times: fails wrongly once in 1e8 runs.
        assert abs(positive - negative) < 6 * math.sqrt(positive + negative)
    sample = draw(sampler, 80.0, 1_000_000).astype(float)
    for lag in (1, 2, 3):
        for values in (sample, np.abs(sample), sample % 2):
            # A correlation has deviation 1/sqrt(size); six of them, nine times: fails wrongly once in 5e7 runs.
            assert abs(np.corrcoef(values[lag:], values[:-lag])[0, 1]) < 6 / math.sqrt(sample.size)


@each_sampler
def test_each_table_has_its_own_scale_in_order(sampler: Sampler) -> None:
    scales = [50.0, 0.5, float32(3.7), 5000.0]
    sizes = np.array([100_000, 200_000, 100_000, 200_000])
    tables = np.split(sampler(np.array(scales), sizes), np.cumsum(sizes)[:-1])
    for scale, table, size in zip(scales, tables, sizes, strict=True):
        assert table.size == size
        # Four times 1e-7.
        assert fits(table, sampler, scale)
    # Many small tables: twice 1e-7.
    cells = sampler(np.tile([1.0, 50.0], 50_000), np.full(100_000, 4)).reshape(-1, 2, 4)
    assert fits(cells[:, 0].ravel(), sampler, 1.0)
    assert fits(cells[:, 1].ravel(), sampler, 50.0)


@pytest.mark.parametrize("scale", [1.0, float32(3.7), 80.0])
@each_sampler
def test_agrees_with_opendp(sampler: Sampler, scale: float) -> None:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if sampler is discrete_laplace:
        oracle = (domain, dp.l1_distance(T=int)) >> dp.m.then_laplace(scale=scale)
    else:
        oracle = (domain, dp.l2_distance(T=float)) >> dp.m.then_gaussian(scale=scale)
    theirs = np.array(oracle([0] * 30_000))
    ours = draw(sampler, scale, 30_000)
    edges = np.unique(np.quantile(np.concatenate([theirs, ours]), np.linspace(0, 1, 51)[1:-1]))
    table = [np.bincount(np.searchsorted(edges, side), minlength=edges.size + 1) for side in (theirs, ours)]
    expected = stats.contingency.expected_freq(table)
    # Runs that expect few would spoil the level. Fails wrongly once in 1e7 runs.
    kept = expected.min(axis=0) >= 50
    assert kept.sum() >= 5
    assert stats.chi2_contingency(np.array(table)[:, kept]).pvalue > 1e-7


# The same algorithms in exact fractions, reading the same words.


class Tape:
    """Fixed words: a stand-in for the keystream that can be read twice."""

    def __init__(self, words: bytes) -> None:
        self.words = words
        self.at = 0

    def __call__(self, size: int) -> NDArray[np.uint8]:
        self.at += size
        assert self.at <= len(self.words)
        return np.frombuffer(self.words[self.at - size : self.at], dtype=np.uint8)

    def word(self) -> int:
        return int(self(1)[0])


# 1/e lies between two neighbouring partial sums of its alternating series.
INVERSE_E = sum((Fraction((-1) ** k, math.factorial(k)) for k in range(100)), Fraction(0))
INVERSE_E_ERROR = Fraction(1, math.factorial(100))


def coin(tape: Tape, probability: Fraction, error: Fraction = Fraction(0)) -> bool:
    """Whether a uniform real, read digit by digit, is below the probability."""
    low, width = Fraction(0), Fraction(1)
    while True:
        width /= 256
        low += tape.word() * width
        if low + width <= probability - error:
            return True
        if low >= probability + error:
            return False


def coin_exp(tape: Tape, exponent: Fraction) -> bool:
    for _ in range(math.floor(exponent)):
        if not coin(tape, INVERSE_E, INVERSE_E_ERROR):
            return False
    rest = exponent - math.floor(exponent)
    return next(k for k in count(1) if not coin(tape, rest / k)) % 2 == 1


def reference_laplace(tape: Tape, scale: Fraction) -> int:
    p, q = scale.numerator, scale.denominator
    bits = (p - 1).bit_length()
    while True:
        u = int.from_bytes(tape.word() for _ in range(3)) % 2**bits
        if u >= p or not coin_exp(tape, Fraction(u, p)):
            continue
        v = 0
        while coin(tape, INVERSE_E, INVERSE_E_ERROR):
            v += 1
        y: int = (u + p * v) // q
        negative = coin(tape, Fraction(1, 2))
        if not (negative and y == 0):
            return -y if negative else y


def reference_gaussian(tape: Tape, sigma: Fraction) -> int:
    while True:
        y = reference_laplace(tape, sigma)
        if coin_exp(tape, (abs(y) - sigma) ** 2 / (2 * sigma**2)):
            return y


REFERENCED = [2.0**-38, float32(0.05), 0.5, 1.0, float32(3.7), 80.0, float32(80.3), 4096.5, 2.0**24 - 1, 2.0**24]


def drawn(scale: float, words: bytes, *, gaussian: bool) -> tuple[list[int], int]:
    """One cell from these words, and how many of them it read."""
    tape, (p, shift) = Tape(words), noise._fractions(np.array([scale]))
    return noise._draw(p, shift, tape, gaussian=gaussian).tolist(), tape.at


@each_kind
@pytest.mark.parametrize("scale", REFERENCED)
def test_a_cell_is_drawn_as_the_big_integer_reference_draws_it(gaussian: bool, scale: float) -> None:
    generator, reference = np.random.default_rng(10), reference_gaussian if gaussian else reference_laplace
    for _ in range(60):
        words = generator.bytes(20_000)
        tape = Tape(words)
        assert drawn(scale, words, gaussian=gaussian) == ([reference(tape, Fraction(scale))], tape.at)


@each_kind
@pytest.mark.parametrize(
    ("scale", "words"),
    [
        # U = 0 is kept and V runs on.
        (1.0, bytes(3) + b"\xff" + bytes(1000)),
        # U = 1, and every coin of exp(-1/2) shows heads.
        (2.0, bytes(2) + b"\1" + bytes(1000)),
        # The words equal exp(-1) as far as its digits are known.
        (1.0, bytes(3) + b"\xff" + bytes(noise._INVERSE_E) + bytes(1000)),
    ],
    ids=["v", "k", "e"],
)
def test_a_draw_outside_the_proven_range_is_refused(gaussian: bool, scale: float, words: bytes) -> None:
    with pytest.raises(NoiseError) as caught:
        drawn(scale, words, gaussian=gaussian)
    assert str(caught.value) == (
        "a draw must stay in the range where its integers are proven exact, got one outside. That is less likely than "
        "2**-180: suspect the operating system's entropy; if it is sound, run again."
    )


@each_kind
def test_largest_values_do_not_wrap(gaussian: bool) -> None:
    # The largest U, kept; 127 heads and a tails for the largest V; negative; then 8064 heads of exp(-1) and one of the
    # rest, so that the Gaussian keeps the largest square there is.
    p = 2**24 - 1
    words = b"\xff\xff\xfe" + b"\xff" * 3 + bytes(127) + b"\xff" + b"\0" + bytes(8064) + b"\xff" * 8 + bytes(8000)
    expected = (reference_gaussian if gaussian else reference_laplace)(Tape(words), Fraction(p))
    assert expected == -(128 * p - 1)
    assert drawn(float(p), words, gaussian=gaussian)[0] == [expected]


def test_digits_of_inverse_e() -> None:
    with mpmath.workprec(600):
        assert int.from_bytes(noise._INVERSE_E) == int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** 256))


def test_fractions_are_exact_and_in_lowest_terms() -> None:
    rng = np.random.default_rng(9)
    scales = np.exp2(rng.uniform(-37, 23, 5000)).astype(np.float32).astype(np.float64)
    scales = np.concatenate([scales, REFERENCED, 2.0 ** np.arange(-38, 25), np.arange(1.0, 100.0)])
    numerators, shifts = noise._fractions(scales)
    expected = [scale.as_integer_ratio() for scale in scales.tolist()]
    assert list(zip(numerators.tolist(), [2**s for s in shifts.tolist()], strict=True)) == expected
    assert numerators.max() <= 2**24
    assert shifts.max() <= 61


# Entropy.


@each_sampler
def test_two_calls_differ_and_neither_takes_a_seed(sampler: Sampler) -> None:
    # Equal by chance less often than once in 1e200 runs.
    assert not np.array_equal(draw(sampler, 80.0, 100), draw(sampler, 80.0, 100))
    assert list(inspect.signature(sampler).parameters) == ["scales", "sizes", "threads", "narrow"]


@each_sampler
@pytest.mark.parametrize("threads", [1, 3])
def test_every_part_of_every_call_asks_the_operating_system_for_a_key(
    sampler: Sampler, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, asked = iter([1, 2, 3, 4, 5, 6, 1, 2, 3]), list[int]()

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes([next(keys)]) * 32

    monkeypatch.setitem(vars(noise), "urandom", urandom)
    cells = noise._PART_CELLS
    first, other, again = (sampler(np.full(1, 80.0), np.full(1, 2 * cells + 5), threads=threads) for _ in range(3))
    assert asked == [32] * 9
    # Parts are independent: |r| < 6 / sqrt(cells) all but once in 5e8.
    assert abs(np.corrcoef(first[:cells], first[cells : 2 * cells])[0, 1]) < 6 / math.sqrt(cells)
    # The keys decide everything; which part gets which is left to the threads.
    assert not np.array_equal(first, other)
    assert threads > 1 or np.array_equal(first, again)


@each_sampler
def test_parts_keep_to_the_scales_of_their_tables(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(noise), "_PART_CELLS", 100)
    generator = np.random.Generator(np.random.PCG64(1))
    for _ in range(20):
        # Tables that are empty, end with a part, or stretch over several; at the small scale noise is all but never 1.
        sizes = generator.choice([0, 0, 1, 2, 50, 99, 100, 101, 350], 30)
        large = generator.random(30) < 0.5
        sample = sampler(np.where(large, 2.0**20, 2.0**-10), sizes)
        of_table = np.repeat(large, sizes)
        assert sample.size == sizes.sum()
        assert not sample[~of_table].any()
        # A cell is 0 with probability 1e-6 at most: three of some thousand are so less often than once in 1e9 runs.
        assert np.count_nonzero(sample[of_table] == 0) < 3


def test_keystream_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(noise), "urandom", bytes)
    source, whole = noise._keystream(), noise._keystream()
    assert np.concatenate([source(10), source(1), source(90)]).tolist() == whole(101).tolist()


# Shapes and refusals.


@each_sampler
def test_odd_shapes(sampler: Sampler) -> None:
    empty = sampler(np.array([]), np.array([], dtype=np.int64))
    assert empty.shape == (0,)
    assert empty.dtype == np.int64
    # Strided and read-only.
    scales, sizes = np.array([2.0**-30, 1.0, 2.0**-30])[::2], np.array([3, 1000, 4])[::2]
    scales.flags.writeable = sizes.flags.writeable = False
    assert sampler(scales, sizes).tolist() == [0] * 7
    # Tables without cells are skipped; all zero by chance less often than once in 1e1000 runs.
    sample = sampler(np.array([80.0, 2.0**-30, 80.0, 1.0, 5000.0, 80.0]), np.array([0, 1000, 0, 0, 1000, 0]))
    assert sample.shape == (2000,)
    assert not sample[:1000].any()
    assert sample[1000:].any()


RANGE = "noise scale must lie between 2**-38 and 2**24, got scale={}. Change the budget, or the number of tables that"
SINGLE = "noise scale must be exactly a float32 number, got scale={}. Round it up with sklar.kernel.theorems.round_up"
REFUSED: list[tuple[object, object, str]] = [
    *(
        ([1.0, scale], [1, 1], RANGE.format(scale))
        for scale in (math.nan, math.inf, -math.inf, 0.0, -1.0, 2.0**24 + 2, 1e300, 2.0**-39, 5e-324)
    ),
    *(([1.0, scale], [1, 0], SINGLE.format(scale)) for scale in (0.1, 3.7, 2.0**24 - 0.5, 1 + 2.0**-52)),
    *(
        (np.ones(scales), np.ones(sizes, dtype=np.int64), f"of the same length, got shapes {scales} and {sizes}. Give")
        for scales, sizes in (((2,), (3,)), ((1,), (0,)), ((), ()), ((2, 2), (2, 2)))
    ),
    ([1.0, 1.0], [5, -3], "sizes must not be negative, got size=-3. Give the cells of each table."),
]


@each_sampler
@pytest.mark.parametrize(("scales", "sizes", "message"), REFUSED)
def test_what_cannot_be_drawn_is_refused(sampler: Sampler, scales: object, sizes: object, message: str) -> None:
    with pytest.raises(NoiseError, match=re.escape(message)):
        sampler(np.array(scales), np.array(sizes))


@each_sampler
def test_sizes_whose_sum_wraps_are_refused(sampler: Sampler) -> None:
    with pytest.raises((ValueError, MemoryError)):
        sampler(np.ones(4), np.full(4, 2**62))


@each_sampler
def test_narrow_noise_has_the_same_law_in_32_bits(sampler: Sampler) -> None:
    for size in (3, 200_000):
        narrow = sampler(np.array([30.0]), np.array([size]), threads=2, narrow=True)
        assert narrow.dtype == np.int32
    # 1e-7.
    assert fits(narrow, sampler, 30.0)
