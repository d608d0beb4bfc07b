"""GPT-2 with random weights: a greedy generation and a plain forward. gpt2.py OUT small|gpt2."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from _record import begin

record, args = begin()
options = {"small": dict(n_layer=6, n_embd=512, n_head=8, vocab_size=8000, bos_token_id=0, eos_token_id=0), "gpt2": {}}[args[0]]
model = GPT2LMHeadModel(GPT2Config(**options)).eval()
# A wider spread than GPT-2's own start: else the tied head repeats the last token for ever, whatever the layers do.
with torch.no_grad():
    for name, weight in model.named_parameters():
        if name.startswith("transformer.h.") and weight.dim() == 2:
            weight.mul_(6)
prompt = torch.randint(0, model.config.vocab_size, (1, 8), generator=torch.Generator().manual_seed(3))
with torch.no_grad():
    tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False,
                            pad_token_id=0, eos_token_id=None)
    record.check("12 tokens", tokens.shape[1] == 20)
    record.check("not all the same token", len(set(tokens[0, 8:].tolist())) > 3)
    record.tensor("tokens", tokens)
    record.tensor("logits", model(prompt).logits)
record.save()
