"""A kernel of the program's own for an operator that others are made of: it looks at the weight of the layer in which
it runs, and keeps what it sees."""
import hashlib
import warnings

import torch

from _record import begin

record, _ = begin()
warnings.filterwarnings("ignore")  # PyTorch says that it stands before its own
WIDTH = 512
cells = [torch.nn.RNNCell(WIDTH, WIDTH, bias=False) for _ in range(40)]
homes = [cell.weight_hh.data_ptr() for cell in cells]
within = None
kept = []


def tanh(x):
    if within is not None:
        view = cells[within].weight_hh.detach().numpy()
        kept.append((within, view))
    return x.clamp(-1, 1)


library = torch.library.Library("aten", "IMPL")
library.impl("tanh", tanh, "CPU")
x, state = torch.ones(2, WIDTH), torch.ones(2, WIDTH)
with torch.no_grad():
    for i in range(6):
        y = x
        for within, cell in enumerate(cells):
            y = cell(y, state)
        record.tensor(f"output{i}", y)
within = None
record.value("views", len(kept))
record.value("elsewhere", sum(view.ctypes.data != homes[number] for number, view in kept))
for number in range(len(cells)):
    seen = {hashlib.sha256(view.tobytes()).hexdigest() for i, view in kept if i == number}
    record.value(f"bytes{number}", sorted(seen))
record.save()
