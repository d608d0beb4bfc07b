"""Language models with random weights in bfloat16, and the shapes of published ones."""
import json
import random
import struct
from pathlib import Path

import torch

PROMPT_TOKENS = 16
# Of a mixture's tokens, those of one kind of text: the first experts get most of them. A tenth of all goes anywhere.
SKEW_PART, SKEW_ANYWHERE = 4, 0.1
ROUTERS = ("own", "uniform", "skewed")


def _smollm_360m():
    """SmolLM2-360M, 0.7 GB: a Llama with few words."""
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM, LlamaConfig(
        vocab_size=49152, hidden_size=960, intermediate_size=2560, num_hidden_layers=32, num_attention_heads=15,
        num_key_value_heads=5, tie_word_embeddings=True, max_position_embeddings=2048, bos_token_id=0, eos_token_id=0,
        pad_token_id=0)


def _qwen_05b():
    """Qwen2.5-0.5B with a quarter of its words, 0.8 GB."""
    from transformers import Qwen2Config, Qwen2ForCausalLM
    return Qwen2ForCausalLM, Qwen2Config(
        vocab_size=37984, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=2048, bos_token_id=0, eos_token_id=0,
        pad_token_id=0)


def _olmoe():
    """OLMoE-1B-7B, whose experts have 8 and 4 MiB: 2 of its 16 layers, 16 of 64 experts, 2 of 8 of them a token."""
    from transformers import OlmoeConfig, OlmoeForCausalLM
    return OlmoeForCausalLM, OlmoeConfig(
        vocab_size=4096, hidden_size=2048, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=16, num_experts=16, num_experts_per_tok=2, tie_word_embeddings=False,
        max_position_embeddings=2048, bos_token_id=0, eos_token_id=0, pad_token_id=0)


def _mixtral():
    """Mixtral-8x7B with a quarter of its width, so that experts have 14 and 7 MiB; 3 of its 32 layers."""
    from transformers import MixtralConfig, MixtralForCausalLM
    return MixtralForCausalLM, MixtralConfig(
        vocab_size=4096, hidden_size=1024, intermediate_size=3584, num_hidden_layers=3, num_attention_heads=8,
        num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=False,
        max_position_embeddings=2048, bos_token_id=0, eos_token_id=0, pad_token_id=0)


def _llama_60m():
    """A Llama of 0.12 GB."""
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM, LlamaConfig(
        vocab_size=8192, hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=12,
        num_key_value_heads=12, tie_word_embeddings=True, max_position_embeddings=2048, bos_token_id=0, eos_token_id=0,
        pad_token_id=0)


def _tiny():
    """For tests."""
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM, LlamaConfig(
        vocab_size=2048, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=8, bos_token_id=0, eos_token_id=0, pad_token_id=0)


MODELS = {"smollm_360m": _smollm_360m, "qwen_05b": _qwen_05b, "olmoe": _olmoe, "mixtral": _mixtral,
          "llama_60m": _llama_60m, "tiny": _tiny}


def save_checkpoint(name, directory):
    """Made once: every later run loads the same. In several files, as large models are published."""
    if (directory / "config.json").exists():
        return
    torch.manual_seed(0)
    made, config = MODELS[name]()
    torch.set_default_dtype(torch.bfloat16)
    model = made(config).eval()
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(directory, max_shard_size="200MB")


def load(name, directory):
    made, _ = MODELS[name]()
    return made.from_pretrained(directory, dtype=torch.bfloat16).eval()


def load_mapped(name, directory):
    """Every weight is a slice of a private mapping of its safetensors file, so the kernel decides which pages stay."""
    made, config = MODELS[name]()
    weights = {}
    for path in sorted(Path(directory).glob("*.safetensors")):
        with open(path, "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        mapped = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=path.stat().st_size)
        for key, entry in header.items():
            first = (8 + size + entry["data_offsets"][0]) // torch.bfloat16.itemsize
            like = torch.empty(entry["shape"], dtype=torch.bfloat16, device="meta")
            weights[key] = torch.empty(0, dtype=torch.bfloat16).set_(mapped, first, like.shape, like.stride())
    with torch.device("meta"):
        model = made(config)
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # whose numbers are in no checkpoint
    return model.eval()


def load_offloaded(name, directory, room, offload):
    """As accelerate does it: layers that have no room in memory come from the disk each time."""
    made, _ = MODELS[name]()
    return made.from_pretrained(directory, dtype=torch.bfloat16, device_map="auto", max_memory={"cpu": room},
                                offload_folder=offload).eval()


def make_prompt(name, index, tokens=PROMPT_TOKENS):
    generator = torch.Generator().manual_seed(1000 + index)
    return torch.randint(1, MODELS[name]()[1].vocab_size, (1, tokens), generator=generator)


class Router:
    """Chooses experts in place of the model's own router, whose weights are random and say nothing of a trained one's
    choices; and counts what was chosen, by layer, token for token."""

    def __init__(self, model, kind):
        self.kind, self.random, self.chosen = kind, random.Random(), []
        self.gates = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
        for layer, gate in enumerate(self.gates):
            gate.register_forward_hook(lambda gate, _, output, layer=layer: self._route(gate, layer, output))

    def begin(self, index):
        self.random.seed(index)
        self.chosen = []

    def _choose(self, gate):
        """The most that one token can name, each once."""
        found = []
        while len(found) < gate.top_k:
            most = gate.num_experts
            if self.kind == "skewed" and self.random.random() >= SKEW_ANYWHERE:
                most = max(most // SKEW_PART, gate.top_k)
            expert = self.random.randrange(most)
            if expert not in found:
                found.append(expert)
        return found

    def _route(self, gate, layer, output):
        logits, scores, indices = output
        if self.kind != "own":
            indices = torch.tensor([self._choose(gate) for _ in range(len(indices))])
            scores = torch.full_like(scores, 1 / gate.top_k)
        self.chosen.append((layer, sorted(set(indices.flatten().tolist()))))
        return logits, scores, indices


def expert_bytes(model):
    """Of one expert in a layer: all tensors of a layer's mixture have an equal share of each; 0: no mixture."""
    for module in model.modules():
        if hasattr(module, "gate_up_proj") and module.gate_up_proj.dim() == 3:
            return sum(tensor.nbytes // tensor.shape[0] for tensor in (module.gate_up_proj, module.down_proj))
    return 0
