"""accelerate: an empty model, its weights loaded and dispatched, one half from the disk."""
import tempfile

from _real import mlp, out, rows, torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from safetensors.torch import save_file

with tempfile.TemporaryDirectory(dir="/var/tmp") as where, torch.no_grad():
    save_file(mlp().state_dict(), f"{where}/model.safetensors")
    with init_empty_weights():
        model = mlp()
    places = {str(i): "cpu" if i < 10 else "disk" for i in range(20)}
    model = load_checkpoint_and_dispatch(model, f"{where}/model.safetensors", device_map=places, offload_folder=where)
    for i in range(3):
        out(f"out{i}", model(rows(i)))
