"""torchvision: a detector of objects."""
from _real import out, torch, torchvision

torchvision()
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from torchvision.models import resnet50

model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5).eval()
with torch.no_grad():
    out("boxes", model([torch.rand(3, 320, 320)])[0])
    backbone = resnet50().eval()
    for i in range(2):
        out(f"logits{i}", backbone(torch.rand(1, 3, 128, 128)))
