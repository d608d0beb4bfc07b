"""ultralytics: YOLO built from its description, saved as a whole module, loaded, run."""
import tempfile

from _real import np, out, torch, torchvision

torchvision()
from ultralytics import YOLO

model = YOLO("yolov8s.yaml", verbose=False)
picture = np.random.default_rng(1).integers(0, 255, (160, 160, 3), dtype=np.uint8)
out("boxes", model.predict(picture, imgsz=160, verbose=False, conf=0.0001, max_det=5)[0].boxes.data)
with tempfile.TemporaryDirectory(dir="/var/tmp") as where:
    torch.save({"model": model.model}, f"{where}/yolo.pt")
    again = torch.load(f"{where}/yolo.pt", weights_only=False)["model"].eval()
with torch.no_grad():
    out("loaded", again(torch.randn(1, 3, 160, 160))[0])
