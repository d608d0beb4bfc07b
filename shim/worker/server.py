"""What the loop in worker.so calls: load, run and store, for each of which nothing is raised over the border.

A status is enum swn_engine_status. Models and requests are numbers to the loop, as pointers are.
"""
import contextlib
import ctypes
import itertools
import os
import sys
import traceback

import torch

from swapnet_worker import BadInput, tensors
from swapnet_worker.tensors import Described

OK, BAD_INPUT, FAILED, NO_MEMORY, UNREADABLE = range(5)
TEXT = 4096
NO_TORCH = 3  # exit status

_P, _U32, _U64, _S = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
_T, _N = ctypes.POINTER(Described), ctypes.POINTER(ctypes.c_uint32)
_OUT, _C = ctypes.POINTER(_P), ctypes.POINTER(ctypes.c_size_t)
SIGNATURES = {  # in the order of struct swn_worker_calls
    "load": (_U32, _S, _U32, _OUT, _P), "unload": (None, _P), "weight_bytes": (_U64, _P), "describe": (None, _P, _T, _N, _N),
    "begin": (_U32, _P, _T, ctypes.c_size_t, _P, _OUT, _P), "run": (_U32, _P, _U32, _P), "outputs": (_U32, _P, _T, _N, _P),
    "store": (_U32, _P, _T, ctypes.c_size_t, _P, _P), "drop": (None, _P), "weights": (_P, _P, _U32, _C), "weights_of": (_P, _P, _U32, _C),
    "expect": (None, _T, _U32, _U32)}
TYPES = {name: ctypes.CFUNCTYPE(*signature) for name, signature in SIGNATURES.items()}


class Calls(ctypes.Structure):
    _fields_ = list(TYPES.items())


def say(text, message):
    """Writes the reason where the loop wants it."""
    encoded = message.encode(errors="replace").replace(b"\0", b"?")[:TEXT - 1]
    ctypes.memmove(text, encoded + b"\0", len(encoded) + 1)


def words_of(error):
    """What it says of itself, which is the model's own code, and may fail as well."""
    try:
        return str(error)
    except BaseException:  # pylint: disable=broad-exception-caught
        return "it does not say why"


def is_out_of_memory(error, words):
    return isinstance(error, MemoryError) or any(
        said in words for said in ("not enough memory", "can't allocate memory", "bad_alloc"))


class Reported:
    """Prints where an error of the model's comes from, once for each place: its owner reads the server's log."""

    def __init__(self):
        self.places = set()

    def __call__(self, error):
        frames = traceback.extract_tb(error.__traceback__)
        place = type(error), tuple((frame.filename, frame.lineno) for frame in frames[-8:])
        if place not in self.places and len(self.places) < 100:
            self.places.add(place)
            with contextlib.suppress(BaseException):  # the model may have taken sys.stderr away
                traceback.print_exception(type(error), error, error.__traceback__)


class Worker:
    def __init__(self):
        self.models, self.requests, self.numbers = {}, {}, itertools.count(1)
        self.expected = [], []
        self.report = Reported()

    def guarded(self, text, function, failed=FAILED):
        """Its status. A model that wants to end the process, or is interrupted, has failed and nothing else."""
        try:
            function()
            return OK
        except BadInput as error:
            say(text, words_of(error))
            return BAD_INPUT
        except BaseException as error:  # pylint: disable=broad-exception-caught
            words = words_of(error)
            memory = is_out_of_memory(error, words)
            if not memory:
                self.report(error)
            first = words.split("\n", 1)[0]
            say(text, first if memory else f"{type(error).__name__}: {first}")
            return NO_MEMORY if memory else failed

    def expect(self, described, inputs, outputs):
        all_of = [(d.name.decode(), d.word, d.sizes) for d in described[:inputs + outputs]]
        self.expected = all_of[:inputs], all_of[inputs:]

    def load(self, path, _groups, out, text):
        def load():
            file = os.fsdecode(path)
            if os.path.basename(file) == "config.json":
                from swapnet_worker.hugging_face import HuggingFaceModel as kind
            else:
                from swapnet_worker.python_model import PythonModel as kind
            model = kind(file, self.expected)
            scratch = Described()
            for one in model.inputs + model.outputs:
                tensors.describe(scratch, *one)
            if len(model.inputs) + len(model.outputs) > tensors.TENSORS:
                raise ValueError(f"it has more than {tensors.TENSORS} inputs and outputs")
            self.models[number] = model
        number = next(self.numbers)
        status = self.guarded(text, load, UNREADABLE)
        out[0] = number
        return status

    def unload(self, model):
        if found := self.models.pop(model, None):
            found.forget()

    def weight_bytes(self, model):
        return sum(weight.bytes for weight in self.models[model].weights)

    def weights(self, model, _group, count):
        """A layer group, the only one, reads all of them."""
        weights = self.models[model].weights
        count[0] = len(weights)
        return ctypes.addressof(weights)

    def weights_of(self, request, group, count):
        return self.weights(self.requests[request][0], group, count)

    def describe(self, model, described, inputs, outputs):
        model = self.models[model]
        inputs[0], outputs[0] = len(model.inputs), len(model.outputs)
        for i, one in enumerate(model.inputs + model.outputs):
            tensors.describe(described[i], *one)

    def begin(self, model, described, count, buffer, out, text):
        def begin():
            given = {d.name.decode(): tensors.take(d, buffer or 0) for d in described[:count]}
            wanted = {name for name, _, _ in self.models[model].inputs}
            for name in sorted(wanted ^ given.keys()):
                if name not in wanted:
                    raise BadInput(f'input "{name}" is not one of the model')
                if name not in self.models[model].defaults:
                    raise BadInput(f'input "{name}" is missing')
            self.requests[number] = [model, given, None]
        number = next(self.numbers)
        out[0] = number
        return self.guarded(text, begin)

    def run(self, request, _group, text):
        def run():
            model, given, _ = self.requests[request]
            self.requests[request][1] = None
            with torch.inference_mode():
                self.requests[request][2] = self.models[model](given)
        return self.guarded(text, run)

    def outputs(self, request, described, count, text):
        def outputs():
            results = self.requests[request][2]
            for i, (name, value) in enumerate(results):
                word, bytes_ = tensors.word_and_bytes(value)
                tensors.describe(described[i], name, word, value.shape)
                described[i].bytes = bytes_
            count[0] = len(results)
        return self.guarded(text, outputs)

    def store(self, request, described, count, buffer, text):
        def store():
            results = self.requests[request][2]
            if count != len(results):
                raise RuntimeError("the request has another number of outputs")
            for d, (_, value) in zip(described[:count], results):
                tensors.give(d, value, buffer)
        return self.guarded(text, store)

    def drop(self, request):
        self.requests.pop(request, None)


def main(socket, buffer):
    """The exit status of the process."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker.so"))
    if library.swn_worker_tensor_bytes() != ctypes.sizeof(Described):
        print("swapnet: worker: worker.so belongs to another swapnet", file=sys.stderr)
        return NO_TORCH
    for descriptor in (socket, buffer):
        os.set_inheritable(descriptor, False)
    worker = Worker()
    calls = Calls(**{name: kind(getattr(worker, name)) for name, kind in TYPES.items()})
    return library.swn_worker_run(ctypes.byref(calls), torch.__version__.encode(), socket, buffer)
