"""transformers: Trainer, two steps."""
import tempfile

from _real import out, torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

torch.manual_seed(1)
model = ViTForImageClassification(ViTConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=6, image_size=64))
data = [{"pixel_values": torch.randn(3, 64, 64), "labels": torch.tensor(i % 2)} for i in range(8)]
with tempfile.TemporaryDirectory() as where:
    arguments = TrainingArguments(where, per_device_train_batch_size=4, max_steps=2, report_to=[], use_cpu=True, save_strategy="no",
                                  disable_tqdm=True, logging_strategy="no")
    Trainer(model, arguments, train_dataset=data).train()
out("weights", list(model.parameters()))
