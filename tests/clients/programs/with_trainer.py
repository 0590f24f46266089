"""transformers' Trainer uses Accelerate, which uses the existing process group."""

import sys
import tempfile

import torch
from transformers import Trainer, TrainingArguments

torch.distributed.init_process_group(sys.argv[1])
ranks = torch.distributed.get_world_size()


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, rows, targets):
        guess = self.layer(rows)
        return {"loss": (guess - targets).square().mean(), "logits": guess}


torch.manual_seed(1)
model, data = Regression(), torch.randn(64, 8)
arguments = TrainingArguments(
    tempfile.mkdtemp(), use_cpu=True, num_train_epochs=1, per_device_train_batch_size=32 // ranks,
    learning_rate=0.1, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0, report_to=[],
    save_strategy="no", disable_tqdm=True, remove_unused_columns=False, label_names=["targets"],
)  # fmt: skip
rows = [{"rows": row, "targets": row.sum(0, keepdim=True)} for row in data]
Trainer(model, arguments, train_dataset=rows).train()
weights = model.layer.weight.flatten().tolist()
print(f"{torch.distributed.get_backend()}, {ranks} ranks: {[round(w, 5) for w in weights]}\n", end="")
torch.distributed.destroy_process_group()
