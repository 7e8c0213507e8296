"""Pair probabilities to Gaussian correlations (Eqs 5-7 of the paper), solved to rounding instead of on a grid.

For dummies X = 1{Y > t} of standard normals with correlation r, the expectation of Eq. 6 is the orthant probability

    L(h, k, r) = P(Y1 > h, Y2 > k),    dL/dx = g(x) / 2 pi at r = sin x,
    g(x) = exp(-(h^2 + k^2 - 2 h k sin x) / (2 cos^2 x)).

L is known where r is -1, 0 or 1: the Frechet lower bound, the product of the margins, the Frechet upper bound. Every
value here is one of these three and an integral of g from there, so chosen that little cancels. Negative correlations
are folded onto positive ones by k -> -k, under which g(x) becomes g(-x); with a = h - k and b = h k then

    g(x) = exp(-a^2 / (2 cos^2 x) - b / (1 + sin x)),

in which nothing cancels as x nears pi/2.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sklar.fitting.cuts import thresholds
from sklar.machine.compiled import compiled
from sklar.machine.threads import side_by_side

Array = npt.NDArray[np.float64]


def _rules(*sizes: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [0, 1], one rule after another."""
    pairs = [np.polynomial.legendre.leggauss(size) for size in sizes]
    nodes, weights = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return (1.0 + nodes) / 2.0, weights / 2.0


_NODES, _WEIGHTS = _rules(6, 12, 20)
_RULE_6, _RULE_12, _RULE_20, _RULES_END = 0, 6, 18, 38
_LAYER_NODES, _LAYER_WEIGHTS = _rules(16)

_TWO_PI = 2.0 * math.pi
_FAR = 38.5  # P(Y > 38.5) underflows: farther cut points are infinite
_SPLIT_U = 0.6  # cos x where integrals from 0 hand over to integrals from pi/2
_SPLIT_X = math.acos(_SPLIT_U)
_TINY = 1e-300
_STEEPEST = 1e9  # calls for the longest rule; inf would make inf * 0 of an empty interval
_PARTS = 64  # into which the rows of a matrix are dealt
_BOUND_SLACK = 4.0 * np.finfo(np.float64).eps  # rounding in p_i + p_j - 1 is not a target out of bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Tetrachoric:
    """Gaussian correlations, and how many targets lay outside their Frechet bounds and were moved to the nearer one."""

    r: Array
    clipped: int


def orthant(h: npt.ArrayLike, k: npt.ArrayLike, r: npt.ArrayLike) -> Array:
    """P(Y1 > h, Y2 > k) for standard normals with correlation r (the left side of Eq. 6); the arguments broadcast.

    Right to 1e-14, and where a margin is small to about twelve digits of that margin. NaN where |r| > 1.

    >>> orthant(0.0, 0.0, [-1.0, 0.0, 0.5, 1.0]).round(12).tolist()
    [0.0, 0.25, 0.333333333333, 0.5]
    """
    every_h, every_k, every_r = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (h, k, r)))
    found = np.empty(every_h.size)
    _fill_orthants(every_h.flatten(), every_k.flatten(), every_r.flatten(), found)
    return found.reshape(every_h.shape)


def tetrachoric_matrix(probabilities: Array, joint: Array) -> Tetrachoric:
    """The r with P(Y_i > t_i, Y_j > t_j; r) = p_ij for every pair (Eq. 7): the paper's P, with a unit diagonal.

    `probabilities` are the margins, shape (d,), and `joint` the p_ij, shape (d, d): only its entries above the diagonal
    are read. orthant(t_i, t_j, r) is p_ij within 1e-15 + 4e-12 min(p_i, p_j), or as near as the rounding of r
    lets it come (2e-9 where |r| is next to 1). A target outside its Frechet bounds gets r = -1 or 1 and is counted
    once. A margin of 0 or 1 has no correlation: r is 0.

    >>> tetrachoric_matrix(np.array([0.5, 0.5]), np.array([[0.5, 1 / 6], [1 / 6, 0.5]])).r.round(12).tolist()
    [[1.0, -0.5], [-0.5, 1.0]]
    """
    d = probabilities.size
    if probabilities.shape != (d,) or joint.shape != (d, d):
        raise ValueError(
            f"probabilities must have shape (d,) and joint (d, d), got {probabilities.shape} and {joint.shape}."
        )
    _require_numbers("probabilities", probabilities, margins=True)
    _require_numbers("joint", joint, margins=False)
    p = np.ascontiguousarray(probabilities, np.float64)
    r, t, square = np.eye(d), thresholds(p), np.ascontiguousarray(joint, np.float64)
    clipped = sum(side_by_side(lambda first: int(_solve_rows(first, _PARTS, p, square, t, r)), range(_PARTS)))
    return Tetrachoric(r=r, clipped=clipped)


def _require_numbers(name: str, values: Array, *, margins: bool) -> None:
    if values.size == 0:
        return
    low, high = float(values.min()), float(values.max())
    # Written so that a NaN, which min and max pass on, fails too.
    if margins and not (low >= 0.0 and high <= 1.0):
        raise ValueError(f"{name} must lie between 0 and 1, got values from {low} to {high}.")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{name} must be finite, got values from {low} to {high}.")


@compiled("float64(float64)", error_model="numpy")
def _tail(t: float) -> float:
    """P(Y > t)."""
    return 0.5 * math.erfc(t * math.sqrt(0.5))


@compiled("float64(float64, float64, float64)", error_model="numpy")
def _log_slope(a: float, b: float, x: float) -> float:
    """The derivative of log g at x."""
    s = math.sin(x)
    c2 = (1.0 - s) * (1.0 + s)
    c = math.sqrt(c2)
    return -a * a * s / (c2 * c) + b * c / ((1.0 + s) * (1.0 + s))


@compiled("float64(float64, float64, float64)", error_model="numpy")
def _g(a: float, b: float, s: float) -> float:
    """g at sin x = s, over 2 pi."""
    return math.exp(-0.5 * a * a / ((1.0 - s) * (1.0 + s)) - b / (1.0 + s)) / _TWO_PI


@compiled("float64(float64, float64)", error_model="numpy")
def _step(newton: float, slope: float) -> float:
    """The step that adds newton * g to the integral of g, if log g is linear with this slope."""
    bend = newton * slope
    # A fall of g that uses up more than its whole integral has no solution: go far, the bracket holds it.
    return newton if abs(bend) < 1e-8 else math.log1p(max(bend, -0.95)) / slope


@compiled("float64(float64, float64, float64, float64, float64)", error_model="numpy")
def _between(a: float, b: float, start: float, stop: float, steepness: float) -> float:
    """Integral of g / 2 pi from start to stop, both at most _SPLIT_X; steepness is |log slope| at the steeper end.

    The rule grows with the change of log g over the interval, and with its length beside the distance to pi/2, where
    log g has its pole: the error stays below 1e-12 of the integral.
    """
    length = stop - start
    change = abs(length) * (1.0 + steepness)
    nearness = abs(length) / (0.5 * math.pi - max(start, stop))
    if change < 1.2 and nearness < 0.3:
        first, last = _RULE_6, _RULE_12
    elif change < 6.0 and nearness < 2.0:
        first, last = _RULE_12, _RULE_20
    else:
        first, last = _RULE_20, _RULES_END
    total = 0.0
    for i in range(first, last):
        s = math.sin(start + length * _NODES[i])
        total += _WEIGHTS[i] * math.exp(-0.5 * a * a / ((1.0 - s) * (1.0 + s)) - b / (1.0 + s))
    return total * length / _TWO_PI


@compiled("float64(float64, float64, float64)", error_model="numpy")
def _beyond(a: float, b: float, u: float) -> float:
    """Integral of g / 2 pi from acos u to pi/2; needs u <= 0.6 or |a| >= 3 u.

    In v = cos x it is the integral over [0, u] of exp(-a^2 / 2 v^2) f(v^2), whose first factor rises in a layer at
    v = |a| that may be arbitrarily thin, while f(w) = exp(-b / (1 + s)) / s, s = sqrt(1 - w), is smooth.
    """
    a = abs(a)
    total = 0.0
    if a < 2.0 * u:
        # The layer lies inside: integrate four terms of f's Taylor series in w against it in closed form. What is left
        # of f vanishes like v^8 at the layer, and a plain rule sees nothing sharp.
        w = u * u
        q = b / 8.0
        c1 = 0.5 - q
        c2 = 0.375 - q + 0.5 * q * q
        c3 = 0.3125 - 0.9375 * q + 0.75 * q * q - q * q * q / 6.0
        edge = u * math.exp(-0.5 * a * a / w)
        moment = edge - a * math.sqrt(_TWO_PI) * _tail(a / u)
        total = moment
        edge *= w
        moment = (edge - a * a * moment) / 3.0
        total += c1 * moment
        edge *= w
        moment = (edge - a * a * moment) / 5.0
        total += c2 * moment
        edge *= w
        moment = (edge - a * a * moment) / 7.0
        total += c3 * moment
        rest = 0.0
        for i in range(_LAYER_NODES.size):
            v = u * _LAYER_NODES[i]
            w = v * v
            s = math.sqrt(1.0 - w)
            smooth = math.exp(-0.5 * b * w / ((1.0 + s) * (1.0 + s))) / s
            rest += _LAYER_WEIGHTS[i] * math.exp(-0.5 * a * a / w) * (smooth - (1.0 + w * (c1 + w * (c2 + w * c3))))
        return (total + u * rest) * math.exp(-0.5 * b) / _TWO_PI
    # The layer lies at the end: the integrand falls by exp(-39) from u to `low`.
    low = math.asin(a / math.sqrt(78.0 + (a / u) * (a / u)))
    length = math.asin(u) - low
    for i in range(_RULE_20, _RULES_END):
        y = low + length * _NODES[i]
        v = math.sin(y)
        total += _WEIGHTS[i] * math.exp(-0.5 * a * a / (v * v) - b / (1.0 + math.cos(y)))
    return total * length / _TWO_PI


@compiled("float64(float64, float64, float64)", error_model="numpy")
def _orthant(h: float, k: float, r: float) -> float:
    if not abs(r) <= 1.0 or math.isnan(h) or math.isnan(k):
        return math.nan
    if h > _FAR or k > _FAR:
        return 0.0
    if h < -_FAR or k < -_FAR:
        return _tail(max(h, k))
    u = math.sqrt((1.0 - r) * (1.0 + r))
    if r >= 0.0:
        if u < _SPLIT_U:
            inside = _beyond(h - k, h * k, u) if u > 0.0 else 0.0
            return _tail(max(h, k)) - inside
        return _tail(h) * _tail(k) + _between(h - k, h * k, 0.0, math.asin(r), _STEEPEST)
    # Where the lower bound is 0 the integral is the whole answer, however small. For small |r| the product is as good.
    if u < _SPLIT_U or (r < -0.3 and h + k >= 3.0 * u):
        inside = _beyond(h + k, -h * k, u) if u > 0.0 else 0.0
        return inside if h + k >= 0.0 else inside + _tail(max(h, k)) - _tail(-min(h, k))
    return _tail(h) * _tail(k) - _between(h + k, -h * k, 0.0, math.asin(-r), _STEEPEST)


@compiled("void(float64[::1], float64[::1], float64[::1], float64[::1])", error_model="numpy")
def _fill_orthants(h: Array, k: Array, r: Array, found: Array) -> None:
    for i in range(found.size):
        found[i] = _orthant(h[i], k[i], r[i])


@compiled("float64(float64, float64, float64, float64, float64)", error_model="numpy")
def _root_near(a: float, b: float, from_zero: float, x: float, ceiling: float) -> float:
    """The x whose integral of g / 2 pi from 0 is `from_zero`, from a first guess.

    The root is known to lie below `ceiling`; if that is inf and the search leaves [0, _SPLIT_X), the answer is inf.
    Each step takes log g for linear, which makes the order three, and only the stretch just walked is integrated anew.
    """
    low, high = 0.0, _SPLIT_X
    area, done, slope_done = 0.0, 0.0, abs(b)
    step = math.inf
    while abs(step) > 1e-5 and high - low > 1e-15:
        if x <= low or x >= high:
            if x >= _SPLIT_X and ceiling == math.inf:
                return math.inf
            x = 0.5 * (low + high)
        slope = _log_slope(a, b, x)
        steepness = max(abs(slope), slope_done)
        if abs(x - done) * steepness > 6.0:
            area, done = 0.0, 0.0
        area += _between(a, b, done, x, steepness)
        done, slope_done = x, abs(slope)
        if area > from_zero:
            high = ceiling = x
        else:
            low = x
        step = _step((from_zero - area) / max(_TINY, _g(a, b, math.sin(x))), slope)
        x += step
    return x


@compiled("float64(float64, float64, float64, float64, float64)", error_model="numpy")
def _power_step(a: float, b: float, from_end: float, u: float, area: float) -> float:
    """Newton's next u, if the integral beyond acos u, `area` here, is a power of u."""
    s = math.sqrt((1.0 - u) * (1.0 + u))
    power = u * _g(a, b, s) / (s * area)
    return u * math.exp(math.log(from_end / area) / power)


@compiled("float64(float64, float64, float64, float64)", error_model="numpy")
def _root_beyond(a: float, b: float, from_end: float, area: float) -> float:
    """The u = cos x whose integral of g / 2 pi from x to pi/2 is `from_end`, less than `area`, that for _SPLIT_U.

    Newton's method on the logarithms of both: log area is concave and rising in log u, so a step from the left stays
    left of the root, and a step from the right lands there.
    """
    high = _SPLIT_U
    # The integral is at most 1/4 of the largest g up to u: below `low` that is less than from_end.
    room = math.log(0.25 / from_end) - b * (0.5 if b > 0.0 else 1.0 / (1.0 + math.sin(_SPLIT_X)))
    low = abs(a) / math.sqrt(2.0 * room) if room > 0.0 else 0.0
    u = max(low, _power_step(a, b, from_end, high, area))
    # u^2 underflows below 1e-140, and r is 1 to rounding long before.
    while u > 1e-140 and high - low > 1e-15 * high:
        area = _beyond(a, b, u)
        if abs(area - from_end) <= 1e-12 * from_end + 1e-17:
            break
        if area > from_end:
            high = u
        else:
            low = u
        u = _power_step(a, b, from_end, u, area)
        if not low < u < high:
            u = math.sqrt(low * high) if low > 0.0 else 0.1 * high
    return u


@compiled("float64(float64, float64, float64, float64, float64)", error_model="numpy")
def _solve(p_i: float, p_j: float, p_ij: float, h: float, k: float) -> float:
    """One pair, p_ij strictly between its bounds."""
    from_zero = p_ij - p_i * p_j
    if from_zero == 0.0:
        return 0.0
    if from_zero > 0.0:
        sign = 1.0
        from_end = min(p_i, p_j) - p_ij
    else:
        sign = -1.0
        k = -k
        from_zero = -from_zero
        from_end = p_ij - max(0.0, p_i + p_j - 1.0)
    a = h - k
    b = h * k
    x = _step(from_zero / max(_TINY, _g(a, b, 0.0)), b)
    # Past the middle the root is likely to lie beyond the split: find out first. Else only if the search gets there.
    if from_end >= from_zero:
        x = _root_near(a, b, from_zero, x, math.inf)
        if x < math.inf:
            return sign * math.sin(x)
    at_split = _beyond(a, b, _SPLIT_U)
    if from_end >= at_split:
        return sign * math.sin(_root_near(a, b, from_zero, x, _SPLIT_X))
    u = _root_beyond(a, b, from_end, at_split)
    # As 1 minus a small number: near 1 every unit in the last place of r counts.
    return sign * (1.0 - u * u / (1.0 + math.sqrt((1.0 - u) * (1.0 + u))))


@compiled("Tuple((float64, int64))(float64, float64, float64, float64, float64)", error_model="numpy")
def _clip_or_solve(p_i: float, p_j: float, p_ij: float, h: float, k: float) -> tuple[float, int]:
    """One pair: r, and 1 if its target lay out of bounds."""
    lower, upper = max(0.0, p_i + p_j - 1.0), min(p_i, p_j)
    out = 1 if p_ij < lower - _BOUND_SLACK or p_ij > upper + _BOUND_SLACK else 0
    if not (0.0 < p_i < 1.0 and 0.0 < p_j < 1.0):
        return 0.0, out
    if p_ij <= lower:
        return -1.0, out
    if p_ij >= upper:
        return 1.0, out
    return _solve(p_i, p_j, p_ij, h, k), out


@compiled(
    "int64(int64, int64, float64[::1], float64[:, ::1], float64[::1], float64[:, ::1])",
    error_model="numpy",
)
def _solve_rows(first: int, step: int, p: Array, joint: Array, t: Array, r: Array) -> int:
    """Rows `first`, `first + step`, ...: every part has long and short ones."""
    clipped = 0
    for i in range(first, p.size, step):
        for j in range(i + 1, p.size):
            r[i, j], out = _clip_or_solve(p[i], p[j], joint[i, j], t[i], t[j])
            r[j, i] = r[i, j]
            clipped += out
    return clipped
