"""make_checkpoint.py DIR: a checkpoint with all that makes stores difficult, as torch.save has it (model.pth), and one of
another size with many layers (plain.pth). With safetensors at hand also sharded (index.json and two shards)."""
import json
import sys

import torch

directory = sys.argv[1]
torch.manual_seed(1)
shared = torch.randn(300, 70)
state = {
    "stem.weight": torch.randn(64, 3, 7, 7),
    "stem.bias": torch.randn(64),
    "a.turned": torch.randn(100, 70).t(),
    "a.every_fourth": torch.arange(1000)[3:50:4],
    "b.empty": torch.empty(0, 3),
    "b.scalar": torch.tensor(3.5),
    "c.half": torch.randn(5, 5).to(torch.bfloat16),
    "c.flags": torch.tensor([True, False, True]),
    "d.weight": shared,
    "e.weight": shared,
    "e.rows": shared[10:20],
    "f.repeated": torch.randn(4, 1).expand(4, 9),
    "f.complex": torch.randn(4, dtype=torch.complex64),
    "top": torch.randn(3),
    "large.weight": torch.randn(1 << 18),
}
torch.save(state, f"{directory}/model.pth")
plain = {f"layer{i}.{kind}": torch.randn(1000 + 200 * i) for i in range(24) for kind in ("weight", "bias")}
torch.save(plain, f"{directory}/plain.pth")
try:
    import safetensors.torch
except ImportError:
    sys.exit()
names = list(plain)
shards = {"one.safetensors": names[:20], "two.safetensors": names[20:]}
for file, keys in shards.items():
    safetensors.torch.save_file({k: plain[k] for k in keys}, f"{directory}/{file}")
with open(f"{directory}/model.safetensors.index.json", "w") as f:
    json.dump({"metadata": {}, "weight_map": {k: file for file, keys in shards.items() for k in keys}}, f)
