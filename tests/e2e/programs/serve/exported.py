"""Models as files of torch.export: what module() of the saved program and the model itself compute, and the tape of the
same file, as a whole and with two requests in turns at every cut. argv: the serve backend, then names of FORMS or of
torchvision's models."""
import json
import zipfile

import torch
from torch import nn
from torch.export import Dim

import _models
from _outputs import data, flat, raw
from _record import begin
from serve_backend import Backend, ServeError, in_turns

record, (path, *names) = begin()
# An export has attention's operators; the eager model would take one that is fused, with other bits.
torch.backends.mha.set_fastpath_enabled(False)


class Containers(nn.Module):
    """Dictionaries, tuples and nothing among the outputs; a weight that two layers share, a buffer and a constant."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 32), nn.Linear(64, 32), nn.Linear(64, 32)
        self.c.weight = self.b.weight
        self.register_buffer("scale", torch.full((32,), 0.5))
        self.bias = torch.arange(32.0)

    def forward(self, x):
        whole = torch.cat([self.a(x), self.b(x) * self.scale, self.c(x) + self.bias], 1) * 2.5
        low, high = whole.chunk(2, 1)
        return {"low": low, "pair": (high, whole.argmax(1), None), "list": [x + 1]}


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        y = self.conv(torch.relu_(self.norm(x)))
        y[:, 0].mul_(0.5)
        z = y.view(-1)
        z += 1
        return y


class NoGrad(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        with torch.no_grad():
            x = self.layer(x) + 1
        return x * 2


class Dynamic(nn.Module):
    """Sizes are computed with; two inputs share one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x, y):
        rows = x.shape[0]
        z = self.layer(x).view(rows * 2, -1)
        return z + rows // 2, y[:, : y.shape[1] - 1] * rows


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)


class Block(nn.Module):
    """A transformer's layer, written out."""

    def __init__(self):
        super().__init__()
        self.attention, self.first, self.second = Attention(), nn.LayerNorm(32), nn.LayerNorm(32)
        self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        x = x + self.attention(self.first(x))[0]
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


class Hidden(Stateful):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x):
        self.calls.view(2, 2).add_(1)
        return x + self.calls


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.ones(4))

    def forward(self, x):
        return x + self.w


def node(operator, inputs, outputs=()):
    return {"name": operator, "target": f"torch.ops.aten.{operator}.default", "inputs": [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs],
            "outputs": [{"as_tensor": {"name": name}} for name in outputs], "metadata": {}, "is_hop_single_tensor_return": None}


def spoiled(file, *nodes, text=""):
    """The file of Shifted with these nodes before its own, and with more text."""
    with zipfile.ZipFile(file) as whole, zipfile.ZipFile("spoiled.pt2", "w", zipfile.ZIP_DEFLATED) as to:
        for name in whole.namelist():
            content = whole.read(name)
            if name.endswith("models/model.json"):
                model = json.loads(content)
                graph = model["graph_module"]["graph"]
                graph["nodes"][:0] = nodes
                for one in (name for each in nodes for output in each["outputs"] for name in output["as_tensor"].values()):
                    graph["tensor_values"][one] = graph["tensor_values"]["x"]
                content = json.dumps(model)
            elif name.endswith("constants_config.json"):
                content = content + text.encode()
            to.writestr(name, content)
    return "spoiled.pt2"


def rows(seed):
    return (_models.rows(seed, 3, 64),)


def tokens(seed):
    return (_models.rows(seed, 2 * 5, 32).view(2, 5, 32),)


BATCH = Dim("batch", min=2, max=16)

# name: (module, inputs by seed, dynamic shapes)
FORMS = {
    "convnet": (lambda: _models.convnet(channels=64, depth=6), lambda s: (_models.image(s),), None),
    "mlp": (lambda: _models.mlp(width=256, depth=8), lambda s: (_models.rows(s, 4, 256),), None),
    "containers": (Containers, rows, None),
    "in place": (InPlace, lambda s: (_models.image(s, 2),), None),
    "no grad": (NoGrad, rows, None),
    "embedding": (lambda: nn.Embedding(50, 8), lambda s: (torch.arange(6).view(2, 3) * (s + 1) % 50,), None),
    "batch": (lambda: _models.convnet(channels=64, depth=2), lambda s: (_models.image(s, 3 + s),), ({0: BATCH},)),
    "dynamic": (Dynamic, lambda s: (_models.rows(s, 3 + s, 64), _models.rows(s, 3 + s, 7)), ({0: BATCH}, {0: BATCH})),
    "lstm": (lambda: nn.LSTM(32, 32, 2, batch_first=True), tokens, None),
    "attention": (Attention, tokens, None),
    "transformer": (Block, tokens, None),
    "half": (lambda: nn.Linear(64, 64).bfloat16(), lambda s: (rows(s)[0].bfloat16(),), None),
}


def form(name):
    if name in FORMS:
        return FORMS[name]
    size = 299 if name == "inception_v3" else 224
    return lambda: _models.torchvision_model(name), lambda s: (_models.image(s, size=size),), None


def refused(what, *arguments):
    try:
        what(*arguments)
    except ServeError as error:
        return str(error)
    return None


def save(name, module, inputs, shapes):
    file = name.replace(" ", "-") + ".pt2"
    torch.export.save(torch.export.export(module, inputs, dynamic_shapes=shapes), file)
    return file


backend = Backend(path)
for name in names:
    if name == "refused":
        continue
    make, inputs, shapes = form(name)
    with torch.no_grad():
        module = make().eval()
        file = save(name, module, inputs(0), shapes)
        eager = [raw(flat(module(*inputs(seed)))) for seed in range(2)]
        del module
        loaded = torch.export.load(file).module()
        plain = [raw(flat(loaded(*inputs(seed)))) for seed in range(2)]
        del loaded
    record.check(f"{name}: the export has the model's bits", plain == eager)
    # Two tapes: whole in five groups, of which the second request's times make new ones, and one with every cut.
    usual, every = backend.load(file), backend.load(file, groups=1 << 20)
    for turn in range(4):
        record.check(f"{name}: whole, turn {turn}", data(usual(*inputs(turn % 2))) == plain[turn % 2])
    record.check(f"{name}: in turns", [data(r) for r in in_turns(every.begin(*inputs(0)), every.begin(*inputs(1)))] == plain)
    record.value(f"{name}: groups", every.groups)
    record.value(f"{name}: described", every.describe())
    record.value(f"{name}: weight bytes", every.weight_bytes)
    every.unload()
    usual.unload()

if "refused" in names:
    model = backend.load(save("r", Dynamic().eval(), FORMS["dynamic"][1](0), FORMS["dynamic"][2]))
    for what, x, y in (("element", torch.ones(3, 64).double(), torch.ones(3, 7)), ("rank", torch.ones(3, 64, 1), torch.ones(3, 7)),
                       ("size", torch.ones(3, 63), torch.ones(3, 7)), ("most", torch.ones(17, 64), torch.ones(17, 7)),
                       ("equal", torch.ones(3, 64), torch.ones(4, 7))):
        record.value(what, refused(model.begin, x, y))
    model.unload()
    record.value("state", refused(backend.load, save("s", Stateful().eval(), (torch.ones(1),), None)))
    # Only when it runs it shows that it writes to a weight; and the second model has the first one's weights.
    file = save("v", Hidden().eval(), (torch.ones(4),), None)
    for number, model in enumerate([backend.load(file), backend.load(file)]):
        record.value(f"hidden {number}", refused(model, torch.ones(4)))
    # A list that is written to, and an operator that does not say what it writes to.
    file = save("w", Shifted().eval(), (torch.ones(4),), None)
    weight, view, x = ({"as_tensor": {"name": name}} for name in ("b_w", "view", "x"))
    record.value("foreach", refused(backend.load, spoiled(file, node("_foreach_zero_", [("self", {"as_tensors": [{"name": "b_w"}]})]))))
    model = backend.load(spoiled(file, node("alias", [("self", weight)], ["view"]),
                                 node("_foreach_zero_", [("self", {"as_tensors": [{"name": "x"}, {"name": "view"}]})])))
    record.value("foreach view", refused(model, torch.ones(4)))
    record.value("statistics", refused(backend.load, spoiled(file, node(
        "batch_norm_update_stats", [("input", x), ("running_mean", weight), ("running_var", {"as_none": True}), ("momentum", {"as_float": 1.0})],
        ["mean", "var"]))))
    record.value("text", refused(backend.load, spoiled(file, text=" " * (4 << 20))))
    with open("r.pt2", "rb") as whole, open("cut.pt2", "wb") as cut:
        cut.write(whole.read()[:-200])
    record.value("cut", refused(backend.load, "cut.pt2"))
    torch.save({"a": torch.ones(3)}, "weights.pt")
    record.value("weights", refused(backend.load, "weights.pt"))
    writer = torch._C.PyTorchFileWriter("compiled.pt2")
    for entry, content in (("archive_format", b"pt2"), ("data/aotinductor/model/model.so", b"\x7fELF")):
        writer.write_record(entry, content, len(content))
    writer.write_end_of_file()
    record.value("compiled", refused(backend.load, "compiled.pt2"))
record.save()
