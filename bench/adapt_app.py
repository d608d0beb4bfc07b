"""adapt_app.py MODEL THREADS: infers until its standard input ends; prints how often, and whether the bits were equal."""
import hashlib
import select
import sys

import torch

import models

name, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)
model, image, bits, inferences = models.build(name), models.make_input(name, 0), set(), 0
with torch.no_grad():
    while not select.select([sys.stdin], [], [], 0)[0]:
        bits.add(hashlib.sha256(model(image).numpy().tobytes()).hexdigest())
        inferences += 1
        if inferences == 8:
            print("ready", flush=True)
print(inferences, "equal" if len(bits) == 1 else "DIFFERENT", *sorted(bits), flush=True)
