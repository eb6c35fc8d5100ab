"""Finds the two polynomials of the GELU kernels: the normal distribution function's upper tail.

``python kernels/bench/fit_gelu.py`` prints the coefficients, lowest power first, and the largest
relative error in float64 arithmetic. Needs numpy alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.chebyshev import chebvander

END = 14.5
"""Beyond it the tail is 0 in float32."""
POINTS = 2000
ROUNDS = 300


def tail(a: float) -> float:
    """The normal distribution function at -a."""
    return 0.5 * math.erfc(a / math.sqrt(2.0))


def minimax(s: np.ndarray, scale: np.ndarray, wanted: np.ndarray, degree: int) -> np.ndarray:
    """Chebyshev coefficients that make the largest |scale * p(s) - wanted| small: Lawson's way."""
    basis = chebvander(s, degree) * scale[:, None]
    weight = np.full(len(s), 1.0 / len(s))
    best = math.inf, np.zeros(degree + 1)
    for _ in range(ROUNDS):
        root = np.sqrt(weight)
        found = np.linalg.lstsq(basis * root[:, None], wanted * root, rcond=None)[0]
        error = np.abs(basis @ found - wanted)
        best = min(best, (error.max(), found), key=lambda each: each[0])
        weight = weight * error / (weight * error).sum()
    return best[1]


def nodes(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Points that crowd towards both ends, and the same scaled to [-1, 1]."""
    s = -np.cos(np.pi * np.arange(POINTS) / (POINTS - 1))
    return low + (high - low) * (s + 1.0) / 2.0, s


def powers(coefficients: np.ndarray, low: float, high: float) -> Polynomial:
    """The same polynomial in powers of the unscaled variable."""
    return Chebyshev(coefficients, domain=[low, high]).convert(
        kind=Polynomial, domain=[-1, 1], window=[-1, 1]
    )


def log2_tail(degree: int) -> tuple[Polynomial, float]:
    """p with tail(a) = 2 ** p(a), and its largest relative error."""
    a, s = nodes(0.0, END)
    wanted = np.array([math.log2(tail(each)) for each in a])
    p = powers(minimax(s, np.ones_like(a), wanted, degree), 0.0, END)
    return p, float(np.abs(np.exp2(p(a) - wanted) - 1.0).max())


def scaled_tail(degree: int, rate: float) -> tuple[Polynomial, float]:
    """p with tail(a) = exp(-a * a / 2) * w * p(w), w = 1 / (1 + rate * a), and its error."""
    low = 1.0 / (1.0 + rate * END)
    w, s = nodes(low, 1.0)
    a = (1.0 / w - 1.0) / rate
    wanted = np.array([tail(each) * math.exp(each * each / 2.0) for each in a])
    p = powers(minimax(s, w / wanted, np.ones_like(w), degree), low, 1.0)
    return p, float(np.abs(w * p(w) / wanted - 1.0).max())


def main() -> None:
    """Print both."""
    for name, (polynomial, error) in (
        ("log2 of the tail, degree 9 in a", log2_tail(9)),
        ("scaled tail, degree 8 in 1 / (1 + 0.35 a)", scaled_tail(8, 0.35)),
    ):
        print(f"{name}: largest relative error {error:.1e}")
        for power, coefficient in enumerate(polynomial.coef):
            print(f"  {power}  {np.float32(coefficient)!s}")


if __name__ == "__main__":
    main()
