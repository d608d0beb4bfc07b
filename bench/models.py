"""The models of the benchmark, with weights that are random but the same in every process."""
import torch
import torchvision

import yolov3

# torchvision's classifiers, and the two that bench/scenario.py needs besides.
CLASSIFIERS = ("vgg19", "resnet101", "resnet152", "vit_b_16", "mobilenet_v2")
NAMES = (*CLASSIFIERS, "yolov3", "fcn_resnet101")

# Allocations below this size are never streamed by swapnet (they go to the real allocator).
STREAMABLE_BYTES = 64 * 1024


class Segmenter(torch.nn.Module):
    """A torchvision segmentation model, both of whose outputs are one tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return torch.cat([output.flatten(1) for output in self.model(images).values()], 1)


def build(name):
    """An ordinary model: what any program gets from torchvision, with seeded random weights."""
    torch.manual_seed(0)
    if name == "yolov3":
        return yolov3.YoloV3().eval()
    if name == "fcn_resnet101":
        return Segmenter(torchvision.models.segmentation.fcn_resnet101(
            weights=None, weights_backbone=None, aux_loss=True)).eval()
    return getattr(torchvision.models, name)(weights=None).eval()


def build_untouched(name):
    """The same model whose large tensors were allocated but never written.

    As torch.nn.utils.skip_init does for one module: without the init functions no page of the
    large tensors is ever touched, so none is charged to a cgroup. The caller points every
    parameter at other memory afterwards."""
    saved = {key: value for key, value in vars(torch.nn.init).items()
             if key.endswith("_") and not key.startswith("_") and callable(value)}
    try:
        for key in saved:
            setattr(torch.nn.init, key, lambda tensor, *args, **kwargs: tensor)
        return build(name)
    finally:
        for key, value in saved.items():
            setattr(torch.nn.init, key, value)


def make_input(name, index):
    """A few different inputs, so that an output left over from an earlier pass is noticed."""
    generator = torch.Generator().manual_seed(1000 + index)
    side = 416 if name == "yolov3" else 224
    return torch.rand(1, 3, side, side, generator=generator)


def tensor_bytes(tensor):
    return tensor.numel() * tensor.element_size()


def weight_bytes(model):
    """(s, e): bytes of all parameters and buffers, and of those large enough to be streamed."""
    sizes = [tensor_bytes(tensor) for tensor in model.state_dict().values()]
    return sum(sizes), sum(size for size in sizes if size >= STREAMABLE_BYTES)
