"""Exact discrete Laplace and discrete Gaussian noise: Canonne, Kamath and Steinke (2020), Algorithms 1 to 3.

Nothing here sees a count, and nothing here can be seeded: every call draws a fresh key from the operating system, one
for every `_PART_CELLS` cells, so that parts are drawn side by side. How cells are cut into parts depends on how many
they are alone, and cells are independent: the law of the noise is the same as if one key had served for all.

Why exact. A scale is a fraction p/q, every coin is a comparison of integers, and no floating-point number takes part
in the sampling, so the attack of Mironov (2012) on the low bits of the noise has nothing to read. Two things are
idealized: AES-256 in counter mode is taken for random, and a draw outside the proven range of the integers (fewer than
one in 2**180) raises instead of being returned. Each sampler states its precondition, its postcondition and why it
holds; together they bound every intermediate below 2**63:

    p <= 2**24, V <= 127, K <= 63
    U + pV            <  2**31    _attempt: U < p
    (|Y| q - p)**2    <  2**62    _attempt: |Y| q <= U + pV
    256 * 2 p**2 * K  <  2**63    _tosses, called with d = 2 p**2 K

All cells without a value are attempted side by side, until each has one. Why: Algorithms 2 and 3 start over from U
wherever they refuse, so that they are repeated attempts from U to the last coin, of which the first that is kept
counts. Each coin reads words that no other coin reads, and which ones depends on words read before alone: given those,
its words are random. So cells and attempts are independent.

The time a call takes depends on the noise it draws, so whoever can time single calls learns a little about the noise.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from os import urandom

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from sklar.errors import NoiseError
from sklar.kernel.cells import Doubles, Ints, Whole
from sklar.kernel.seal import seal

__all__ = ["discrete_gaussian", "discrete_laplace"]

# A random word is one byte: nearly every coin is decided by its first byte, so longer words would be thrown away.
_Words = NDArray[np.uint8]
_Source = Callable[[int], _Words]

_PART_CELLS = 1 << 16
_SMALLEST_SCALE = 2.0**-38  # with 24 significant bits, q <= 2**61: |Y| q and X // q are shifts of an int64
_LARGEST_SCALE = 2.0**24
_V_LIMIT = 128
_K_LIMIT = 64

# The base-256 digits of exp(-1) = 1/2! - 1/3! + 1/4! - ..., to 256 bits.
_INVERSE_E = (sum((-1) ** k * (1 << 400) // math.factorial(k) for k in range(100)) >> 144).to_bytes(32)

_OUTSIDE = (
    "a draw must stay in the range where its integers are proven exact, got one outside. "
    "That is less likely than 2**-180: suspect the operating system's entropy; if it is sound, run again."
)


def discrete_laplace(scales: Doubles, sizes: Ints, *, threads: int = 1, narrow: bool = False) -> Whole:
    """Independent noise with P(x) proportional to exp(-|x| / scale), table after table.

    Table t has sizes[t] cells at scales[t]. A scale must be a float32 number, so that it is exactly a fraction p/q.
    `narrow` noise takes 32 bits a cell, which hold every draw: `_attempt` proves it below 2**31.
    """
    return _draw_parts(scales, sizes, threads, gaussian=False, narrow=narrow)


def discrete_gaussian(scales: Doubles, sizes: Ints, *, threads: int = 1, narrow: bool = False) -> Whole:
    """Independent noise with P(x) proportional to exp(-x**2 / (2 scale**2)); otherwise as `discrete_laplace`."""
    return _draw_parts(scales, sizes, threads, gaussian=True, narrow=narrow)


def _keystream() -> _Source:
    """Random words: AES-256-CTR under a key that only this stream knows.

    A key per stream leaves no state that a fork could copy, and makes the constant nonce safe.
    """
    encryptor = Cipher(AES256(urandom(32)), CTR(bytes(16))).encryptor()
    return lambda count: np.frombuffer(encryptor.update(bytes(count)), dtype=np.uint8)


def _draw_parts(scales: Doubles, sizes: Ints, threads: int, *, gaussian: bool, narrow: bool) -> Whole:
    """Every cell once, in parts that threads draw side by side, each part from a stream of its own."""
    scales = np.asarray(scales).astype(np.float64, casting="safe")
    sizes = np.asarray(sizes).astype(np.int64, casting="safe")
    if scales.ndim != 1 or scales.shape != sizes.shape:
        raise NoiseError(
            "scales and sizes must be two flat arrays of the same length, "
            f"got shapes {scales.shape} and {sizes.shape}. Give one scale and one size per table."
        )
    if (sizes < 0).any():
        raise NoiseError(f"sizes must not be negative, got size={sizes[sizes < 0][0]}. Give the cells of each table.")
    numerators, shifts = _fractions(scales)
    # Summed as Python integers, which do not wrap.
    noise: Whole = np.empty(sum(sizes.tolist()), dtype=np.int32 if narrow else np.int64)
    ends = np.cumsum(sizes)

    def part(start: int) -> None:
        stop = min(start + _PART_CELLS, noise.size)
        # The tables from that of the part's first cell to that of its last, and where each ends within the part.
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        own = slice(first, last + 1)
        within = np.diff(np.minimum(ends[own], stop), prepend=start)
        p, shift = np.repeat(numerators[own], within), np.repeat(shifts[own], within)
        noise[start:stop] = _draw(p, shift, _keystream(), gaussian=gaussian)

    starts = range(0, noise.size, _PART_CELLS)
    if len(starts) <= 1 or threads == 1:
        list(map(part, starts))
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, starts))
    return noise


def _fractions(scales: Doubles) -> tuple[Ints, Ints]:
    """Each scale as p and log2 q with scale = p/q exactly, in lowest terms; p <= 2**24 and log2 q <= 61."""
    outside = ~((scales >= _SMALLEST_SCALE) & (scales <= _LARGEST_SCALE))
    if outside.any():
        raise NoiseError(
            f"noise scale must lie between 2**-38 and 2**24, got scale={scales[outside][0]}. "
            "Change the budget, or the number of tables that share it."
        )
    inexact = scales.astype(np.float32) != scales
    if inexact.any():
        raise NoiseError(
            f"noise scale must be exactly a float32 number, got scale={scales[inexact][0]}. "
            "Round it up with sklar.kernel.theorems.round_up_scale."
        )
    # Powers of two only, so each step is exact: scale = mantissa * 2**exponent = p * 2**(exponent - 24).
    mantissas, exponents = np.frexp(scales)
    numerators = (mantissas * 2.0**24).astype(np.int64)
    zeros = np.frexp(numerators & -numerators)[1] - 1
    powers = exponents - 24 + zeros
    return (numerators >> zeros) << np.maximum(powers, 0), np.maximum(-powers, 0).astype(np.int64)


def _draw(p: Ints, shift: Ints, source: _Source, *, gaussian: bool) -> Ints:
    """A value for each scale p / 2**shift."""
    noise, left = np.empty(p.size, dtype=np.int64), np.arange(p.size)
    while left.size:
        values, kept = _attempt(p[left], shift[left], source, gaussian=gaussian)
        noise[left[kept]] = values
        left = np.delete(left, kept)
    return noise


def _attempt(p: Ints, shift: Ints, source: _Source, *, gaussian: bool) -> tuple[Ints, Ints]:
    """One attempt for each scale p/q with q = 2**shift: the values that are kept, and whose they are.

    Precondition: 1 <= p <= 2**24, 0 <= shift <= 61. Postcondition: given that it is kept, P(y) is proportional to
    exp(-|y| q / p) for Laplace, and to exp(-y**2 q**2 / (2 p**2)) for Gaussian noise; and |y| q < 2**31.

    Laplace (Algorithm 2). U is an integer of the bit length of p - 1, kept below p, so uniform there, and then with
    probability exp(-U/p). V is geometric with ratio exp(-1). So X = U + pV has P(x) proportional to exp(-x/p), and
    floor(X / q) is geometric with ratio exp(-q/p); the sign is fair, and refusing one of the two zeros counts zero
    once. V <= 127 bounds X. Gaussian (Algorithm 3, its free parameter t set to sigma): y is kept with probability
    exp(-g), g = (|y| q - p)**2 / (2 p**2); the exponents add up to -|y|/sigma - (|y|/sigma - 1)**2 / 2, which is
    -y**2 / (2 sigma**2) - 1/2. As |y| q < 2**31 and p <= 2**24, the square is below 2**62 and d <= 2**49. exp(-g) is a
    coin exp(-1) for every whole unit of g, then one for the rest.
    """
    mask = p - 1
    for bits in (1, 2, 4, 8, 16):
        mask |= mask >> bits
    words = source(3 * p.size).reshape(3, p.size).astype(np.int64)
    u = (words[0] << 16 | words[1] << 8 | words[2]) & mask
    kept = np.flatnonzero(u < p)
    kept = kept[_tosses_exp(u[kept], p[kept], source)]
    v, more = np.zeros(p.size, dtype=np.int64), kept
    while more.size:
        more = more[_tosses_exp_one(more.size, source)]
        v[more] += 1
        if (v[more] == _V_LIMIT).any():
            raise NoiseError(_OUTSIDE)
    y = (u[kept] + p[kept] * v[kept]) >> shift[kept]
    negative = source(kept.size) < 128
    one = ~negative | (y > 0)
    y, kept = np.where(negative, -y, y)[one], kept[one]
    if not gaussian:
        return y, kept
    n, d = ((np.abs(y) << shift[kept]) - p[kept]) ** 2, 2 * p[kept] ** 2
    good, units = np.ones(kept.size, dtype=bool), n // d
    more = np.flatnonzero(units)
    while more.size:
        good[more] = _tosses_exp_one(more.size, source)
        units[more] -= 1
        more = more[good[more] & (units[more] > 0)]
    last = np.flatnonzero(good)
    good[last] = _tosses_exp(n[last] % d[last], d[last], source)
    return y[good], kept[good]


def _tosses(n: Ints, d: Ints, source: _Source) -> NDArray[np.bool_]:
    """For each n/d, heads with probability n/d.

    Precondition: 0 <= n <= d and 256 d < 2**63. Postcondition: heads with probability exactly n/d.
    Why: the words are the base-256 digits of a uniform real R in [0, 1), and heads says whether R < n/d. With w the
    first digit, R = (w + R') / 256 and R' is uniform again, so R < n/d means R' < (256 n - w d) / d. That is sure if
    the fraction is 1 or more, impossible if it is 0 or less, and else the same question with 256 n - w d for n.
    """
    n = 256 * n - source(n.size) * d
    heads = n >= d
    unsettled = np.flatnonzero((n > 0) & ~heads)
    if unsettled.size:
        heads[unsettled] = _tosses(n[unsettled], d[unsettled], source)
    return heads


def _tosses_exp(n: Ints, d: Ints, source: _Source) -> NDArray[np.bool_]:
    """For each n/d, heads with probability exp(-n/d): Algorithm 1, the case of at most 1.

    Precondition: 0 <= n <= d <= 2**49. Postcondition: heads with probability exactly exp(-n/d).
    Why: with g = n/d, coin k shows heads with probability g/k, so the first tails comes after coin k with probability
    g**k / k!, and at an odd coin with probability 1 - g + g**2/2! - ... = exp(-g). K <= 63 keeps 256 d K < 2**63.
    """
    odd, going = np.zeros(n.size, dtype=bool), np.arange(n.size)
    for k in range(1, _K_LIMIT):
        heads = _tosses(n, d * k, source)
        if k & 1:
            odd[going[~heads]] = True
        going, n, d = going[heads], n[heads], d[heads]
        if not going.size:
            return odd
    raise NoiseError(_OUTSIDE)


def _tosses_exp_one(number: int, source: _Source) -> NDArray[np.bool_]:
    """So many coins, each heads with probability exp(-1): one comparison where Algorithm 1 tosses e coins on average.

    Postcondition: heads with probability exactly exp(-1).
    Why: the words are the base-256 digits of a uniform real, compared with those of exp(-1) until they differ; words
    that equal all 32 digits, with probability 2**-256, have no outcome.
    """
    words = source(number)
    heads: NDArray[np.bool_] = words < _INVERSE_E[0]
    level = np.flatnonzero(words == _INVERSE_E[0])
    for digit in _INVERSE_E[1:]:
        if not level.size:
            return heads
        words = source(level.size)
        heads[level[words < digit]] = True
        level = level[words == digit]
    raise NoiseError(_OUTSIDE)


seal(__name__)
