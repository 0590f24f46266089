"""Train the GPT of examples/gpt with FSDP2: each rank holds a part of the parameters, gradients and moments.

    mpi-gdr run -n 2 fsdp.py     mpirun -n 2 python fsdp.py     torchrun --nproc-per-node 2 fsdp.py
    python fsdp.py               one rank alone

Only the default of --backend is particular to mpi-gdr. torch.distributed.checkpoint writes checkpoints during
training; --resume loads the last one, on any number of ranks. Writes log.jsonl and the folders checkpoint-N
to --out. Needs NumPy.
"""

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.append(str(Path(__file__).parent / "gpt"))
from ranks import Ranks
from report import Log, Progressbar, missing

from mpi_backend.demo.data import VOCAB_SIZE, load, train_batch, val_batches
from mpi_backend.demo.model import GPT, GPTConfig

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--backend", default="mpi-gdr")
parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
parser.add_argument("--out", type=Path, default=Path("out/fsdp"))
parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
parser.add_argument("--bf16", action="store_true", help="compute and sum gradients in bfloat16")
parser.add_argument("--iterations", type=int, default=1000)
parser.add_argument(
    "--save-every", type=int, default=100, help="iterations between checkpoints and validations"
)
parser.add_argument(
    "--sample-every", type=int, default=0, help="iterations between samples of the exposed communication"
)
parser.add_argument("--batch-size", type=int, default=24, help="sequences an iteration, all ranks together")
parser.add_argument("--block-size", type=int, default=128, help="tokens a sequence")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--channels", type=int, default=128)
parser.add_argument("--learning-rate", type=float, default=1e-3)
parser.add_argument("--seed", type=int, default=1337)
parser.add_argument("--text-bytes", type=int, default=4_000_000)
args = parser.parse_args()
if missing("numpy"):
    sys.exit("fsdp.py: torch's checkpoints need NumPy, which is not installed: pip install numpy")

ranks = Ranks(args.backend, args.device, always=True)  # FSDP needs a group, also of one rank
sharing = {
    "batch_size": args.batch_size,
    "block_size": args.block_size,
    "rank": ranks.rank,
    "ranks": ranks.size,
}
text = load(args.text_bytes)

# ---- the model: the same on every rank, then sharded ------------------------------------------------------
torch.manual_seed(args.seed)
model = GPT(GPTConfig(VOCAB_SIZE, args.block_size, args.layers, args.heads, args.channels)).to(ranks.device)
unsharded = copy.deepcopy(model) if args.sample_every else None
policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16) if args.bf16 else MixedPrecisionPolicy()
mesh = init_device_mesh(ranks.device.type, (ranks.size,))  # the default would be the accelerator's
for block in model.blocks:  # an all_gather before each, a reduce_scatter after its backward pass
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)  # the rest: embeddings and the last norm
optimizer = torch.optim.AdamW(model.parameter_groups(weight_decay=0.1), args.learning_rate, betas=(0.9, 0.95))

# ---- checkpoints ------------------------------------------------------------------------------------------
saving_group = dist.new_group()  # the saving thread's collectives must not mix with training's
saving = None


def state(iteration: int) -> dict:
    parameters, moments = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": moments, "iteration": torch.tensor(iteration)}


def save(iteration: int) -> None:
    """Copies this rank's shard and writes it in the background."""
    global saving
    if saving:
        saving.result()
    folder = args.out / f"checkpoint-{iteration}"
    saving = dcp.async_save(state(iteration), checkpoint_id=folder, process_group=saving_group)


begin = 0
if args.resume:
    # .metadata is written last, so a checkpoint that has it is complete.
    saved = [int(path.parent.name.split("-")[1]) for path in args.out.glob("checkpoint-*/.metadata")]
    begin = max(saved, default=0)
if begin:
    loaded = state(begin)
    dcp.load(loaded, checkpoint_id=args.out / f"checkpoint-{begin}")
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])

# ---- training ---------------------------------------------------------------------------------------------
if ranks.first:
    args.out.mkdir(parents=True, exist_ok=True)
    settings = {name: v for name, v in vars(args).items() if name not in ("backend", "out", "resume")}
    parameters = sum(p.numel() for p in model.parameters())
    header = {"backend": args.backend, "ranks": ranks.size, "parameters": parameters, "settings": settings}
    log = Log(args.out / "log.jsonl", header, begin if args.resume else None)
    bar = Progressbar("auto", args.iterations, begin)
    held = sum(p.to_local().numel() for p in model.parameters())
    bar.line(f"{parameters:,} parameters, {held:,} of them on rank 0; {args.backend}, {ranks.size} ranks, "
             f"{ranks.device.type}")  # fmt: skip


@torch.no_grad()
def validate(iteration: int) -> None:
    batches = val_batches(text.val, count=2, **sharing)
    losses = [model(x.to(ranks.device), y.to(ranks.device)).float() for x, y in batches]
    loss = ranks.mean(torch.stack(losses).mean())
    if ranks.first:
        log.write("val", iteration, loss=loss)
        bar.line(f"iteration {iteration}: validation loss {loss:.4f}")


def exposed_communication(x: torch.Tensor, y: torch.Tensor) -> float:
    """Milliseconds that a forward and backward pass takes longer than that of the unsharded model, which
    communicates nothing. Includes FSDP's own work, and waiting for slower ranks."""
    ms = []
    for each in (unsharded, model):
        ranks.synchronize()
        dist.barrier()
        start = time.perf_counter()
        each(x, y).backward()
        ranks.synchronize()
        ms.append(1e3 * (time.perf_counter() - start))
        each.zero_grad()
    return ms[1] - ms[0]


exposed: list[float] = []
for iteration in range(begin, args.iterations):
    if iteration % args.save_every == 0 and iteration > begin:
        validate(iteration)
        save(iteration)
    start = time.perf_counter()
    x, y = train_batch(text.train, seed=args.seed, iteration=iteration, **sharing)
    x, y = x.to(ranks.device), y.to(ranks.device)
    loss = model(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    mean_loss, seconds = ranks.mean(loss), time.perf_counter() - start
    if ranks.first:
        rate = args.batch_size * args.block_size / seconds
        log.write("train", iteration, loss=mean_loss, ms=1e3 * seconds, tokens_per_second=rate)
        bar.update(iteration, mean_loss, 1e3 * seconds, rate, statistics.median(exposed) if exposed else None)
    if args.sample_every and iteration % args.sample_every == args.sample_every - 1:
        exposed.append(exposed_communication(x, y))
validate(args.iterations)
save(args.iterations)
saving.result()
if ranks.first:
    bar.finish()
    if exposed:
        log.write("end", args.iterations, exposed_ms=statistics.median(exposed))
    print(f"wrote log.jsonl and checkpoint-{args.iterations} in {args.out}", flush=True)
ranks.leave()
