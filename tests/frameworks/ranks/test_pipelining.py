"""Pipeline schedules compared with the same layers in one process."""

import pytest
import torch
from support.training import TOLERANCE
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble, ScheduleLoopedBFS

WIDTH, MICROBATCHES = 12, 4


def layers(count):
    torch.manual_seed(23)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double().requires_grad_() for _ in range(count)]


def loss_of(output, target):
    return (output - target).square().mean()


def data(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(2 * MICROBATCHES, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)]


SINGLE = [ScheduleGPipe, Schedule1F1B]
SEVERAL = [ScheduleInterleaved1F1B, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble]


@pytest.mark.parametrize("kind", [*SINGLE, *SEVERAL], ids=lambda k: k.__name__)
def test_schedule(rank, size, kind):
    stages_a_rank = 1 if kind in SINGLE else 2
    count = stages_a_rank * size
    modules = layers(count)
    mine = range(rank, count, size)
    stages = [PipelineStage(modules[i], i, count, torch.device("cpu")) for i in mine]
    schedule = kind(stages[0] if kind in SINGLE else stages, MICROBATCHES, loss_fn=loss_of)
    optimizer = torch.optim.SGD([p for i in mine for p in modules[i].parameters()], 0.1)

    alone = nn.Sequential(*layers(count))
    reference = torch.optim.SGD(alone.parameters(), 0.1)
    for step in range(2):
        x, target = data(step)
        losses = []
        last = rank == size - 1
        given = {"target": target, "losses": losses} if last else {}
        output = schedule.step(*([x] if rank == 0 else []), **given)
        expected = alone(x)
        loss = loss_of(expected, target)
        loss.backward()
        if last:
            torch.testing.assert_close(output, expected, **TOLERANCE)
            torch.testing.assert_close(torch.stack(losses).mean(), loss, **TOLERANCE)
        for i in mine:
            for parameter, wanted in zip(modules[i].parameters(), alone[i].parameters(), strict=True):
                torch.testing.assert_close(parameter.grad, wanted.grad, **TOLERANCE)
        for each in (optimizer, reference):
            each.step()
            each.zero_grad()
