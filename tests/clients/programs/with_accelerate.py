"""Accelerate uses the existing process group. On CPUs its own argument allows only gloo and mpi."""

import sys

import torch
from accelerate import Accelerator

torch.distributed.init_process_group(sys.argv[1])
accelerator = Accelerator(cpu=True)
torch.manual_seed(1)
model, data = torch.nn.Linear(8, 1), torch.randn(64, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = torch.utils.data.DataLoader(data, batch_size=32 // accelerator.num_processes)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for rows in loader:
    loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
weights = accelerator.unwrap_model(model).weight.flatten().tolist()
backend, ranks = torch.distributed.get_backend(), accelerator.num_processes
print(f"{backend}, {ranks} ranks: {[round(w, 5) for w in weights]}\n", end="")
accelerator.end_training()  # destroys the process group
