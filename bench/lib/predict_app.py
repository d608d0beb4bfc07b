"""predict_app.py MODEL THREADS: a program that answers each line of stdin, a number of inferences, with how long each of
them took, in seconds, as a line of JSON; the first answer comes when the model is there. It ends with its input. 0 threads
are PyTorch's own number of them."""
import json
import sys
import time

import torch

import models

name, threads = sys.argv[1], int(sys.argv[2])
if threads:
    torch.set_num_threads(threads)
model, data = models.build(name), models.make_input(name, 0)
print("[]", flush=True)
with torch.no_grad():
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            model(data)
            times.append(time.perf_counter() - begin)
        print(json.dumps(times), flush=True)
