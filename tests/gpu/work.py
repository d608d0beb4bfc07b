"""One process of tests/gpu/run: does one thing on the device, with or without swapnet, and leaves a record.

    work.py RECORD about
    work.py RECORD save MODEL CHECKPOINT [MODEL CHECKPOINT]...
    work.py RECORD infer MODEL CHECKPOINT move|load|map PASSES
    work.py RECORD moves COUNT
    work.py RECORD ruled            all that is in rules.py
"""
import contextlib
import ctypes
import os
import re
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "e2e", "programs", "shared"), HERE]
STANDIN = os.environ.get("GPU_STANDIN")  # the directory of the stand-in, in the place of a GPU
if STANDIN:
    # The runtime has to be there before the first tensor, as it is where PyTorch is built for CUDA.
    ctypes.CDLL(os.path.join(STANDIN, "libcudart.so.12"), ctypes.RTLD_GLOBAL)

import torch
from torch import nn

import models
import rules
from _record import Record, anonymous_bytes

# A small model on a large card takes a few milliseconds, and its clock a second until it is at its speed.
WARM_UP_S, MEASURED_S = (0, 0) if STANDIN else (2, 1)

ATTRIBUTES = {"integrated": 18, "managed memory": 83, "pageable memory access": 88, "concurrent managed access": 89,
              "host pointer for registered memory": 91, "host register": 99}


@contextlib.contextmanager
def registered(cudart, *tensors):
    """So many of them are registered with the driver meanwhile."""
    taken = [t for t in tensors if int(cudart.cudaHostRegister(t.data_ptr(), t.numel() * t.element_size(), 1)) == 0]
    yield len(taken)
    gpu.wait()
    for t in taken:
        assert int(cudart.cudaHostUnregister(t.data_ptr())) == 0


class Cuda:
    def __init__(self):
        self.device = torch.device("cuda", torch.cuda.current_device())
        torch.zeros(1, device=self.device)
        with open("/proc/self/maps", encoding="utf-8") as maps:
            found = re.search(r"\S*/libcudart[.-]\S*", maps.read())
        # A PyTorch that has it linked in statically is one whose device cannot be asked, by swapnet neither.
        self.runtime = ctypes.CDLL(found[0]) if found else None

    def wait(self):
        torch.cuda.synchronize()

    def name(self):
        major, minor = torch.cuda.get_device_capability(self.device)
        return f"{torch.cuda.get_device_name(self.device)}, compute capability {major}.{minor}, CUDA {torch.version.cuda}"

    def allocated(self):
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def peak(self):
        return torch.cuda.max_memory_allocated()

    def beside(self):
        """Of the driver's memory, what PyTorch's allocator has no part in."""
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    def memory(self):
        """Bytes that are free, and all."""
        return torch.cuda.mem_get_info()

    def pinned(self, n):
        return torch.empty(n, dtype=torch.uint8, pin_memory=True)

    def registered(self, *tensors):
        return registered(torch.cuda.cudart(), *tensors)

    def pinned_copy(self, tensor):
        return tensor.pin_memory()

    def is_pinned(self, tensor):
        return tensor.is_pinned()

    def load(self, path):
        return torch.load(path, map_location=self.device)

    def moved(self, module):
        return module.cuda()

    def stream(self, _):
        return torch.cuda.stream(torch.cuda.Stream())

    def captured(self, work):
        """What is to be called to have it done."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


class Standin:
    def __init__(self):
        from _standin import Standin as Device
        self.standin = Device(STANDIN)
        self.device, self.runtime, self.load = self.standin.device, self.standin.lib, self.standin.load

    def wait(self):
        self.standin.wait()

    def name(self):
        return f"a stand-in for {os.environ['STANDIN_DEVICE']}, over host memory"

    def allocated(self):
        self.wait()
        return sum(self.standin.live().values())  # allocations, not bytes

    def registered(self, *tensors):
        return registered(self.standin.cudart(), *tensors)

    def moved(self, module):
        return module.to(self.device)

    def pinned_copy(self, tensor):
        return tensor.pin_memory(self.device)

    def is_pinned(self, tensor):
        return tensor.is_pinned(self.device)

    @contextlib.contextmanager
    def stream(self, number):
        self.standin.use_stream(16 * (number + 1))
        yield
        self.standin.use_stream(0)

    def captured(self, work):
        """Captured without a stream to warm it up on."""
        self.standin.use_stream(16)
        self.standin.wait()
        self.standin.capture(16, True)
        work()
        self.standin.capture(16, False)
        self.standin.wait()
        self.standin.use_stream(0)
        return self.standin.replay

    def memory(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def beside(self):
        self.wait()
        free, total = self.memory()
        return total - free

    def peak(self):
        return self.standin.lib.standin_peak()

    def pinned(self, n):
        return torch.empty(n, dtype=torch.uint8)


def about():
    """What the device says of itself, and what the way to it gives."""
    notes = record.notes
    value = ctypes.c_int()
    notes["attributes"] = {
        name: None if not gpu.runtime or gpu.runtime.cudaDeviceGetAttribute(ctypes.byref(value), number, index)
        else value.value for name, number in ATTRIBUTES.items()}
    notes |= {"device": gpu.name(), "torch": torch.__version__, "processor": processor()}
    size = int(args[0])
    there = torch.empty(size, dtype=torch.uint8, device=gpu.device)
    for name, here in ("pinned", gpu.pinned(size)), ("pageable", torch.empty(size, dtype=torch.uint8)):
        here.fill_(1)
        seconds = []
        for _ in range(6):
            gpu.wait()
            start = time.perf_counter()
            there.copy_(here)
            gpu.wait()
            seconds.append(time.perf_counter() - start)
        notes[f"{name}_bytes_per_s"] = size / statistics.median(seconds[1:])
    record.check("arrived", bool(there.cpu().eq(1).all()))


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        found = re.search(r"^(model name|Model)\s*:\s*(.*)", info.read(), re.M)
    return f"{found[2] if found else os.uname().machine}, {os.cpu_count()} processors"


def save():
    for name, path in zip(args[::2], args[1::2]):
        state = models.build(name)[0].state_dict()
        torch.save(state, path)
        sizes = [t.numel() * t.element_size() for t in state.values()]
        record.notes[name] = {"weights": sum(sizes), "shared": sum(n for n in sizes if n >= 65536)}
    record.check("saved", True)


def adopt(module, state, prefix=""):
    """The tensors of `state` become the module's own, as load_state_dict(assign=True) of later versions has it."""
    for tensors, wrap in (module._parameters, lambda t: nn.Parameter(t, False)), (module._buffers, lambda t: t):
        for name in tensors:
            tensors[name] = wrap(state[prefix + name])
    for name, child in module.named_children():
        adopt(child, state, f"{prefix}{name}.")


def filled(leave):
    """All of the card's memory but so many bytes and an eighth, of which swapnet takes no more for weights unasked."""
    free, total = gpu.memory()
    return torch.empty(max(free - total // 8 - leave, 0), dtype=torch.uint8, device=gpu.device)


def timed(model, x, passes, least):
    """The seconds of this many passes, and of more until they have taken this long together."""
    seconds = []
    while len(seconds) < passes or sum(seconds) < least:
        gpu.wait()
        start = time.perf_counter()
        model(x)
        gpu.wait()
        seconds.append(time.perf_counter() - start)
    return seconds


def settle():
    """Has one thread alone call MKL's vector functions first. That is when MKL finds out which kernels suit the
    processor, and what other threads call meanwhile may come from another's (pytorch#188792): llama_1g's cosines."""
    for function in torch.cos, torch.sin:
        function(torch.ones(1))


def apart(a, b):
    """Where two outputs have other bits, and by how much; "" where they are equal."""
    other = (a != b).flatten(0, -2).any(-1).nonzero().flatten().tolist()
    most = float((a - b).abs().max())
    return f"{len(other)} rows, {other[0]} to {other[-1]}, by up to {most:.2g}" if other else ""


def infer():
    settle()
    name, checkpoint, how, passes = args
    model, x = models.build(name)
    taken = filled(int(os.environ["GPU_LEAVE"])) if "GPU_LEAVE" in os.environ else None
    start = time.perf_counter()
    if how == "map":
        adopt(model, gpu.load(checkpoint))
    elif how == "load":
        model.load_state_dict(torch.load(checkpoint))
    model.to(gpu.device)
    gpu.wait()
    record.notes["move_s"] = time.perf_counter() - start
    x = x.to(gpu.device)
    record.notes["allocated"] = gpu.allocated()
    with torch.inference_mode():
        first = model(x).cpu()
        record.tensor("first", first)
        # The first passes choose algorithms, learn the order of the weights, and see that copies are pinned.
        timed(model, x, 2, WARM_UP_S)
        seconds = timed(model, x, int(passes), MEASURED_S)
        last = model(x).cpu()
        record.tensor("last", last)
    record.notes["first_from_last"] = apart(first, last)
    record.notes |= {"latency_s": statistics.median(seconds), "passes": len(seconds), "device_peak": gpu.peak()}
    record.module("weights", model.cpu())
    del taken


def moves():
    """As many as are asked for, in both ways that programs have; what is in use afterwards."""
    weight, layer = nn.Parameter(torch.rand(256, 256)), nn.Linear(256, 256)
    taken = []
    for i in range(int(args[0])):
        if i in (int(args[0]) // 10, int(args[0]) - 1):
            taken.append({"device": gpu.allocated(), "beside": gpu.beside(), "host": anonymous_bytes()})
        weight.to(gpu.device)
        layer.to(gpu.device)
        layer.cpu()
    record.tensor("weight", weight)
    record.module("layer", layer)
    before, after = taken
    record.notes |= {f"{what}_growth": after[what] - before[what] for what in before}


def ruled():
    rules.Rules(gpu, record).all()


record = Record(sys.argv[1])
mode, args = sys.argv[2], sys.argv[3:]
torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
if STANDIN:
    torch.set_num_threads(2)
gpu = Standin() if STANDIN else Cuda()
index = gpu.device.index
with torch.no_grad() if mode != "moves" else torch.enable_grad():
    globals()[mode]()
record.save()
