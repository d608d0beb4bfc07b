"""A model of types that are rare in one: odd_types.py OUT PTH save|load."""
import torch

from _record import begin

record, (path, what) = begin()
NAMES = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
         "float8_e8m0fnu", "complex32")


class Model(torch.nn.Module):
    def __init__(self, fill):
        super().__init__()
        for i, name in enumerate(NAMES):
            data = torch.full((4 << 20,), 65 + i if fill else 0, dtype=torch.uint8)
            if fill:
                data[:1 << 20].random_(0, 255)
            self.register_buffer(name, data.view(getattr(torch, name)))


if what == "save":
    torch.save(Model(True).state_dict(), path)
else:
    model = Model(False)
    model.load_state_dict(torch.load(path))
    for name, buffer in model.named_buffers():
        record.tensor(name, buffer)
        record.value(f"{name} type", str(buffer.dtype))
record.check("reached", True)
record.save()
