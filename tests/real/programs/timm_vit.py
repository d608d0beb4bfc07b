"""timm: a vision transformer, loaded strictly from a checkpoint."""
import tempfile

from _real import out, torch, torchvision

torchvision()
import timm

with tempfile.TemporaryDirectory(dir="/var/tmp") as where, torch.no_grad():
    torch.save(timm.create_model("vit_small_patch16_224", pretrained=False).state_dict(), f"{where}/vit.pth")
    torch.manual_seed(2)
    model = timm.create_model("vit_small_patch16_224", pretrained=False, checkpoint_path=f"{where}/vit.pth").eval()
    for i in range(2):
        out(f"logits{i}", model(torch.randn(1, 3, 224, 224)))
