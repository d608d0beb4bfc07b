"""lightning: fit, predict."""
import logging

from _real import mlp, nn, out, rows, torch, torchvision

torchvision()
import lightning
from torch.utils.data import DataLoader

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = mlp(depth=6)

    def training_step(self, batch, _):
        return nn.functional.mse_loss(self.net(batch), batch)

    def predict_step(self, batch, _):
        return self.net(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


module = Module()
data = DataLoader(rows(count=12), batch_size=4)
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False)
trainer.fit(module, data)
out("predicted", trainer.predict(module, data))
out("weights", list(module.parameters()))
