"""Lightning: DDPStrategy names the backend; the plugin marks the ranks as started by a launcher."""

import os
import sys

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, rows):
        return (self.layer(rows) - rows.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


torch.manual_seed(1)
model, data = Regression(), torch.randn(64, 8)
ranks = int(os.environ["WORLD_SIZE"])  # set under any launcher by `import torch`
trainer = Trainer(
    accelerator="cpu", devices=ranks, strategy=DDPStrategy(process_group_backend=sys.argv[1]),
    plugins=[TorchElasticEnvironment()], max_epochs=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=32 // ranks))
backend = torch.distributed.get_backend()
weights = model.layer.weight.flatten().tolist()
print(f"{backend}, {trainer.world_size} ranks: {[round(w, 5) for w in weights]}\n", end="")
torch.distributed.destroy_process_group()
