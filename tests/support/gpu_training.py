"""training.py on the device of tests/gpu/ranks."""

import torch.distributed as dist

from . import training
from .gpu import DEVICE

TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}  # the device's tanh differs from the CPU's


def train(model):
    optimizer = training.sgd(model)
    for step in range(training.STEPS):
        training.descend(optimizer, training.loss_of(model(training.batch(dist.get_rank(), step).to(DEVICE))))


def check_model(model, size):
    """Checks that the parameters are on the device and equal those of training in one process."""
    state = {}
    for name, parameter in model.named_parameters():
        full = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        assert parameter.device.type == DEVICE.type
        state[name] = full.detach().cpu()
    training.assert_same_model(state, training.train_alone(size), **TOLERANCE)
