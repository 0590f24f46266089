"""A small GPT and its text, which the demo, `mpi-gdr bench ddp` and the examples train."""
