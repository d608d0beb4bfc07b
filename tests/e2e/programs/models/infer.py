"""Inferences of a small model: infer.py OUT mlp|mlp-batch|mlp-narrow|mlp-deep|tall|convnet [INFERENCES [watch]]. The
plainest program there is; `watch` notes the library's counters after each."""
import torch

import _models
from _record import METER, begin, note_sizes, read_bytes, status

record, args = begin()
kind, inferences = args[0], int(args[1]) if len(args) > 1 else 4
make, data = {
    "mlp": (_models.mlp, _models.rows),
    "mlp-batch": (_models.mlp, _models.batch),
    "mlp-narrow": (lambda: _models.mlp(384), lambda seed: _models.rows(seed, width=384)),  # 13.5 MiB
    "mlp-deep": (lambda: _models.mlp(depth=64), _models.rows),  # 256 MiB
    "tall": (_models.tall, _models.rows),
    "convnet": (_models.convnet, _models.image),
}[kind]
model = make()
passes, read = [], []
METER.restart()
with torch.inference_mode():
    for i in range(inferences):
        record.tensor(f"output{i}", model(data(i)))
        read.append(read_bytes())
        if "watch" in args:
            passes.append(status())
record.notes["passes"], record.notes["read_bytes"] = passes, read
note_sizes(record, model)
record.save()
