#!/usr/bin/env python3
"""One program of bench/engine.py, serving inferences on request (serving.py). It knows nothing of swapnet.

plain      a model that is built and used
idle       the same, with a second Python thread that waits for something for ever
compiled   the same, with torch.compile
generate   from_pretrained and generate, a token at a time, with tqdm's monitor alive
alone      the same without that thread
"""
import argparse
import hashlib
import threading
from pathlib import Path

import torch

import models
import serving
import weights
from tensor_peak import peak_tensor_bytes

PROGRAMS = ("plain", "idle", "compiled", "generate", "alone")
GENERATORS = ("gpt2_like", "llama_like")
PROMPT_TOKENS, NEW_TOKENS, VOCABULARY = 8, 16, 16384


def generator_of(name):
    """Half as deep as GPT-2 small, and a Llama of the same size: both read some 15 MiB for a layer of a token."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    ends = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    if name == "gpt2_like":
        return GPT2LMHeadModel, GPT2Config(n_layer=6, n_embd=768, n_head=12, **ends)
    return LlamaForCausalLM, LlamaConfig(num_hidden_layers=6, hidden_size=768, intermediate_size=2048,
                                         num_attention_heads=12, num_key_value_heads=12, **ends)


def save_checkpoint(name, directory):
    """Random weights, saved once: every later run loads the same."""
    if (directory / "model.safetensors").exists():
        return
    torch.manual_seed(0)
    made, config = generator_of(name)
    made(config).eval().save_pretrained(directory)


def load_generator(name, directory, with_monitor):
    """A function of token numbers, and the model."""
    import tqdm
    if not with_monitor:
        tqdm.tqdm.monitor_interval = 0
    made, _ = generator_of(name)
    model = made.from_pretrained(directory).eval()
    if with_monitor:
        # One that is never finished: a program that shows its progress has the thread for as long as it runs.
        model.progress = tqdm.tqdm(total=1, disable=False)
    if with_monitor != any(isinstance(thread, tqdm.TMonitor) for thread in threading.enumerate()):
        raise SystemExit("engine: tqdm's monitor is not as it should be")

    def generate(tokens):
        found = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                               min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, pad_token_id=0,
                               return_dict_in_generate=True, output_logits=True)
        return torch.cat(found.logits)
    return generate, model


def make_prompt(index):
    generator = torch.Generator().manual_seed(1000 + index)
    return torch.randint(1, VOCABULARY, (1, PROMPT_TOKENS), generator=generator)


def build(args):
    """A function of an input, a function of its number that makes one, and the model."""
    if args.model in GENERATORS:
        return *load_generator(args.model, Path(args.checkpoint), args.program == "generate"), make_prompt
    if args.program == "idle":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    model = models.build(args.model)
    forward = torch.compile(model) if args.program == "compiled" else model
    return forward, model, lambda index: models.make_input(args.model, index)


def digest(output):
    return {"hash": hashlib.sha256(output.contiguous().numpy().tobytes()).hexdigest()}


def measure(args, answers):
    """Sizes for the accounting, and a file to measure the disk with."""
    if args.model in GENERATORS:
        save_checkpoint(args.model, Path(args.checkpoint))
    forward, model, make_input = build(args)
    forward(make_input(0))
    _, activations = peak_tensor_bytes(lambda: forward(make_input(0)))
    total, streamable = models.weight_bytes(model)
    if args.weights:
        weights.save(model, args.weights)
    serving.say(answers, {"weight_bytes": total, "streamable_bytes": streamable, "activation_bytes": activations,
                          "peak_alloc_bytes": total + activations, "threads": torch.get_num_threads(),
                          "torch": torch.__version__})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=(*models.NAMES, *GENERATORS))
    parser.add_argument("--program", required=True, choices=PROGRAMS)
    parser.add_argument("--checkpoint", help="directory of a model that from_pretrained loads")
    parser.add_argument("--measure", action="store_true", help="say what the accounting needs, and end")
    parser.add_argument("--weights", help="where to write the weights while measuring")
    parser.add_argument("--threads", type=int, help="intra-operator threads")
    args = parser.parse_args()
    answers = serving.take_stdout()
    if args.threads:
        torch.set_num_threads(args.threads)
    with torch.no_grad():
        if args.measure:
            measure(args, answers)
            return
        forward, _, make_input = build(args)
        serving.say(answers, {})
        serving.serve(answers, lambda index: serving.infer(forward, make_input(index), digest))


if __name__ == "__main__":
    main()
