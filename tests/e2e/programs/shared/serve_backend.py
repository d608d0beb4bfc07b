"""The serve backend, serve-X.Y.so, called from a Python that has its PyTorch: what swapnet-engine does, without sockets.

Tensors of a request lie in one buffer, as they do there. A status other than 0 raises ServeError.
"""
import ctypes
import itertools
import pathlib

NAME, RANK, TENSORS, TEXT = 128, 16, 64, 4096
ELEMENTS = ("BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 BF16 BYTES").split()
ELEMENT = {name: number for number, name in enumerate(ELEMENTS, 1)}
TORCH_NAMES = {"BOOL": "bool", "UINT8": "uint8", "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
               "FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16"}


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * NAME), ("element", ctypes.c_uint32), ("rank", ctypes.c_uint32),
                ("shape", ctypes.c_int64 * RANK), ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class ServeError(RuntimeError):
    STATUSES = "ok bad_input failed no_memory unreadable unknown".split()

    def __init__(self, status, text):
        super().__init__(f"{self.STATUSES[status]}: {text}")
        self.status = self.STATUSES[status]


def _function(result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)


_P, _U32, _S, _T = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.POINTER(Tensor)


class _Table(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint), ("version", _S), ("load", _function(_U32, _S, _U32, ctypes.POINTER(_P), _P)),
                ("unload", _function(None, _P)), ("weight_bytes", _function(ctypes.c_uint64, _P)),
                ("groups", _function(_U32, _P)),
                ("describe", _function(None, _P, _T, ctypes.POINTER(_U32), ctypes.POINTER(_U32))),
                ("begin", _function(_U32, _P, _T, ctypes.c_size_t, _P, ctypes.POINTER(_P), _P)),
                ("groups_of", _function(_U32, _P)), ("run", _function(_U32, _P, _U32, _P)),
                ("outputs", _function(_U32, _P, _T, ctypes.POINTER(_U32), _P)),
                ("store", _function(_U32, _P, _T, ctypes.c_size_t, _P, _P)), ("drop", _function(None, _P)),
                ("weights", _function(_P, _P, _U32, ctypes.POINTER(ctypes.c_size_t))),
                ("weights_of", _function(_P, _P, _U32, ctypes.POINTER(ctypes.c_size_t)))]


def _name_torch(path):
    """What swn_torch_link does in an engine process; here PyTorch's functions are everybody's."""
    import torch
    place = pathlib.Path(torch.__file__).parent / "lib"
    ctypes.CDLL(str(place / "libtorch_cpu.so") if place.exists() else f"libtorch_cpu.so.{'.'.join(torch.__version__.split('.')[:2])}", ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(pathlib.Path(path).parents[2] / "torch_link" / "libswapnet-torch.so"))


class Backend:
    def __init__(self, path):
        _name_torch(path)
        self._library = ctypes.CDLL(path)
        self._table = _Table.in_dll(self._library, "swn_serve_backend")
        self._text = ctypes.create_string_buffer(TEXT)

    def call(self, name, *arguments):
        status = getattr(self._table, name)(*arguments, ctypes.addressof(self._text))
        if status:
            raise ServeError(status, self._text.value.decode(errors="replace"))

    def load(self, path, groups=0):
        model = _P()
        self.call("load", str(path).encode(), groups, ctypes.byref(model))
        return Model(self, model)


class Model:
    def __init__(self, backend, handle):
        self.backend, self.table, self._handle = backend, backend._table, handle

    @property
    def groups(self):
        return self.table.groups(self._handle)

    @property
    def weight_bytes(self):
        return self.table.weight_bytes(self._handle)

    def describe(self):
        """[(name, element or None, shape)] of inputs, and of outputs."""
        tensors, inputs, outputs = (Tensor * TENSORS)(), _U32(), _U32()
        self.table.describe(self._handle, tensors, ctypes.byref(inputs), ctypes.byref(outputs))
        known = [(t.name.decode(), ELEMENTS[t.element - 1] if t.element else None, list(t.shape[:t.rank]))
                 for t in tensors[:inputs.value + outputs.value]]
        return known[:inputs.value], known[inputs.value:]

    def begin(self, *inputs, names=None):
        """A request with these tensors, in the order of forward()'s arguments unless there are names."""
        return Request(self, inputs, names or [f"INPUT__{i}" for i in range(len(inputs))])

    def __call__(self, *inputs):
        request = self.begin(*inputs)
        for _ in request.steps():
            pass
        return request.results()

    def unload(self):
        self.table.unload(self._handle)


class Request:
    def __init__(self, model, inputs, names):
        self.model, self._handle = model, None
        kept = [x.contiguous() for x in inputs]
        described = (Tensor * max(len(kept), 1))()
        size = sum(x.numel() * x.element_size() for x in kept)
        buffer, at = ctypes.create_string_buffer(max(size, 1)), 0
        for t, x, name in zip(described, kept, names):
            t.name, t.rank, t.offset = name.encode(), x.dim(), at
            t.element = ELEMENT[next(e for e, n in TORCH_NAMES.items() if n == str(x.dtype).split(".")[1])]
            t.shape[:x.dim()] = list(x.shape)
            t.bytes = x.numel() * x.element_size()
            ctypes.memmove(ctypes.addressof(buffer) + at, x.data_ptr(), t.bytes)
            at += t.bytes
        handle = _P()
        model.backend.call("begin", model._handle, described, len(kept), ctypes.addressof(buffer), ctypes.byref(handle))
        self._handle = handle

    @property
    def groups(self):
        return self.model.table.groups_of(self._handle)

    def run(self, group):
        self.model.backend.call("run", self._handle, group)

    def steps(self):
        """Runs a group at each turn."""
        for group in range(self.groups):
            self.run(group)
            yield group

    def results(self):
        """{name: (element, shape, bytes)} of the outputs; the request is over."""
        tensors, count = (Tensor * TENSORS)(), _U32()
        self.model.backend.call("outputs", self._handle, tensors, ctypes.byref(count))
        at = 0
        for t in tensors[:count.value]:
            t.offset = at
            at += t.bytes
        buffer = ctypes.create_string_buffer(max(at, 1))
        self.model.backend.call("store", self._handle, tensors, count.value, ctypes.addressof(buffer))
        found = {t.name.decode(): (ELEMENTS[t.element - 1], tuple(t.shape[:t.rank]), buffer.raw[t.offset:t.offset + t.bytes])
                 for t in tensors[:count.value]}
        self.drop()
        return found

    def drop(self):
        if self._handle:
            self.model.table.drop(self._handle)
            self._handle = None

    def __del__(self):
        self.drop()


def in_turns(*requests):
    """Runs the requests a group each at a time, and gives the results of all."""
    for _ in itertools.zip_longest(*(r.steps() for r in requests)):
        pass
    return [r.results() for r in requests]
