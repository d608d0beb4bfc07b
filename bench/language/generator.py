#!/usr/bin/env python3
"""One program that generates, on request (bench/lib/serving.py): from_pretrained and generate, greedily, with a key-value
cache. It knows nothing of swapnet. An answer tells the time and the bytes read of each token, the first of which the prompt
makes, and what a mixture's router chose."""
import argparse
import hashlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / "lib")]

import torch

import language_models
import serving


class Streamer:
    """What generate calls for the prompt and then for each token."""

    def begin(self):
        self.times, self.reads = [], []

    def put(self, _):
        self.times.append(time.perf_counter())
        self.reads.append(serving.read_bytes())

    def end(self):
        pass

    def steps(self):
        return {"token_seconds": [b - a for a, b in zip(self.times, self.times[1:])],
                "token_bytes": [b - a for a, b in zip(self.reads, self.reads[1:])]}


def digest(output):
    logits = torch.cat(output.logits).float().contiguous()
    return {"hash": hashlib.sha256(logits.numpy().tobytes()).hexdigest()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=language_models.MODELS)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--router", default="own", choices=language_models.ROUTERS)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--make", action="store_true", help="make the checkpoint, and end")
    args = parser.parse_args()
    answers = serving.take_stdout()
    if args.make:
        language_models.save_checkpoint(args.model, Path(args.checkpoint))
        return
    with torch.no_grad():
        model = language_models.load(args.model, Path(args.checkpoint))
        router, streamer = language_models.Router(model, args.router), Streamer()
        tensors = {tensor.data_ptr(): tensor.nbytes for tensor in [*model.parameters(), *model.buffers()]}

        def generate(index):
            router.begin(index)
            streamer.begin()
            tokens = language_models.make_prompt(args.model, index)
            return model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                                  min_new_tokens=args.tokens, max_new_tokens=args.tokens, pad_token_id=0,
                                  return_dict_in_generate=True, output_logits=True, streamer=streamer)

        serving.say(answers, {"weight_bytes": sum(tensors.values()), "expert_bytes": language_models.expert_bytes(model),
                              "layers": len(router.gates), "experts": max([gate.num_experts for gate in router.gates], default=0),
                              "torch": torch.__version__})
        serving.serve(answers, lambda index: serving.infer(
            generate, index, lambda output: {**digest(output), **streamer.steps(), "chosen": router.chosen}))


if __name__ == "__main__":
    main()
