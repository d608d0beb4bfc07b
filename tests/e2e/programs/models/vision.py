"""Inferences of one of torchvision's models: vision.py OUT MODEL [INFERENCES]."""
import torch

from _models import image, torchvision_model
from _record import METER, begin, note_sizes, read_bytes

record, args = begin()
name, inferences = args[0], int(args[1]) if len(args) > 1 else 3
model = torchvision_model(name)
METER.restart()
record.notes["read_bytes"] = []
with torch.no_grad():
    for i in range(inferences):
        output = model(image(i, size=224))
        record.notes["read_bytes"].append(read_bytes())
        record.check(f"finite{i}", torch.isfinite(output).all())  # NaN everywhere would be equal for no good reason
        record.tensor(f"output{i}", output)
note_sizes(record, model)
record.save()
