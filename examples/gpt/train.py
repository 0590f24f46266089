"""Train a small GPT on the Python standard library's sources, data parallel.

    mpi-gdr run -n 2 train.py             mpirun -n 2 python train.py
    torchrun --nproc-per-node 2 train.py  python train.py          (one process, no process group)

Only the default of --backend is particular to mpi-gdr: with `--backend gloo` equal seeds and batches give the
same curve. The batch size counts all ranks, so their number does not change the curve (with dropout it does).
Writes log.jsonl, loss.png and checkpoint.pt to --out. Needs torch and mpi_backend only; loss.png needs
matplotlib, the progress bar rich.
"""

import argparse
import contextlib
import math
import os
import shutil
import statistics
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from ranks import Ranks
from report import Log, Progressbar, missing, plot, read_log
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mpi_backend.demo.data import VOCAB_SIZE, Text, load, train_batch, val_batches
from mpi_backend.demo.model import GPT, GPTConfig


@dataclass(frozen=True)
class Settings:
    """All that determines the curve. A resumed run must have the same."""

    text_bytes: int = 4_000_000
    batch_size: int = 24  # sequences per iteration, on all ranks
    block_size: int = 128  # tokens per sequence
    layers: int = 4
    heads: int = 4
    channels: int = 128
    dropout: float = 0.0
    iterations: int = 1000
    learning_rate: float = 3e-3
    warmup: int = 50  # iterations
    weight_decay: float = 0.1
    clip: float = 1.0  # largest gradient norm
    seed: int = 1337
    eval_every: int = 50  # iterations between validations, each with a checkpoint
    eval_batches: int = 8
    log_every: int = 10
    sample_every: int = 25  # iterations between samples of the exposed communication


# The tests' settings: a few seconds. Dropout makes the random state matter.
TINY = Settings(
    text_bytes=400_000, batch_size=12, block_size=32, layers=2, heads=2, channels=32, dropout=0.1,
    iterations=40, learning_rate=1e-2, warmup=5, eval_every=10, eval_batches=2, log_every=1, sample_every=5,
)  # fmt: skip
PRESETS = {"default": Settings(), "tiny": TINY}


def parse_arguments() -> tuple[argparse.Namespace, Settings]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="mpi-gdr", help="(default %(default)s)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, default=Path("out/gpt"), help="(default %(default)s)")
    parser.add_argument("--resume", type=Path, nargs="?", const=Path("checkpoint.pt"), metavar="CHECKPOINT",
                        help="go on from a checkpoint in --out (default checkpoint.pt)")  # fmt: skip
    parser.add_argument("--keep-checkpoints", action="store_true", help="each as checkpoint-ITERATION.pt")
    parser.add_argument("--progress", choices=("auto", "bar", "plain"), default="auto",
                        help="auto: a bar on a terminal (MPI launchers put a pipe there)")  # fmt: skip
    parser.add_argument("--preset", choices=PRESETS, default="default")
    for field in fields(Settings):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=type(field.default), help=f"(default {field.default})")
    args = parser.parse_args()
    given = {f.name: getattr(args, f.name) for f in fields(Settings) if getattr(args, f.name) is not None}
    return args, replace(PRESETS[args.preset], **given)


class Trainer:
    def __init__(self, ranks: Ranks, settings: Settings, text: Text) -> None:
        self.ranks, self.settings, self.text = ranks, settings, text
        s = settings
        torch.manual_seed(s.seed)
        config = GPTConfig(VOCAB_SIZE, s.block_size, s.layers, s.heads, s.channels, s.dropout)
        self.raw_model = GPT(config).to(ranks.device)
        self.model: nn.Module = self.raw_model
        if ranks.distributed:
            self.model = DistributedDataParallel(self.raw_model)
        groups = self.raw_model.parameter_groups(s.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, s.learning_rate, betas=(0.9, 0.95), fused=True)
        # DDP rebuilds its buckets at the second forward pass, and with more than two ranks their layout
        # decides the order of sums. Two discarded passes give a resumed run the layout of the first run.
        for _ in range(2):
            self.backward(iteration=0)
        self.optimizer.zero_grad()
        torch.manual_seed(s.seed + 1 + ranks.rank)  # for dropout, which must differ between ranks

    def backward(self, iteration: int, sync: bool = True) -> Tensor:
        """Forward and backward pass over this rank's part of the batch; returns its loss."""
        s, ranks = self.settings, self.ranks
        x, y = train_batch(self.text.train, seed=s.seed, iteration=iteration, batch_size=s.batch_size,
                           block_size=s.block_size, rank=ranks.rank, ranks=ranks.size)  # fmt: skip
        with contextlib.nullcontext() if sync else self.model.no_sync():
            with ranks.autocast():
                loss = self.model(x.to(ranks.device), y.to(ranks.device))
            loss.backward()
        return loss

    def exposed_communication(self, iteration: int) -> float:
        """Seconds of communication that computation does not hide, measured on one batch.

        The time of a forward and backward pass with gradients summed over the ranks, minus the same under
        no_sync(). Includes waiting for slower ranks. A single value is noisy and may be negative: take a
        median.
        """
        seconds = {}
        for sync in (False, True):
            self.ranks.synchronize()
            start = time.perf_counter()
            with self.ranks.preserved_random_state():
                self.backward(iteration, sync)
            self.ranks.synchronize()
            seconds[sync] = time.perf_counter() - start
            self.optimizer.zero_grad()
        return seconds[True] - seconds[False]

    def step(self, iteration: int) -> Tensor:
        s = self.settings
        if iteration < s.warmup:
            scale = (iteration + 1) / s.warmup
        else:  # a half cosine from 1 to 0.1
            scale = 0.55 + 0.45 * math.cos(math.pi * (iteration - s.warmup) / max(1, s.iterations - s.warmup))
        for group in self.optimizer.param_groups:
            group["lr"] = s.learning_rate * scale
        loss = self.backward(iteration)
        nn.utils.clip_grad_norm_(self.raw_model.parameters(), s.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    @torch.no_grad()
    def validate(self) -> float:
        s, ranks = self.settings, self.ranks
        total = torch.zeros((), device=ranks.device)
        self.raw_model.eval()
        for x, y in val_batches(self.text.val, count=s.eval_batches, batch_size=s.batch_size,
                                block_size=s.block_size, rank=ranks.rank, ranks=ranks.size):  # fmt: skip
            with ranks.autocast():
                total += self.raw_model(x.to(ranks.device), y.to(ranks.device))
        self.raw_model.train()
        return ranks.mean(total / s.eval_batches)

    def save(self, path: Path, iteration: int) -> None:
        """Collective, as each rank has its own random state; rank 0 writes. A crash keeps the old file."""
        random = {"cpu": self.ranks.gather(torch.get_rng_state())}
        if self.ranks.device.type == "cuda":
            random["cuda"] = self.ranks.gather(torch.cuda.get_rng_state())
        if not self.ranks.first:
            return
        state = {"iteration": iteration, "settings": asdict(self.settings), "random": random,
                 "model": self.raw_model.state_dict(), "optimizer": self.optimizer.state_dict()}  # fmt: skip
        unfinished = path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def restore(self, path: Path) -> int:
        """Every rank reads the file. Returns the next iteration."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        now = asdict(self.settings) | {"ranks": self.ranks.size, "device": self.ranks.device.type}
        then = state["settings"] | {"ranks": len(state["random"]["cpu"])}
        then["device"] = "cuda" if "cuda" in state["random"] else "cpu"
        changed = [f"{name}={then.get(name)}, now {now[name]}" for name in now if then.get(name) != now[name]]
        if changed:
            raise SystemExit(f"{path} is of a run with other settings: {', '.join(changed)}")
        self.raw_model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"]["cpu"][self.ranks.rank])
        if self.ranks.device.type == "cuda":
            torch.cuda.set_rng_state(state["random"]["cuda"][self.ranks.rank])
        return state["iteration"]

    def parameter_hashes(self) -> list[str]:
        """SHA-256 of all parameters' bits, by rank."""
        parts = self.ranks.gather(torch.frombuffer(bytearray(self.raw_model.digest()), dtype=torch.uint8))
        return [bytes(part.tolist()).hex() for part in parts]


def median_ms(seconds: list[float]) -> float | None:
    return 1e3 * statistics.median(seconds) if seconds else None


def train(ranks: Ranks, args: argparse.Namespace, settings: Settings) -> bool:
    """Returns whether all ranks end with the same parameters."""
    if settings.batch_size % ranks.size:
        raise SystemExit(f"--batch-size {settings.batch_size} cannot be shared evenly by {ranks.size} ranks")
    text = load(settings.text_bytes)
    digests = ranks.gather(torch.frombuffer(bytearray(text.digest), dtype=torch.uint8))
    if any(not torch.equal(digest, digests[0]) for digest in digests):
        raise SystemExit("the ranks read different texts; expected the same Python version on all nodes")
    trainer = Trainer(ranks, settings, text)
    checkpoint = args.out / "checkpoint.pt"
    begin = 0
    if args.resume:
        begin = trainer.restore(args.out / args.resume)

    log = bar = None
    if ranks.first:
        args.out.mkdir(parents=True, exist_ok=True)
        parameters = sum(p.numel() for p in trainer.raw_model.parameters())
        header = {"backend": ranks.backend, "ranks": ranks.size, "device": ranks.device.type,
                  "torch": torch.__version__, "parameters": parameters,
                  "settings": asdict(settings)}  # fmt: skip
        log = Log(args.out / "log.jsonl", header, begin if args.resume else None)
        bar = Progressbar(args.progress, settings.iterations, begin)
        if missing("matplotlib"):
            bar.line("matplotlib is not installed, so there will be no loss.png (pip install matplotlib)")
        bar.line(f"{parameters:,} parameters; {len(text.train):,} characters to train on, {len(text.val):,} "
                 f"held out; {ranks.backend}, {ranks.size} ranks, {ranks.device.type}")  # fmt: skip

    def evaluate(iteration: int) -> None:
        loss = trainer.validate()
        if ranks.first:
            log.write("val", iteration, loss=loss)
            bar.line(f"iteration {iteration}: validation loss {loss:.4f}")

    exposed: list[float] = []
    window, steps = 0.0, 0  # seconds and iterations since the last report
    for iteration in range(begin, settings.iterations):
        if iteration % settings.eval_every == 0 and (iteration > begin or not args.resume):
            evaluate(iteration)
            trainer.save(checkpoint, iteration)
            if args.keep_checkpoints and ranks.first:
                shutil.copy(checkpoint, args.out / f"checkpoint-{iteration}.pt")
        if ranks.distributed and iteration % settings.sample_every == settings.sample_every - 1:
            exposed.append(trainer.exposed_communication(iteration))
        start = time.perf_counter()
        loss = trainer.step(iteration)
        report = iteration % settings.log_every == 0
        mean_loss = ranks.mean(loss) if report else 0.0
        window, steps = window + time.perf_counter() - start, steps + 1
        if report and ranks.first:
            ms, rate = 1e3 * window / steps, settings.batch_size * settings.block_size * steps / window
            log.write("train", iteration, loss=mean_loss, ms=ms, tokens_per_second=rate)
            bar.update(iteration, mean_loss, ms, rate, median_ms(exposed))
        if report:
            window, steps = 0.0, 0
    evaluate(settings.iterations)
    trainer.save(checkpoint, settings.iterations)

    hashes = trainer.parameter_hashes()
    equal = len(set(hashes)) == 1
    if ranks.first:
        bar.finish()
        log.write("end", settings.iterations, parameters=hashes, equal=equal, exposed_ms=median_ms(exposed))
        log.close()
        written = ["log.jsonl"]
        if not missing("matplotlib"):
            plot([read_log(args.out / "log.jsonl")], args.out / "loss.png")
            written.append("loss.png")
        if equal:
            print(f"parameters: bitwise equal on all {ranks.size} ranks, SHA-256 {hashes[0]}")
        else:
            lines = [f"rank {rank}: SHA-256 {digest}" for rank, digest in enumerate(hashes)]
            print("parameters: DIFFERENT", *lines, sep="\n  ")
        print(f"wrote {', '.join(written)} and checkpoint.pt in {args.out}", flush=True)
    return equal


def main() -> int:
    args, settings = parse_arguments()
    ranks = Ranks(args.backend, args.device)
    equal = train(ranks, args, settings)
    ranks.leave()
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
