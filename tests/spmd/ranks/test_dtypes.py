"""Every dtype of torch: reductions compared with torch's arithmetic, movement, layouts, errors. Few tests
with many cases each, because each test synchronises all ranks."""

import functools

import pytest
import torch
import torch.distributed as dist
from support.data import same
from support.works import wait_all

Op = dist.ReduceOp
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, *UNSIGNED]
FLOAT8 = [getattr(torch, n) for n in sorted(dir(torch)) if n.startswith("float8_")]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
COUNTS = [0, 1, 7, 4099]
EVERY = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
QUANTISED = [d for d in EVERY if str(d).startswith("torch.q")]


def noise(dtype, count, rank):
    """Random bit patterns for integers; normal numbers otherwise."""
    generator = torch.Generator().manual_seed(rank)
    if not dtype.is_complex and not dtype.is_floating_point:
        shape = (count * dtype.itemsize,)
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).view(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(count, generator=generator, dtype=wide).to(dtype)


def signed(dtype):
    return {torch.uint64: torch.int64, torch.uint32: torch.int32, torch.uint16: torch.int16}.get(dtype, dtype)


def raw(tensor):
    """The bytes, because torch compares few of these dtypes."""
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)


def check_everywhere(rank, size, dtype, op, inputs, expected, equal):
    """all_reduce, reduce and both forms of reduce_scatter of `inputs`, one tensor per rank."""
    count = inputs[0].numel()
    tensor = inputs[rank].clone()
    dist.all_reduce(tensor, op)
    equal(tensor, expected)
    tensor = inputs[rank].clone()
    dist.reduce(tensor, size - 1, op)
    equal(tensor, expected if rank == size - 1 else inputs[rank])
    # The same values for each rank, so that all ranks expect the same.
    repeated = torch.cat([raw(inputs[rank])] * size).view(dtype) if count else inputs[rank].clone()
    output = torch.empty(count, dtype=dtype)
    dist.reduce_scatter_tensor(output, repeated, op)
    equal(output, expected)
    output = torch.empty(count, dtype=dtype)
    dist.reduce_scatter(output, [inputs[rank].clone() for _ in range(size)], op)
    equal(output, expected)


@pytest.mark.algorithms
@pytest.mark.smoke
def test_integers_wrap_and_have_bitwise_operations(rank, size):
    def fold(stack, op):
        """Via int64 bit patterns: sums, products and bits do not depend on the sign."""
        functions = {Op.SUM: torch.add, Op.PRODUCT: torch.mul}
        functions |= {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor}
        return functools.reduce(functions[op], stack)

    def equal(actual, expected):
        assert torch.equal(raw(actual), raw(expected))

    for dtype in INTEGERS:
        for count in COUNTS:
            inputs = [noise(dtype, count, r) for r in range(size)]
            wide = [t.view(signed(dtype)).long() for t in inputs]
            for op in (Op.SUM, Op.PRODUCT, Op.BAND, Op.BOR, Op.BXOR):
                narrow = fold(wide, op).to(signed(dtype)).view(dtype)
                check_everywhere(rank, size, dtype, op, inputs, narrow, equal)
            # Ordered as Python's integers; AVG's sum wraps before the division.
            rows = list(zip(*(t.tolist() for t in inputs), strict=True))
            for op, pick in ((Op.MIN, min), (Op.MAX, max)):
                expected = torch.tensor([pick(row) for row in rows], dtype=dtype)
                check_everywhere(rank, size, dtype, op, inputs, expected, equal)
            bits, low = 8 * dtype.itemsize, torch.iinfo(dtype).min
            totals = [(sum(row) - low) % 2**bits + low for row in rows]
            averages = [abs(t) // size * (1 if t >= 0 else -1) for t in totals]
            expected = torch.tensor(averages, dtype=dtype)
            check_everywhere(rank, size, dtype, Op.AVG, inputs, expected, equal)
    for op, fold_bools in ((Op.BAND, all), (Op.BOR, any), (Op.BXOR, lambda row: sum(row) % 2 == 1)):
        inputs = [noise(torch.uint8, 4099, r) % 2 == 1 for r in range(size)]
        expected = torch.tensor([fold_bools(row) for row in zip(*(t.tolist() for t in inputs), strict=True)])
        check_everywhere(rank, size, torch.bool, op, inputs, expected, equal)


@pytest.mark.algorithms
@pytest.mark.smoke
def test_float8_is_torchs(rank, size):
    """Two ranks with numbers, the others neutral: all 65536 pairs match torch's conversion of the float32
    result bit for bit. (More ranks may round in between, depending on the algorithm.)"""
    every = torch.arange(256, dtype=torch.uint8)
    for dtype in FLOAT8:
        pairs = [every.repeat_interleave(256).view(dtype), every.repeat(256).view(dtype)]
        a, b = (t.float() for t in pairs)
        cases = [(Op.PRODUCT, a * b, 1.0), (Op.MIN, a.minimum(b), None), (Op.MAX, a.maximum(b), None)]
        if dtype != torch.float8_e8m0fnu:  # it has no zero
            cases += [(Op.SUM, a + b, 0.0), (Op.AVG, (a + b) / size, 0.0)]
            cases.append((dist._make_nccl_premul_sum(0.5), None, 0.0))
        for op, exact, neutral in cases:
            if rank >= 2 and neutral is not None:
                tensor = torch.full((65536,), neutral).to(dtype)
            else:  # min and max: rank 0's values again
                tensor = pairs[rank if rank < 2 else 0].clone()
            dist.all_reduce(tensor, op)
            if size == 1:
                exact = a * 0.5 if exact is None else a
            if exact is None:  # some algorithms apply the factor, with a rounding, before the sum
                half = [(t * 0.5).to(dtype).float() for t in (a, b)]
                possible = [(half[0] + half[1]).to(dtype), (a * 0.5 + b * 0.5).to(dtype)]
            elif size > 2 and op == Op.AVG:  # some algorithms round the sum before the division
                possible = [exact.to(dtype), ((a + b).to(dtype).float() / size).to(dtype)]
            else:
                possible = [exact.to(dtype)]
            right = torch.zeros(65536, dtype=torch.bool)
            for each in possible:
                right |= tensor.view(torch.uint8) == each.view(torch.uint8)
                right |= tensor.float().isnan() & each.float().isnan()
                right |= (tensor.float() == 0) & (each.float() == 0)  # of either sign
            wrong = (~right).nonzero().flatten()[:3].tolist()
            seen = [(a[i].item(), b[i].item(), tensor[i].float().item()) for i in wrong]
            assert not wrong, (dtype, op, seen)


@pytest.mark.algorithms
@pytest.mark.smoke
def test_complex(rank, size):
    def within(relative, scale=1.0):
        def equal(actual, expected):
            assert actual.dtype == expected.dtype
            error = (actual.to(torch.complex128) - expected.to(torch.complex128)).abs()
            assert (error <= 8 * size * relative * (scale + expected.to(torch.complex128).abs())).all()

        return equal

    for dtype, relative in zip(COMPLEX, (2.0**-10, 2.0**-23, 2.0**-52), strict=True):
        for count in COUNTS:
            inputs = [noise(dtype, count, r) for r in range(size)]
            exact = torch.stack([t.to(torch.complex128) for t in inputs])
            total, product = exact.sum(0), exact.prod(0)
            quarter = dist._make_nccl_premul_sum(0.25)
            for op, expected in ((Op.SUM, total), (Op.AVG, total / size), (quarter, total / 4)):
                check_everywhere(rank, size, dtype, op, inputs, expected.to(dtype), within(relative))
            # torch rejects PRODUCT in all_reduce, which views complex as real numbers, but passes this call.
            output = torch.empty(count, dtype=dtype)
            repeated = torch.cat([raw(inputs[rank])] * size).view(dtype) if count else inputs[rank].clone()
            dist.reduce_scatter_tensor(output, repeated, Op.PRODUCT)
            scale = float(product.abs().max()) if count else 1.0
            within(relative, scale)(output, product.to(dtype))


def new(dtype, count, rank, strided):
    """(tensor, its bytes by element): bytes that depend on the rank, since the dtype may lack operations."""
    step = 2 if strided else 1
    tensor = torch.empty(step * count, dtype=dtype)[::step]
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    generator = torch.Generator().manual_seed(17 + rank)
    memory.copy_(torch.randint(0, 2, memory.shape, generator=generator, dtype=torch.uint8))
    return tensor, memory.view(-1, dtype.itemsize)[::step]


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore")
def test_every_dtype_is_moved(rank, size):
    dtypes = [d for d in EVERY if d not in QUANTISED]
    assert {torch.float4_e2m1fn_x2, torch.bits8, torch.int4, torch.uint7, torch.complex32} <= set(dtypes)
    for dtype in dtypes:
        for count in (0, 5):
            for strided in (False, True) if count else (False,):
                known = [new(dtype, count, r, strided)[1].clone() for r in range(size)]
                mine, _ = new(dtype, count, rank, strided)

                tensor, memory = new(dtype, count, rank, strided)
                dist.broadcast(tensor, size - 1)
                assert torch.equal(memory, known[size - 1]), dtype

                outputs = [new(dtype, count, 0, strided) for _ in range(size)]
                dist.all_gather([o[0] for o in outputs], mine)
                for (_, memory), expected in zip(outputs, known, strict=True):
                    assert torch.equal(memory, expected), dtype

                output, memory = new(dtype, size * count, 0, strided)
                dist.all_gather_into_tensor(output, mine)
                assert torch.equal(memory, torch.cat(known)), dtype

                sent = [new(dtype, size * count, r, strided)[1] for r in range(size)]
                output, memory = new(dtype, size * count, 0, strided)
                dist.all_to_all_single(output, new(dtype, size * count, rank, strided)[0])
                assert torch.equal(memory, torch.cat([s[count * rank :][:count] for s in sent])), dtype

                if size > 1:
                    output, memory = new(dtype, count, 0, strided)
                    wait_all(dist.isend(mine, (rank + 1) % size), dist.irecv(output, (rank - 1) % size))
                    assert torch.equal(memory, known[(rank - 1) % size]), dtype


@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors(rank, size, backend):
    """torch has no c10d calls for them; our backend's own methods move them nevertheless."""
    options = dist.BroadcastOptions()
    options.rootRank = size - 1
    for dtype in (torch.qint8, torch.quint8, torch.qint32):
        for step in (1, 2):
            values = torch.arange(12.0)[::step]
            tensor = torch.quantize_per_tensor(torch.arange(12.0) + rank, 0.5, 3, dtype)[::step]
            with pytest.raises(NotImplementedError, match="QuantizedCPU"):
                dist.broadcast(tensor, size - 1)
            backend.broadcast([tensor], options).wait()
            same(tensor.dequantize(), values + size - 1)


@pytest.mark.filterwarnings("ignore")
def test_impossible_pairs_name_operation_and_dtype(size):
    ops = {"sum": Op.SUM, "avg": Op.AVG, "min": Op.MIN, "band": Op.BAND, "bxor": Op.BXOR, "bor": Op.BOR}
    ops["premul_sum"] = dist._make_nccl_premul_sum(0.5)
    impossible = [("avg", torch.bool), ("premul_sum", torch.int32), ("premul_sum", torch.uint64)]
    impossible += [(op, d) for op in ("band", "bor", "bxor") for d in (torch.float32, *FLOAT8)]
    impossible += [("sum", d) for d in (torch.bits16, torch.float4_e2m1fn_x2, torch.int4)]
    for name, dtype in impossible:
        tensor = torch.empty(3, dtype=dtype)
        text = rf"{{}}: op={name} is not defined on {str(dtype)[6:]} tensors"
        with pytest.raises(ValueError, match=text.format("all_reduce")):
            dist.all_reduce(tensor, ops[name])
        with pytest.raises(ValueError, match=text.format("reduce")):
            dist.reduce(tensor, 0, ops[name])
    for name in ("min", "band"):
        part, whole = torch.empty(1, dtype=torch.complex64), torch.empty(size, dtype=torch.complex64)
        with pytest.raises(ValueError, match=f"reduce_scatter_tensor: op={name} is not defined on complex64"):
            dist.reduce_scatter_tensor(part, whole, ops[name])
    with pytest.raises(ValueError, match=r"factor of op=PREMUL_SUM is complex64.*expected a real number"):
        dist.all_reduce(torch.ones(2), dist._make_nccl_premul_sum(torch.tensor(0.5j)))


def layouts(rank):
    """(name, a tensor of 24 elements in the same layout on all ranks)."""
    values = torch.arange(24.0) + rank
    yield "0-dim", torch.tensor(float(rank))
    yield "channels_last", values.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    yield "transposed", values.view(4, 6).t()
    yield "every second", torch.arange(48.0)[::2] + rank * 0
    yield "slice of columns", torch.cat([values.view(4, 6), -torch.ones(4, 2)], 1)[:, :6]
    yield "no elements", torch.empty(3, 0, 2)
    yield "expanded without repeats", values.view(1, 24).expand(1, 24)


def test_layouts_in_and_out(rank, size):
    names = [name for name, _ in layouts(rank)]
    assert len(names) == 7
    for index in range(len(names)):
        inputs = [list(layouts(r))[index][1] for r in range(size)]
        mine = inputs[rank].clone(memory_format=torch.preserve_format)
        dist.all_reduce(mine)
        same(mine, sum(inputs[1:], inputs[0]))
        mine = inputs[rank].clone(memory_format=torch.preserve_format)
        dist.broadcast(mine, size - 1)
        same(mine, inputs[-1])
        outputs = [torch.empty_like(inputs[0]) for _ in range(size)]
        dist.all_gather(outputs, inputs[rank])
        for output, expected in zip(outputs, inputs, strict=True):
            same(output, expected)
        output = torch.empty(2 * size, *inputs[0].shape)[::2]
        dist.all_gather_into_tensor(output, inputs[rank])
        same(output, torch.stack(inputs))
        scattered = torch.empty_like(inputs[0])
        dist.reduce_scatter_tensor(scattered, output)
        same(scattered, size * inputs[rank])


def test_expanded_tensors_are_read_but_not_written(rank, size):
    expanded = torch.tensor([float(rank)]).expand(6)
    message = r"{}: a tensor to write to is float32\[\d+\] with strides \[0\].*expanded"
    with pytest.raises(ValueError, match=message.format("all_reduce")):
        dist.all_reduce(expanded)
    with pytest.raises(ValueError, match=message.format("all_gather_into_tensor")):
        dist.all_gather_into_tensor(torch.zeros(1).expand(6 * size), expanded)
    with pytest.raises(ValueError, match=message.format("all_gather")):
        dist.all_gather([torch.zeros(1).expand(6) for _ in range(size)], expanded)
    if size > 1:
        with pytest.raises(ValueError, match=message.format("recv")):
            dist.recv(expanded, (rank + 1) % size)
    output = torch.empty(size, 6)
    dist.all_gather_into_tensor(output, expanded)
    same(output, torch.arange(float(size)).view(-1, 1).repeat(1, 6))
    tensor = expanded if rank == 0 else torch.empty(6)
    dist.broadcast(tensor, 0)
    same(tensor.contiguous(), torch.zeros(6))
