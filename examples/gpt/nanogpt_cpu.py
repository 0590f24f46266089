# A configuration of karpathy's nanoGPT for CPUs with several ranks; GPUs need none, see docs/nanogpt.md:
#
#     mpi-gdr run -n 2 train.py PATH/nanogpt_cpu.py --out_dir=out
#
# nanoGPT executes it inside train.py before it looks for its ranks. Two things are overridden: a run with
# ranks always selects a GPU (device = "cuda:<local rank>", then set_device) and passes its number to DDP.
backend = "mpi-gdr"
device = "cpu"
dtype = "float32"
compile = False

# A small model on short sequences: a few minutes on two cores.
gradient_accumulation_steps = 2  # of all ranks; a multiple of their number
batch_size = 12
block_size = 64
n_layer, n_head, n_embd = 4, 4, 128
dropout = 0.0
learning_rate, min_lr = 1e-3, 1e-4
max_iters = lr_decay_iters = 2000
warmup_iters = 100
eval_interval, eval_iters, log_interval = 250, 20, 10


def _stay_on_the_cpu(_):
    global device  # train.py's: this file runs among its variables
    device = "cpu"


_ddp = DDP  # noqa: F821  imported by train.py
DDP = lambda module, device_ids: _ddp(module)  # noqa: E731
torch.cuda.set_device = _stay_on_the_cpu  # noqa: F821  imported by train.py
