"""Tensors as swapnet-serve describes them (struct swn_wire_tensor of scheduler/protocol/engine_wire.h), and PyTorch's."""
import ctypes
import math
import struct

import torch

from swapnet_worker import BadInput

try:
    import numpy
except ImportError:  # PyTorch does without it, and strings do not
    numpy = None

NAME, RANK, TENSORS = 128, 16, 64
STRINGS = 1 << 20  # of one input: each is an object, larger than its bytes
ELEMENTS = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 BF16 BYTES".split()
NUMBER = {name: number for number, name in enumerate(ELEMENTS, 1)}
# Not every PyTorch has all of them.
DTYPES = {name: getattr(torch, dtype) for name, dtype in {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
    "BF16": "bfloat16"}.items() if hasattr(torch, dtype)}
WORDS = {dtype: name for name, dtype in DTYPES.items()}


class Described(ctypes.Structure):
    """One tensor of a message. The names are those of the C header."""
    _fields_ = [("name", ctypes.c_char * NAME), ("element", ctypes.c_uint32), ("rank", ctypes.c_uint32),
                ("shape", ctypes.c_int64 * RANK), ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]

    @property
    def word(self):
        return ELEMENTS[self.element - 1] if self.element else None

    @property
    def sizes(self):
        return list(self.shape[:self.rank])


class Weight(ctypes.Structure):
    """struct swn_serving_weight of skeleton/abi/serving.h: a storage that a model reads."""
    _fields_ = [("address", ctypes.c_size_t), ("bytes", ctypes.c_size_t), ("own", ctypes.c_size_t)]


def describe(to, name, word, shape):
    """Fills in a Described. word None: any type; shape None: any."""
    shape = list(shape or ())
    encoded = name.encode()
    if not 0 < len(encoded) < NAME or b"\0" in encoded:
        raise ValueError(f"{name!r} is no name of a tensor: it has 1 to {NAME - 1} bytes")
    if word is not None and word not in DTYPES and (word != "BYTES" or numpy is None):
        raise ValueError(f"'{name}': no tensor of this PyTorch has the type {word}")
    if len(shape) > RANK or not all(isinstance(size, int) and -1 <= size < 1 << 62 for size in shape):
        raise ValueError(f"'{name}': {shape} is no shape of up to {RANK} sizes, where -1 means any")
    to.name, to.element, to.rank, to.offset, to.bytes = encoded, NUMBER.get(word, 0), len(shape), 0, 0
    to.shape[:len(shape)] = shape


def take_strings(name, described, buffer):
    """A numpy array of bytes objects. Each has its length in front."""
    shape, at = described.sizes, 0
    count = math.prod(shape)
    if count > STRINGS:
        raise BadInput(f'input "{name}" has {count} strings; {STRINGS} is the most')
    data = ctypes.string_at(buffer + described.offset, described.bytes) if described.bytes else b""
    array = numpy.empty(count, object)
    for i in range(count):
        end = at + 4 + int.from_bytes(data[at:at + 4], "little")
        if at + 4 > len(data) or end > len(data):
            break
        array[i] = data[at + 4:end]
        at = end
    else:
        if at == len(data):
            return array.reshape(shape)
    raise BadInput(f'input "{name}": its {len(data)} bytes are not {count} strings')


def take(described, buffer):
    """A new tensor with the bytes of an input: a model may work in place, and the request may have to run again."""
    if described.word == "BYTES" and numpy:
        return take_strings(described.name.decode(errors="replace"), described, buffer)
    dtype = DTYPES.get(described.word)
    name = described.name.decode(errors="replace")
    if dtype is None:
        raise BadInput(f'input "{name}": this PyTorch takes no tensors of type {described.word or "unknown"}')
    tensor = torch.empty(described.sizes, dtype=dtype)
    bytes_ = tensor.numel() * tensor.element_size()
    if bytes_ != described.bytes:
        raise BadInput(f'input "{name}" has {described.bytes} bytes, its shape {bytes_}')
    if bytes_:
        ctypes.memmove(tensor.data_ptr(), buffer + described.offset, bytes_)
    if dtype is torch.bool:  # any other byte than 0 and 1 is undefined to PyTorch
        raw = tensor.view(torch.uint8)
        raw.copy_(raw != 0)
    return tensor


class Strings:
    """An output of type BYTES as the buffer has it: each string behind its length."""

    def __init__(self, name, array):
        if array.ndim > RANK:
            raise TypeError(f'output "{name}" has {array.ndim} dimensions')
        if not all(isinstance(one, (bytes, str)) for one in array.flat):
            raise TypeError(f'output "{name}" has elements that are neither numbers nor strings')
        strings = [one.encode() if isinstance(one, str) else bytes(one) for one in array.flat]
        self.shape = array.shape
        try:
            self.data = b"".join(part for one in strings for part in (struct.pack("<I", len(one)), one))
        except struct.error:
            raise ValueError(f'output "{name}" has a string of more than 4 GiB') from None


def word_and_bytes(value):
    """The type and the size of an output that `dense` has made."""
    if isinstance(value, Strings):
        return "BYTES", len(value.data)
    return WORDS[value.dtype], value.numel() * value.element_size()


def give(described, value, buffer):
    """Copies an output to its place."""
    if word_and_bytes(value)[1] != described.bytes:
        raise RuntimeError(f'output "{described.name.decode()}" has another size')
    if described.bytes:
        ctypes.memmove(buffer + described.offset, value.data if isinstance(value, Strings) else value.data_ptr(), described.bytes)


def strings(value):
    """A numpy array if the value is one of strings or objects, or a list of strings, or of lists of them; else None."""
    if numpy is None:
        return None
    if isinstance(value, numpy.ndarray):
        return value if value.dtype.kind in "OSU" else None
    first, depth = value, 0
    while isinstance(first, (list, tuple)) and len(first) > 0 and depth < RANK:
        first, depth = first[0], depth + 1
    return numpy.array(value, object) if depth and isinstance(first, (bytes, str)) else None


def dense(name, value):
    """The tensor of an output, its elements side by side in memory; numpy's arrays are tensors as well."""
    if (array := strings(value)) is not None:
        return Strings(name, array)
    if type(value).__module__ == "numpy" and hasattr(value, "__array__"):
        try:
            value = torch.as_tensor(value)
        except TypeError as error:
            raise TypeError(f'output "{name}": {error}') from None
    if not isinstance(value, torch.Tensor):
        raise TypeError(f'output "{name}" is a {type(value).__name__}, which is no tensor')
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        raise TypeError(f'output "{name}" is no dense tensor in memory')
    if value.dtype not in WORDS:
        raise TypeError(f'output "{name}": the protocol has no element type for {value.dtype}')
    if value.dim() > RANK:
        raise TypeError(f'output "{name}" has {value.dim()} dimensions')
    return value.detach().cpu().resolve_conj().resolve_neg().contiguous()


def outputs(result):
    """[(name, tensor)] of what a model returns: a dictionary's keys are names; others are OUTPUT__0 and so on."""
    if isinstance(result, dict):
        named = list(result.items())
    elif isinstance(result, (tuple, list)):
        named = [(f"OUTPUT__{i}", value) for i, value in enumerate(result)]
    else:
        named = [("OUTPUT__0", result)]
    for name, _ in named:
        if not isinstance(name, str) or not 0 < len(name.encode()) < NAME or "\0" in name:
            raise TypeError(f"{name!r} is no name of an output")
    if len(named) > TENSORS:
        raise TypeError(f"the model returns {len(named)} outputs; {TENSORS} is the most")
    return [(name, dense(name, value)) for name, value in named]


def defaults(parameters, inputs):
    """Names of inputs that a call can do without: the server says which of them a request may leave out."""
    parameters = list(parameters)
    names = {p.name for p in parameters if p.default is not p.empty}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        names |= {name for name, _, _ in inputs} - {p.name for p in parameters}
    return names


def weights(values):
    """An array of the storages of modules and tensors among the values, each once."""
    seen = {}
    for value in values:
        if isinstance(value, torch.nn.Module):
            owned = [*value.parameters(), *value.buffers()]
        else:
            owned = [value] if isinstance(value, torch.Tensor) else []
        for tensor in owned:
            if tensor.layout is torch.strided and tensor.device.type == "cpu":
                storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
                seen.setdefault(storage.data_ptr(), storage.nbytes())
    return (Weight * len(seen))(*seen.items())
