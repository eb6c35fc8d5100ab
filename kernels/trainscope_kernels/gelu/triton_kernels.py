"""The Triton kernels of GELU: one read and one write of each element.

They load, widen to float32 and compute there (float64 stays itself). Full blocks take a path
without masks, since a mask whose length is no multiple of the vector width makes Triton load
element by element. kernels/bench/fit_gelu.py finds the polynomials.
"""

import triton
import triton.language as tl

__all__ = [
    "backward_kernel",
    "bias_backward_kernel",
    "bias_forward_kernel",
    "forward_kernel",
]


@triton.jit
def _upper_tail(a):
    """The normal distribution function at -a, for 0 <= a <= 14.5, to 5e-5 of its value.

    Enough for results of 8 or 11 bits, at ten instructions: the polynomial fits its log2.
    """
    p = -1.418034e-9 * a + 1.10793685e-7
    p = p * a - 3.7853467e-6
    p = p * a + 7.473921e-5
    p = p * a - 9.530718e-4
    p = p * a + 8.36435e-3
    p = p * a - 5.3201158e-2
    p = p * a - 0.45973435
    p = p * a - 1.1505286
    return tl.exp2(p * a - 1.0000645)


@triton.jit
def _scaled_tail(a):
    """The same times exp(a * a / 2), to 3e-7 of its value: a polynomial in 1 / (1 + 0.35 a)."""
    w = 1.0 / (1.0 + 0.35 * a)
    p = -2.9157853e-2 * w + 0.14403076
    p = p * w - 0.25583872
    p = p * w + 0.1593194
    p = p * w - 2.3212174e-2
    p = p * w + 0.105552435
    p = p * w + 0.1198213
    p = p * w + 0.13986352
    return (p * w + 0.1396213) * w


@triton.jit
def _bell(a, EXACT: tl.constexpr):
    """exp(-a * a / 2). EXACT adds back what rounding a * a and its scale lost (1e-5 far out)."""
    square = a * a
    scaled = square * -0.7213475
    bell = tl.exp2(scaled)
    if EXACT:
        lost = tl.fma(square, -0.7213475, -scaled)
        lost += square * -9.629815e-9  # what float32 leaves of the scale, -log2(e) / 2
        lost += tl.fma(a, a, -square) * -0.7213475
        bell += bell * (lost * 0.6931472)
    return bell


@triton.jit
def _gelu(x, HALF: tl.constexpr, TANH: tl.constexpr):
    """HALF: the result will be rounded to a half type, so 5e-5 of its value is close enough."""
    if TANH:
        # x * sigmoid(2u), in base 2; at the bound the exponential is inf and the result -0
        x = tl.maximum(x, -40.0, tl.PropagateNan.ALL)
        y = x / (1.0 + tl.exp2(x * (-0.1029432395800235 * (x * x) - 2.302208198144325)))
    elif x.dtype == tl.float64:
        x = tl.maximum(x, -40.0, tl.PropagateNan.ALL)
        y = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    else:
        # relu(x) - |x| * tail(|x|): nothing cancels below 0, and at -inf it is 0. A select and
        # not a maximum, which would lose NaN and the sign of -0
        a = tl.minimum(tl.abs(x), 14.5)
        if HALF:
            tail = _upper_tail(a)
        else:
            tail = _bell(a, True) * _scaled_tail(a)
        y = tl.where(x < 0.0, 0.0, x) - a * tail
    return y


@triton.jit
def _derivative(x, HALF: tl.constexpr, TANH: tl.constexpr):
    """The derivative of _gelu. HALF only spares what a half value could not show."""
    if TANH:
        x = tl.clamp(x, -40.0, 40.0, tl.PropagateNan.ALL)
        square = x * x
        power = x * (-0.1029432395800235 * square - 2.302208198144325)
        slope = x * (0.21406444881780076 * square + 1.5957691216057308)
        if HALF:
            s = 1.0 / (1.0 + tl.exp2(power))
            d = s + s * (1.0 - s) * slope
        else:
            # 1 - s would have lost its digits where s is close to 1, and the slope is large there
            small = tl.exp2(-tl.abs(power))
            large = 1.0 / (1.0 + small)
            d = tl.where(power < 0.0, large, small * large) + small * large * large * slope
    elif x.dtype == tl.float64:
        x = tl.clamp(x, -40.0, 40.0, tl.PropagateNan.ALL)
        d = 0.5 + 0.5 * tl.math.erf(x * 0.7071067811865476)
        d += x * tl.exp(-0.5 * x * x) * 0.3989422804014327
    else:
        a = tl.minimum(tl.abs(x), 14.5, tl.PropagateNan.ALL)
        below = _bell(a, not HALF) * (_scaled_tail(a) - a * 0.3989422804014327)
        d = tl.where(x < 0.0, below, 1.0 - below)
    return d


@triton.jit
def _wide(x):
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit(do_not_specialize=["n"])
def forward_kernel(x_ptr, y_ptr, n, TANH: tl.constexpr, BLOCK: tl.constexpr):
    """GELU of n elements; x_ptr and y_ptr may be the same."""
    HALF: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        x = tl.load(x_ptr + start + lanes)
        tl.store(y_ptr + start + lanes, _gelu(_wide(x), HALF, TANH).to(x.dtype))
    else:
        mask = lanes < n - start
        x = tl.load(x_ptr + start + lanes, mask=mask)
        tl.store(y_ptr + start + lanes, _gelu(_wide(x), HALF, TANH).to(x.dtype), mask=mask)


@triton.jit(do_not_specialize=["n"])
def backward_kernel(g_ptr, x_ptr, dx_ptr, n, TANH: tl.constexpr, BLOCK: tl.constexpr):
    """Gradients of n elements; x_ptr and dx_ptr may be the same."""
    HALF: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        x = tl.load(x_ptr + start + lanes)
        g = tl.load(g_ptr + start + lanes)
        dx = _wide(g) * _derivative(_wide(x), HALF, TANH)
        tl.store(dx_ptr + start + lanes, dx.to(x.dtype))
    else:
        mask = lanes < n - start
        x = tl.load(x_ptr + start + lanes, mask=mask)
        g = tl.load(g_ptr + start + lanes, mask=mask)
        dx = _wide(g) * _derivative(_wide(x), HALF, TANH)
        tl.store(dx_ptr + start + lanes, dx.to(x.dtype), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def bias_forward_kernel(
    x_ptr, b_ptr, y_ptr, rows, cols, TANH: tl.constexpr, TALL: tl.constexpr, BROAD: tl.constexpr
):
    """A tile of TALL rows and BROAD columns; neighbours lie along a row first."""
    HALF: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    across = tl.cdiv(cols, BROAD)
    row = (tl.program_id(0) // across).to(tl.int64) * TALL + tl.arange(0, TALL)
    col = (tl.program_id(0) % across) * BROAD + tl.arange(0, BROAD)
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    at = row[:, None] * cols + col[None, :]
    x = tl.load(x_ptr + at, mask=inside)
    b = tl.load(b_ptr + col, mask=col < cols)
    z = _wide(x) + b.to(_wide(x).dtype)[None, :]
    tl.store(y_ptr + at, _gelu(z, HALF, TANH).to(x.dtype), mask=inside)


@triton.jit(do_not_specialize=["rows", "chunk"])
def bias_backward_kernel(
    g_ptr, x_ptr, b_ptr, dx_ptr, sums_ptr, rows, cols, chunk,
    TANH: tl.constexpr, TALL: tl.constexpr, BROAD: tl.constexpr,
):  # fmt: skip
    """Each program takes ``chunk`` rows of its columns and leaves one row of partial sums."""
    HALF: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    across = tl.cdiv(cols, BROAD)
    band = (tl.program_id(0) // across).to(tl.int64)
    col = (tl.program_id(0) % across) * BROAD + tl.arange(0, BROAD)
    b = tl.load(b_ptr + col, mask=col < cols).to(sums_ptr.dtype.element_ty)
    total = tl.zeros([TALL, BROAD], sums_ptr.dtype.element_ty)
    for first in range(0, chunk, TALL):
        row = band * chunk + first + tl.arange(0, TALL)
        inside = (row < rows)[:, None] & (col < cols)[None, :]
        at = row[:, None] * cols + col[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        g = tl.load(g_ptr + at, mask=inside, other=0.0)
        dz = _wide(g) * _derivative(_wide(x) + b[None, :], HALF, TANH)
        tl.store(dx_ptr + at, dz.to(x.dtype), mask=inside)
        # where bias holds an inf or NaN, lanes past the end must still add nothing
        total += tl.where(inside, dz, 0.0)
    tl.store(sums_ptr + band * cols + col, tl.sum(total, axis=0), mask=col < cols)
