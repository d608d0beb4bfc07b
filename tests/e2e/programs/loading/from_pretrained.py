"""transformers' own loading: from_pretrained.py OUT gpt2|llama DIR [stop|first]."""
import sys

import torch
from transformers import AutoModelForCausalLM

from _record import begin

record, (kind, path, *rest) = begin()
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
record.notes["weight_bytes"] = sum(p.numel() * p.element_size() for p in model.parameters() if p.dim() > 1)
prompt = torch.randint(0, model.config.vocab_size, (1, 8), generator=torch.Generator().manual_seed(3))
if rest != ["stop"]:
    with torch.no_grad():
        for i in range(1 if rest else 3):
            record.tensor(f"logits{i}", model(prompt + i).logits)
    if not rest:
        record.module("model", model)
record.check("reached", True)
record.save()
sys.stdout.flush()
