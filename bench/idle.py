"""What swapnet costs a program that has no need of it: fits its budget, and uses no CUDA.

    python3 bench/idle.py [--rounds N] [--python PYTHON] [--build build/release]

Each round starts the program plainly, with swapnet, and with swapnet and a CUDA runtime in the process that nothing is
done with, as every PyTorch that is built for CUDA brings one (here the tests' stand-in). Prints medians over all rounds,
and the least and the most.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent / "lib"))

import pythons

REPO = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ("start and import, s", "add of 64 numbers, us", "linear 8 x 512, us")

PROGRAM = """
import ctypes, sys, time
if sys.argv[1]:
    ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
import torch
imported = time.time()
torch.set_num_threads(1)
small, x, linear = torch.ones(64), torch.ones(8, 512), torch.nn.Linear(512, 512)

def microseconds(call, n):
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        for _ in range(n):
            call()
        times.append((time.perf_counter() - begin) / n * 1e6)
    return sorted(times)[4]

with torch.no_grad():
    print(imported, microseconds(lambda: torch.add(small, small), 20000), microseconds(lambda: linear(x), 2000))
"""


def measure(python, runtime, library):
    env = {name: value for name, value in os.environ.items() if not name.startswith("SWAPNET") and name != "LD_PRELOAD"}
    if library:
        env |= {"LD_PRELOAD": str(library), "SWAPNET_BUDGET": "1G"}
    begin = time.time()
    done = subprocess.run([python, "-c", PROGRAM, str(runtime)], env=env, stdout=subprocess.PIPE, text=True, check=True)
    imported, add, linear = map(float, done.stdout.split())
    return imported - begin, add, linear


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--python", help="interpreter with torch; default: this or the system's")
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build" / "release")
    options = parser.parse_args()
    options.python = pythons.with_torchvision(options.python)
    library, runtime = options.build / "lib" / "libswapnet.so", options.build / "tests" / "fakes" / "libcudart.so.12"
    for path in library, runtime:
        if not path.exists():
            sys.exit(f"idle: {path} is missing: build the release preset first")
    variants = {"plain": ("", None), "swapnet": ("", library), "swapnet, CUDA runtime": (runtime, library)}
    times = {name: [] for name in variants}
    for i in range(options.rounds + 1):
        for name, variant in variants.items():
            taken = measure(options.python, *variant)
            if i:  # the first round fills the page cache
                times[name].append(taken)
        print(f"round {i} of {options.rounds}", file=sys.stderr)
    print("| |", " | ".join(COLUMNS), "|")
    print("|:--|" + "--:|" * len(COLUMNS))
    for name, rows in times.items():
        cells = (f"{statistics.median(column):.2f} ({min(column):.2f} to {max(column):.2f})" for column in zip(*rows))
        print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
