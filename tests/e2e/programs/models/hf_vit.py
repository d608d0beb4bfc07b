"""ViT from transformers with random weights: hf_vit.py OUT small|base."""
import torch
from transformers import ViTConfig, ViTForImageClassification

from _models import image
from _record import begin

record, args = begin()
options = {"small": dict(num_hidden_layers=6, hidden_size=512, intermediate_size=2048, num_attention_heads=8),
           "base": {}}[args[0]]
model = ViTForImageClassification(ViTConfig(**options)).eval()
with torch.no_grad():
    for i in range(3):
        record.tensor(f"output{i}", model(image(i, size=224)).logits)
record.save()
