"""Construct, load and the first inference of a language model: load_language.py OUT gpt2|llama PTH."""
import torch

from _models import language_model
from _record import begin

record, (kind, path) = begin()
torch.manual_seed(1)
model = language_model(kind, "large")
model.load_state_dict(torch.load(path))
record.notes["weight_bytes"] = sum(p.numel() * p.element_size() for p in model.parameters() if p.dim() > 1)
prompt = torch.randint(0, model.config.vocab_size, (1, 8), generator=torch.Generator().manual_seed(3))
with torch.no_grad():
    record.tensor("logits", model(prompt).logits)
record.save()
