"""verified.py RECORD MODE: 24 layers, three inferences, and what MODE says. For `swapnetctl verify`.

family: in two threads, a forked child, and a child that is executed. other: one bit of the last layer's bias is another
under swapnet, from the second inference on. chance: the last two inferences are of random images. pool: two threads
share a queue of images. short: ends without saying goodbye. fail: ends badly.
"""
import os
import queue
import struct
import subprocess
import sys
import threading
import time

import torch

record, mode = sys.argv[1:3]
torch.manual_seed(0)
torch.set_num_threads(1)
if mode == "fail":
    sys.exit(3)
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(24)]).eval()
images = [torch.randn(1, 512) for _ in range(4)]


@torch.no_grad()
def infer(image):
    return model(image)


if mode == "family":
    threads = [threading.Thread(target=infer, args=(image,)) for image in images[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # MKL's allocator spins for ever in a child that is forked while a thread is ending, with or without swapnet: Python's
    # join returns before that.
    while any(os.path.exists(f"/proc/self/task/{thread.native_id}") for thread in threads):
        time.sleep(0.001)
    child = os.fork()
    if not child:
        infer(images[2])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    subprocess.run([sys.executable, __file__, record, "alone"], check=True)
elif mode == "pool":
    jobs = queue.Queue()
    for image in images * 4:
        jobs.put(image)

    def work():
        while True:
            try:
                infer(jobs.get_nowait())
            except queue.Empty:
                return
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
elif mode == "other":
    infer(images[0])
    if os.environ.get("SWAPNET") != "0":
        bias = model[-1].bias.detach().numpy()
        number, = struct.unpack("<I", bias[0].tobytes())
        bias[0] = struct.unpack("<f", struct.pack("<I", number ^ 1))[0]
    infer(images[0])
elif mode == "chance":
    infer(images[0])
    torch.seed()
    infer(torch.randn(1, 512))
    infer(torch.randn(1, 512))
else:
    for image in images[:3]:
        infer(image)
print("the program's own words", flush=True)
if mode == "short":
    os._exit(0)
