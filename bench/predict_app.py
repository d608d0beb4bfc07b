"""predict_app.py MODEL INFERENCES THREADS: prints the median latency in ms of the later half of the inferences."""
import statistics
import sys
import time
import torch
import torchvision

name, inferences, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
torch.set_num_threads(threads)
options = {"init_weights": False} if name.startswith("vgg") else {}
model = getattr(torchvision.models, name)(**options).eval()
image, times = torch.randn(1, 3, 224, 224), []
with torch.no_grad():
    for _ in range(inferences):
        begin = time.perf_counter()
        model(image)
        times.append((time.perf_counter() - begin) * 1e3)
print(statistics.median(times[inferences // 2:]), flush=True)
