"""timm: a ConvNeXt, its features, a training step with its optimizer."""
from _real import out, torch, torchvision

torchvision()
import timm
from timm.optim import create_optimizer_v2

model = timm.create_model("convnext_atto", pretrained=False, num_classes=10).eval()
x = torch.randn(2, 3, 96, 96)
with torch.no_grad():
    out("logits", model(x))
    out("features", model.forward_features(x))
optimizer = create_optimizer_v2(model, "adamw", lr=1e-3)
model(x).square().sum().backward()
optimizer.step()
out("weights", list(model.parameters()))
