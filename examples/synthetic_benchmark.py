"""Images per second of a vision model on random images, with Horovod's synthetic benchmark's flags and lines.

    mpi-gdr run -n 2 synthetic_benchmark.py                                        resnet18, small batches
    mpi-gdr run -n 2 synthetic_benchmark.py --model=resnet50 --batch-size=64 --num-iters=5
    python synthetic_benchmark.py                                                  one rank alone

DDP averages the gradients, in float16 with --fp16-allreduce. Batch norm is per rank. With several ranks, rank
0 runs alone at the end, and the last line reports the scaling. Models are torchvision's; without it, the
ResNets of resnet.py.
"""

import statistics
import time

import common
import resnet
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

# "cuda": Horovod's defaults.
DEFAULTS = {
    "cuda": {"model": "resnet50", "batch_size": 32, "num_warmup_batches": 10, "num_batches_per_iter": 10},
    "cpu": {"model": "resnet18", "batch_size": 4, "num_warmup_batches": 2, "num_batches_per_iter": 3},
}

parser = common.parser(__doc__, __file__)
parser.add_argument("--model", help="(default resnet50, on CPUs resnet18)")
parser.add_argument("--batch-size", type=int, help="images a rank (default 32, on CPUs 4)")
parser.add_argument("--num-warmup-batches", type=int, help="not timed (default 10, on CPUs 2)")
parser.add_argument("--num-batches-per-iter", type=int, help="(default 10, on CPUs 3)")
parser.add_argument("--num-iters", type=int, default=10, help="lines of output (default %(default)s)")
parser.add_argument("--fp16-allreduce", action="store_true", help="average the gradients in float16")
parser.add_argument("--no-cuda", action="store_true", help="as --device cpu")
parser.add_argument("--image-size", type=int, default=224, help="pixels a side (default %(default)s)")
args = parser.parse_args()
if args.no_cuda:
    args.device = "cpu"
ranks = common.begin(args)
for name, value in DEFAULTS[ranks.device.type].items():
    if getattr(args, name) is None:
        setattr(args, name, value)
for name in ("batch_size", "num_batches_per_iter", "num_iters", "image_size"):
    if getattr(args, name) < 1:
        parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: expected 1 or more")
device = "GPU" if ranks.device.type == "cuda" else "CPU"


def models() -> dict:
    """{name: function that creates the model}."""
    try:
        from torchvision import models

        return {name: getattr(models, name) for name in models.list_models(module=models)}
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        if ranks.first:
            print(f"without torchvision ({str(error).splitlines()[0]}): the models are those of resnet.py")
        return resnet.MODELS


known = models()
if args.model not in known:
    parser.error(f"--model {args.model}: expected one of {', '.join(known)}")


class Benchmark:
    """A model, its optimizer, and one batch that is reused."""

    def __init__(self, size: int) -> None:
        """`size`: number of ranks that train together."""
        torch.manual_seed(0)  # the same parameters on every rank
        self.model: nn.Module = known[args.model]().to(ranks.device)
        if size > 1:
            self.model = DistributedDataParallel(self.model)
            if args.fp16_allreduce:
                self.model.register_comm_hook(None, fp16_compress_hook)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01 * size)
        torch.manual_seed(1 + ranks.rank)
        shape = (args.batch_size, 3, args.image_size, args.image_size)
        self.images = torch.randn(shape).to(ranks.device)
        self.labels = torch.randint(1000, (args.batch_size,)).to(ranks.device)
        self.losses: list[torch.Tensor] = []

    def steps(self, count: int, progress: common.Progress) -> float:
        """Trains and returns this rank's images per second."""
        ranks.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(self.images), self.labels)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.detach())
            progress.step()
        ranks.synchronize()
        return args.batch_size * count / (time.perf_counter() - start) if count else 0.0


batches = args.num_warmup_batches + args.num_iters * args.num_batches_per_iter
with common.Progress(ranks, batches) as progress:
    progress.line(f"Model: {args.model}")
    progress.line(f"Batch size: {args.batch_size}")
    progress.line(f"Number of {device}s: {ranks.size}")
    progress.line("Running warmup...")
    benchmark = Benchmark(ranks.size)
    benchmark.steps(args.num_warmup_batches, progress)
    progress.line("Running benchmark...")
    rates = []
    for k in range(args.num_iters):
        rates.append(benchmark.steps(args.num_batches_per_iter, progress))
        progress.line(f"Iter #{k}: {rates[-1]:.1f} img/sec per {device}")
    mean, spread = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    progress.line(f"Img/sec per {device}: {mean:.1f} +-{spread:.1f}")
    progress.line(f"Total img/sec on {ranks.size} {device}(s): "
                  f"{ranks.size * mean:.1f} +-{ranks.size * spread:.1f}")  # fmt: skip
losses = [ranks.mean(loss) for loss in benchmark.losses]

# ---- one rank alone, while the others wait ----------------------------------------------------------------
alone = mean
if ranks.size > 1:
    if ranks.first:
        single = Benchmark(1)
        with common.Progress(ranks, batches) as progress:
            single.steps(args.num_warmup_batches, progress)
            count = args.num_iters * args.num_batches_per_iter
            alone = single.steps(count, progress)
    dist.barrier()
scaling = ranks.size * mean / alone
if ranks.first and ranks.size > 1:
    print(f"One {device} alone: {alone:.1f} img/sec; {ranks.size} {device}(s) are {scaling:.2f} times "
          f"as fast, {100 * scaling / ranks.size:.1f} % of ideal")  # fmt: skip


def draw(axes) -> None:
    axes.bar(["one alone", f"{ranks.size} together"], [alone, ranks.size * mean])
    axes.axhline(ranks.size * alone, linestyle="--", color="gray", label="ideal")
    axes.set_ylabel("images a second")
    axes.set_title(f"{args.model}, {args.batch_size} images a rank, {ranks.backend}")
    axes.legend()


common.picture(args, ranks, "throughput.png", draw)
common.end(
    args, ranks, images_per_second=ranks.size * mean, one_rank_alone=alone, scaling=scaling, losses=losses
)
