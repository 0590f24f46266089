"""A model that fits on two ranks but not on one: FSDP2 shards its parameters, gradients and moments.

    python does_not_fit.py                      one rank: out of memory
    mpi-gdr run -n 2 does_not_fit.py            two ranks train it
    python does_not_fit.py --budget 0           one rank without a limit: the losses of two

A rank may use --budget MiB beyond its memory before the model is created: a limit on its address space (on a
GPU on torch's allocator). The model is BERT-like: encoder layers predict masked characters. The measured peak
is compared with the usual formula per rank, M = model + optimizer + gradients + activations.
"""

import sys
from collections.abc import Callable

import common
import memory
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

from mpi_backend.demo.data import VOCAB_SIZE, load, train_batch

BYTES = 4  # per float32 number; the formula's k_l and k_h
LENGTH, HEAD = 64, 64  # characters per sequence, channels per attention head
MASK = VOCAB_SIZE  # one more than the characters

parser = common.parser(__doc__, __file__)
parser.add_argument("--budget", type=int, default=300, help="MiB a rank, 0: no limit (default %(default)s)")
parser.add_argument("--iterations", type=int, default=10, help="(default %(default)s)")
parser.add_argument("--layers", type=int, default=12, help="(default %(default)s)")
parser.add_argument("--channels", type=int, default=384, help="(default %(default)s)")
parser.add_argument("--batch-size", type=int, default=4, help="all ranks together (default %(default)s)")
args = parser.parse_args()
if args.budget < 0 or args.iterations < 1:
    parser.error("expected --budget 0 or more and --iterations 1 or more")
memory.return_what_is_freed()
ranks = common.begin(args)
if args.batch_size % ranks.size or args.channels % HEAD:
    parser.error(f"--batch-size {args.batch_size}, --channels {args.channels}: expected multiples of the "
                 f"{ranks.size} ranks and of {HEAD}")  # fmt: skip


class Bert(nn.Module):
    def __init__(self, layers: int, channels: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB_SIZE + 1, channels)
        self.positions = nn.Embedding(LENGTH, channels)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(channels, channels // HEAD, 4 * channels, dropout=0.0,
                                       activation="gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, VOCAB_SIZE)

    def forward(self, tokens: Tensor, at: Tensor) -> Tensor:
        """Logits of the characters at some positions, (sequences x positions, characters)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, at]).flatten(0, 1))


def formula(parameters: int, size: int) -> dict[str, float]:
    """MiB of each of `size` ranks under FSDP2, which is ZeRO stage 3. The optimizer has two moments; float32
    does not need the formula's third term, a high-precision copy of the parameters."""
    held = BYTES * parameters / size / memory.MIB
    s, b, h = LENGTH, args.batch_size / size, args.channels
    a_layer = s * b * h * ((16 * BYTES + 2) + (2 * BYTES + 1) * s / HEAD) / memory.MIB
    return {"model": held, "optimizer": 2 * held, "gradients": held, "activations": args.layers * a_layer}


# ---- training ---------------------------------------------------------------------------------------------
def make(layers: int, channels: int) -> nn.Module:
    """Creates the model without memory, then each parameter's values: a rank keeps its shard only."""
    with torch.device("meta"):
        model = Bert(layers, channels)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device=ranks.device)
    random = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            whole = 0.02 * torch.randn(parameter.shape, generator=random)
        else:
            whole = torch.full(parameter.shape, float("norm" in name and name.endswith("weight")))
        part = distribute_tensor(whole.to(ranks.device), parameter.device_mesh, parameter.placements,
                                 src_data_rank=None)  # fmt: skip
        parameter.data.copy_(part)
    return model


def train(layers: int, channels: int, report: Callable[[float], None]) -> None:
    doing.append("making the model")
    model = make(layers, channels)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for iteration in range(args.iterations):
        doing.append(f"iteration {iteration}, forward and backward pass")
        tokens, _ = train_batch(text.train, seed=1, iteration=iteration, batch_size=args.batch_size,
                                block_size=LENGTH, rank=ranks.rank, ranks=ranks.size)  # fmt: skip
        masked = torch.arange(LENGTH) % 7 == iteration % 7
        guesses = model(tokens.where(~masked, MASK).to(ranks.device), masked.to(ranks.device))
        loss = F.cross_entropy(guesses, tokens[:, masked].flatten().to(ranks.device))
        loss.backward()
        doing.append(f"iteration {iteration}, step of the optimizer")
        optimizer.step()
        optimizer.zero_grad()
        report(ranks.mean(loss))


with torch.device("meta"):
    parameters = sum(p.numel() for p in Bert(args.layers, args.channels).parameters())
terms = {size: formula(parameters, size) for size in sorted({1, 2, ranks.size})}
expected = sum(terms[ranks.size].values())
if ranks.first:
    print(f"{parameters:,} parameters; MiB a rank by the formula:")
    for size, of_size in terms.items():
        parts = " + ".join(f"{value:.0f} ({name})" for name, value in of_size.items())
        print(f"  {size} rank{'s' * (size > 1)}: {parts} = {sum(of_size.values()):.0f}")
    print(f"allowed: {args.budget or 'any number of'} MiB a rank", flush=True)
text = load(400_000)
doing: list[str] = []
losses: list[float] = []
train(1, HEAD, report=lambda loss: None)  # one-time allocations of torch and the backend do not count
memory.limit(ranks.device, args.budget)
peak = memory.Peak(ranks.device)
try:
    with common.Progress(ranks, args.iterations) as progress:

        def report(loss: float) -> None:
            losses.append(loss)
            progress.step(f"loss {loss:.4f}, peak {peak():.0f} MiB")

        train(args.layers, args.channels, report)
except (RuntimeError, MemoryError) as error:
    memory.limit(ranks.device, 0)
    if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and "allocate memory" not in str(error):
        raise
    print(f"rank {ranks.rank}: OUT OF MEMORY in {doing[-1]}: {peak():.1f} MiB held, {args.budget} MiB "
          f"allowed, {expected:.0f} MiB expected.\n  {str(error).splitlines()[0]}", flush=True)  # fmt: skip
    sys.exit(1)
memory.limit(ranks.device, 0)


def draw(axes) -> None:
    names = [f"{size} rank{'s' * (size > 1)}" for size in terms]
    bottom = [0.0] * len(names)
    for part in terms[1]:
        values = [of_size[part] for of_size in terms.values()]
        axes.bar(names, values, bottom=bottom, label=part)
        bottom = [below + value for below, value in zip(bottom, values, strict=True)]
    axes.plot([names[list(terms).index(ranks.size)]], [peak_mib], "kD", label="measured peak")
    if args.budget:
        axes.axhline(args.budget, linestyle="--", color="gray", label="allowed")
    axes.set_ylabel("MiB a rank")
    axes.set_title(f"{parameters:,} parameters: memory by the formula, and measured on {ranks.size} ranks")
    axes.legend()


peak_mib = peak()
common.picture(args, ranks, "memory.png", draw)
results = {"parameters": parameters, "formula_mib": expected, "peak_mib": peak_mib}
common.end(args, ranks, **results, last_loss=losses[-1], losses=losses)
