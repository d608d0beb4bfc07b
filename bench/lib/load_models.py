"""The models of the loading benchmark, their checkpoints, and how an ordinary program loads them.

Weights are those of the model's own random initialisation. Libraries are imported only by the
model that needs them: torchvision and transformers belong to different PyTorches."""
import os

import torch

from load_list import ALONE

PROMPT_TOKENS = 32
# Allocations below this size are never streamed by swapnet: they come from the checkpoint as in any program.
STREAMABLE_BYTES = 64 * 1024


def _config(name, narrow=False):
    from transformers import GPT2Config, LlamaConfig
    if name.startswith("gpt2"):  # medium
        sizes = {"n_embd": 32, "vocab_size": 64, "n_positions": 64} if narrow else {"n_embd": 1024}
        return GPT2Config(n_layer=24, n_head=16, **sizes)
    sizes = ((64, 32, 32) if narrow else (32000, 1024, 2816))
    return LlamaConfig(num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16,
                       **dict(zip(("vocab_size", "hidden_size", "intermediate_size"), sizes)))


def _model_class(name):
    from transformers import GPT2LMHeadModel, LlamaForCausalLM
    return GPT2LMHeadModel if name.startswith("gpt2") else LlamaForCausalLM


def construct(model, seed=0, narrow=False):
    """What a program does before it loads: a model with weights of its own."""
    torch.manual_seed(seed)
    if model.kind == "torchvision":
        import torchvision
        built = getattr(torchvision.models, model.name)()
    else:
        built = _model_class(model.name)(_config(model.name, narrow))
    return built.eval()


def construct_alone(model):
    """The same modules and tensors, those of which nothing but their size makes loading longer with
    hardly a number in them: what loading costs then is Python's and PyTorch's own. from_pretrained
    goes by the sizes of a configuration, load_state_dict does not."""
    if model.loading == "from_pretrained":
        return construct(model, narrow=True)
    built = construct(model)
    for tensor in [*built.parameters(), *built.buffers()]:
        if tensor.numel() * tensor.element_size() >= STREAMABLE_BYTES:
            tensor.data = tensor.data.new_zeros([1] * tensor.dim())
    return built


def alone(directory):
    """Where the checkpoint of such a model is, beside the real one."""
    return directory / ALONE


def construct_on_meta(model, narrow=False):
    """The same without memory, for loaders that assign; tensors that are in no checkpoint are
    made for real. from_pretrained makes its model in this way."""
    with torch.device("meta"):
        built = construct(model, narrow=narrow)
    if model.kind == "transformers" and model.name.startswith("llama"):
        built.model.rotary_emb = type(built.model.rotary_emb)(built.config)
    return built


def from_pretrained(model, directory, **options):
    return _model_class(model.name).from_pretrained(directory, **options).eval()


def save(model, directory):
    """Write the checkpoint, and for from_pretrained what lies beside it; synced to the disk."""
    _save(model, construct_alone(model), alone(directory))
    # Another seed than that of construct, or a loader that did nothing would go unnoticed.
    _save(model, construct(model, seed=1), directory)


def _save(model, built, directory):
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / model.file
    if model.file.endswith(".safetensors"):
        built.save_pretrained(directory)
    else:
        if model.kind == "transformers":
            built.config.save_pretrained(directory)
        torch.save(built.state_dict(), path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def forward(model, built):
    """A function from input to one tensor."""
    if model.kind == "torchvision":
        return built
    return lambda tokens: built(tokens, use_cache=False).logits


def make_input(model, index):
    """A few different inputs, so that an output left over from an earlier pass is noticed."""
    generator = torch.Generator().manual_seed(1000 + index)
    if model.kind == "torchvision":
        return torch.rand(1, 3, 224, 224, generator=generator)
    return torch.randint(0, 32000, (1, PROMPT_TOKENS), generator=generator)


def streamable(built, least):
    """(bytes of all weights, of those of at least `least` bytes), each storage once."""
    seen, total, large = set(), 0, 0
    for tensor in [*built.parameters(), *built.buffers()]:
        size = tensor.numel() * tensor.element_size()
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        total += size
        large += size if size >= least else 0
    return total, large
