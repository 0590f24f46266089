"""Train the GPT of examples/gpt with data, pipeline and tensor parallelism combined.

    mpi-gdr run -n 8 parallel3d.py                   2 x 2 x 2
    mpi-gdr run -n 4 parallel3d.py --pipeline 1      2 data x 2 tensor
    python parallel3d.py                             one process, no parallelism: the same losses

Tensor-parallel ranks are neighbours, because they communicate most: two sums per block and direction. Stages
pass on the activations of each microbatch. Data parallelism (FSDP2 within a stage) sums the gradients once
per iteration.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.append(str(Path(__file__).parent / "gpt"))
from ranks import Ranks
from report import Log, Progressbar

from mpi_backend.demo.data import VOCAB_SIZE, load, train_batch
from mpi_backend.demo.model import GPT, GPTConfig

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--backend", default="mpi-gdr")
parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
parser.add_argument("--out", type=Path, default=Path("out/parallel3d"))
parser.add_argument("--tensor", type=int, default=2, help="ranks that share each matrix")
parser.add_argument("--pipeline", type=int, default=2, help="stages; the rest of the ranks is data parallel")
parser.add_argument("--microbatches", type=int, default=4)
parser.add_argument("--iterations", type=int, default=200)
parser.add_argument("--batch-size", type=int, default=32, help="sequences an iteration, all ranks together")
parser.add_argument("--block-size", type=int, default=128, help="tokens a sequence")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--channels", type=int, default=128)
parser.add_argument("--learning-rate", type=float, default=1e-3)
parser.add_argument("--seed", type=int, default=1337)
parser.add_argument("--text-bytes", type=int, default=4_000_000)
args = parser.parse_args()

ranks = Ranks(args.backend, args.device)
if not ranks.distributed:
    args.tensor = args.pipeline = 1
data, rest = divmod(ranks.size, args.pipeline * args.tensor)
if rest or not data or args.heads % args.tensor or args.layers % args.pipeline:
    sys.exit(f"{ranks.size} ranks, {args.layers} layers and {args.heads} heads cannot be shared by "
             f"--pipeline {args.pipeline} x --tensor {args.tensor}")  # fmt: skip
if args.batch_size % (data * args.microbatches):
    sys.exit(
        f"--batch-size {args.batch_size} is not a multiple of {data} x --microbatches {args.microbatches}"
    )


class Stage(nn.Module):
    """Some blocks of a GPT; the first stage also has the embeddings, the last one the output matrix."""

    def __init__(self, gpt: GPT, stage: int, stages: int) -> None:
        super().__init__()
        share = len(gpt.blocks) // stages
        self.blocks = gpt.blocks[stage * share : (stage + 1) * share]
        self.tokens, self.positions = (gpt.tokens, gpt.positions) if stage == 0 else (None, None)
        self.norm, self.head = (gpt.norm, gpt.head) if stage == stages - 1 else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, T) or activations (B, T, C) to activations (B, T, C) or logits (B, T, V)."""
        if self.tokens is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


# ---- the model: the same on every rank, of which each keeps its stage, its heads and its shard -------------
torch.manual_seed(args.seed)
gpt = GPT(GPTConfig(VOCAB_SIZE, args.block_size, args.layers, args.heads, args.channels)).to(ranks.device)
parameters = sum(p.numel() for p in gpt.parameters())
if ranks.distributed:
    names = ("data", "pipeline", "tensor")
    mesh = init_device_mesh(ranks.device.type, (data, args.pipeline, args.tensor), mesh_dim_names=names)
    index = dict(zip(names, mesh.get_coordinate(), strict=True))
else:
    index = {"data": 0, "pipeline": 0, "tensor": 0}
first, last = index["pipeline"] == 0, index["pipeline"] == args.pipeline - 1
model = Stage(gpt, index["pipeline"], args.pipeline)
if ranks.distributed:
    # Column-wise, then row-wise: a single sum over the tensor group after each pair.
    cut = {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel(),
           "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}  # fmt: skip
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], cut, src_data_rank=None)  # all ranks have the same values
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    group = mesh.get_group("pipeline")
    stage = PipelineStage(model, index["pipeline"], args.pipeline, ranks.device, group=group)
    schedule = Schedule1F1B(stage, args.microbatches, loss_fn=loss_of)
# foreach=False: it does not support differently sharded tensors in one list.
optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate, betas=(0.9, 0.95), foreach=False)


def sum_tied_gradients() -> None:
    """Embedding and output matrix are one parameter: the first and the last stage hold a copy, and a part of
    its gradient."""
    if args.pipeline == 1 or not (first or last):
        return
    distance = (args.pipeline - 1) * args.tensor  # in ranks, to the other end of the pipeline
    other = ranks.rank + (distance if first else -distance)
    mine = (model.tokens if first else model.head).weight.grad.to_local()
    theirs = torch.empty_like(mine)
    exchange = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
    mine += theirs


# ---- training ---------------------------------------------------------------------------------------------
text = load(args.text_bytes)
if ranks.first:
    args.out.mkdir(parents=True, exist_ok=True)
    settings = {name: v for name, v in vars(args).items() if name not in ("backend", "out")}
    header = {"backend": ranks.backend, "ranks": ranks.size, "settings": settings}
    log = Log(args.out / "log.jsonl", header, None)
    bar = Progressbar("auto", args.iterations, 0)
    bar.line(f"{parameters:,} parameters; {ranks.backend}, {data} data x "
             f"{args.pipeline} pipeline x {args.tensor} tensor")  # fmt: skip
for iteration in range(args.iterations):
    start = time.perf_counter()
    x, y = train_batch(text.train, seed=args.seed, iteration=iteration, batch_size=args.batch_size,
                       block_size=args.block_size, rank=index["data"], ranks=data)  # fmt: skip
    x, y = x.to(ranks.device), y.to(ranks.device)
    if ranks.distributed:
        losses: list[Tensor] = []
        schedule.step(*([x] if first else []), **({"target": y, "losses": losses} if last else {}))
        sum_tied_gradients()
        loss = torch.stack(losses).mean() if last else torch.zeros((), device=ranks.device)
    else:
        loss = loss_of(model(x), y)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean_loss = ranks.mean(loss) * args.pipeline  # only last stages have a loss, the others count 0
    seconds = time.perf_counter() - start
    if ranks.first:
        rate = args.batch_size * args.block_size / seconds
        log.write("train", iteration, loss=mean_loss, ms=1e3 * seconds, tokens_per_second=rate)
        bar.update(iteration, mean_loss, 1e3 * seconds, rate, None)
if ranks.first:
    bar.finish()
    print(f"wrote log.jsonl in {args.out}", flush=True)
ranks.leave()
