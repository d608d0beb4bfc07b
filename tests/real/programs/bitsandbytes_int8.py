"""bitsandbytes: layers of 4 bits on a processor."""
import bitsandbytes as bnb
from _real import nn, out, rows, torch

layers = [bnb.nn.Linear4bit(1024, 1024, compute_dtype=torch.float32, quant_type="nf4") for _ in range(8)]
model = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 1024), *layers).to("cpu").eval()
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(rows(i)))
