"""Train a BERT-like model with DeepSpeed's ZeRO, stage by stage: the same losses, less memory on each rank.

    mpi-gdr run -n 2 deepspeed_zero.py                        stages 0, 1, 2 and 3 in turn
    mpi-gdr run -n 2 deepspeed_zero.py --stage 3 --num_layers 24 --h_dim 1024 --ff_dim 4096
    deepspeed --hostfile hosts --launcher mpich deepspeed_zero.py

Stage 1 shards the optimizer's moments, stage 2 the gradients too, stage 3 also the parameters. DeepSpeed uses
torch's process group, so it needs no setting for the backend. The model predicts masked letters of Python's
sources. Options are those of DeepSpeed's BERT example. Writes loss.png and result.json to --out. Needs
DeepSpeed and NumPy.
"""

import json
import os
import time
import warnings

import common
import torch
from torch import Tensor, nn

from mpi_backend.demo.data import VOCAB_SIZE, load, train_batch

parser = common.parser(__doc__, __file__)
parser.add_argument("--stage", type=int, nargs="+", choices=range(4), default=[0, 1, 2, 3])
parser.add_argument("--num_layers", type=int, default=2, help="(default %(default)s)")
parser.add_argument("--h_dim", type=int, default=64, help="width of the model (default %(default)s)")
parser.add_argument("--ff_dim", type=int, default=256, help="of its inner layers (default %(default)s)")
parser.add_argument("--num_heads", type=int, default=4, help="(default %(default)s)")
parser.add_argument("--sequence", type=int, default=64, help="letters (default %(default)s)")
parser.add_argument("--batch_size", type=int, default=8, help="sequences a rank (default %(default)s)")
parser.add_argument("--num_iterations", type=int, default=40, help="of each stage (default %(default)s)")
parser.add_argument("--learning_rate", type=float, default=3e-3, help="(default %(default)s)")
parser.add_argument("--text_bytes", type=int, default=1_000_000, help="(default %(default)s)")
parser.add_argument("--local_rank", type=int, help="DeepSpeed's launchers pass it; torch knows it already")
args = parser.parse_args()
if args.h_dim % args.num_heads:
    parser.error(f"--h_dim {args.h_dim}: expected a multiple of --num_heads {args.num_heads}")
ranks = common.begin(args, needs=["deepspeed", "numpy"])
os.environ.setdefault("DS_ACCELERATOR", ranks.device.type)
warnings.filterwarnings("ignore", message="`torch.distributed", category=FutureWarning)  # DeepSpeed's
import deepspeed  # noqa: E402

deepspeed.init_distributed(dist_backend=args.backend, verbose=False)
text = load(args.text_bytes)
MASK = VOCAB_SIZE  # one token more than the letters


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(VOCAB_SIZE + 1, args.h_dim)
        self.places = nn.Embedding(args.sequence, args.h_dim)
        layers = [
            nn.TransformerEncoderLayer(
                args.h_dim, args.num_heads, args.ff_dim, dropout=0, batch_first=True, norm_first=True
            )
            for _ in range(args.num_layers)
        ]
        self.layers, self.norm = nn.Sequential(*layers), nn.LayerNorm(args.h_dim)
        self.head = nn.Linear(args.h_dim, VOCAB_SIZE)

    def forward(self, tokens: Tensor, targets: Tensor, masked: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.norm(self.layers(self.letters(tokens) + self.places(places)))
        return nn.functional.cross_entropy(self.head(hidden[masked]), targets[masked])


def batch(iteration: int) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens with every seventh letter masked, the letters, the mask) of this rank."""
    total = args.batch_size * ranks.size
    letters, _ = train_batch(text.train, seed=1, iteration=iteration, batch_size=total,
                             block_size=args.sequence, rank=ranks.rank, ranks=ranks.size)  # fmt: skip
    masked = (torch.arange(letters.numel()).view_as(letters) + iteration) % 7 == 0
    return tuple(t.to(ranks.device) for t in (letters.masked_fill(masked, MASK), letters, masked))


def config(stage: int) -> dict:
    return {
        "train_micro_batch_size_per_gpu": args.batch_size,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,  # torch's AdamW, which needs no compiler
    }


def train(stage: int, progress: common.Progress) -> tuple[list[float], int, float]:
    """(losses, bytes of the optimizer's moments on this rank, milliseconds per iteration)."""
    torch.manual_seed(1)
    model = Bert()
    optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config(stage))
    losses, begin = [], time.perf_counter()
    for iteration in range(args.num_iterations):
        loss = engine(*batch(iteration))
        engine.backward(loss)
        engine.step()
        losses.append(ranks.mean(loss))
        progress.step(f"stage {stage}, loss {losses[-1]:.4f}")
    seconds = time.perf_counter() - begin
    moments = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    held = sum(t.nbytes for t in moments if t.dim() > 0)
    engine.destroy()
    return losses, held, 1e3 * seconds / args.num_iterations


curves = {}
with common.Progress(ranks, args.num_iterations * len(args.stage)) as progress:
    progress.line(f"{sum(p.numel() for p in Bert().parameters()):,} parameters; {json.dumps(config(3))}")
    rows = [f"{'stage':>5} {'last loss':>10} {'moments on rank 0':>18} {'ms / iteration':>15}"]
    for stage in args.stage:
        curves[stage], held, ms = train(stage, progress)
        rows.append(f"{stage:>5} {curves[stage][-1]:>10.5f} {held / 1e6:>15.2f} MB {ms:>15.1f}")
    for row in rows:
        progress.line(row)


def draw(axes) -> None:
    for stage, losses in curves.items():  # the curves overlap
        axes.plot(losses, label=f"stage {stage}", linewidth=2 + 2 * (3 - stage), alpha=0.6)
    axes.set(xlabel="iteration", ylabel="loss", title=f"ZeRO on {ranks.size} ranks")
    axes.legend()


common.picture(args, ranks, "loss.png", draw)
spread = max(
    abs(a - b) for losses in curves.values() for a, b in zip(losses, curves[args.stage[0]], strict=True)
)
common.end(args, ranks, losses=curves, largest_difference_between_stages=spread)
