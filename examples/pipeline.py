"""Compare the pipeline schedules of torch.distributed.pipelining: time, bubbles and memory of a step.

    mpi-gdr run -n 2 pipeline.py    mpirun -n 4 python pipeline.py    torchrun --nproc-per-node 4 pipeline.py

With 1F1B a rank has one stage of two transformer blocks, else two stages of one block: a microbatch goes to
the last rank and back, so ranks send in both directions at once, as in GEMS. Zero bubble splits a
backward pass: first the input gradients, for which the previous stage waits, then the weight gradients, which
fill the gaps. DualPipeV pairs forward and backward passes of opposite directions.

A bubble is time in which a rank does not compute. The ideal has the same order of work, but messages take no
time, and a forward pass and each half of a backward pass take one unit. All gradients are compared with one
process's, in float64. Writes pipeline.png to --out: which rank computes what, and when.
"""

import collections
import copy
import itertools
import sys
import time

import common
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.pipelining.schedules import ScheduleDualPipeV, ScheduleZBVZeroBubble

from mpi_backend.demo.model import Block, GPTConfig

SCHEDULES = {"1F1B": Schedule1F1B, "zero bubble": ScheduleZBVZeroBubble, "DualPipeV": ScheduleDualPipeV}
UNITS = {"forward": 1, "backward": 2, "input": 1, "weight": 1}  # of work; backward = input + weight

parser = common.parser(__doc__, __file__)
parser.add_argument("--steps", type=int, default=6, help="of each schedule; the median counts")
parser.add_argument("--microbatches", type=int, default=8, help="of four sequences")
parser.add_argument("--block-size", type=int, default=64, help="tokens a sequence")
parser.add_argument("--channels", type=int, default=256)


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def parts(name: str, blocks: nn.ModuleList) -> dict[int, nn.Sequential]:
    """{stage: blocks} of this rank."""
    if name == "1F1B":
        return {ranks.rank: nn.Sequential(*blocks[2 * ranks.rank : 2 * ranks.rank + 2])}
    return {i: nn.Sequential(blocks[i]) for i in (ranks.rank, 2 * ranks.size - 1 - ranks.rank)}


class Pipeline:
    """Blocks under a schedule. `notes` records what they compute: (kind, stage, microbatch, begin, end)."""

    def __init__(self, name: str, blocks: nn.ModuleList) -> None:
        count = len(blocks) // (2 if name == "1F1B" else 1)
        self.notes: list[tuple] = []
        self.stages = [PipelineStage(part, i, count, ranks.device) for i, part in parts(name, blocks).items()]
        for stage in self.stages:
            for kind in ("forward", "backward", "backward_weight"):
                method = kind + "_one_chunk"
                setattr(stage, method, self.noted(stage, getattr(stage, method), kind.split("_")[-1]))
        stages = self.stages[0] if name == "1F1B" else self.stages
        self.schedule = SCHEDULES[name](stages, args.microbatches, loss_fn=loss_of)

    def noted(self, stage: PipelineStage, work, kind: str):
        def wrapper(microbatch: int, *arguments, **options):
            begin = time.perf_counter()
            result = work(microbatch, *arguments, **options)
            ranks.synchronize()
            done = kind if options.get("full_backward", True) else "input"
            self.notes.append((done, stage.stage_index, microbatch, begin, time.perf_counter()))
            return result

        return wrapper

    def step(self, x: Tensor, target: Tensor) -> list[list[tuple]]:
        """Computes gradients. Returns the notes of all ranks, in seconds from a common start. Collective."""
        self.notes.clear()
        for stage in self.stages:
            stage.submod.zero_grad()
        first, last = any(s.is_first for s in self.stages), any(s.is_last for s in self.stages)
        dist.barrier()
        zero = time.perf_counter()
        self.schedule.step(*([x] if first else []), **({"target": target} if last else {}))
        every: list[list[tuple]] = [[]] * ranks.size
        dist.all_gather_object(every, [(*what, begin - zero, end - zero) for *what, begin, end in self.notes])
        return every


def difference_to_one_process(name: str) -> float:
    """Largest gradient difference of a step on all ranks, in float64, relative to the largest gradient."""
    whole, mine = copy.deepcopy(blocks).double(), Pipeline(name, copy.deepcopy(blocks).double())
    x, target = data.double()
    loss_of(nn.Sequential(*whole)(x), target).backward()
    mine.step(x, target)
    expected = [p.grad for part in parts(name, whole).values() for p in part.parameters()]
    actual = [p.grad for stage in mine.stages for p in stage.submod.parameters()]
    return common.difference(actual, expected)


def duration(every: list[list[tuple]]) -> float:
    return max(notes[-1][4] for notes in every)


def bubbles(every: list[list[tuple]]) -> float:
    """The bubbles' share of all ranks' time."""
    busy = sum(end - begin for notes in every for *_, begin, end in notes)
    return 1 - busy / len(every) / duration(every)


def ideal(every: list[list[tuple]]) -> list[list[tuple]]:
    """The same work in the same order, in units."""
    todo = [collections.deque(note[:3] for note in notes) for notes in every]
    result: list[list[tuple]] = [[] for _ in every]
    last = max(note[1] for notes in every for note in notes)
    # {(True, stage, m): when its output exists; (False, stage, m): when its input's gradient does}
    ends = {end: 0 for m in range(args.microbatches) for end in ((True, -1, m), (False, last + 1, m))}

    def need(kind: str, stage: int, m: int) -> tuple:
        return {"forward": (True, stage - 1, m), "weight": (False, stage, m)}.get(kind, (False, stage + 1, m))

    while any(todo):
        for mine, notes in zip(todo, result, strict=True):
            while mine and need(*mine[0]) in ends:
                kind, stage, m = mine[0]
                begin = max(notes[-1][4] if notes else 0, ends[need(kind, stage, m)])
                notes.append((*mine.popleft(), begin, begin + UNITS[kind]))
                ends.setdefault((kind == "forward", stage, m), begin + UNITS[kind])
    return result


def most_held(notes: list[tuple], blocks_a_stage: int) -> int:
    """The most blocks whose activations a rank keeps at a time."""
    changes = [{"forward": 1, "input": 0}.get(kind, -1) for kind, *_ in notes]
    return blocks_a_stage * max(itertools.accumulate(changes))


args = parser.parse_args()
ranks = common.begin(args)
if args.steps < 1 or args.microbatches < 2 * ranks.size:
    sys.exit(f"pipeline.py: --steps {args.steps} --microbatches {args.microbatches}: expected one step or "
             f"more, and {2 * ranks.size} microbatches or more, as many as stages")  # fmt: skip
torch.manual_seed(1337)
config = GPTConfig(0, args.block_size, 2 * ranks.size, 4, args.channels)
blocks = nn.ModuleList(Block(config) for _ in range(2 * ranks.size)).to(ranks.device)
shape = 4 * args.microbatches, args.block_size, args.channels
data = torch.randn(2, *shape).to(ranks.device)
table, charts = {}, {}
with common.Progress(ranks, len(SCHEDULES) * (args.steps + 1)) as progress:
    for name in SCHEDULES:
        difference = difference_to_one_process(name)
        pipeline = Pipeline(name, blocks)
        steps = []
        for _ in range(args.steps + 1):
            steps.append(pipeline.step(*data))
            progress.step(name)
        # The median, without the first step, which also sets up.
        every = charts[name] = sorted(steps[1:], key=duration)[args.steps // 2]
        held = max(most_held(notes, 2 if name == "1F1B" else 1) for notes in every)
        row = {"ms": 1e3 * duration(every), "bubbles": bubbles(every), "ideal": bubbles(ideal(every))}
        table[name] = row | {"held": held, "gradient_difference": difference}
    progress.line(f"{'':12}{'ms':>8}{'bubbles':>9}{'ideal':>8}{'held':>6}  gradients differ by")
    for name, row in table.items():
        progress.line("{:12}{ms:8.1f}{bubbles:9.1%}{ideal:8.1%}{held:6}  {gradient_difference:.1e}"
                      .format(name, **row))  # fmt: skip
    progress.line("held: for how many blocks a rank keeps activations at a time, at most")


def draw(axes) -> None:
    colours = {"forward": "C0", "backward": "C2", "input": "C1", "weight": "C4"}
    for chart, (name, every) in zip(axes, charts.items(), strict=True):
        for rank, notes in enumerate(every):
            for kind, stage, _, begin, end in notes:  # a rank's second stage is pale
                chart.barh(rank, 1e3 * (end - begin), left=1e3 * begin, color=colours[kind],
                           alpha=1 if stage < ranks.size else 0.5, edgecolor="white")  # fmt: skip
        chart.set(title=name, ylabel="rank", yticks=range(ranks.size), ylim=(ranks.size - 0.5, -0.5))
    for kind, colour in colours.items():
        axes[0].barh(0, 0, color=colour, label=kind if "ward" in kind else f"gradient of the {kind}s")
    axes[0].figure.legend(loc="outside right upper")
    axes[-1].set_xlabel("ms")


common.picture(args, ranks, "pipeline.png", draw, nrows=len(SCHEDULES), sharex=True, figsize=(10, 8))
worst = max(row["gradient_difference"] for row in table.values())
common.end(args, ranks, gradient_difference=worst, table=table)
