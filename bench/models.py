"""The models of the benchmark, with weights that are random but the same in every process."""
import torch

# torchvision's classifiers, transformers' GPT-2, and the two that bench/scenario.py needs besides.
# Libraries are imported only by the model that needs them: torchvision and transformers belong to
# different PyTorches.
CLASSIFIERS = ("vgg19", "resnet101", "resnet152", "vit_b_16", "mobilenet_v2", "squeezenet1_1")
NAMES = (*CLASSIFIERS, "gpt2", "yolov3", "fcn_resnet101")
PROMPT_TOKENS = 32

# Allocations below this size are never streamed by swapnet (they go to the real allocator).
STREAMABLE_BYTES = 64 * 1024


class Segmenter(torch.nn.Module):
    """A torchvision segmentation model, both of whose outputs are one tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return torch.cat([output.flatten(1) for output in self.model(images).values()], 1)


class LanguageModel(torch.nn.Module):
    """GPT-2 small on one prompt, without a key-value cache."""

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        self.model = GPT2LMHeadModel(GPT2Config())

    def forward(self, tokens):
        return self.model(tokens, use_cache=False).logits


def build(name):
    """An ordinary model: what any program gets from a library, with seeded random weights."""
    torch.manual_seed(0)
    if name == "gpt2":
        return LanguageModel().eval()
    if name == "yolov3":
        import yolov3
        return yolov3.YoloV3().eval()
    import torchvision
    if name == "fcn_resnet101":
        return Segmenter(torchvision.models.segmentation.fcn_resnet101(
            weights=None, weights_backbone=None, aux_loss=True)).eval()
    model = getattr(torchvision.models, name)(weights=None)
    if name == "vit_b_16":
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # zero by default: so would be every output
    return model.eval()


def build_untouched(name):
    """The same model whose large tensors were allocated but never written.

    As torch.nn.utils.skip_init does for one module: without the init functions no page of the
    large tensors is ever touched, so none is charged to a cgroup. The caller points every
    parameter at other memory afterwards."""
    if name == "gpt2":
        with torch.device("meta"):
            model = build(name)
        return model.to_empty(device="cpu")
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
    if name == "gpt2":
        return torch.randint(0, 50257, (1, PROMPT_TOKENS), generator=generator)
    side = 416 if name == "yolov3" else 224
    return torch.rand(1, 3, side, side, generator=generator)


def tensor_bytes(tensor):
    return tensor.numel() * tensor.element_size()


def weight_bytes(model):
    """(s, e): bytes of all parameters and buffers, tied ones once, and of those large enough to
    be streamed."""
    tensors = {tensor.data_ptr(): tensor for tensor in model.state_dict().values()}
    sizes = [tensor_bytes(tensor) for tensor in tensors.values()]
    return sum(sizes), sum(size for size in sizes if size >= STREAMABLE_BYTES)
