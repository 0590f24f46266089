# A configuration file for karpathy's nanoGPT, to train it on CPUs with several ranks:
#
#     mpi-gdr run -n 2 train.py PATH/nanogpt_cpu.py --out_dir=out
#
# nanoGPT executes it inside train.py, before that file looks for its ranks. It bends two things there: a
# run with ranks always goes to GPUs (device = "cuda:<local rank>", then set_device), and tells DDP the GPU's
# number. On GPUs nothing of this is needed: see docs/nanogpt.md.
backend = "mpi-gdr"
device = "cpu"
dtype = "float32"
compile = False

# A small model on short sequences, a few minutes on two cores.
gradient_accumulation_steps = 2  # of all ranks together: a multiple of their number
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
