"""The models of the loading benchmark by name; needs no PyTorch."""
from dataclasses import dataclass

# Beside a checkpoint: that of the same model with hardly a number in its weights.
ALONE = "without-weights"


@dataclass(frozen=True)
class Model:
    name: str
    kind: str           # "torchvision" or "transformers"
    file: str           # of the checkpoint, in a directory of its own
    loading: str        # "state_dict" or "from_pretrained"


MODELS = {model.name: model for model in (
    Model("vgg19", "torchvision", "model.pth", "state_dict"),
    Model("resnet152", "torchvision", "model.pth", "state_dict"),
    Model("vit_b_16", "torchvision", "model.pth", "state_dict"),
    Model("gpt2-safetensors", "transformers", "model.safetensors", "from_pretrained"),
    Model("gpt2-bin", "transformers", "pytorch_model.bin", "state_dict"),
    Model("llama-safetensors", "transformers", "model.safetensors", "from_pretrained"),
    Model("llama-bin", "transformers", "pytorch_model.bin", "state_dict"),
)}
