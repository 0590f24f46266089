"""Generate text with a GPT that is sharded over the ranks, and time each token.

    mpi-gdr run -n 2 generate.py    mpirun -n 4 python generate.py    torchrun --nproc-per-node 4 generate.py
    python generate.py              one rank that holds the whole model

Each rank has some heads of each attention and a part of each MLP (tensor parallelism). A small all_reduce
sums the ranks' results after each attention and after each MLP, for every token, so the latency of all_reduce
matters. First the GPT of examples/gpt is trained for a few seconds, data parallel. Then each rank generates
text with the whole model, without communication. After that all ranks generate one text with the sharded
model, over --backend and over each backend of --beside. The tokens must be equal.

Users of online inference notice the slowest tokens, so the program prints the median (p50) and the 99th
percentile (p99), without the first token, which reads the prompt. Writes generate.png and the tokens to
--out.
"""

import copy
import statistics
import sys
import time

import common
import torch
import torch.distributed as dist
from cache import cached, forget, next_logits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mpi_backend.demo.data import CHARACTERS, VOCAB_SIZE, load, train_batch
from mpi_backend.demo.model import GPT, GPTConfig

parser = common.parser(__doc__, __file__)
parser.add_argument("--beside", nargs="*", default=["gloo"], help="other backends (default gloo)")
parser.add_argument("--requests", type=int, default=4, help="texts at a time")
parser.add_argument("--prompt", type=int, default=16, help="characters that each begins with")
parser.add_argument("--tokens", type=int, default=112, help="that each request gets")
parser.add_argument("--rounds", type=int, default=4, help="how often each contender generates them")
parser.add_argument("--temperature", type=float, default=0.5, help="0: always the likeliest token")
parser.add_argument("--train", type=int, default=150, help="iterations")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--channels", type=int, default=128)


class Summed(nn.Module):
    """A linear layer of which each rank holds some columns; the ranks' results are summed."""

    group = None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        result = self.linear(x)
        dist.all_reduce(result, group=Summed.group)
        return result


def cut(model: GPT) -> GPT:
    """This rank's part of a copy of the model."""
    model = copy.deepcopy(model)
    for block in model.blocks:
        for first, second in ((block.attention.qkv, block.attention.out), (block.mlp.up, block.mlp.down)):
            first.weight.data = first.weight.chunk(ranks.size, dim=0)[ranks.rank].contiguous()
            second.weight.data = second.weight.chunk(ranks.size, dim=1)[ranks.rank].contiguous()
        block.attention.out, block.mlp.down = Summed(block.attention.out), Summed(block.mlp.down)
    return model


@torch.inference_mode()
def generate(model: GPT, prompts: Tensor) -> tuple[Tensor, Tensor, list[float]]:
    """The prompts with the generated tokens, the last logits, and each token's ms."""
    noise = torch.rand(args.tokens, args.requests, VOCAB_SIZE, generator=torch.Generator().manual_seed(1337))
    noise = -(-noise.log()).log().to(ranks.device)  # Gumbel noise: the argmax of logits + noise is a sample
    forget(model)
    tokens, new, times = prompts, prompts, []
    for i in range(args.tokens):
        begin = time.perf_counter()
        logits = next_logits(model, new, tokens.shape[1] - new.shape[1])
        new = (logits + args.temperature * noise[i]).argmax(dim=1, keepdim=True)
        ranks.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
        tokens = torch.cat([tokens, new], dim=1)
    return tokens, logits, times


def train(model: GPT, progress: common.Progress) -> None:
    shared = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95))
    for iteration in range(args.train):
        x, y = train_batch(text.train, seed=1337, iteration=iteration, batch_size=8 * ranks.size,
                           block_size=config.block_size, rank=ranks.rank, ranks=ranks.size)  # fmt: skip
        loss = shared(x.to(ranks.device), y.to(ranks.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(f"loss {loss.item():.3f}")


args = parser.parse_args()
ranks = common.begin(args)
if args.heads % ranks.size:
    sys.exit(f"generate.py: --heads {args.heads}: expected a multiple of the {ranks.size} ranks")
if args.tokens < 2 or min(args.requests, args.prompt, args.rounds) < 1:
    sys.exit(f"generate.py: --requests {args.requests} --prompt {args.prompt} --rounds {args.rounds} "
             f"--tokens {args.tokens}: expected 1 or more of each, and 2 tokens or more")  # fmt: skip
text = load(2_000_000)
starts = torch.linspace(0, len(text.val) - args.prompt, args.requests).long()
prompts = text.val[starts[:, None] + torch.arange(args.prompt)].long().to(ranks.device)
torch.manual_seed(1337)
config = GPTConfig(VOCAB_SIZE, args.prompt + args.tokens, args.layers, args.heads, args.channels)
model = GPT(config).to(ranks.device)
backends = list(dict.fromkeys([args.backend, *args.beside])) if ranks.size > 1 else []
with common.Progress(ranks, args.train + args.rounds * (1 + len(backends))) as progress:
    train(model, progress)
    groups = {name: dist.new_group(backend=name) for name in backends}
    whole, part = cached(copy.deepcopy(model)), cached(cut(model))
    texts, logits, times = {}, {}, {name: [] for name in ["alone", *groups]}
    for _ in range(args.rounds):
        for name in times:
            Summed.group = groups.get(name)
            dist.barrier()  # else the first token would wait for ranks still busy with the last contender
            texts[name], logits[name], new = generate(part if name in groups else whole, prompts)
            times[name].append(new)
            progress.step(name)
    equal = all(torch.equal(tokens, texts["alone"]) for tokens in texts.values())
    same = ranks.mean(torch.tensor(equal, device=ranks.device)) == 1
    with torch.no_grad():  # the whole model on the whole text at once
        expected = model(texts["alone"][:, :-1])[:, -1]
    errors = [(mine - expected).abs().max() / expected.abs().max() for mine in logits.values()]
    difference = max(errors).item()
    progress.line(f"{'':10}{'first':>8}{'p50':>8}{'p99':>8} ms a token {'tokens/s':>10}")
    table = {}
    for name, rounds in times.items():
        first, later = [new[0] for new in rounds], torch.tensor([ms for new in rounds for ms in new[1:]])
        p50, p99 = (later.quantile(q).item() for q in (0.5, 0.99))
        table[name] = {"first": statistics.median(first), "p50": p50, "p99": p99}
        rate = args.requests * 1e3 / later.mean().item()
        progress.line(f"{name:10}{table[name]['first']:8.2f}{p50:8.2f}{p99:8.2f}{rate:22.1f}")
    shown = "".join(("?" + CHARACTERS)[token] for token in texts["alone"][0])
    progress.line(f"{'the same' if same else 'DIFFERENT'} tokens on all, the last logits differ from "
                  f"one process's by {difference:.1e}; the first text:\n{shown}")  # fmt: skip


def draw(axes) -> None:
    for name, rounds in times.items():
        later = sorted(ms for new in rounds for ms in new[1:])
        axes.plot(later, [(i + 1) / len(later) for i in range(len(later))], label=name)
    axes.set(xscale="log", xlabel="ms a token, at most", ylabel="share of tokens", title="latency of a token")
    axes.grid(alpha=0.3)
    axes.legend()


common.picture(args, ranks, "generate.png", draw)
tokens = texts[backends[0] if backends else "alone"].tolist()
common.end(args, ranks, same=same, logit_difference=difference, table=table, tokens=tokens)
sys.exit(0 if same else 1)
