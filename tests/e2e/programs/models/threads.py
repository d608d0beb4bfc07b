"""threads.py OUT two-models|one-model|tall|thread-per-inference|thread-per-batch [INFERENCES]."""
import threading

import torch

from _models import batch, convnet, image, mlp, rows, tall
from _record import begin

record, args = begin()
mode, inferences = args[0], int(args[1]) if len(args) > 1 else 8


def infer(name, model, data, inputs):
    torch.set_num_threads(1)  # per thread: two threads of two would only fight over the cores
    with torch.no_grad():
        for i in inputs:
            record.tensor(f"{name}{i}", model(data(i)))


def run(*threads):
    threads = [threading.Thread(target=infer, args=arguments) for arguments in threads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if mode == "two-models":
    run(("mlp", mlp(depth=16), rows, range(inferences)), ("convnet", convnet(depth=12), image, range(inferences)))
elif mode in ("one-model", "tall"):
    shared = mlp() if mode == "one-model" else tall()
    run(("a", shared, rows, range(inferences)), ("b", shared, rows, range(inferences)))
else:
    model = mlp()
    for k in range(inferences):
        run(("thread", model, batch if mode == "thread-per-batch" else rows, [k]))
record.save()
