#!/usr/bin/env python3
"""One program that generates, on request (bench/lib/serving.py): from_pretrained and generate, greedily, with a key-value
cache. It knows nothing of swapnet. An answer tells the time and the bytes read of each token, the first of which the prompt
makes, and what a mixture's router chose. --variant says how the weights come: as the program has them, or mapped, or by
accelerate, or with reads beside (bench/lib/beside.py)."""
import argparse
import hashlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / "lib")]

import torch

import beside
import language_models
import serving
from tensor_peak import peak_tensor_bytes

STREAMED_LEAST = 64 << 10  # a smaller weight stays in memory


class Streamer:
    """What generate calls for the prompt and then for each token."""

    def begin(self):
        self.times, self.cpu, self.reads = [], [], []

    def put(self, _):
        self.times.append(time.perf_counter())
        self.cpu.append(time.process_time())
        self.reads.append(serving.read_bytes())

    def end(self):
        pass

    def steps(self):
        return {f"token_{what}": [b - a for a, b in zip(values, values[1:])]
                for what, values in (("seconds", self.times), ("cpu", self.cpu), ("bytes", self.reads))}


def digest(output):
    logits = torch.cat(output.logits).float().contiguous()
    return {"hash": hashlib.sha256(logits.numpy().tobytes()).hexdigest()}


def load(args):
    if args.variant == "mmap":
        return language_models.load_mapped(args.model, args.checkpoint)
    if args.variant == "accelerate":
        return language_models.load_offloaded(args.model, args.checkpoint, args.bytes, args.checkpoint + ".offload")
    model = language_models.load(args.model, Path(args.checkpoint))
    if args.compile:
        for layer in model.model.layers:
            layer.mlp = torch.compile(layer.mlp, dynamic=False)
    if args.variant == "beside":
        for tensor in model.parameters():  # from_pretrained has mapped them, which is slower than memory of their own
            tensor.data = tensor.data.clone()
        file = sorted(Path(args.checkpoint).glob("*.safetensors"))[0]
        beside.Beside(model, str(file), args.bytes, STREAMED_LEAST, args.helper)
    return model


def mapped_bytes(tensors):
    """Of tensors that lie in files."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        places = [[int(part, 16) for part in line.split()[0].split("-")] for line in maps if ".safetensors" in line]
    return sum(size for at, size in tensors.items() if any(first <= at < end for first, end in places))


def facts_of(model, router):
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in [*model.parameters(), *model.buffers()]}
    return {"weight_bytes": sum(tensors.values()), "mapped_bytes": mapped_bytes(tensors),
            "streamable_bytes": sum(size for size in tensors.values() if size >= STREAMED_LEAST),
            "expert_bytes": language_models.expert_bytes(model), "layers": len(router.gates),
            "experts": max([gate.num_experts for gate in router.gates], default=0), "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=language_models.MODELS)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--router", default="own", choices=language_models.ROUTERS)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=language_models.PROMPT_TOKENS, help="tokens of a prompt")
    parser.add_argument("--variant", default="plain", choices=("plain", "beside", "mmap", "accelerate"))
    parser.add_argument("--bytes", type=int, help="beside: read in each pass; accelerate: weights in memory")
    parser.add_argument("--helper", help="what bench/native/beside.c was made into")
    parser.add_argument("--compile", action="store_true", help="torch.compile what follows attention in each layer")
    parser.add_argument("--make", action="store_true", help="make the checkpoint, and end")
    parser.add_argument("--measure", action="store_true", help="tell the peak of other tensors, too")
    args = parser.parse_args()
    answers = serving.take_stdout()
    if args.make:
        language_models.save_checkpoint(args.model, Path(args.checkpoint))
        return
    with torch.no_grad():
        model = load(args)
        router, streamer = language_models.Router(model, args.router), Streamer()

        def generate(index):
            router.begin(index)
            streamer.begin()
            tokens = language_models.make_prompt(args.model, index, args.prompt)
            return model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                                  min_new_tokens=args.tokens, max_new_tokens=args.tokens, pad_token_id=0,
                                  return_dict_in_generate=True, output_logits=True, streamer=streamer)

        facts = facts_of(model, router)
        if args.measure:
            facts["activation_bytes"] = peak_tensor_bytes(lambda: generate(0))[1]
        serving.say(answers, facts)
        serving.serve(answers, lambda index: serving.infer(
            generate, index, lambda output: {**digest(output), **streamer.steps(), "chosen": router.chosen}))


if __name__ == "__main__":
    main()
