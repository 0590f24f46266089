"""Train a mixture of experts, spread over the ranks: tokens travel to their experts and back.

    mpi-gdr run -n 2 moe.py     mpirun -n 2 python moe.py     torchrun --nproc-per-node 2 moe.py
    python moe.py               one rank that holds all experts: the same losses

The GPT of examples/gpt with experts in place of each MLP. A gate picks two experts per token; an all_to_all
of uneven parts sends it to their ranks, another returns the results. The rest is data parallel. A bias per
expert, moved against its load as in DeepSeek-V3, affects the choice; --balance 0 disables it. First,
gradients are compared with one process's, in float64.
"""

import copy
import sys

import common
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from mpi_backend.demo.data import VOCAB_SIZE, load, train_batch
from mpi_backend.demo.model import GPT, MLP, GPTConfig

parser = common.parser(__doc__, __file__)
parser.add_argument("--experts", type=int, default=8, help="in each block, all ranks together")
parser.add_argument("--balance", type=float, default=0.003, help="step of the experts' biases")
parser.add_argument("--iterations", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=16, help="sequences an iteration, all ranks together")
parser.add_argument("--block-size", type=int, default=64, help="tokens a sequence")
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--channels", type=int, default=64)


class AllToAll(torch.autograd.Function):
    """Exchanges rows: send[r] rows go to rank r, receive[r] rows come from it; their gradients return."""

    @staticmethod
    def forward(ctx, rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
        ctx.sizes = receive, send
        arrived = rows.new_empty(sum(receive), rows.shape[1])
        dist.all_to_all_single(arrived, rows.contiguous(), receive, send)
        return arrived

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        return AllToAll.apply(gradient, *ctx.sizes), None, None


class MixtureOfExperts(nn.Module):
    def __init__(self, config: GPTConfig, count: int) -> None:
        super().__init__()
        self.gate = nn.Linear(config.channels, count, bias=False)
        self.experts = nn.ModuleList(MLP(config) for _ in range(count))
        self.register_buffer("bias", torch.zeros(count))
        self.ranks = 1

    def share(self, rank: int, ranks: int) -> None:
        """Keeps this rank's experts only."""
        each = len(self.experts) // ranks
        self.experts, self.ranks = self.experts[rank * each : (rank + 1) * each], ranks

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        scores = self.gate(tokens).softmax(dim=1)
        chosen = (scores + self.bias).topk(2).indices  # the bias affects the choice, not the weights
        weights = scores.gather(1, chosen)
        weights = (weights / weights.sum(dim=1, keepdim=True)).flatten()
        # Two copies of each token, ordered by expert, so that rows for one rank are contiguous.
        order = chosen.flatten().argsort(stable=True)
        self.load = chosen.flatten().bincount(minlength=len(self.bias))
        results = self.visit(tokens[order // 2], self.load.view(self.ranks, -1))
        return torch.zeros_like(tokens).index_add(0, order // 2, results * weights[order, None]).view_as(x)

    def visit(self, rows: Tensor, leaving: Tensor) -> Tensor:
        """The experts' results for the rows; leaving[r, e] of them go to expert e of rank r."""
        if self.ranks == 1:
            return self.compute(rows, leaving[0])
        arriving = torch.empty_like(leaving)
        dist.all_to_all_single(arriving, leaving)
        send, receive = leaving.sum(dim=1).tolist(), arriving.sum(dim=1).tolist()
        rows = AllToAll.apply(rows, send, receive)
        # Rows arrive ordered by rank, then expert; an expert needs all of its rows together.
        local = torch.arange(len(self.experts), device=rows.device).repeat(self.ranks)
        order = local.repeat_interleave(arriving.flatten()).argsort(stable=True)
        results = self.compute(rows[order], arriving.sum(dim=0))
        return AllToAll.apply(results[order.argsort()], receive, send)

    def compute(self, rows: Tensor, counts: Tensor) -> Tensor:
        parts = rows.split(counts.tolist())
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])


def share(model: GPT) -> GPT:
    for block in model.blocks:
        block.mlp.share(ranks.rank, ranks.size)
    return model


def backward(model: GPT, x: Tensor, y: Tensor, sharers: int) -> float:
    """Returns this rank's loss. The gradients are those of the mean over `sharers` ranks; an expert's need no
    sum over ranks, because the expert gets all its tokens."""
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    (loss / sharers).backward()
    for name, parameter in model.named_parameters():
        if sharers > 1 and ".experts." not in name:
            dist.all_reduce(parameter.grad)
    return loss


def batch(iteration: int, rank: int, sharers: int) -> list[Tensor]:
    pair = train_batch(text.train, seed=1337, iteration=iteration, batch_size=args.batch_size,
                       block_size=args.block_size, rank=rank, ranks=sharers)  # fmt: skip
    return [tokens.to(ranks.device) for tokens in pair]


def difference_to_one_process() -> float:
    """Largest gradient difference of one batch on all ranks, in float64, relative to the largest gradient."""
    whole = copy.deepcopy(model).double()
    shared = share(copy.deepcopy(whole))
    backward(whole, *batch(0, 0, 1), 1)
    backward(shared, *batch(0, ranks.rank, ranks.size), ranks.size)
    return common.difference(*([p.grad for p in m.parameters()] for m in (shared, share(whole))))


args = parser.parse_args()
ranks = common.begin(args)
for name in ("experts", "batch_size"):
    if (value := getattr(args, name)) < 2 or value % ranks.size:
        option = "--" + name.replace("_", "-")
        sys.exit(f"moe.py: {option} {value}: expected a multiple of the {ranks.size} ranks, 2 or more")
text = load(2_000_000)
torch.manual_seed(1337)
config = GPTConfig(VOCAB_SIZE, args.block_size, args.layers, 4, args.channels)
model = GPT(config)
for block in model.blocks:
    block.mlp = MixtureOfExperts(config, args.experts)
model.to(ranks.device)
difference = difference_to_one_process()
share(model)
optimizer = torch.optim.AdamW(model.parameters(), 2e-3, betas=(0.9, 0.95))
losses, loads = [], []
with common.Progress(ranks, args.iterations) as progress:
    progress.line(f"{args.experts // ranks.size} of {args.experts} experts on each rank")
    progress.line(f"gradients differ from one process's by {difference:.1e} of the largest (float64)")
    for iteration in range(args.iterations):
        losses.append(ranks.mean(backward(model, *batch(iteration, ranks.rank, ranks.size), ranks.size)))
        optimizer.step()
        optimizer.zero_grad()
        load = torch.stack([block.mlp.load for block in model.blocks])
        dist.all_reduce(load)
        loads.append((load[0] / load[0].sum()).tolist())
        for block, mine in zip(model.blocks, load.float(), strict=True):
            block.mlp.bias += args.balance * (mine.mean() - mine).sign()
        busiest = args.experts * max(loads[-1])
        progress.step(f"loss {losses[-1]:.3f}, the busiest expert has {busiest:.2f} times the mean load")


def draw(axes) -> None:
    axes[0].plot(losses, linewidth=1)
    axes[0].set(title="GPT with experts", xlabel="iteration", ylabel="loss (nats a character)")
    axes[1].stackplot(range(len(loads)), *zip(*loads, strict=True))
    axes[1].set(title="each expert's share of the tokens, first block", xlabel="iteration", ylim=(0, 1))


common.picture(args, ranks, "moe.png", draw, ncols=2, figsize=(11, 4))
common.end(args, ranks, loss=losses[-1], busiest=busiest, gradient_difference=difference, losses=losses)
