"""x + x.T of a blocked array over ranks: each holds some rows of blocks, an all_to_all brings the transpose.

    mpi-gdr run -n 2 transpose_sum.py               torch's all_to_all, then mpi4py's, in one job
    mpi-gdr run -n 3 transpose_sum.py --blocks 10   ranks with 3, 3 and 4 rows of blocks

The sum of a Dask array and its transpose, without Dask: no rank ever holds the whole array. Both exchanges
send from NumPy's memory (on CPUs), and the sum must equal NumPy's bit for bit. The exchange by mpi4py runs if
mpi4py is installed and the backend is mpi-gdr, whose communicator it uses.
"""

import statistics
import sys
import time

import common
import torch
import torch.distributed as dist
from torch import Tensor

parser = common.parser(__doc__, __file__)
parser.add_argument("--blocks", type=int, default=8, help="a side of the array (default %(default)s)")
parser.add_argument("--block-size", type=int, default=512, help="rows of a block (default %(default)s)")
parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
args = parser.parse_args()
if args.block_size < 1 or args.rounds < 1:
    parser.error("expected --block-size and --rounds of 1 or more")
ranks = common.begin(args, needs=["numpy"])
import numpy as np  # noqa: E402  (after the check for missing packages)

if args.blocks < ranks.size:
    parser.error(f"--blocks {args.blocks}: expected one or more for each of {ranks.size} ranks")
side = args.blocks * args.block_size
shares = [
    range(args.blocks * r // ranks.size, args.blocks * (r + 1) // ranks.size) for r in range(ranks.size)
]
mine = shares[ranks.rank]
widths = [len(share) * args.block_size for share in shares]  # rows of each rank


def block(row: int, column: int) -> np.ndarray:
    """Random numbers around a level per block, which the picture shows."""
    random = np.random.default_rng((row, column))
    return random.random() + 0.1 * random.random((args.block_size, args.block_size))


def panel(rows, columns) -> np.ndarray:
    return np.block([[block(row, column) for column in columns] for row in rows])


def add_transpose(x: Tensor, exchange) -> tuple[Tensor, float]:
    """This rank's rows of x + x.T, and the seconds of the exchange. The sender transposes, so that the
    receiver only places the parts."""
    pieces = [part.T.reshape(-1) for part in x.split(widths, dim=1)]
    counts = [piece.numel() for piece in pieces]  # sent and received parts are equally large
    received = torch.empty(sum(counts), dtype=x.dtype, device=x.device)
    sent = torch.cat(pieces)
    dist.barrier()
    start = time.perf_counter()
    exchange(received, sent, counts)
    ranks.synchronize()
    seconds = time.perf_counter() - start
    return x + torch.cat([part.view(len(x), -1) for part in received.split(counts)], dim=1), seconds


def by_torch(received: Tensor, sent: Tensor, counts: list[int]) -> None:
    dist.all_to_all_single(received, sent, counts, counts)


def by_mpi4py(received: Tensor, sent: Tensor, counts: list[int]) -> None:
    there = received.cpu()  # shares the memory on CPUs
    comm.Alltoallv([sent.cpu().numpy(), counts], [there.numpy(), counts])
    received.copy_(there)


ways = {"torch": by_torch}
if args.backend != "mpi-gdr" or common.missing("mpi4py"):
    if ranks.first:
        print("without mpi4py: that needs --backend mpi-gdr, and mpi4py installed (pip install mpi4py)")
else:
    import mpi_backend

    comm = mpi_backend.mpi4py_comm()
    assert (comm.Get_rank(), comm.Get_size()) == (ranks.rank, ranks.size)
    ways["mpi4py"] = by_mpi4py
x = torch.from_numpy(panel(mine, range(args.blocks))).to(ranks.device)
expected = x.cpu().numpy() + panel(range(args.blocks), mine).T  # NumPy recreates the other blocks
seconds: dict[str, list[float]] = {name: [] for name in ways}
wrong = torch.zeros((), device=ranks.device)
with common.Progress(ranks, args.rounds * len(ways)) as progress:
    for _ in range(args.rounds):
        for name, exchange in ways.items():
            result, took = add_transpose(x, exchange)
            seconds[name].append(took)
            wrong += not np.array_equal(result.cpu().numpy(), expected)
            progress.step(f"exchange by {name}: {1e3 * took:.2f} ms")
dist.all_reduce(wrong)
if wrong:
    sys.exit(f"transpose_sum.py: {int(wrong)} of the ranks' results are not NumPy's")

# ---- levels of the blocks before and after, in one picture ------------------------------------------------
levels = [t.view(len(mine), args.block_size, args.blocks, -1).mean((1, 3)).tolist() for t in (x, result)]
everyone = [None] * ranks.size
dist.all_gather_object(everyone, levels)


def draw(axes) -> None:
    for number, title in enumerate(("x", "x + x.T")):
        rows = [row for theirs in everyone for row in theirs[number]]
        image = axes[number].imshow(rows)
        axes[number].figure.colorbar(image, ax=axes[number], label="mean of a block", shrink=0.8)
        for share in shares[1:]:
            axes[number].axhline(share.start - 0.5, color="white")
        axes[number].set_title(f"{title}: level of each block, rows of {ranks.size} ranks")


common.picture(args, ranks, "transpose_sum.png", draw, ncols=2, figsize=(11, 5))
medians = {f"{name}_exchange_ms": 1e3 * statistics.median(times) for name, times in seconds.items()}
total = torch.tensor(float(result.sum()), dtype=torch.float64, device=ranks.device)
common.end(
    args, ranks, array=f"{side} x {side}", equal_to_numpy=True, sum=ranks.mean(total) * ranks.size, **medians
)
