"""The models of the benchmark, with weights that are random but the same in every process."""
import torch
import torchvision

NAMES = ("vgg19", "resnet101", "resnet152", "vit_b_16", "mobilenet_v2")

# Allocations below this size are never streamed by swapnet (they go to the real allocator).
STREAMABLE_BYTES = 64 * 1024


def build(name):
    """An ordinary model: what any program gets from torchvision, with seeded random weights."""
    torch.manual_seed(0)
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


def make_input(index):
    """A few different inputs, so that an output left over from an earlier pass is noticed."""
    generator = torch.Generator().manual_seed(1000 + index)
    return torch.rand(1, 3, 224, 224, generator=generator)


def tensor_bytes(tensor):
    return tensor.numel() * tensor.element_size()


def weight_bytes(model):
    """(s, e): bytes of all parameters and buffers, and of those large enough to be streamed."""
    sizes = [tensor_bytes(tensor) for tensor in model.state_dict().values()]
    return sum(sizes), sum(size for size in sizes if size >= STREAMABLE_BYTES)
