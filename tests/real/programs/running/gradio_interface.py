"""gradio: an interface's function, without a browser."""
import gradio
from _real import digest, mlp, out, rows, torch

model = mlp()


def infer(seed):
    with torch.no_grad():
        return digest(model(rows(int(seed))))


interface = gradio.Interface(infer, "number", "text")
for i in range(3):
    out(f"answer{i}", interface(i))
