"""One aligned file of raw weights per model, for the two variants that read a file themselves.

Tensors lie in state_dict order (which is execution order for these models). The first tensor of
each module starts at a multiple of 4096, so that a module is one O_DIRECT read; the others start
at multiples of 64, as in a torch.save archive. The index is a JSON file beside it."""
import json
import os

import numpy
import torch

PAGE = 4096
DTYPES = {"float32": torch.float32, "int64": torch.int64}


def _round_up(value, step):
    return -(-value // step) * step


def save(model, path):
    """Write the weights of model to path and its index to path.json, both synced to disk. A tied
    tensor is written once."""
    index, offset, owner, first = {}, 0, None, {}
    with open(path, "wb") as out:
        for name, tensor in model.state_dict().items():
            same = first.setdefault(tensor.data_ptr(), name)
            if same != name:
                index[name] = index[same]
                continue
            prefix = name.rpartition(".")[0]
            offset = _round_up(offset, 64 if prefix == owner else PAGE)
            owner = prefix
            out.seek(offset)
            out.write(tensor.contiguous().numpy().tobytes())
            index[name] = {"offset": offset, "shape": list(tensor.shape),
                           "dtype": str(tensor.dtype).removeprefix("torch."),
                           "bytes": tensor.numel() * tensor.element_size()}
            offset += index[name]["bytes"]
        out.truncate(_round_up(offset, PAGE))
        out.flush()
        os.fsync(out.fileno())
    with open(path + ".json", "w", encoding="utf-8") as out:
        json.dump(index, out)


def load_index(path):
    with open(path + ".json", encoding="utf-8") as file:
        return json.load(file)


def tensor_at(buffer, entry, base=0):
    """The tensor of one index entry inside a uint8 tensor that starts at file offset base."""
    start = entry["offset"] - base
    raw = buffer[start:start + entry["bytes"]]
    return raw.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])


def named_tensors(model):
    """Every parameter and buffer of the state_dict itself, by its name there (state_dict gives
    detached ones); a tied one under each of its names."""
    return {f"{prefix}.{name}".lstrip("."): tensor
            for own in ("_parameters", "_buffers") for prefix, module in model.named_modules()
            for name, tensor in getattr(module, own).items()
            if tensor is not None and name not in module._non_persistent_buffers_set}


def read_one(path, entry):
    """A private in-memory copy of one tensor."""
    raw = numpy.fromfile(path, dtype=numpy.uint8, count=entry["bytes"], offset=entry["offset"])
    return tensor_at(torch.from_numpy(raw), entry, base=entry["offset"])


def map_into(model, path):
    """Point every tensor of model at one private mapping of the file.

    This is what torch.load(mmap=True) with load_state_dict(assign=True) leaves behind in PyTorch
    2.1 and later; 1.13 has neither, the resulting memory is the same."""
    mapped = torch.from_numpy(numpy.memmap(path, dtype=numpy.uint8, mode="c"))
    index = load_index(path)
    for name, tensor in named_tensors(model).items():
        tensor.data = tensor_at(mapped, index[name])
