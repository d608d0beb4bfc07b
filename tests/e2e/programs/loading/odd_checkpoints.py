"""Makes checkpoints as programs write them, whatever they hold: odd_checkpoints.py make DIRECTORY COUNT SEED; prints their
paths. `load.py` of real training scripts is full of these: namespaces of options, numbers of numpy's, whole optimizers.
Read by checkpoints.py."""
import argparse
import collections
import datetime
import decimal
import enum
import fractions
import json
import pathlib
import random
import sys
import types
import typing
import uuid

import numpy as np
import torch

from checkpoints import Net, raw_tensor, random_shape, random_tensor, PLAIN


class Settings(collections.OrderedDict):
    pass


class Options:
    def __init__(self, value):
        self.value = value


class Kind(enum.Enum):
    A = 1


Pair = collections.namedtuple("Pair", "left right")


def contents(rng):
    """What is no tensor: one of everything that has been seen in checkpoints."""
    return rng.choice([
        lambda: argparse.Namespace(lr=0.1, layers=[1, 2]),
        lambda: types.SimpleNamespace(a=1),
        lambda: np.float64(2.5), lambda: np.int64(-7), lambda: np.bool_(True), lambda: np.float32(1.5),
        lambda: np.arange(rng.randrange(9)), lambda: np.array(["a", "bc"]), lambda: np.array([None, 1], dtype=object),
        lambda: np.dtype("float32"), lambda: np.random.default_rng(1).bit_generator.state,
        lambda: collections.defaultdict(list, a=[1]), lambda: collections.Counter("abca"), lambda: collections.deque([1, 2]),
        lambda: pathlib.PurePosixPath("/a/b"), lambda: datetime.datetime(2026, 1, 2), lambda: decimal.Decimal("1.5"),
        lambda: fractions.Fraction(1, 3), lambda: uuid.UUID(int=5), lambda: range(5), lambda: slice(1, 2),
        lambda: frozenset([1, 2]), lambda: {1, 2}, lambda: bytearray(b"abc"), lambda: b"bytes", lambda: complex(1, 2),
        lambda: Kind.A, lambda: Options(5), lambda: Settings(a=1), lambda: Pair(1, 2), lambda: print, lambda: Ellipsis,
        lambda: torch.Size([2, 3]), lambda: torch.device("cpu"), lambda: torch.float16, lambda: torch.strided,
        lambda: torch.Generator().manual_seed(3).get_state(), lambda: torch.get_rng_state()[:64],
        lambda: random.Random(1).getstate(), lambda: 1 << 2000, lambda: -(1 << 63), lambda: "x" * 70000, lambda: "\ud83d\ude00 \0 é",
        lambda: float("nan"), lambda: None, lambda: True, lambda: torch.nn.Linear(2, 2), lambda: torch.optim.SGD,
    ])()


def tensor(rng):
    kind = rng.randrange(12)
    if kind == 0:
        return raw_tensor(rng, rng.choice(PLAIN), random_shape(rng)).to_sparse() if rng.random() < 0.3 else torch.eye(3).to_sparse()
    if kind == 1:
        return torch.ones(3, device="meta")
    if kind == 2:
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 1, torch.qint8)
    if kind == 3:
        return torch.ones(3, requires_grad=True)
    if kind == 4:
        return torch.ones(3, dtype=torch.complex64).conj()
    return random_tensor(rng)


def value(rng, depth):
    roll = rng.random()
    if depth and roll < 0.2:
        keys = [rng.choice([f"k{i}", f"k.{i}", i, -i, (i, "t"), 1.5 + i, True, None, b"b", ""]) for i in range(rng.randrange(4))]
        return {key: value(rng, depth - 1) for key in keys}
    if depth and roll < 0.4:
        items = [value(rng, depth - 1) for _ in range(rng.randrange(4))]
        return rng.choice([list, tuple, lambda i: collections.OrderedDict(enumerate(i)), lambda i: Settings(enumerate(i)),
                           lambda i: argparse.Namespace(items=i), lambda i: collections.defaultdict(list, a=i),
                           lambda i: Pair(i, i), lambda i: collections.deque(i)])(items)
    if roll < 0.5:
        return contents(rng)
    return tensor(rng)


def shards(rng, path):
    weight_map = {}
    for k in range(rng.randrange(1, 4)):
        part = {f"layer{k}.{i}": tensor(rng) for i in range(rng.randrange(1, 4))}
        name = f"{pathlib.Path(path).name}-{k}.bin"
        torch.save(part, f"{path}-{k}.bin")
        weight_map.update({key: name for key in part})
    with open(path + ".index.json", "w") as out:
        json.dump({"metadata": {}, "weight_map": weight_map}, out)
    return path + ".index.json"


SAFE_TYPES = {"uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "float16": "F16", "float32": "F32",
              "float64": "F64", "bfloat16": "BF16", "bool": "BOOL", "uint16": "U16", "uint32": "U32", "uint64": "U64",
              "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
              "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "complex64": "C64"}
# Of which PyTorch has none, or not in all versions: bits of an element.
OTHER_SAFE_TYPES = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8, "U16": 16, "F8_E5M2": 8}


def safe_tensor(rng):
    """(type, shape, bytes) of one, whatever this PyTorch knows."""
    if rng.random() < 0.2:
        name = rng.choice(list(OTHER_SAFE_TYPES))
        shape = [rng.randrange(4), rng.choice([2, 4, 8])]
        return name, shape, rng.randbytes(shape[0] * shape[1] * OTHER_SAFE_TYPES[name] // 8)
    known = [d for d in SAFE_TYPES if hasattr(torch, d)]
    t = raw_tensor(rng, getattr(torch, rng.choice(known)), random_shape(rng))
    data = t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)
    return SAFE_TYPES[str(t.dtype).removeprefix("torch.")], list(t.shape), bytes(data.numpy())


def write_safetensors(rng, path, prefix=""):
    """Written here, as other programs than safetensors do: in any order of names, with spaces, escapes and metadata."""
    header, data, names = {}, b"", [f"{prefix}{rng.choice(['w', 'b.', 'ü', '/', ' ', 'a' * 200])}{k}" for k in range(rng.randrange(7))]
    if rng.random() < 0.4:
        header["__metadata__"] = rng.choice([{}, {"format": "pt"}, {"é": "\0\n", "n": "1"}, {"long": "x" * 5000}])
    for name in names:
        kind, shape, content = safe_tensor(rng)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    if rng.random() < 0.3:
        header = dict(rng.sample(list(header.items()), len(header)))
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(",", ":"), (", ", ": ")])).encode()
    text += b" " * (-len(text) % rng.choice([1, 8, 8, 64]))
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text + data)
    return names


def safe_shards(rng, path):
    weight_map = {}
    for k in range(rng.randrange(1, 5)):
        name = f"{pathlib.Path(path).name}-{k:05d}.safetensors"
        weight_map.update({key: name for key in write_safetensors(rng, f"{path}-{k:05d}.safetensors", f"s{k}.")})
    if rng.random() < 0.1 and weight_map:  # a tensor that the map forgets, as some converters do
        weight_map.pop(rng.choice(list(weight_map)))
    with open(path + ".safetensors.index.json", "w") as out:
        json.dump({"metadata": {"total_size": 1}, "weight_map": weight_map} if rng.random() < 0.8 else {"weight_map": weight_map}, out)
    return path + ".safetensors.index.json"


class Odd(torch.nn.Module):
    """Attributes of all kinds that TorchScript saves."""
    pairs: typing.Dict[str, torch.Tensor]
    maybe: typing.Optional[torch.Tensor]

    def __init__(self, rng):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=rng.random() < 0.5) for _ in range(rng.randrange(4)))
        self.named = torch.nn.ModuleDict({f"k{k}": torch.nn.Conv1d(1, 1, 1) for k in range(rng.randrange(3))})
        self.pairs = {"a": tensor_of(rng), "b": tensor_of(rng)}
        self.many = [tensor_of(rng) for _ in range(rng.randrange(1, 3))]
        self.both = (tensor_of(rng), 5, "text")
        self.maybe = tensor_of(rng) if rng.random() < 0.5 else None
        self.numbers, self.text = [1, 2, 3], "é"
        for k in range(rng.randrange(4)):
            self.register_buffer(f"buffer{k}", tensor_of(rng), persistent=rng.random() < 0.7)
        self.free = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t(), requires_grad=rng.random() < 0.5)
        if self.layers and rng.random() < 0.5:
            self.tied = self.layers[0].weight

    def forward(self, x):
        return x + self.free.sum()


def tensor_of(rng):
    return raw_tensor(rng, rng.choice(PLAIN), random_shape(rng))


def script(rng, path):
    made = torch.jit.script(Odd(rng).train(rng.random() < 0.5))
    if rng.random() < 0.2:
        made = torch.jit.freeze(made.eval())
    if rng.random() < 0.2:
        made._save_for_lite_interpreter(path)
    else:
        torch.jit.save(made, path, _extra_files={"note.txt": "n" * rng.randrange(100)} if rng.random() < 0.3 else {})
    return path


def make_one(rng, directory, i):
    path = f"{directory}/{i:05d}"
    kind = rng.randrange(14)
    if kind == 10:
        write_safetensors(rng, path + ".safetensors")
        return path + ".safetensors"
    if kind == 11:
        return safe_shards(rng, path)
    if kind > 11:
        return script(rng, path + ".ts")
    if kind == 0:
        return shards(rng, path)
    if kind == 1:
        net = Net(3)
        made = {"model": net, "state": net.state_dict(), "args": contents(rng)}
    elif kind == 2:
        made = {"state": Net(2).state_dict(), "config": contents(rng), "more": contents(rng)}
    elif kind == 3:
        made = rng.choice([tensor, contents])(rng)
    else:
        made = {f"top{k}": value(rng, 3) for k in range(3)}
    torch.save(made, path + ".pt", pickle_protocol=rng.choice([2, 2, 2, 3, 4, 5]),
               _use_new_zipfile_serialization=rng.random() < 0.85)
    return path + ".pt"


if __name__ == "__main__":
    rng = random.Random(int(sys.argv[4]))
    made = 0
    while made < int(sys.argv[3]):
        try:
            path = make_one(rng, sys.argv[2], made)
        except Exception as error:  # not every PyTorch writes all of it
            print(f"not made: {type(error).__name__}: {error}"[:200], file=sys.stderr)
            continue
        print(path, flush=True)
        made += 1
