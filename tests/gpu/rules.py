"""What a program may do to weights on a device: work.py RECORD ruled. Code that inspects tensors sees what it would see if PyTorch had
copied everything; tests/e2e has more of the same for the stand-in alone."""
import gc
import threading

import torch
from torch import nn

from _record import in_child

WIDTH, DEPTH = 1024, 12  # 4 MiB each


def model():
    return nn.Sequential(*(layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


WEIGHT_BYTES = DEPTH * WIDTH * WIDTH * 4

WRITES = {
    "add_": lambda t: t.add_(1), "view": lambda t: t.view(-1)[3:77].mul_(2), "copy_": lambda t: t.copy_(t * 3),
    "index": lambda t: t.__setitem__((slice(None), 1), 5.0), "foreach": lambda t: torch._foreach_mul_([t], 6.0),
    "out": lambda t: torch.add(t, 7, out=t), "data": lambda t: t.data.sub_(9), "zero": lambda t: t.zero_(),
}


class Rules:
    def __init__(self, gpu, record):
        self.gpu, self.record, self.name = gpu, record, ""

    def all(self):
        for self.name in NAMES:
            getattr(self, self.name)()
            gc.collect()

    def tensor(self, name, t):
        self.record.tensor(f"{self.name}: {name}", t)

    def value(self, name, value):
        self.record.value(f"{self.name}: {name}", value)

    def module(self, module):
        for name, t in module.state_dict().items():
            self.tensor(name, t)

    def infer(self, name, module, passes=2):
        for i in range(passes):
            self.tensor(f"{name} {i}", module(torch.ones(2, WIDTH).to(self.gpu.device)).cpu())

    def writes(self):
        """On either side, one of them at a time."""
        for side in "host", "device", "back":
            for name, write in WRITES.items():
                weight = nn.Parameter(torch.rand(WIDTH, WIDTH))
                sides = {"host": weight, "device": weight.to(self.gpu.device), "again": weight.to(self.gpu.device)}
                sides["back"] = sides["device"].cpu()
                write(sides[side])
                self.gpu.wait()
                for other, tensor in sides.items():
                    self.tensor(f"{side} {name} {other}", tensor.cpu())

    def written(self):
        """To weights of a model, between its inferences."""
        module = model().to(self.gpu.device)
        self.infer("before", module)
        module[0].weight.add_(0.25)
        module[2].weight[3:9].mul_(2)
        module[4].weight.data = module[4].weight.data * 2
        self.infer("after", module)
        self.module(module.cpu())

    def tied(self):
        module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        module[2].weight = module[0].weight
        module = self.gpu.moved(module)
        self.value("still tied", module[2].weight is module[0].weight)
        self.infer("tied", module)
        module[0].weight.add_(0.5)
        self.infer("written", module)

    def lifetime(self):
        """The device's tensors outlive the processor's, and the other way round."""
        weights = [nn.Parameter(torch.rand(WIDTH, WIDTH)) for _ in range(6)]
        there = [w.to(self.gpu.device) for w in weights]
        for i, w in enumerate(weights):
            self.tensor(f"first {i}", w)
        del weights
        churn = [torch.rand(WIDTH, WIDTH) for _ in range(6)]
        back = [t.cpu() for t in there]
        del there, churn
        for i, t in enumerate(back):
            self.tensor(f"back {i}", t)

    def pinned(self):
        """What pin_memory() returns does not change with the weight."""
        weight = nn.Parameter(torch.rand(WIDTH, WIDTH))
        there = weight.to(self.gpu.device)
        self.value("pinned", self.gpu.is_pinned(weight))
        snapshot = self.gpu.pinned_copy(weight.detach())
        self.value("copy pinned", self.gpu.is_pinned(snapshot))
        weight.add_(1)
        self.tensor("copy", snapshot)
        self.tensor("there", there.cpu())

    def forked(self):
        module, host = model().to(self.gpu.device), nn.Parameter(torch.rand(WIDTH, WIDTH))
        there = host.to(self.gpu.device)
        self.infer("before", module)
        self.value("child", in_child(lambda: host.add_(1).isfinite().all()))  # the child's alone
        self.infer("after", module)
        self.tensor("there", there.cpu())
        self.tensor("host", host)

    def registered(self):
        """Memory of the processor's that the program itself has the driver register, while there is more than fits."""
        host = [nn.Parameter(torch.rand(WIDTH, WIDTH)) for _ in range(4)]
        with self.gpu.registered(*host[:3]) as taken:
            self.value("taken", taken)
            others = [torch.full((WIDTH, WIDTH), float(i)) for i in range(4 * DEPTH)]
            for i, h in enumerate(host):
                h.mul_(2)
                there = h.to(self.gpu.device, non_blocking=True)
                self.tensor(f"there {i}", there.cpu())
                h.copy_(there * 3, non_blocking=True)
                self.gpu.wait()
                self.tensor(f"host {i}", h)
            self.value("others", [float(t[i, -1]) for i, t in enumerate(others)])
        for i, h in enumerate(host):
            self.tensor(f"afterwards {i}", h)

    def streams(self):
        """Two models on two streams, in turn."""
        modules = [model().to(self.gpu.device) for _ in range(2)]
        inputs = [torch.full((2, WIDTH), float(j + 1)).to(self.gpu.device) for j in range(2)]
        self.gpu.wait()
        for i in range(3):
            out = []
            for j in range(2):
                with self.gpu.stream(j):
                    out.append(modules[j](inputs[j]))
            self.gpu.wait()
            for j, t in enumerate(out):
                self.tensor(f"{i} {j}", t.cpu())

    def threads(self):
        """Two threads, each its own model and stream."""
        modules = [model().to(self.gpu.device) for _ in range(2)]
        inputs = [torch.full((2, WIDTH), float(j + 1)).to(self.gpu.device) for j in range(2)]
        results = {}
        self.gpu.wait()

        def work(j):
            torch.set_num_threads(1)
            with self.gpu.stream(j), torch.no_grad():
                for i in range(3):
                    results[i, j] = modules[j](inputs[j])

        workers = [threading.Thread(target=work, args=(j,)) for j in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.gpu.wait()
        for (i, j), t in sorted(results.items()):
            self.tensor(f"{i} {j}", t.cpu())

    def graph(self):
        """What is captured into a graph is run when its turn comes, again and again."""
        module = model().to(self.gpu.device)
        x, y = (torch.full((2, WIDTH), value).to(self.gpu.device) for value in (1.0, 0.0))
        self.infer("before", module)
        replay = self.gpu.captured(lambda: y.copy_(module[:8](x)))
        for i in range(3):
            replay()
            self.gpu.wait()
            self.tensor(f"graph {i}", y.cpu())
        self.infer("after", module)

    def graph_written(self):
        """A graph sees what is written to weights after it has been given their addresses."""
        module = model().to(self.gpu.device)
        x, y = (torch.full((2, WIDTH), value).to(self.gpu.device) for value in (1.0, 0.0))
        replay = self.gpu.captured(lambda: y.copy_(module[:8](x)))
        for i in range(3):
            with torch.no_grad():
                module[2 * i].weight.mul_(0.5)
            replay()
            self.gpu.wait()
            self.tensor(f"graph {i}", y.cpu())
        self.infer("after", module)

    def compiled(self):
        module = model().to(self.gpu.device)
        self.infer("before", module)
        if hasattr(torch, "compile"):
            step = torch.compile(lambda t: module(t) * 2, backend="eager")
            self.tensor("compiled", step(torch.ones(2, WIDTH).to(self.gpu.device)).cpu())


# The last one ends all sharing.
NAMES = ["writes", "written", "tied", "lifetime", "pinned", "forked", "registered", "streams", "threads", "graph", "graph_written",
         "compiled"]
