"""Models on a device that may share the processor's memory: moved there, written on either side, forked, let go."""
import copy
import gc
import importlib.util
import os
import subprocess
import sys
import threading
import time

# The stand-in's runtime has to be there before the first tensor.
import ctypes
ctypes.CDLL(os.path.join(sys.argv[2], "libcudart.so.12"), ctypes.RTLD_GLOBAL)

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import _models
import _record
from _standin import Standin

record, (directory, mode, *args) = _record.begin()
standin = Standin(directory, *(["npu"] if args[1:] == ["safetensors"] or mode == "device_map" else []))  # which those libraries know by name
device = standin.device
WIDTH, DEPTH = 512, 16


def mlp():
    return _models.mlp(WIDTH, DEPTH)


def batch(rows=2, width=WIDTH):
    return torch.randn(rows, width)


def note_moved(module):
    """What a device that shares memory need not be given, and what it has to be."""
    sizes = {t.data_ptr(): t.numel() * t.element_size() for t in module.state_dict().values()}
    record.notes["shared_bytes"] = sum(n for n in sizes.values() if n >= 65536)
    record.notes["small_bytes"] = sum(n for n in sizes.values() if n < 65536)


def run(name, module, x, passes=1):
    record.notes["input_bytes"] = record.notes.get("input_bytes", 0) + passes * x.numel() * x.element_size()
    for i in range(passes):
        record.tensor(f"{name}.{i}", module(x.to(device)).cpu())


def move():
    """To the device, computed with, and back."""
    model = mlp()
    note_moved(model)
    x = batch()
    record.tensor("host", model(x))
    model.to(device)
    record.check("moved", all(p.device == device for p in model.parameters()))
    record.notes["live"] = standin.live()
    run("device", model, x, 3)
    record.notes["device_peak"] = standin.lib.standin_peak()
    model.cpu()
    record.tensor("back", model(x))
    record.module("model", model)


def named():
    """By the device's own method, as nn.Module.cuda() is for CUDA."""
    model = mlp()
    note_moved(model)
    torch.utils.generate_methods_for_privateuse1_backend()
    moved = getattr(model, device.type)()
    record.check("moved", moved is model and all(p.device == device for p in model.parameters()))
    run("device", model, batch(), 2)
    record.module("model", model.cpu())


def tied():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    model[2].weight = model[0].weight
    model.to(device)
    record.value("still tied", model[2].weight is model[0].weight)
    x = batch()
    run("tied", model, x)
    model[0].weight.add_(0.5)
    run("written", model, x)
    whole = nn.Parameter(torch.randn(64, WIDTH))  # two tensors of one storage: each its own copy on the device
    a, b = whole.to(device), whole.to(device)
    a.zero_()
    record.tensor("a", a.cpu())
    record.tensor("b", b.cpu())
    record.tensor("whole", whole)


WRITES = {
    "add_": lambda t: t.add_(1), "view": lambda t: t.view(-1)[3:77].mul_(2), "copy_": lambda t: t.copy_(t * 3),
    "fill": lambda t: t.fill_(4), "index": lambda t: t.__setitem__((slice(None), 1), 5.0),
    "foreach": lambda t: torch._foreach_mul_([t], 6.0), "out": lambda t: torch.add(t, 7, out=t),
    "t": lambda t: t.t().add_(8), "data": lambda t: t.data.sub_(9), "zero": lambda t: t.zero_(),
}


def writes():
    """Whoever writes, the others keep what they had."""
    for side in "host", "device", "back":
        for name, write in WRITES.items():
            weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
            sides = {"host": weight, "device": weight.to(device)}
            sides["back"] = sides["device"].cpu()
            sides["again"] = weight.to(device)
            write(sides[side])
            standin.wait()
            for other, tensor in sides.items():
                record.tensor(f"{side}.{name}.{other}", tensor.cpu())
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    there = weight.to(device)
    back = there.cpu().detach().numpy()
    back *= 2  # announced to nobody
    record.tensor("numpy", torch.from_numpy(back))
    record.tensor("numpy.device", there.cpu())
    record.tensor("numpy.host", weight)
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    before = torch.from_numpy(weight.detach().numpy())
    for name, write in {"before": lambda: before[3:77].mul_(2),
                        "after": lambda: torch.from_numpy(weight.detach().numpy()).add_(1)}.items():
        there = weight.to(device)
        write()  # to a storage of its own in the same place
        record.tensor(f"numpy {name}", weight)
        record.tensor(f"numpy {name}.device", there.cpu())
    seen = weight.detach().numpy()  # knows where the processor's bytes are, and goes on seeing them
    there = weight.to(device)
    weight.add_(1)
    record.tensor("seen", torch.from_numpy(seen))
    record.tensor("seen.device", there.cpu())


def lazy_clone():
    """A tensor and its lazy clone share their bytes until one of them is written; the device's share neither's then."""
    other = nn.Parameter(torch.randn(WIDTH, WIDTH)).to(device)
    for moves in "tensor", "clone":
        tensor = nn.Parameter(torch.randn(WIDTH, WIDTH))
        clone = torch._lazy_clone(tensor)
        there = (tensor if moves == "tensor" else clone).to(device)
        standin.wait()
        clone.mul_(2)
        for name, t in {"tensor": tensor, "clone": clone, "there": there}.items():
            record.tensor(f"{moves} {name}", t.cpu())
    record.tensor("other", other.cpu())


def pinned():
    """What pin_memory() returns is a copy, whatever the driver knows of the weight."""
    for how, same in {"itself": lambda w: w.detach(), "numpy": lambda w: torch.from_numpy(w.detach().numpy()),
                      "part": lambda w: w.detach()[3:9]}.items():
        weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        there = weight.to(device)
        record.value(f"{how} pinned", same(weight).is_pinned(device))
        record.value(f"{how} pinned there", there.is_pinned(device))
        snapshot = same(weight).pin_memory(device)
        record.value(f"{how} snapshot pinned", snapshot.is_pinned(device))
        weight.add_(1)
        record.tensor(f"{how} snapshot", snapshot)
        record.tensor(f"{how} there", there.cpu())
        del there
        record.value(f"{how} pinned afterwards", same(weight).is_pinned(device))


def other_stream():
    """What a weight is given of its own on one stream may be in use on those on which it was moved."""
    weight, all_streams, there = nn.Parameter(torch.randn(WIDTH, WIDTH)), (0x4000, 0x20, 0x4010), []
    for stream in all_streams:
        standin.use_stream(stream)
        there.append(weight.to(device))
    there[0].add_(1)
    record.notes["recorded"] = [s for s in all_streams if standin.streams.standin_recorded(ctypes.c_int64(s))]
    for i, t in enumerate(there):
        record.tensor(f"there {i}", t.cpu())


def streams_hidden():
    """A weight is let go of where PyTorch does not say on which stream."""
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    there = weight.to(device)
    standin.wait()
    standin.hide_streams(True)
    del there
    standin.hide_streams(False)
    record.check("let go", standin.empty("registered"))
    weight.add_(1)
    record.tensor("weight", weight)


def still_read():
    """The processor's tensor is written while the device reads it: by a kernel that was launched, with the last weight
    there is on the device and with another left, and by an operator that has not launched yet."""
    for i in range(2):
        weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        there = weight.to(device)
        standin.wait()
        standin.reads(there, float(args[0]))
        del there
        weight.add_(1)
        standin.wait()
        record.tensor(f"written {i}", weight)
        other = nn.Parameter(torch.randn(WIDTH, WIDTH)).to(device)
    x, there, out = batch().to(device), weight.to(device), []

    def read():
        with torch.no_grad():
            standin.delay(float(args[1]))
            out.append(nn.functional.linear(x, there))

    reader = threading.Thread(target=read)
    reader.start()
    if float(args[1]):
        standin.wait_for_delayed()
    weight.add_(1)
    reader.join()
    record.tensor("read", out[0].cpu())
    record.tensor("written", weight)
    record.tensor("other", other.cpu())


def called_back():
    """A weight goes while the device waits for a function that needs the interpreter, as this thread does to let it go."""
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    there = weight.to(device)
    record.tensor("product", (there @ there).cpu())
    called, other = [], torch.ones(1).to(device)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    standin.wait()
    standin.busy(0.3)
    standin.lib.cudaLaunchHostFunc(None, function, None)
    if "SWAPNET_BUDGET" in os.environ:  # plainly, the stand-in's memory would not be let go of before all is done
        there.data = other  # with the interpreter's lock, which is given up where a tensor dies
    standin.wait()
    record.value("called", len(called))
    record.check("let go", standin.empty("registered", "managed"))
    weight.add_(1)
    record.tensor("written", weight)


def ordered():
    """A copy that comes to the processor stands in the order of the stream, behind those that did not block."""
    before, weight = torch.randn(WIDTH, WIDTH).to(device), nn.Parameter(torch.randn(WIDTH, WIDTH)).to(device)
    here = torch.zeros(WIDTH, WIDTH)
    here.copy_(before, non_blocking=True)
    here.copy_(weight)
    standin.wait()
    record.tensor("the last one", here)
    here.copy_(before, non_blocking=True)
    weight.cpu()
    record.tensor("done by now", here)


def readers():
    """Threads that only read, with an operator whose schema is not believed, and so may find all of them that it is
    about to be written."""
    x, outs = torch.randn(8, 32768).to(device), {}
    gate = threading.Barrier(4)

    def read(name, *statistics):
        with torch.no_grad():
            gate.wait()
            outs[name] = nn.functional.batch_norm(x, *statistics)

    for i in range(40):
        mean, variance = (nn.Parameter(torch.randn(32768).abs()).to(device) for _ in range(2))
        threads = [threading.Thread(target=read, args=(f"{i}.{j}", mean, variance)) for j in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in sorted(outs):
        record.tensor(name, outs[name].cpu())


def taken_away():
    """Weights of a checkpoint are given memory of their own while another thread's operator has their addresses and has
    not launched yet what reads them."""
    library = torch.library.Library("swntest", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda t: t.mul(2), "PrivateUse1")
    x, outs = batch().to(device), {}
    weights = [t.to(device) for t in torch.load(args[0]).values() if t.dim() == 2]

    def read(i):
        with torch.no_grad():
            standin.delay(0.2)
            outs[i] = nn.functional.linear(x, weights[i])

    for i, weight in enumerate(weights):
        reader = threading.Thread(target=read, args=(i,))
        reader.start()
        time.sleep(0.05)
        record.tensor(f"twice {i}", torch.ops.swntest.twice(weight).cpu())
        reader.join()
        record.tensor(f"read {i}", outs[i].cpu())
    record.notes["live"] = standin.live()


def let_go_in_a_capture():
    """The device must not be waited for while a graph is captured."""
    weights = [nn.Parameter(torch.randn(WIDTH, WIDTH)).to(device) for _ in range(4)]
    x = batch().to(device)
    record.tensor("before", nn.functional.linear(x, weights[0]).cpu())
    standin.use_stream(16)
    standin.wait()
    standin.capture(16, True)
    del weights
    gc.collect()
    standin.capture(16, False)  # says whether it has been broken off
    standin.use_stream(0)
    record.check("none left", standin.empty("registered", "managed"))


def graph():
    """What a graph has been given the address of, and what is written afterwards: by itself, and with its bytes in common
    with a tensor of the processor's, and with another of the device's."""
    model, x = mlp().to(device), batch().to(device)
    hosts = [nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(3)]
    there = [host.to(device) for host in hosts]
    twin = hosts[2].to(device)
    del hosts[2]
    y = torch.zeros(6, WIDTH).to(device)
    standin.use_stream(16)
    standin.wait()
    standin.capture(16, True)
    y[:2].copy_(model(x)[:2])
    for i, t in enumerate(there):
        y[i + 3:i + 4].copy_(nn.functional.linear(x[:1], t))
    standin.capture(16, False)
    standin.use_stream(0)
    writers = [lambda: None, lambda: model[0].weight.add_(1), lambda: there[0].mul_(2), lambda: hosts[0].add_(1),
               lambda: hosts[1].add_(1), lambda: twin.sub_(1), lambda: there[2].mul_(0.5), lambda: model[2].weight[2:].sub_(1)]
    for i, write in enumerate(writers):
        write()
        y.zero_()
        standin.replay()
        standin.wait()
        record.tensor(f"graph {i}", y.cpu())
        for j, t in enumerate([*hosts, *there, twin]):
            record.tensor(f"{i} {j}", t.cpu())
    record.module("model", model.cpu())


def graph_loaded():
    """A graph of weights from a checkpoint, that may be more than there is memory for; they stay where it has found them."""
    model = mlp()
    model.load_state_dict(torch.load(args[0]))
    model.to(device)
    x, y = batch().to(device), torch.zeros(batch().shape).to(device)
    standin.use_stream(16)
    standin.wait()
    standin.capture(16, True)
    y.copy_(model(x))
    standin.capture(16, False)
    standin.use_stream(0)
    for i in range(3):
        churn = [torch.randn(WIDTH, WIDTH) for _ in range(12)]
        standin.replay()
        standin.wait()
        record.tensor(f"graph {i}", y.cpu())
        record.tensor(f"churn {i}", sum(churn))
        model[2 * i].weight.mul_(0.5)
    record.module("model", model.cpu())


class Seen(TorchDispatchMode):
    """Notes what comes past, and adds nothing."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def modes():
    """A program's modes see its operators, and not those that give a written tensor its own memory."""
    weights = [nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(3)]
    a, b, c = (weight.to(device) for weight in weights)
    with Seen() as seen:
        a.add_(1)
        weights[1].mul_(2)
    record.value("seen", seen.names)
    if hasattr(torch, "func"):
        record.tensor("functional", torch.func.functionalize(lambda t: t.add_(1))(c).cpu())
    for i, (there, here) in enumerate(zip((a, b, c), weights)):
        record.tensor(f"device {i}", there.cpu())
        record.tensor(f"host {i}", here)


def compiled_child():
    """A child that cannot use the device has nothing there to give up for code that dynamo has compiled."""
    weights = [nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(2)]
    there = [weight.to(device) for weight in weights]
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)  # the others are gone
        double = torch.compile(lambda t: t * 2, backend="eager")
        os._exit(0 if torch.equal(double(weights[0].data), weights[0].data + weights[0].data) else 1)
    record.value("child", os.waitpid(pid, 0)[1])
    for i, t in enumerate(there):
        record.tensor(f"device {i}", t.cpu())


def poke(x):
    standin.lib.standin_view.restype = ctypes.c_void_p
    ctypes.memset(standin.lib.standin_view(ctypes.c_void_p(x.data_ptr())), 0, 4096)
    return x.new_zeros(1)


def changed():
    """What is not the same elements in the same order is PyTorch's to copy, as is what may be filled again."""
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    for name, t in {"half": weight.to(device, torch.bfloat16), "strided": weight.t()[::2].to(device),
                    "transposed": weight.t().to(device), "part": weight[8:200].to(device),
                    "format": torch.randn(4, 64, 16, 16).to(device, memory_format=torch.channels_last),
                    "host half": weight.to(device).to("cpu", torch.bfloat16),
                    "clone": weight.to(device).clone()}.items():
        record.tensor(name, t.cpu())
        record.value(f"{name} strides", list(t.stride()))
    buffer = torch.empty(WIDTH, WIDTH)
    filled = []
    for i in range(4):
        buffer.numpy()[:] = i
        filled.append(buffer.to(device))
    for i, t in enumerate(filled):
        record.tensor(f"buffer {i}", t.cpu())
    # It writes what its schema says it reads.
    host = [nn.Parameter(torch.randn(32768).abs()) for _ in range(2)]
    mean, variance = (p.to(device) for p in host)
    nn.functional.batch_norm(torch.randn(4, 32768).to(device), mean, variance, training=True)
    for name, t in {"mean": mean, "variance": variance, "host's": host[0], "host's variance": host[1]}.items():
        record.tensor(name, t.cpu())
    record.check("running statistics ran", not torch.equal(mean.cpu(), host[0]))
    library = torch.library.Library("swntest", "DEF")
    library.define("poke(Tensor x) -> Tensor")  # it writes, too
    library.impl("poke", poke, "PrivateUse1")
    there = host[0].to(device)
    torch.ops.swntest.poke(there)
    record.tensor("poked", there.cpu())
    record.tensor("not poked", host[0])
    record.notes["live"] = standin.live()


def lifetime():
    x = batch()
    model = mlp()
    there = copy.deepcopy(model).to(device)
    weights = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    moved = [w.to(device) for w in weights]
    sums = [m.sum().item() for m in moved]
    del weights  # the device's are all that is left
    gc.collect()
    churn = [torch.randn(WIDTH, WIDTH) for _ in range(8)]
    record.check("outlive the host's", [m.sum().item() for m in moved] == sums)
    weights = [nn.Parameter(m.cpu()) for m in moved]
    del moved
    record.value("outlive the device's", [w.sum().item() for w in weights])
    run("model", there, x, 2)
    del there, model, weights, churn
    gc.collect()
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    for _ in range(1000):
        weight.to(device)
    pair = nn.Linear(WIDTH, WIDTH)
    for _ in range(200):
        pair.to(device)
        pair.to("cpu")
    record.tensor("after all", pair.weight)
    record.check("none left", not any(standin.live().values()))
    del weight, pair


def fork():
    model = mlp()
    host = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    there = [p.to(device) for p in host]
    model.to(device)
    x = batch()
    run("before", model, x)

    def child():
        ok = torch.equal(host[0].data, host[0].data.clone())
        for p in host:
            p.add_(1)  # the child's alone
        return ok and bool(torch.isfinite(host[0]).all())

    record.value("child", _record.in_child(child))
    run("after", model, x)
    for i, (h, t) in enumerate(zip(host, there)):
        record.tensor(f"host {i}", h)
        record.tensor(f"device {i}", t.cpu())


def adopt(module, state, prefix=""):
    """The tensors of `state` become the module's own, as load_state_dict(assign=True) of later versions has it."""
    for name in module._parameters:
        module._parameters[name] = nn.Parameter(state[prefix + name], False)
    for name, child in module.named_children():
        adopt(child, state, f"{prefix}{name}.")


def meanwhile():
    """One thread computes with the device's tensors while another writes the processor's, which are others."""
    x = batch(64).to(device)
    for i in range(12):
        weight = nn.Parameter(torch.full((WIDTH, WIDTH), float(i)))
        there, out, ready = weight.to(device), [], threading.Event()

        def compute():
            torch.set_num_threads(1)
            with torch.no_grad():
                for _ in range(6):
                    out.append(torch.mm(x, there))
                    ready.set()

        worker = threading.Thread(target=compute)
        worker.start()
        ready.wait()
        weight.add_(1)
        worker.join()
        standin.wait()
        for j, t in enumerate(out):
            record.tensor(f"{i}.{j}", t.cpu())
        record.tensor(f"weight {i}", weight)


def device_map():
    """transformers' own loading, of a Llama that goes to the device as it is read."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
    path = args[0]
    if not os.path.exists(os.path.join(path, "model.safetensors")):
        config = LlamaConfig(hidden_size=256, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=4,
                             vocab_size=512, bos_token_id=None, eos_token_id=None)
        LlamaForCausalLM(config).save_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, device_map=str(device)).eval()
    record.check("there", all(p.device == device for p in model.parameters()))
    note_moved(model)
    prompt = torch.arange(8)[None].to(device)
    for i in range(3):
        record.tensor(f"logits{i}", model(prompt + i).logits.cpu())
    record.notes["device_peak"] = standin.lib.standin_peak()
    record.module("model", model.cpu())


def straight():
    """Checkpoints that go to the device at once: archives, read and mapped, and safetensors."""
    path, how = args
    model = mlp()
    note_moved(model)
    if how == "safetensors":
        from safetensors.torch import load_file
        state = load_file(f"{path}.safetensors", device=str(device))
    else:
        state = standin.load(path, **({"mmap": True} if how == "mmap" else {}))
    record.check("there", all(t.device == device for t in state.values()))
    adopt(model, state)
    del state
    x = batch()
    run("device", model, x, 4)
    record.notes["device_peak"] = standin.lib.standin_peak()
    record.notes["live"] = standin.live()
    model[0].weight.data.add_(1)  # has memory of its own from here on
    run("written", model, x)
    record.module("model", model.cpu())
    if how == "read":  # a tensor that a program fills stays where it is
        weight = torch.load(path)["0.weight"].view(torch.uint8).view(-1)
        filled = torch.empty(weight.shape, dtype=torch.uint8, device=device)
        address = filled.data_ptr()
        filled.copy_(weight)
        record.check("stays", filled.data_ptr() == address)
        record.tensor("filled", filled.cpu())


def load():
    """A checkpoint: its weights are the device's without having been anybody's copy, and may be more than there is
    memory for."""
    path = args[0]
    model = mlp()
    note_moved(model)
    model.load_state_dict(torch.load(path))
    model.to(device)
    x = batch()
    run("device", model, x, 6)
    record.notes["live"] = standin.live()
    record.module("model", model.cpu())


def fetched():
    """A checkpoint's weights, to the device and back."""
    state = {name: t for name, t in torch.load(args[0]).items() if t.dim() == 2}
    record.notes["shared_bytes"] = sum(t.numel() * t.element_size() for t in state.values())
    there = {name: t.to(device) for name, t in state.items()}
    back = {name: t.cpu() for name, t in there.items()}
    for name, t in back.items():
        record.tensor(name, t)


SAMPLER = """
import sys, threading, time
done, peak = threading.Event(), 0
threading.Thread(target=lambda: (sys.stdin.read(), done.set())).start()
while not done.wait(0.001):
    with open(f"/proc/{sys.argv[1]}/status") as status:
        kinds = dict(line.split(":", 1) for line in status)
    now = sum(int(kinds[kind].split()[0]) * 1024 for kind in ("RssAnon", "RssShmem"))
    if not peak:
        print(now, flush=True)
    peak = max(peak, now)
print(peak)
"""


def peak():
    """Both sides of weights are kept, and computed with."""
    product = torch.randn(8, 1024).to(device) @ nn.Parameter(torch.randn(1024, 1024)).to(device)
    record.tensor("warm", product.cpu())
    sampler = subprocess.Popen([sys.executable, "-c", SAMPLER, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    base = int(sampler.stdout.readline())
    weights = [nn.Parameter(torch.randn(1024, 1024)) for _ in range(16)]
    record.notes["shared_bytes"] = sum(w.numel() * w.element_size() for w in weights)
    there = [w.to(device) for w in weights]
    x = batch(8, 1024).to(device)
    for i in range(2):
        for t in there:
            x = torch.tanh(x @ t)
    record.tensor("there", x.cpu())
    record.tensor("here", torch.stack([w.sum() for w in weights]))
    sampler.stdin.close()
    record.notes["peak"] = int(sampler.stdout.read()) - base


def save():
    state = mlp().state_dict()
    torch.save(state, args[0])
    if importlib.util.find_spec("safetensors"):
        from safetensors.torch import save_file
        save_file(state, f"{args[0]}.safetensors")
    record.value("saved", True)


def beside():
    """A model on the device, and one on the processor that has to make do with what is left of the budget."""
    here, there = _models.mlp(1024, 10), mlp().to(device)
    x, y = batch(), batch(width=1024)
    for i in range(8):
        record.tensor(f"here {i}", here(y))
        run(f"there {i}", there, x)


def bits():
    if args[0] == "transformer":
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
        model, x = nn.TransformerEncoder(layer, 4).eval(), torch.randn(1, 20, WIDTH)
    else:
        model, x = _models.torchvision_model(args[0]), _models.image(1, size=64)
    note_moved(model)
    with torch.inference_mode():
        model.to(device)
        run(args[0], model, x, 2)


def compiled():
    """What dynamo has compiled goes by the operators."""
    model = mlp()
    host = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    there = [p.to(device) for p in host]
    model.to(device)

    @torch.compile(backend="eager")
    def step(x, weight):
        weight.add_(1)
        return model(x)

    record.tensor("compiled", step(batch().to(device), there[0]).cpu())
    for i, (h, t) in enumerate(zip(host, there)):
        record.tensor(f"host {i}", h)
        record.tensor(f"device {i}", t.cpu())


with torch.no_grad():
    globals()[mode]()
record.save()
