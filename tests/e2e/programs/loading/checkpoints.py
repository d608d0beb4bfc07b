"""Makes checkpoints of many kinds, and says what PyTorch itself finds in checkpoints.

    checkpoints.py make DIRECTORY COUNT SEED   COUNT files; prints their paths
    checkpoints.py read [--weights-only]       paths on standard input; a line of JSON each

A line is {"path", "tensors": {name: [dtype, shape, stride, hash]}} or {"path", "error"}. Names are the way through dicts,
lists and tuples, joined by dots, as the readers in blocks/ have them; the hash is over the elements in row-major order.
"""
import collections
import ctypes
import hashlib
import json
import os
import random
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
LARGE = 64 << 20  # of larger tensors only both ends are hashed
END = 1 << 20


def digest(view):
    h = hashlib.blake2b(digest_size=16)
    if len(view) > LARGE:
        h.update(view[:END])
        view = view[-END:]
    h.update(view)
    return h.hexdigest()


def tensor_digest(t):
    t = t.detach().contiguous()
    n = t.numel() * t.element_size()
    return digest(memoryview((ctypes.c_char * n).from_address(t.data_ptr())) if n else b"")


def describe(t):
    return [str(t.dtype).removeprefix("torch."), list(t.shape), list(t.stride()), tensor_digest(t)]


def is_plain(t):
    """Bytes and strides are all of it. The readers leave out the others, and count them."""
    return t.layout is torch.strided and not (t.is_meta or t.is_quantized or t.is_conj() or t.is_neg())


def flatten(value, name, out, described, inside=()):
    if id(value) in inside:
        return  # a container inside itself has been named already
    if isinstance(value, torch.Tensor) and not is_plain(value):
        return
    if isinstance(value, torch.Tensor):
        name = name or "tensor"
        assert name not in out, f"{name} twice"
        # a view of stride 0 is written out once for the hash, not once for each of its names
        if id(value) not in described:
            described[id(value)] = describe(value)
        out[name] = described[id(value)]
        return
    if isinstance(value, dict):
        items = [(k if isinstance(k, str) else str(int(k)), v) for k, v in value.items() if isinstance(k, (str, int))]
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [(str(i), v) for i, v in enumerate(value)]
    else:
        return
    for key, item in items:
        flatten(item, f"{name}.{key}" if name else key, out, described, (*inside, id(value)))


def load(path, weights_only):
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file
        return load_file(path)
    if path.endswith(".index.json"):
        with open(path) as f:
            shards = sorted(set(json.load(f)["weight_map"].values()))
        merged = {}
        for shard in shards:  # as transformers and accelerate do
            merged.update(load(os.path.join(os.path.dirname(path), shard), weights_only))
        return merged
    if path.endswith(".ts"):
        return dict(torch.jit.load(path, map_location="cpu").state_dict())
    options = {}
    if weights_only:
        options["weights_only"] = True
    elif "weights_only" in torch.load.__code__.co_varnames:
        options["weights_only"] = False
    if os.path.getsize(path) > 1 << 30 and "mmap" in torch.load.__code__.co_varnames:
        options["mmap"] = True
    return torch.load(path, map_location="cpu", **options)


def read(weights_only):
    for line in sys.stdin:
        path = line.rstrip("\n")
        out = {}
        try:
            flatten(load(path, weights_only), "", out, {})
            print(json.dumps({"path": path, "tensors": out}), flush=True)
        except Exception as error:  # whatever PyTorch has against the file
            print(json.dumps({"path": path, "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)


# --- making ---

PLAIN = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
         torch.bfloat16, torch.bool, torch.complex64, torch.complex128]
PACKED = ("float4_e2m1fn_x2", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2")
NEWER = [getattr(torch, n) for n in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
                                     "float8_e5m2fnuz", "float8_e8m0fnu", "complex32", *PACKED)
         if hasattr(torch, n) and hasattr(torch, "uint16")]


def raw_tensor(rng, dtype, shape):
    """Random bytes as elements: every pattern must come through, NaN or not."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = 1
    for d in shape:
        count *= d
    if dtype is torch.bool:
        return torch.tensor([rng.random() < 0.5 for _ in range(count)], dtype=torch.bool).reshape(shape)
    data = bytearray(rng.randbytes(count * size))
    if not count:
        return torch.empty(shape, dtype=dtype)
    if str(dtype).removeprefix("torch.") in PACKED:  # has no kernels, not even for frombuffer
        plain = torch.int16 if size == 2 else torch.uint8
        return torch.frombuffer(data, dtype=plain).clone().reshape(shape).view(dtype)
    return torch.frombuffer(data, dtype=dtype).clone().reshape(shape)


def random_shape(rng):
    return [rng.choice([0, 1, 1, 2, 3, 5, 8]) if rng.random() < 0.9 else 17 for _ in range(rng.randrange(5))]


def random_tensor(rng):
    dtype = rng.choice(PLAIN + NEWER)
    t = raw_tensor(rng, dtype, random_shape(rng))
    kind = rng.randrange(8)
    if kind == 0 and t.dim() >= 2:
        t = t.transpose(0, -1)
    elif kind == 1 and t.dim() >= 1 and t.shape[0] > 1:
        t = t[1:]
    elif kind == 2 and t.dim() >= 1:
        t = t[::2]
    elif kind == 3 and t.dim() >= 1:
        t = t.unsqueeze(0).expand(3, *t.shape)
    elif kind == 4 and t.dim() == 4:
        t = t.to(memory_format=torch.channels_last)
    elif kind == 5:
        t = torch.nn.Parameter(t, requires_grad=t.is_floating_point() or t.is_complex())
        if rng.random() < 0.5:
            t.tag = "kept"
    return t


def random_value(rng, depth, shared):
    roll = rng.random()
    if depth and roll < 0.25:
        return {rng.choice([f"key{i}", i, f"é{i}", ""]) if i else "k": random_value(rng, depth - 1, shared)
                for i in range(rng.randrange(5))}
    if depth and roll < 0.35:
        return [random_value(rng, depth - 1, shared) for _ in range(rng.randrange(4))]
    if depth and roll < 0.42:
        return tuple(random_value(rng, depth - 1, shared) for _ in range(rng.randrange(4)))
    if depth and roll < 0.5:
        return collections.OrderedDict((f"o.{i}", random_value(rng, depth - 1, shared)) for i in range(rng.randrange(4)))
    if roll < 0.6:
        return rng.choice([None, True, -5, 1 << 70, 2.5, "text", b"bytes\xff", torch.float16, torch.Size([1, 2]),
                           torch.device("cpu"), {1, 2}, 1j, 70000, -(1 << 40)])
    if roll < 0.7 and shared:
        return rng.choice(shared)
    t = random_tensor(rng)
    shared.append(t)
    if t.dim() >= 1 and rng.random() < 0.3:
        shared.append(t.detach()[: t.shape[0] // 2])
    return t


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = torch.nn.Linear(width, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, width, bias=False), torch.nn.ReLU())

    def forward(self, x):
        return self.inner(self.norm(self.a(x)))


def make_one(rng, directory, i):
    path = f"{directory}/{i:03d}"
    kind = i % 10
    torch.manual_seed(rng.randrange(1 << 30))
    if kind == 0:
        net = Net(1 + i % 7)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.ones(2, 1 + i % 7)).sum().backward()
        optimizer.step()
        torch.save({"state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": i}, path + ".pt")
        return path + ".pt"
    if kind == 1:
        script = torch.jit.script(Net(1 + i % 7)) if i % 20 == 1 else torch.jit.trace(Net(2).eval(), torch.ones(2, 2))
        if i % 40 == 1:
            script._save_for_lite_interpreter(path + ".ts")
        else:
            torch.jit.save(script, path + ".ts", _extra_files={"note.txt": "n" * i})
        return path + ".ts"
    if kind == 2:
        try:
            from safetensors.torch import save_file
        except ImportError:
            save_file = None
        if save_file:
            known = [d for d in PLAIN + NEWER if d not in (torch.complex32, torch.complex128, torch.complex64)
                     and not str(d).startswith("torch.bits")]
            tensors = {f"t{k}.ü": raw_tensor(rng, rng.choice(known), random_shape(rng)) for k in range(i % 13)}
            halves = getattr(torch, "float4_e2m1fn_x2", None)  # has two elements in safetensors for one here
            tensors = {k: t for k, t in tensors.items() if t.dtype is not halves or t.dim()}
            save_file(tensors, path + ".safetensors", metadata={"format": "pt", "i": str(i)} if i % 20 == 2 else None)
            return path + ".safetensors"
    if kind == 3:
        tied = Net(4)
        tied.inner[0].weight = torch.nn.Parameter(tied.a.weight.detach().t())
        torch.save(collections.OrderedDict(tied.state_dict()), path + ".pt")
        return path + ".pt"
    if kind == 4:
        torch.save({f"many.{k}": raw_tensor(rng, torch.uint8, [k % 5]) for k in range(40)}, path + ".pt")
        return path + ".pt"
    if kind == 5 and i % 20 == 5:
        torch.save(random_tensor(rng), path + ".pt")
        return path + ".pt"
    shared = []
    value = {f"top{k}": random_value(rng, 4, shared) for k in range(4)}
    torch.save(value, path + ".pt")
    return path + ".pt"


def make(directory, count, seed):
    rng = random.Random(seed)
    for i in range(count):
        print(make_one(rng, directory, i), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        read("--weights-only" in sys.argv)
