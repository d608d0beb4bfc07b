"""Models that do what those of Triton's qa do, made anew: TorchScript, and model.py where there are strings. Runs with the
PyTorch that makes them. argv: a directory, and a JSON file with a list of calls [function, arguments] of this module."""
import json
import pathlib
import sys

import torch

TYPES = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "int8": "INT8", "int16": "INT16", "int32": "INT32",
         "int64": "INT64", "uint8": "UINT8", "bool": "BOOL", "object": "STRING"}
IDENTITY = """
import time
class Model:
    def __call__(self, **inputs):
        time.sleep({delay})
        return {{name.replace("INPUT", "OUTPUT"): value for name, value in inputs.items()}}
"""
NUMBERS = """
import numpy
def numbers(x):
    return numpy.array([int(one or b"0") for one in x.flat], numpy.int64).reshape(x.shape)
def give(x, dtype):
    return numpy.array([str(one).encode() for one in x.flat], object).reshape(x.shape) if dtype == "object" else x.astype(dtype)
class Model:
    def __call__(self, INPUT0, INPUT1):
        a, b = (numbers(x) if x.dtype == object else numpy.asarray(x) for x in (INPUT0, INPUT1))
        return {{"OUTPUT0": give(a {first} b, "{out0}"), "OUTPUT1": give(a {second} b, "{out1}")}}
"""
where = pathlib.Path(sys.argv[1])


def config(name, batch, inputs, outputs, more=""):
    """inputs, outputs: (name, type, dims, more)."""
    def tensors(which, list_):
        return "".join(f'{which} {{ name: "{n}" data_type: TYPE_{TYPES[t]} dims: [ {", ".join(map(str, dims))} ] {rest} }}\n'
                       for n, t, dims, rest in list_)
    folder = where / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(f'name: "{name}"\nmax_batch_size: {batch}\n' + tensors("input", inputs)
                                         + tensors("output", outputs) + more + "\n")


def version(name, number):
    folder = where / name / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def graph(name, number, source):
    module = type("Graph", (torch.jit.ScriptModule,), {})()  # modules of one class have one forward
    module.define(source)
    torch.jit.save(module, str(version(name, number) / "model.pt"))


def platform(name):
    kind = name.partition("_")[0]
    return {"onnx": 'platform: "onnxruntime_onnx"', "plan": 'platform: "tensorrt_plan"'}.get(kind, 'platform: "pytorch_libtorch"')


def identity(name, dtype, dims, batch=8, more="", delay=0, optional=()):
    """As many inputs as `dims` has shapes; each is given back. Strings, delays and optional inputs need Python."""
    sign = "__" if name.startswith("libtorch") else ""
    ins = [(f"INPUT{sign}{i}", dtype, shape, "optional: true" if i in optional else "") for i, shape in enumerate(dims)]
    outs = [(f"OUTPUT{sign}{i}", dtype, shape, "") for i, shape in enumerate(dims)]
    python = dtype == "object" or delay or optional
    config(name, batch, ins, outs, more + ("" if python else "\n" + platform(name)))
    names = [one[0] for one in ins]
    if python:
        (version(name, 1) / "model.py").write_text(IDENTITY.format(delay=delay))
    else:
        result = ", ".join(names)
        types = ", ".join(["Tensor"] * len(names))
        graph(name, 1, f"def forward(self, {', '.join(f'{n}: Tensor' for n in names)}) -> "
                       + (f"Tuple[{types}]" if len(names) > 1 else "Tensor") + f":\n    return {result}\n")


def sums(name, in_dtype, out0, out1, dims=(16,), batch=8, swapped=(), versions=(1,), more="", names=None, labels=0):
    """OUTPUT0 is the sum and OUTPUT1 the difference; in `swapped` versions it is the other way round. OUTPUT0 has so many labels."""
    n = names or ["INPUT0", "INPUT1"] + (["OUTPUT__0", "OUTPUT__1"] if name.startswith("libtorch") else ["OUTPUT0", "OUTPUT1"])
    python = "object" in (in_dtype, out0, out1)
    file = 'label_filename: "output0_labels.txt"' if labels else ""
    config(name, batch, [(n[0], in_dtype, dims, ""), (n[1], in_dtype, dims, "")], [(n[2], out0, dims, file), (n[3], out1, dims, "")],
           more + ("" if python else "\n" + platform(name)))
    if labels:
        (where / name / "output0_labels.txt").write_text("".join(f"label{i}\n" for i in range(labels)))
    for number in versions:
        first, second = "-+" if number in swapped else "+-"
        if python:
            (version(name, number) / "model.py").write_text(NUMBERS.format(first=first, second=second, out0=out0, out1=out1))
        else:
            ends = [f".to(torch.{out})" for out in (out0, out1)]
            # Sums of booleans are not defined as differences are not.
            a, b = ("INPUT0.to(torch.int32)", "INPUT1.to(torch.int32)") if in_dtype == "bool" else ("INPUT0", "INPUT1")
            graph(name, number, "def forward(self, INPUT0: Tensor, INPUT1: Tensor) -> Tuple[Tensor, Tensor]:\n"
                                f"    return ({a} {first} {b}){ends[0]}, ({a} {second} {b}){ends[1]}\n")


def python(name, source, batch=0, inputs=(), outputs=(), more=""):
    config(name, batch, inputs, outputs, more)
    (version(name, 1) / "model.py").write_text(source)


def ensemble(name, dtype, dims, batch, steps):
    """Each input passes `steps` identities one after the other, all inputs in one model."""
    count = len(dims)
    ins = [(f"INPUT{i}", dtype, shape, "") for i, shape in enumerate(dims)]
    outs = [(f"OUTPUT{i}", dtype, shape, "") for i, shape in enumerate(dims)]
    words, before = "", [f"INPUT{i}" for i in range(count)]
    for number, (model, sign) in enumerate(steps):
        after = [f"OUTPUT{i}" if number == len(steps) - 1 else f"between_{number}_{i}" for i in range(count)]
        maps = "".join(f'input_map {{ key: "INPUT{sign}{i}" value: "{before[i]}" }} output_map {{ key: "OUTPUT{sign}{i}" '
                       f'value: "{after[i]}" }}\n' for i in range(count))
        words += f'step {{ model_name: "{model}" model_version: -1 {maps} }}\n'
        before = after
    config(name, batch, ins, outs, f'platform: "ensemble"\nensemble_scheduling {{\n{words}}}')
    version(name, 1)


def copied(name, text):
    """A configuration of the checkout's, with an empty folder for its version: an ensemble."""
    (where / name).mkdir(parents=True, exist_ok=True)
    (where / name / "config.pbtxt").write_text(text)
    version(name, 1)


with open(sys.argv[2], encoding="utf-8") as calls:
    for function, arguments in json.load(calls):
        globals()[function](**arguments)
