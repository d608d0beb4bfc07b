#!/usr/bin/env python3
"""What publishing weights at their own addresses costs, for the tensors that real models have (bench/native/publish.c).

    cmake --build build/release --target bench-publish
    python3 bench/publish.py [--models vgg19,gpt2] [--json out.json]

Each round of a model measures some of its inferences in memory and then the cost of every variant, in turns. The share is
that of one inference in which three quarters of the weights come and go. Costs are medians over the rounds, and
processor time of the thread. An inference counts as its wall time, or as its processor time divided by the threads where that
is less, so that other programs on the machine make no share smaller.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "lib"))

import pythons
import variants
from options import list_of
from plan import MIB
from table import markdown_grid

MODELS = ("vgg19", "resnet152", "vit_b_16", "mobilenet_v2", "gpt2", "bert_base", "vit_l_32")
PROGRAM = variants.ROOT / "build" / "release" / "bin" / "bench-publish"
UNIFORM_KIB = (512, 1024, 2048, 8192, 65536)
UNIFORM_BYTES = 256 * MIB
READ_SHARE = 0.75
THREADS, INFERENCES = 2, 5
# Those of the table, by the names that bench-publish gives them.
SHOWN = ("tensors, 4 KiB pages", "tensors, huge, not congruent", "tensors, huge, congruent", "chunks", "runs of 8 MiB",
         "runs of 64 MiB", "chunks, extents alike", "runs of 8 MiB, extents alike")


def serve(name, threads):
    """One model: the sizes of its tensors in the order of construction, then for each line of some inferences the fastest,
    and the least processor time divided by the threads."""
    import torch
    import models
    torch.set_num_threads(threads)
    with torch.no_grad():
        model = models.build_untouched(name)  # random weights take minutes, and their values no time in an inference
        if name in models.OF_TOKENS:
            model.model.tie_weights()  # GPT-2's first and last layer; memory of its own for each tensor parts them
        for tensor in model.state_dict().values():
            tensor.fill_(0.01 if tensor.is_floating_point() else 0)
        tensors = {tensor.data_ptr(): tensor for tensor in model.state_dict().values()}
        sizes = [models.tensor_bytes(tensor) for tensor in tensors.values()]
        print(json.dumps([size for size in sizes if size >= models.STREAMABLE_BYTES]), flush=True)
        data = models.make_input(name, 0)
        model(data)
        for _ in sys.stdin:
            seconds, used = [], []
            for _ in range(INFERENCES):
                start, began = time.perf_counter(), time.process_time()
                model(data)
                seconds.append(time.perf_counter() - start)
                used.append((time.process_time() - began) / threads)
            print(json.dumps([min(seconds), min(used)]), flush=True)


class Model:
    def __init__(self, name, python):
        interpreter = pythons.PYTHON_213 if name in variants.TRANSFORMERS else python
        self.child = subprocess.Popen([interpreter, __file__, "--serve", name], stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.PIPE, env=pythons.plain_environment())
        self.sizes = self._answer()

    def _answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(f"publish: the model ended with exit code {self.child.wait()}")
        return json.loads(line)

    def inference(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return self._answer()

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def published(args, sizes):
    """{variant: what bench-publish says}."""
    argv = [args.program, args.dir, str(args.passes), *(["busy"] if args.busy else [])]
    done = subprocess.run(argv, input=" ".join(map(str, sizes)), text=True, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"publish: {args.program} ended with exit code {done.returncode}")
    return {found["variant"]: found for found in map(json.loads, done.stdout.splitlines())}


def merged(rounds):
    """Of several rounds one: medians."""
    return {variant: {**found, **{key: statistics.median(each[variant][key] for each in rounds)
                                  for key in ("pass_us", "us_per_mib")}}
            for variant, found in rounds[0].items()}


def of_model(args, name):
    model = Model(name, args.python)
    try:
        inferences, rounds = [], []
        for number in range(args.rounds):
            inferences.append(model.inference())
            rounds.append(published(args, model.sizes))
            print(f"publish: {name}: round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    finally:
        model.close()
    return {"model": name, "sizes": model.sizes, "variants": merged(rounds),
            "wall_s": min(wall for wall, _ in inferences), "inference_s": min(min(each) for each in inferences)}


def of_run(args, kib):
    sizes = [kib << 10] * (UNIFORM_BYTES // (kib << 10))
    return {"run_kib": kib, "variants": merged([published(args, sizes) for _ in range(args.rounds)])}


def share(row, variant):
    """Of an inference."""
    cost = row["variants"][variant]["us_per_mib"] * READ_SHARE * sum(row["sizes"]) / MIB
    return cost / 1e6 / row["inference_s"]


def uniform_table(rows):
    return markdown_grid(("us per MiB", *(f"{row['run_kib'] / 1024:g} MiB" for row in rows)), [
        (variant, *(f"{row['variants'][variant]['us_per_mib']:.1f}" for row in rows)) for variant in SHOWN])


def sizes_table(rows):
    return markdown_grid(("model", "MiB", "tensors", "in full chunks", "mappings per chunk", "inference ms"), [
        (row["model"], f"{sum(row['sizes']) / MIB:.0f}", str(len(row["sizes"])),
         f"{row['variants']['chunks']['full_share'] * 100:.1f} %", f"{row['variants']['chunks']['mappings_per_chunk']:.2f}",
         f"{row['inference_s'] * 1e3:.0f}") for row in rows])


def cost_table(rows):
    def cell(row, variant):
        found = row["variants"][variant]
        return f"{found['us_per_mib']:.1f}, {found['pass_us'] / 1e3:.1f} ms, {share(row, variant) * 100:.1f} %"
    return markdown_grid(("variant", *(row["model"] for row in rows)),
                         [(variant, *(cell(row, variant) for row in rows)) for variant in SHOWN])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=list_of(MODELS), default=list(MODELS), metavar="A,B")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=5, help="of bench-publish in a round")
    parser.add_argument("--busy", action="store_true", help="beside a thread that computes all the time")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    parser.add_argument("--python", help="interpreter with torchvision; default: this or the system's")
    parser.add_argument("--dir", default="/var/tmp", help="where the file of weights is made")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, THREADS)
        return
    args.python = pythons.with_torchvision(args.python)
    runs, rows = [of_run(args, kib) for kib in UNIFORM_KIB], []
    for name in args.models:
        rows.append(of_model(args, name))
        if args.json:  # after each model, so that a stopped run has those
            Path(args.json).write_text(json.dumps({"schema": 1, "runs": runs, "models": rows}, indent=1), encoding="utf-8")
    print("\n\n".join((uniform_table(runs), sizes_table(rows), cost_table(rows))))


if __name__ == "__main__":
    main()
