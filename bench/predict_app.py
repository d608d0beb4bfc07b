"""predict_app.py MODEL INFERENCES THREADS: prints the median latency in ms of the later half of the inferences."""
import statistics
import sys
import time

import torch

import models

name, inferences, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
model, data, times = models.build(name), models.make_input(name, 0), []
with torch.no_grad():
    for _ in range(inferences):
        begin = time.perf_counter()
        model(data)
        times.append((time.perf_counter() - begin) * 1e3)
print(statistics.median(times[inferences // 2:]), flush=True)
