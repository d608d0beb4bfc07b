"""open_clip: pictures and texts."""
from _real import out, torch, torchvision

torchvision()
import open_clip

model = open_clip.create_model("ViT-S-32-alt", pretrained=None).eval()
with torch.no_grad():
    for i in range(2):
        out(f"picture{i}", model.encode_image(torch.randn(1, 3, 224, 224)))
        out(f"text{i}", model.encode_text(torch.arange(77).reshape(1, 77) + i))
