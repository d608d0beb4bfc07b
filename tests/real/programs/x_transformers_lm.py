"""x-transformers: a decoder with rotary positions generates."""
from _real import out, torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

net = TransformerWrapper(num_tokens=2000, max_seq_len=64, attn_layers=Decoder(dim=512, depth=5, heads=8, rotary_pos_emb=True)).eval()
model = AutoregressiveWrapper(net)
with torch.no_grad():
    out("logits", net(torch.arange(32).reshape(1, 32)))
    out("tokens", model.generate(torch.arange(8).reshape(1, 8), 6, temperature=0.0))
