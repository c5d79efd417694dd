"""Device code of :mod:`.triton_flash`, apart from it because Triton is imported only where it is needed.

A program holds a block of queries (or of keys) and walks along the keys (or queries) block by block. Every kernel
computes the tiles of logits again with :func:`_logits`, whose queries i and keys j are axes in either order.

Arguments of all kernels:
    q, k, v, grad_out, out: (G, n, z), (G, m, z), (G, m, width), (G, n, width), (G, n, width), contiguous.
    bias: (n + m - 1) float32, or None.
    padding, counts: (G, m) uint8, not 0 where padded, and (G, n) int32, the visible unpadded keys; or None.
    seed: one int64, or None where nothing is dropped. drop_key, drop, kept: see csrc/attention/attention.h.
    scale: of the products; not read where OWN_SCALE, for one over the number of keys that a query sees.
    statistics: (G, n) float32, logarithm of the sum of exp(x) over a row; infinity for a row without keys.
    gate: (G, n, width), rows of all groups ``stride`` numbers apart, whose SiLU multiplies the attention in ``out``; or
        None. Only where WHOLE.
    ROWS, COLUMNS, Z, WIDTH: queries, keys, their features, and features of values of a block; powers of two, Z at
        least z. WHOLE: whether WIDTH is at least width.
"""

import os

import triton
import triton.language as tl

_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")  # it multiplies bfloat16's bits as integers
# As in csrc/attention/attention.h.
_MU = tl.constexpr(0.707107)
_SLOPE = tl.constexpr(0.70710678118654752 / 0.282095)
_LEAST = tl.constexpr(1e-20)  # of a gate, see _gate
_PEAK = tl.constexpr(0.70710678118654752 / 0.282095 * 0.56418958354775628)


@triton.jit
def _mix(x):
    """Return the finaliser of SplitMix64, see csrc/common/random.h."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _rows(i, group, counts, seed, queries, keys, scale, CAUSAL: tl.constexpr, OWN_SCALE: tl.constexpr):
    """Return what queries need: factor of the products, whether all of their keys are padded, bits of their hashes."""
    number = i * 0 + keys
    if CAUSAL:
        number = keys - queries + i + 1
    count = number
    if counts is not None:
        count = tl.load(counts + group * queries + i, mask=i < queries, other=0)
        number = tl.where(count > 0, count, number)
    factor = i * 0.0 + scale
    if OWN_SCALE:
        factor = 1.0 / number.to(tl.float32)
    bits = i.to(tl.uint64)
    if seed is not None:
        bits = _mix(_mix(tl.load(seed).to(tl.uint64) + group.to(tl.uint64)) + 0x9E3779B97F4A7C15 * (bits + 1))
    return factor, count == 0, bits


@triton.jit
def _logits(
    products, factor, nothing, bits, i, j, group, bias, padding, seed, queries, keys, drop_key, drop, kept,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Return the logits of a tile, -infinity for keys that are not seen, and the dropout's factor of each weight."""
    exists = (i < queries) & (j < keys)
    seen = exists
    if CAUSAL:
        seen = seen & (j <= keys - queries + i)
    if padding is not None:  # a query that would see no key sees those that causality leaves
        seen = seen & (nothing | (tl.load(padding + group * keys + j, mask=j < keys, other=1) == 0))
    x = products * factor
    if bias is not None:
        x += tl.load(bias + (queries - 1 - i + j), mask=exists, other=0.0)
    stays = 1.0
    if seed is not None:  # hashes of csrc/common/random.h
        hashes = j.to(tl.uint32) * 0x9E3779B1 + bits.to(tl.uint32)
        hashes = (hashes ^ (hashes >> 16)) * 0x7FEB352D + (bits >> 32).to(tl.uint32)
        hashes = (hashes ^ (hashes >> 15)) * 0x846CA68B
        hashes = ((hashes ^ (hashes >> 16)) >> 8).to(tl.int32)
        stays = tl.where(hashes < drop, 0.0, kept)
        seen = seen & (hashes >= drop_key)
    return tl.where(seen, x, -float("inf")), stays


@triton.jit
def _weights(x, statistic, FUNCTION: tl.constexpr):
    """Return the weights of logits before dropout."""
    if FUNCTION == "softmax":
        return tl.exp(x - statistic)
    if FUNCTION == "relu2":
        positive = tl.maximum(x, 0.0)
        return positive * positive
    return 0.5 + 0.5 * tl.erf((x - _MU) * _SLOPE)


@triton.jit
def _gradient(x, grad, statistic, mean, FUNCTION: tl.constexpr):
    """Return the gradients of logits from those of the weights before dropout."""
    if FUNCTION == "softmax":
        return tl.exp(x - statistic) * (grad - mean)
    if FUNCTION == "relu2":
        return 2.0 * tl.maximum(x, 0.0) * grad
    t = (x - _MU) * _SLOPE
    return _PEAK * tl.exp(-t * t) * grad


@triton.jit
def _read(matrix, row, column, rows, columns):
    """Return a block of a (rows, columns) matrix, 0 outside."""
    return tl.load(matrix + row * columns + column, mask=(row < rows) & (column < columns), other=0.0)


@triton.jit
def _write(matrix, block, row, column, rows, columns):
    tl.store(matrix + row * columns + column, block, mask=(row < rows) & (column < columns))


@triton.jit
def _product(a, b):
    """Return a product with sums in float32, whose factors are not rounded."""
    if _INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _gate(gate, stride, group, i, column, queries, width):
    """Return a block of a gate in float32 and its sigmoid.

    The backward pass divides a result by the SiLU, so that nothing else is kept: zero stands for a number so small that
    no result shows it.
    """
    place = gate + (group * queries + i) * stride + column
    x = tl.load(place, mask=(i < queries) & (column < width), other=0.0).to(tl.float32)
    x = tl.where(tl.abs(x) < _LEAST, _LEAST, x)
    return x, 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def forward(
    q, k, v, gate, out, statistics,
    stride, bias, padding, counts, seed, queries, keys, z, width, scale, drop_key, drop, kept,
    FUNCTION: tl.constexpr, CAUSAL: tl.constexpr, OWN_SCALE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, Z: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Write the attention of a block of queries, and their statistics."""
    blocks, pieces = tl.cdiv(queries, ROWS), tl.cdiv(width, WIDTH)
    place = tl.program_id(0)
    first = (blocks - 1 - place % blocks) * ROWS  # those that see most keys begin
    piece = place // blocks % pieces
    group = (place // (blocks * pieces)).to(tl.int64)
    i = first + tl.arange(0, ROWS)[:, None]
    feature, column = tl.arange(0, Z)[None, :], piece * WIDTH + tl.arange(0, WIDTH)[None, :]
    query = _read(q + group * queries * z, i, feature, queries, z)
    factor, nothing, bits = _rows(i, group, counts, seed, queries, keys, scale, CAUSAL, OWN_SCALE)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    top, normal = tl.full((ROWS, 1), -float("inf"), tl.float32), tl.zeros((ROWS, 1), tl.float32)
    last = keys
    if CAUSAL:
        last = tl.minimum(keys, keys - queries + first + ROWS)
    for start in range(0, last, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        key = _read(k + group * keys * z, j[:, None], feature, keys, z)
        x, stays = _logits(
            _product(query, tl.trans(key)), factor, nothing, bits, i, j[None, :], group, bias, padding, seed, queries,
            keys, drop_key, drop, kept, CAUSAL,
        )  # fmt: skip
        if FUNCTION == "softmax":
            larger = tl.maximum(top, tl.max(x, 1, keep_dims=True))
            base = tl.where(larger == -float("inf"), 0.0, larger)
            shrink = tl.exp(top - base)
            weights = _weights(x, base, FUNCTION)
            normal = normal * shrink + tl.sum(weights, 1, keep_dims=True)
            total, top = total * shrink, larger
        else:
            weights = _weights(x, 0.0, FUNCTION)
        value = _read(v + group * keys * width, j[:, None], column, keys, width)
        total += _product((weights * stays).to(value.dtype), value)
    if FUNCTION == "softmax":
        found = normal > 0.0  # DropKey may leave nothing
        total = tl.where(found, total / normal, 0.0)
        statistic = tl.where(found, top + tl.log(normal), float("inf"))
        _write(statistics + group * queries, statistic, i, i * 0, queries, 1)
    if gate is not None:
        logits, sigmoid = _gate(gate, stride, group, i, column, queries, width)
        total *= logits * sigmoid
    _write(out + group * queries * width, total, i, column, queries, width)


@triton.jit
def _add_diagonals(tile, to, start, size, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Add ``tile[r, c]`` to ``to[start + c - r]``, of ``size`` numbers; ROWS must be a multiple of COLUMNS.

    Rows are turned, by one place more each, so that the diagonals of every COLUMNS rows are columns: those right of
    the first row's beginning, and those left of it.
    """
    BANDS: tl.constexpr = ROWS // COLUMNS
    row, d = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    turned = tl.gather(tile, (row + d) % COLUMNS, 1)
    is_right = row % COLUMNS + d < COLUMNS
    right = tl.sum(tl.reshape(tl.where(is_right, turned, 0.0), (BANDS, COLUMNS, COLUMNS)), 1)
    left = tl.sum(tl.reshape(tl.where(is_right, 0.0, turned), (BANDS, COLUMNS, COLUMNS)), 1)
    at = start - COLUMNS * tl.arange(0, BANDS)[:, None] + d
    tl.atomic_add(to + at, right, mask=(at >= 0) & (at < size), sem="relaxed")
    at -= COLUMNS
    tl.atomic_add(to + at, left, mask=(at >= 0) & (at < size), sem="relaxed")


@triton.jit
def queries_gradient(
    q, k, v, gate, out, statistics, grad_out, means, grad_q, grad_gate, grad_attended, diagonals,
    stride, groups, bias, padding, counts, seed, queries, keys, z, width, scale, drop_key, drop, kept,
    FUNCTION: tl.constexpr, CAUSAL: tl.constexpr, OWN_SCALE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, Z: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of blocks of queries, and ``means`` (G, n): sums of a row's weights times their gradients.

    ``diagonals`` (programs, n + m - 1), or None: every program writes the sums of the logits' gradients along diagonals
    to a row of its own. No other program writes there, so the order of the sums is always the same. ``grad_gate`` and
    ``grad_attended`` (G, n, width) are the gradients of the gate and of what it multiplies.
    """
    blocks, size = tl.cdiv(queries, ROWS), queries + keys - 1
    if diagonals is not None:
        to = diagonals + tl.program_id(0).to(tl.int64) * size
        for start in range(0, size, ROWS * COLUMNS):
            at = start + tl.arange(0, ROWS * COLUMNS)
            tl.store(to + at, 0.0, mask=at < size)
        tl.debug_barrier()  # other threads add to what a thread has written
    for place in range(tl.program_id(0), groups * blocks, tl.num_programs(0)):
        first = (blocks - 1 - place % blocks) * ROWS
        group = (place // blocks).to(tl.int64)
        i = first + tl.arange(0, ROWS)[:, None]
        feature, column = tl.arange(0, Z)[None, :], tl.arange(0, WIDTH)[None, :]
        query = _read(q + group * queries * z, i, feature, queries, z)
        grad_here, value_here = grad_out + group * queries * width, v + group * keys * width
        grad_piece = _read(grad_here, i, column, queries, width)
        statistic, mean = tl.zeros((ROWS, 1), tl.float32), tl.zeros((ROWS, 1), tl.float32)
        if gate is not None:
            logits, sigmoid = _gate(gate, stride, group, i, column, queries, width)
            product = _read(out + group * queries * width, i, column, queries, width).to(tl.float32)
            of_product = grad_piece.to(tl.float32)
            of_gate = product * (1.0 / logits + 1.0 - sigmoid) * of_product
            _write(grad_gate + group * queries * width, of_gate, i, column, queries, width)
            grad_piece = (of_product * logits * sigmoid).to(grad_piece.dtype)
            _write(grad_attended + group * queries * width, grad_piece, i, column, queries, width)
        if FUNCTION == "softmax":
            for begin in range(0, WIDTH if WHOLE else width, WIDTH):
                result = _read(out + group * queries * width, i, begin + column, queries, width).to(tl.float32)
                grad = _read(grad_here, i, begin + column, queries, width).to(tl.float32)
                mean += tl.sum(result * grad, 1, keep_dims=True)
            _write(means + group * queries, mean, i, i * 0, queries, 1)
            statistic = _read(statistics + group * queries, i, i * 0, queries, 1)
        factor, nothing, bits = _rows(i, group, counts, seed, queries, keys, scale, CAUSAL, OWN_SCALE)
        total = tl.zeros((ROWS, Z), tl.float32)
        last = keys
        if CAUSAL:
            last = tl.minimum(keys, keys - queries + first + ROWS)
        for start in range(0, last, COLUMNS):
            j = start + tl.arange(0, COLUMNS)
            key = _read(k + group * keys * z, j[:, None], feature, keys, z)
            x, stays = _logits(
                _product(query, tl.trans(key)), factor, nothing, bits, i, j[None, :], group, bias, padding, seed,
                queries, keys, drop_key, drop, kept, CAUSAL,
            )  # fmt: skip
            grad = _product(grad_piece, tl.trans(_read(value_here, j[:, None], column, keys, width)))
            if not WHOLE:
                for begin in range(WIDTH, width, WIDTH):
                    value = _read(value_here, j[:, None], begin + column, keys, width)
                    grad += _product(_read(grad_here, i, begin + column, queries, width), tl.trans(value))
            grad = _gradient(x, grad * stays, statistic, mean, FUNCTION)
            total += _product(grad.to(key.dtype), key)
            if diagonals is not None:
                _add_diagonals(grad, to, queries - 1 - first + start, size, ROWS, COLUMNS)
        _write(grad_q + group * queries * z, total * factor, i, feature, queries, z)


@triton.jit
def keys_gradient(
    q, k, v, statistics, grad_out, means, grad_k, grad_v, diagonals, grad_bias,
    programs, bias, padding, counts, seed, queries, keys, z, width, scale, drop_key, drop, kept,
    FUNCTION: tl.constexpr, CAUSAL: tl.constexpr, OWN_SCALE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, Z: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of keys and of WIDTH features of its values.

    :func:`queries_gradient` has written the means and ``diagonals`` (programs, n + m - 1), or None, whose sums over the
    programs are ``grad_bias``.
    """
    blocks, pieces = tl.cdiv(keys, COLUMNS), tl.cdiv(width, WIDTH)
    place = tl.program_id(0)
    if diagonals is not None:
        size = queries + keys - 1
        for begin in range(place * COLUMNS, size, tl.num_programs(0) * COLUMNS):
            at = begin + tl.arange(0, COLUMNS)[None, :]
            sums = tl.zeros((ROWS, COLUMNS), tl.float32)
            for program in range(0, programs, ROWS):
                sums += _read(diagonals, program + tl.arange(0, ROWS)[:, None], at, programs, size)
            tl.store(grad_bias + at, tl.sum(sums, 0, keep_dims=True), mask=at < size)
    start = place % blocks * COLUMNS  # those that most queries see begin
    piece = place // blocks % pieces
    group = (place // (blocks * pieces)).to(tl.int64)
    j = start + tl.arange(0, COLUMNS)[:, None]
    feature, column = tl.arange(0, Z)[None, :], piece * WIDTH + tl.arange(0, WIDTH)[None, :]
    key = _read(k + group * keys * z, j, feature, keys, z)
    grad_here, value_here = grad_out + group * queries * width, v + group * keys * width
    value = _read(value_here, j, column, keys, width)
    of_keys, of_values = tl.zeros((COLUMNS, Z), tl.float32), tl.zeros((COLUMNS, WIDTH), tl.float32)
    first_row = 0
    if CAUSAL:  # the first block of queries that see one of the keys
        first_row = tl.maximum(0, start - (keys - queries)) // ROWS * ROWS
    for first in range(first_row, queries, ROWS):
        i, row = first + tl.arange(0, ROWS)[:, None], first + tl.arange(0, ROWS)[None, :]  # columns of a tile of keys
        query = _read(q + group * queries * z, i, feature, queries, z)
        factor, nothing, bits = _rows(row, group, counts, seed, queries, keys, scale, CAUSAL, OWN_SCALE)
        x, stays = _logits(
            _product(key, tl.trans(query)), factor, nothing, bits, row, j, group, bias, padding, seed, queries, keys,
            drop_key, drop, kept, CAUSAL,
        )  # fmt: skip
        statistic, mean = 0.0, 0.0
        if FUNCTION == "softmax":
            statistic = _read(statistics + group * queries, row, row * 0, queries, 1)
            mean = _read(means + group * queries, row, row * 0, queries, 1)
        grad_piece = _read(grad_here, i, column, queries, width)
        of_values += _product((_weights(x, statistic, FUNCTION) * stays).to(grad_piece.dtype), grad_piece)
        if (0 if WHOLE else piece) == 0:
            grad = _product(value, tl.trans(grad_piece))
            if not WHOLE:
                for begin in range(WIDTH, width, WIDTH):
                    other = _read(grad_here, i, begin + column, queries, width)
                    grad += _product(_read(value_here, j, begin + column, keys, width), tl.trans(other))
            grad = _gradient(x, grad * stays, statistic, mean, FUNCTION) * factor
            of_keys += _product(grad.to(query.dtype), query)
    _write(grad_v + group * keys * width, of_values, j, column, keys, width)
    if (0 if WHOLE else piece) == 0:
        _write(grad_k + group * keys * z, of_keys, j, feature, keys, z)
