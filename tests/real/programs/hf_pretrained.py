"""transformers: save_pretrained in shards, from_pretrained in two types."""
import tempfile

from _real import out, torch
from transformers import BertConfig, BertModel

with tempfile.TemporaryDirectory(dir="/var/tmp") as where, torch.no_grad():
    BertModel(BertConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8)).save_pretrained(where, max_shard_size="20MB")
    tokens = torch.arange(32).reshape(2, 16)
    for kind in (torch.float32, torch.bfloat16):
        model = BertModel.from_pretrained(where, dtype=kind).eval()
        for i in range(2):
            out(f"{kind} {i}", model(tokens).last_hidden_state)
