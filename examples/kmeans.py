"""K-means over ranks: each has a part of the points, and one all_reduce an iteration makes the new centres.

    mpi-gdr run -n 2 kmeans.py                      arrays of NumPy: the all_reduce works in their memory
    mpi-gdr run -n 2 kmeans.py --arrays torch       tensors, on a GPU where there is one; cupy: its arrays
    python kmeans.py                                one rank alone: the same centres, bit for bit

The centres have the same bits for any number of ranks: a floating-point sum depends on its order only if it
is rounded, and coordinates are multiples of 2^-20, of which float64 adds 2^29 exactly. If scikit-learn is
installed, rank 0 runs it from the same first centres and prints its inertia, the sum of squared distances.
"""

import importlib
import time

import common
import torch
import torch.distributed as dist

BLOCKS = 60  # of points with their own random numbers, distributed over the ranks
GRID = 2.0**20

parser = common.parser(__doc__, __file__)
parser.add_argument("--arrays", choices=("numpy", "torch", "cupy"), default="numpy")
parser.add_argument("--points", type=int, default=600_000, help="all ranks together (default %(default)s)")
parser.add_argument("--dimensions", type=int, default=2, help="(default %(default)s)")
parser.add_argument("--clusters", type=int, default=8, help="(default %(default)s)")
parser.add_argument("--iterations", type=int, default=100, help="at most (default %(default)s)")
parser.add_argument("--seed", type=int, default=7)
args = parser.parse_args()
if args.dimensions < 2 or args.iterations < 1:
    parser.error("expected --dimensions 2 or more and --iterations 1 or more")
if args.clusters < 1 or args.points < BLOCKS * args.clusters:
    parser.error(f"--points {args.points}: expected {BLOCKS} or more for each of --clusters {args.clusters}")
ranks = common.begin(args, needs=["numpy", args.arrays])
import numpy as np  # noqa: E402  (after the check for missing packages)

if args.arrays == "cupy" and ranks.device.type != "cuda":
    parser.error("--arrays cupy: expected a GPU that torch can use, and there is none")
xp = importlib.import_module(args.arrays)  # the functions below have the same names in all three


def block(number: int) -> np.ndarray:
    """(dimensions, points) of one block: a cloud around each of `clusters` places."""
    shape = (args.dimensions, args.clusters)
    places = np.random.default_rng(args.seed).uniform(-10, 10, shape)
    random = np.random.default_rng((args.seed, number))
    count = args.points * (number + 1) // BLOCKS - args.points * number // BLOCKS
    points = places[:, random.integers(args.clusters, size=count)] + random.normal(size=(shape[0], count))
    return np.round(points * GRID) / GRID


def assign(centres):
    """Each point's squared distance to its nearest centre, and that centre's number. Elementwise: unlike a
    matrix product's, the bits do not depend on the number of points."""
    for number in range(args.clusters):
        offsets = [points[k] - centres[k, number] for k in range(args.dimensions)]
        distance = sum(offset * offset for offset in offsets)
        if number == 0:
            nearest, labels = distance, xp.zeros_like(distance)
        else:
            labels = xp.where(distance < nearest, float(number), labels)
            nearest = xp.where(distance < nearest, distance, nearest)
    return nearest, labels


def sums_over_clusters(labels):
    """(dimensions + 1, clusters): the sums of the coordinates; the last row counts points."""
    numbers = xp.asarray(labels, dtype=xp.int64)
    rows = [
        xp.bincount(numbers, weights=row, minlength=args.clusters) for row in [*points, points[0] * 0 + 1]
    ]
    return xp.stack(rows)


mine = np.concatenate([block(k) for k in range(BLOCKS * ranks.rank // ranks.size,
                                               BLOCKS * (ranks.rank + 1) // ranks.size)], axis=1)  # fmt: skip
points = torch.from_numpy(mine).to(ranks.device) if args.arrays == "torch" else xp.asarray(mine)
centres = points[:, : args.clusters] + 0.0  # a copy
dist.broadcast(torch.as_tensor(centres), src=0)  # as_tensor: shares the memory
path, inertias, labels = [torch.as_tensor(centres).tolist()], [], points[0] * 0 - 1
start = time.perf_counter()
with common.Progress(ranks, args.iterations + 1) as progress:
    while True:
        nearest, now = assign(centres)
        sums, labels, before = sums_over_clusters(now), now, labels
        rest = xp.stack([nearest.sum(), (now != before).sum() + 0.0])
        totals = xp.concatenate([sums.reshape(-1), rest])
        dist.all_reduce(torch.as_tensor(totals))
        sums = totals[:-2].reshape(sums.shape)
        inertia, moved = float(totals[-2]), int(totals[-1])
        inertias.append(inertia)
        progress.step(f"inertia {inertia:.6g}, {moved} points changed their cluster")
        if not moved or len(path) > args.iterations:
            break
        counts = sums[-1]
        # A cluster without points keeps its centre.
        centres = xp.where(counts > 0, sums[:-1] / (counts + (counts == 0)), centres)
        path.append(torch.as_tensor(centres).tolist())
seconds = time.perf_counter() - start

# ---- beside scikit-learn, and a picture ------------------------------------------------------------------
theirs = {}
if ranks.first and common.missing("sklearn"):
    print("scikit-learn is not installed, so its inertia is not shown: pip install scikit-learn")
elif ranks.first:
    from sklearn.cluster import KMeans

    everything = np.concatenate([block(k) for k in range(BLOCKS)], axis=1).T
    first = np.array(path[0]).T
    model = KMeans(args.clusters, init=first, n_init=1, max_iter=args.iterations, tol=0, algorithm="lloyd")
    theirs = {"inertia_of_scikit_learn": float(model.fit(everything).inertia_)}


def draw(axes) -> None:
    sample = torch.as_tensor(points)[:, :20_000].cpu()
    colours = torch.as_tensor(labels)[:20_000].cpu()
    axes[0].scatter(*sample[:2], c=colours, s=1, cmap="tab10", alpha=0.4)
    for cluster in zip(*[zip(*step[:2], strict=True) for step in path], strict=True):
        axes[0].plot(*zip(*cluster, strict=True), "k.-", linewidth=1)
    axes[0].set_title("points of rank 0, and the paths of the centres")
    axes[1].plot(inertias, label=f"{ranks.size} ranks")
    for value in theirs.values():
        axes[1].axhline(value, linestyle="--", color="gray", label="scikit-learn")
    axes[1].set_xlabel("iteration")
    axes[1].set_ylabel("inertia")
    axes[1].legend()


common.picture(args, ranks, "kmeans.png", draw, ncols=2, figsize=(12, 5))
common.end(
    args, ranks, iterations=len(path) - 1, inertia=inertias[-1], **theirs, seconds=seconds, centres=path[-1]
)
