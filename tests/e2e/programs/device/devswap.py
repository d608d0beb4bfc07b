"""Models on a device that has no room for all of their weights: computed with, written, forked, let go."""
import ctypes
import gc
import os
import pickle
import sys
import threading
import time

# The stand-in's runtime has to be there before the first tensor.
ctypes.CDLL(os.path.join(sys.argv[2], "libcudart.so.12"), ctypes.RTLD_GLOBAL)

import torch
from torch import nn

import _models
import _record
from _standin import Standin

record, (directory, mode, *args) = _record.begin()
standin = Standin(directory)
device = standin.device
WIDTH, DEPTH = 1024, 12  # 4 MiB each


def mlp():
    return _models.mlp(WIDTH, DEPTH)


def batch(rows=2):
    return torch.randn(rows, WIDTH)


def run(name, module, x, passes=1):
    for i in range(passes):
        record.tensor(f"{name}.{i}", module(x.to(device)).cpu())


def note(module):
    sizes = {t.data_ptr(): t.numel() * t.element_size() for t in module.state_dict().values()}
    record.notes["shared_bytes"] = sum(n for n in sizes.values() if n >= 65536)


def bits():
    if args[0] == "transformer":
        if hasattr(torch.backends, "mha"):
            torch.backends.mha.set_fastpath_enabled(False)  # all of a layer's weights in one operator
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        model, x = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval(), torch.randn(1, 20, 512)
    elif args[0] == "mlp":
        model, x = mlp(), batch()
    else:
        model, x = _models.torchvision_model(args[0]), _models.image(1, size=64)
    note(model)
    context = torch.inference_mode() if args[0] == "transformer" else torch.no_grad()
    with context:
        model.to(device)
        run(args[0], model, x, 4)
    standin.lib.standin_peak.restype = ctypes.c_size_t
    record.notes["device_peak"] = standin.lib.standin_peak()
    record.module("back", model.cpu())


def written():
    """In-place operators, and those that nobody knows, on weights that are not there."""
    model = mlp().to(device)
    x = batch()
    run("before", model, x)
    with torch.no_grad():
        model[0].weight.add_(0.25)
        model[2].weight[3:9].mul_(2)
        model[4].weight.copy_(torch.randn(WIDTH, WIDTH))
        model[6].weight.data = model[6].weight.data * 2
    run("written", model, x, 2)
    record.value("trace", model[8].weight.trace().item())
    record.value("view", model[10].weight.view(-1)[5:8].tolist())
    record.tensor("view of all", model[12].weight.t()[7:300].cpu())
    library = torch.library.Library("swntest", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda t: t.mul(2), "PrivateUse1")
    record.tensor("custom", torch.ops.swntest.twice(model[14].weight).cpu())
    run("after", model, x, 2)
    record.module("model", model.cpu())


def streams():
    """Two models on two streams, in turn."""
    models, x = [mlp().to(device), mlp().to(device)], batch()
    inputs = [x.to(device), (x * 2).to(device)]
    for i in range(3):
        out = []
        for j, (model, there) in enumerate(zip(models, inputs)):
            standin.use_stream(16 * (j + 1))
            out.append(model(there))
        standin.wait()
        standin.use_stream(0)
        for j, t in enumerate(out):
            record.tensor(f"{i}.{j}", t.cpu())


def devices():
    """A model on each of two devices, in turn; the current one is the first throughout."""
    models, x = [mlp().to(where) for where in (device, standin.other)], batch()
    for i in range(3):
        for j, (model, where) in enumerate(zip(models, (device, standin.other))):
            record.tensor(f"{i}.{j}", model((x * (j + 1)).to(where)).cpu())
    for j, model in enumerate(models):
        record.module(f"back {j}", model.cpu())


def threads():
    """Two threads, each its own model and stream."""
    models, x = [mlp().to(device), mlp().to(device)], batch()
    inputs, results = [x.to(device), (x * 3).to(device)], {}

    def work(j):
        torch.set_num_threads(1)
        standin.use_stream(16 * (j + 1))
        with torch.no_grad():
            for i in range(3):
                results[i, j] = models[j](inputs[j])

    workers = [threading.Thread(target=work, args=(j,)) for j in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    standin.wait()
    for (i, j), t in sorted(results.items()):
        record.tensor(f"{i}.{j}", t.cpu())


def later():
    """Copies that do not block, of weights of the processor's that come and go, by a device that makes them later."""
    model, x = mlp(), batch()
    with torch.no_grad():
        for i in range(4):
            record.tensor(f"before {i}", model(x))
        weights = [p for p in model.parameters() if p.dim() == 2]
        there = [torch.empty(WIDTH, WIDTH, device=device).copy_(p, non_blocking=True) for p in weights]
        for i in range(2):
            record.tensor(f"meanwhile {i}", model(x))
    standin.wait()
    for i, t in enumerate(there):
        record.tensor(f"there {i}", t.cpu())


def graph():
    """Copies that are put into a graph: nobody may wait for its stream, and they know the weights' addresses for good."""
    model, x = mlp().to(device), batch()
    run("before", model, x)
    here = torch.zeros(WIDTH, WIDTH)
    there = torch.zeros(WIDTH, WIDTH, device=device)
    standin.use_stream(16)
    standin.wait()
    standin.capture(16, True)
    here.copy_(model[20].weight, non_blocking=True)
    there.copy_(model[20].weight, non_blocking=True)
    standin.capture(16, False)
    standin.replay()
    standin.wait()
    standin.use_stream(0)
    run("after", model, x, 2)
    record.tensor("here", here)
    record.tensor("there", there.cpu())


def graph_of_all():
    """A graph of more weights than there is room for. It has all of them, and copies none."""
    model, x = mlp().to(device), batch().to(device)
    run("before", model, x)
    standin.use_stream(16)
    standin.wait()
    standin.capture(16, True)
    y, trace = model(x), model[8].weight.trace()  # the latter of an operator that is lent nothing otherwise
    standin.capture(16, False)
    standin.replay()
    standin.wait()
    standin.use_stream(0)
    record.tensor("captured", y.cpu())
    record.tensor("trace", trace.cpu())
    run("after", model, x, 2)
    del model
    gc.collect()
    kinds = ["managed", "reserved", "physical"]
    if os.environ.get("STANDIN_DEVICE") != "discrete":
        kinds.append("registered")  # there what is copied to it comes through some
    record.check("nothing is left", standin.empty(*kinds))


def captured(work):
    """Puts it into a graph, unwarmed."""
    standin.use_stream(16)
    standin.wait()
    standin.capture(16, True)
    work()
    standin.capture(16, False)
    standin.wait()
    standin.use_stream(0)


def graph_written():
    """Weights are written after a graph has been given their addresses, which sees it."""
    model, x, y = mlp().to(device), batch().to(device), torch.zeros(2, WIDTH).to(device)
    other = model[16].weight
    captured(lambda: y.copy_(model[:21](x)))

    def check(name):
        y.zero_()
        standin.replay()
        standin.wait()
        record.tensor(name, y.cpu())
        run(f"{name} outside", model, batch())

    check("as captured")
    model[0].weight.add_(0.25)
    check("written")
    model[2].weight[3:9].mul_(2)
    model[4].weight.copy_(torch.randn(WIDTH, WIDTH))
    check("written again")
    record.value("unlisted", model[6].weight.trace().item())
    model[6].weight.mul_(0.5)
    model[0].weight.sub_(0.125)
    check("written after that")
    model.load_state_dict({name: t.mul(0.75) for name, t in mlp().state_dict().items()})
    check("loaded")
    record.tensor("one", other.cpu())
    record.module("model", model.cpu())
    check_back = model.to(device)
    run("back", check_back, batch())
    del model, check_back, other
    gc.collect()


def graph_writes():
    """A graph that writes weights, which nobody has written before, and gives them to operators that nobody knows."""
    library = torch.library.Library("swntest", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda t: t.mul(2), "PrivateUse1")
    model, x = mlp().to(device), batch().to(device)
    host = nn.Parameter(torch.randn(WIDTH, WIDTH))
    shared = [host.to(device) for _ in range(2)]
    y, z = torch.zeros(2, WIDTH).to(device), torch.zeros(WIDTH, WIDTH).to(device)

    def work():
        model[0].weight.add_(0.25)
        y.copy_(model(x))
        scaled = model[6].weight * 2  # whose memory is the graph's again for what comes next
        y.add_(scaled[:2])
        del scaled
        y.add_(nn.functional.linear(x, shared[0]))
        z.copy_(torch.ops.swntest.twice(model[4].weight))

    captured(work)
    for i in range(3):
        standin.replay()
        standin.wait()
        record.tensor(f"y {i}", y.cpu())
        record.tensor(f"z {i}", z.cpu())
        shared[i % 2].add_(1)
        host.mul_(2)
        model[4].weight.add_(1)
    for i, t in enumerate([host, *shared]):
        record.tensor(f"shared {i}", t.cpu())
    run("after", model, batch())


def overtaken():
    """A thread waits for a weight to be brought, and another writes that meanwhile: its memory is another from then on, also
    while the first one computes."""
    model, x = mlp().to(device), batch().to(device)
    model(x)
    weight = model[0].weight

    def read():
        with torch.no_grad():
            standin.delay(1.5)
            nn.functional.linear(x, weight)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.05)
    weight.add_(1)
    time.sleep(0.8)
    weight.add_(2)
    reader.join()
    standin.wait()
    record.tensor("weight", weight.cpu())


def cast():
    """Copies to another type are made on the device, from where the operator has been lent the weight."""
    model = mlp().to(device)
    for i in range(0, 2 * DEPTH, 2):
        record.tensor(f"double {i}", model[i].weight.to(torch.float64).cpu())
        record.tensor(f"half {i}", model[i].weight.t().half().cpu())


def pickled():
    """Pickling makes storages of its own over the addresses of others'."""
    model = mlp().to(device)
    for i in range(0, 2 * DEPTH, 2):
        pickled = pickle.dumps(model[i].weight.untyped_storage())
        record.check(f"pickled {i}", model[i].weight.cpu().numpy().tobytes() in pickled)
    run("after", model, batch(), 2)


def late_kernel():
    """A kernel of the program's own for an operator of PyTorch's, which uses a weight that it is not given."""
    model = mlp().to(device)
    run("before", model, batch(), 2)
    library = torch.library.Library("aten", "IMPL")

    def addmm(bias, x, weight, *, beta=1, alpha=1):
        return torch.mm(x, weight) + bias + torch.mm(x, model[22].weight) * 0.5

    library.impl("addmm", addmm, "PrivateUse1")
    run("after", model[:5], batch(), 2)
    record.module("model", model.cpu())


def forked_before():
    """A child of a program that has not used the device can."""
    model = mlp()

    def child():
        x = batch()
        want = model(x)
        there = model.to(device)
        return torch.equal(there(x.to(device)).cpu(), want) and (
            "SWAPNET_BUDGET" not in os.environ or standin.live()["reserved" if card else "registered"] > 0)

    card = os.environ.get("STANDIN_DEVICE") == "discrete"
    record.value("child", _record.in_child(child))


def forked():
    model, x = mlp().to(device), batch()
    host = nn.Parameter(torch.randn(WIDTH, WIDTH))
    there = host.to(device)
    run("before", model, x, 2)
    record.value("child", _record.in_child(lambda: host.add_(1).isfinite().all()))  # the child's alone
    run("after", model, x, 2)
    record.tensor("there", there.cpu())
    record.tensor("host", host)


def dropped():
    """Models that go while their weights are on their way, over and over."""
    x = batch().to(device)
    for i in range(3):
        model = mlp().to(device)
        y = model[16:21](x)  # what follows is being read ahead
        del model
        gc.collect()
        record.tensor(f"{i}", y.cpu())
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    for _ in range(200):  # and a thousand in tests/unit/skeleton/device/t_swapper.c
        weight.to(device)
    record.tensor("weight", weight.to(device).cpu())
    del weight
    standin.wait()


def loaded():
    """From a checkpoint that is not in memory."""
    model = mlp()
    if not os.path.exists(args[0]):
        torch.save(model.state_dict(), args[0])
    model.load_state_dict(torch.load(args[0]))
    model.to(device)
    note(model)
    run("loaded", model, batch(), 4)
    record.module("model", model.cpu())


def indexed():
    """TorchScript leaves indices out: of a list of them the first may be no tensor, and the next one comes and goes."""
    if not os.path.exists(args[0]):
        state = {str(i): torch.randn(WIDTH, WIDTH) for i in range(DEPTH)}
        torch.save(state | {"indices": torch.randint(WIDTH, (8192,))}, args[0])
    state = {name: t.to(device) for name, t in torch.load(args[0]).items()}
    script = torch.jit.CompilationUnit("def columns(t, i):\n    return t[:, i]\n")
    for i in range(DEPTH):
        record.tensor(str(i), script.columns(state[str(i)], state["indices"]).cpu())


def unlisted():
    """Operators that are lent nothing, one weight after the other."""
    model = mlp().to(device)
    for i in range(0, 2 * DEPTH, 2):
        record.value(f"trace {i}", model[i].weight.trace().item())


def compiled():
    model, x = mlp().to(device), batch()
    run("before", model, x)
    step = torch.compile(lambda t: model(t) * 2, backend="eager")
    record.tensor("compiled", step(x.to(device)).cpu())


with torch.no_grad():
    globals()[mode]()
record.save()
