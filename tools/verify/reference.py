"""Models of a repository in a process of plain PyTorch, one after the other. Reads a line of JSON for each from standard input:
`path` of the model's file, `inputs` as the server describes them, `shapes` that the user names, `requests`, `seed`,
`where` files go, and `given`, requests of an earlier time to be answered again. Prints a line of JSON: `requests`, or `error`.
"""
import contextlib
import ctypes
import gc
import itertools
import json
import os
import pickle
import re
import struct
import sys
import traceback
import zipfile

# What is tried for sizes that the server does not know, before those of the model's own weights.
SIZES = (8, 16, 32, 64, 128, 224, 1, 2, 3)
RANKS = (2, 3, 4, 1)
TRIES = 400

TOUCH_FILES = ("aten::from_file", "aten::save")
NAMESPACES = ("aten", "prim", "prims", "quantized", "_quantized", "quantization", "sparse", "profiler", "torchvision",
              "mkldnn_prepacked", "prepacked")
CLASSES = ("quantized", "sparse", "rnn", "xnnpack", "mkldnn", "profiler")


class NoVerdict(Exception):
    """There is nothing to compare; why, in words for the user."""


# ---- models ----

def flat(result):
    """The tensors of an answer, in order."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, dict):
        for value in result.values():
            yield from flat(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from flat(value)


def require_served(operator):
    """As shim/serve/served_operators.cpp, which has the same lists: a model computes, and touches no files."""
    name = operator.partition(".")[0]
    if name in TOUCH_FILES:
        raise NoVerdict(f"its code is not run: it calls the operator {name}, which touches files")
    if name.partition("::")[0] not in NAMESPACES:
        raise NoVerdict(f"its code is not run: it calls the operator {name}, which is not served")


def look_at_code(path):
    """Before it is loaded, which runs code of it. TorchScript's code calls aten::relu torch.relu, and others
    ops.quantized.add; code that has these names in another way was not written by PyTorch."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if not any(one.filename.endswith("/constants.pkl") for one in entries):
                return  # TorchScript's loader is not asked
            texts = [archive.read(one).decode(errors="replace") for one in entries if one.filename.endswith(".py")]
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise NoVerdict(f"its code is not run: the file is no whole archive: {error}") from error
    for text in texts:
        for name in re.findall(r"\b(from_file|save)\b", text):
            require_served("aten::" + name)
        for space, name in re.findall(r"(?<![\w.])ops\.(\w+)\.(\w+)", text):
            require_served(f"{space}::{name}")
        for name in re.findall(r"__torch__\.torch\.classes\.(\w+)", text):
            if name not in CLASSES:
                raise NoVerdict(f"its code is not run: it has an object of the class torch.classes.{name}, which is not served")
        if re.search(r"(?<![\w.])(?:torch(?!\.\w)|ops(?!\.\w+\.\w))(?!\w)", text):
            raise NoVerdict("its code is not run: it hides which operators it calls")


class Scripted:
    """A file of TorchScript."""

    def __init__(self, path):
        look_at_code(path)
        self.module = torch.jit.load(path).eval()

    def __call__(self, inputs):
        with torch.no_grad():
            return list(flat(self.module(*inputs)))

    def sizes(self):
        return {size for tensor in self.module.parameters() for size in tensor.shape}


@contextlib.contextmanager
def without_pickles():
    """A file of torch.export may hold pickles, and PyTorch runs those that are more than tensors: nothing of that is needed."""
    own, loads = torch.load, pickle.loads

    def load_weights(*args, **how):
        return own(*args, **how | {"weights_only": True})

    def refuse(*args, **how):
        raise NoVerdict("the file holds a pickle, which is not run")
    torch.load, pickle.loads = load_weights, refuse
    try:
        yield
    finally:
        torch.load, pickle.loads = own, loads


class Exported:
    """A file of torch.export."""

    def __init__(self, path):
        with without_pickles():
            program = torch.export.load(path)
        for module in program.graph_module.modules():
            for node in module.graph.nodes if hasattr(module, "graph") else ():
                if isinstance(node.target, torch._ops.OpOverload):
                    require_served(node.target.name())
        self.module, self.spec, self.weights = program.module(), program.call_spec.in_spec, program.state_dict

    def __call__(self, inputs):
        from torch.utils import _pytree as pytree
        args, kwargs = pytree.tree_unflatten(inputs, self.spec)
        with torch.no_grad():
            return list(flat(self.module(*args, **kwargs)))

    def sizes(self):
        return {size for tensor in self.weights.values() for size in tensor.shape}


class InPython:
    """A model.py or a Hugging Face folder, by the classes of the worker."""

    def __init__(self, path, described):
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker"))
        if os.path.basename(path) == "config.json":
            from swapnet_worker.hugging_face import HuggingFaceModel as kind
        else:
            from swapnet_worker.python_model import PythonModel as kind
        self.names = [one["name"] for one in described]
        types = [None if one["datatype"] == "UNKNOWN" else one["datatype"] for one in described]
        self.model = kind(path, ([(name, word, one["shape"]) for name, word, one in zip(self.names, types, described)], []))

    def __call__(self, inputs):
        with torch.inference_mode():
            return [tensor for _, tensor in self.model(dict(zip(self.names, inputs)))]

    def sizes(self):
        return set()


def load(spec):
    path = spec["path"]
    if path.endswith(".py") or os.path.basename(path) == "config.json":
        return InPython(path, spec["inputs"])
    try:
        return Scripted(path)
    except RuntimeError:  # a file says by what it contains what it is
        if not hasattr(torch, "export"):
            raise
        return Exported(path)


# ---- inputs ----

def types():
    """{word of the protocol: type}, of those that this PyTorch has."""
    words = {"BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
             "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
             "BF16": "bfloat16"}
    return {word: getattr(torch, name) for word, name in words.items() if hasattr(torch, name)}


def random_strings(shape, generator):
    """An array of short ones, some of them empty."""
    import numpy  # without it a model has no strings
    array = numpy.empty(shape, object)
    for place in numpy.ndindex(*shape):
        length = int(torch.randint(0, 12, (), generator=generator))
        array[place] = bytes(torch.randint(97, 123, (length,), generator=generator).tolist())
    return array


def random_tensor(name, word, shape, most, generator):
    """Integers are below `most`, as they may be indices; a mask has ones, and later zeros."""
    kind = types().get(word)
    if word == "BYTES":
        return random_strings(shape, generator)
    if kind is None:
        raise NoVerdict(f'input "{name}" is {word}, of which there are no random ones')
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind)
    if name.endswith("mask") or kind is torch.bool:
        numbers = torch.rand(shape, generator=generator) < 0.8
        if numbers.dim():
            numbers[..., :1] = True
        return numbers.to(kind)
    return torch.randint(0, most, shape, generator=generator).to(kind)


def fixed_shape(one, spec):
    """What the user says, or the server; None: not even the number of dimensions is known."""
    return spec["shapes"].get(one["name"]) or one["shape"] or None


def ways(spec, sizes):
    """(shapes, types, bound of integers) to be tried: the same choice for all that is not known."""
    known = [fixed_shape(one, spec) for one in spec["inputs"]]
    words = [one["datatype"] for one in spec["inputs"]]
    is_open = any(shape is None or -1 in shape[1:] for shape in known)
    ranks = RANKS + (0,) if None in known else (0,)
    kinds = ("FP32", "INT64") if "UNKNOWN" in words else ("FP32",)
    for rank, kind, size, most in itertools.product(ranks, kinds, sizes if is_open else (1,), (100, 2)):
        channels = (3, 1) if rank == 4 or any(shape and len(shape) == 4 and shape[1] == -1 for shape in known) else (size,)
        for channel in channels:
            shapes = [[-1] * rank if shape is None else list(shape) for shape in known]
            for shape in shapes:
                for i in range(1, len(shape)):
                    if shape[i] == -1:
                        shape[i] = channel if i == 1 and len(shape) == 4 else size
            yield shapes, [kind if word == "UNKNOWN" else word for word in words], most


def made(spec, way, rows, seed):
    """Tensors for one request; `rows` for a first size that is not known."""
    shapes, words, most = way
    generator = torch.Generator().manual_seed(seed)
    return [random_tensor(one["name"], word, [rows if size == -1 else size for size in shape], most, generator)
            for one, shape, word in zip(spec["inputs"], shapes, words)]


def answer(model, inputs):
    """A model may work in place: it gets copies."""
    outputs = model([one.clone() if isinstance(one, torch.Tensor) else one.copy() for one in inputs])
    return [one.detach().cpu().resolve_conj().resolve_neg().contiguous() if isinstance(one, torch.Tensor) else one
            for one in outputs]


def find_way(model, spec):
    """A way by which the model answers, and how many rows it takes at once."""
    sizes = list(SIZES) + sorted(model.sizes() - set(SIZES))[:32]
    last = None
    for way in itertools.islice(ways(spec, sizes), TRIES):
        for rows in (2, 1):
            try:
                answer(model, made(spec, way, rows, spec["seed"]))
                return way, rows
            except (NoVerdict, MemoryError):
                raise
            except Exception as error:  # pylint: disable=broad-exception-caught
                last = last or error
    raise NoVerdict(f"no inputs were found that it takes: name their shapes (--shape): {type(last).__name__}: "
                    f"{str(last).strip().splitlines()[-1] if str(last).strip() else ''}")


# ---- requests ----

def encoded(strings):
    """Each behind its length, as the protocol has them."""
    return b"".join(struct.pack("<I", len(one)) + one for one in strings)


def put_strings(value, name, file, where):
    """Of inputs an array of numpy's; of outputs what the worker has made of it."""
    with open(os.path.join(where, file), "wb") as f:
        f.write(value.data if isinstance(value.data, bytes) else encoded(value.flat))
    return {"name": name, "datatype": "BYTES", "shape": list(value.shape), "file": file}


def put(tensor, name, file, where):
    if not isinstance(tensor, torch.Tensor):
        return put_strings(tensor, name, file, where)
    words = {kind: word for word, kind in types().items()}
    if tensor.dtype not in words:
        raise NoVerdict(f'"{name}" is of type {tensor.dtype}, which the protocol has not')
    tensor = tensor.contiguous()
    with open(os.path.join(where, file), "wb") as f:
        if tensor.numel():
            f.write(memory_of(tensor))
    return {"name": name, "datatype": words[tensor.dtype], "shape": list(tensor.shape), "file": file}


def memory_of(tensor):
    """The tensor's bytes, whatever its type (numpy has no bfloat16), for as long as it lives."""
    return (ctypes.c_char * (tensor.element_size() * tensor.numel())).from_address(tensor.data_ptr())


def strings_of(data, shape):
    import numpy
    array, at = numpy.empty(shape, object), 0
    for place in numpy.ndindex(*shape):
        length, = struct.unpack_from("<I", data, at)
        array[place] = bytes(data[at + 4:at + 4 + length])
        at += 4 + length
    return array


def take(one, where):
    with open(os.path.join(where, one["file"]), "rb") as f:
        data = bytearray(f.read())
    if one["datatype"] == "BYTES":
        return strings_of(data, one["shape"])
    if not data:
        return torch.zeros(one["shape"], dtype=types()[one["datatype"]])
    return torch.frombuffer(data, dtype=types()[one["datatype"]]).reshape(one["shape"])


def requests(model, spec):
    """Answers `given` again, or makes new ones."""
    mark, where = spec["mark"], spec["where"]
    if spec.get("given"):
        inputs = [[take(one, where) for one in request["inputs"]] for request in spec["given"]]
    else:
        way, rows = find_way(model, spec)
        inputs = [made(spec, way, 1 + n % rows, spec["seed"] + n) for n in range(spec["requests"])]
    for n, tensors in enumerate(inputs):
        names = [one["name"] for one in spec["inputs"]]
        sent = [put(tensor, name, f"{mark}.{n}.{i}.in", where) for i, (name, tensor) in enumerate(zip(names, tensors))]
        got = [put(tensor, f"OUTPUT__{i}", f"{mark}.{n}.{i}.out", where)
               for i, tensor in enumerate(answer(model, tensors))]
        yield {"inputs": sent, "outputs": got}


def found_of(spec):
    try:
        return {"requests": list(requests(load(spec), spec)), "torch": torch.__version__, "threads": torch.get_num_threads()}
    except NoVerdict as error:
        return {"error": str(error)}
    except Exception as error:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
        return {"error": f"plain PyTorch fails: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a model prints is no output of ours
    for line in sys.stdin:
        print(json.dumps(found_of(json.loads(line))), file=out, flush=True)
        gc.collect()  # a model that is in a circle


if __name__ == "__main__":
    import torch
    main()
