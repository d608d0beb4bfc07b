"""The models of the benchmark, with weights that are random but the same in every process."""
import torch

# torchvision's classifiers, transformers' GPT-2 and BERT, and the two that bench/scenario.py needs besides.
# Libraries are imported only by the model that needs them: torchvision and transformers belong to
# different PyTorches.
CLASSIFIERS = ("vgg19", "resnet101", "resnet152", "vit_b_16", "vit_l_32", "mobilenet_v2", "squeezenet1_1")
# And how many different tokens there are.
OF_TOKENS = {"gpt2": 50257, "bert_base": 30522}
NAMES = (*CLASSIFIERS, *OF_TOKENS, "yolov3", "fcn_resnet101")
PROMPT_TOKENS = {"gpt2": 32, "bert_base": 48}

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


class Encoder(torch.nn.Module):
    """BERT-base on one text."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertModel
        self.model = BertModel(BertConfig())

    def forward(self, tokens):
        # Its own places and types are buffers that are in no state_dict, so that build_untouched would leave them empty.
        places = torch.arange(tokens.shape[1]).unsqueeze(0)
        return self.model(tokens, position_ids=places, token_type_ids=torch.zeros_like(tokens)).last_hidden_state


_declared = []


def import_torchvision():
    """The wheel for PyTorch 2.13 brings operators for GPUs, which cannot be loaded beside a PyTorch for processors only.
    No model here needs one, but importing the library asks for two of them by name."""
    if torch.__version__ >= "2" and not _declared:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)  # they go with it
    import torchvision
    return torchvision


def build(name):
    """An ordinary model: what any program gets from a library, with seeded random weights."""
    torch.manual_seed(0)
    if name == "gpt2":
        return LanguageModel().eval()
    if name == "bert_base":
        return Encoder().eval()
    if name == "yolov3":
        import yolov3
        return yolov3.YoloV3().eval()
    torchvision = import_torchvision()
    if name == "fcn_resnet101":
        return Segmenter(torchvision.models.segmentation.fcn_resnet101(
            weights=None, weights_backbone=None, aux_loss=True)).eval()
    model = getattr(torchvision.models, name)(weights=None)
    if name.startswith("vit_"):
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # zero by default: so would be every output
    return model.eval()


def build_untouched(name):
    """The same model whose large tensors were allocated but never written.

    As torch.nn.utils.skip_init does for one module: without the init functions no page of the
    large tensors is ever touched, so none is charged to a cgroup. The caller points every
    parameter at other memory afterwards."""
    if name in OF_TOKENS:
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
    if name in OF_TOKENS:
        return torch.randint(0, OF_TOKENS[name], (1, PROMPT_TOKENS[name]), generator=generator)
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
