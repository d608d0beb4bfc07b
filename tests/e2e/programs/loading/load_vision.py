"""Construct, load and the first inference of one of torchvision's models: load_vision.py OUT MODEL PTH."""
import torch

from _models import image, torchvision_model
from _record import begin, note_sizes

record, (name, path) = begin()
torch.manual_seed(1)
model = torchvision_model(name)
model.load_state_dict(torch.load(path))
with torch.no_grad():
    record.tensor("output", model(image(0, size=224)))
note_sizes(record, model)
record.notes.pop("activation_bytes", None)  # the peak was that of loading
record.save()
