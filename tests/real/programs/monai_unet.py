"""monai: a UNet over volumes, and sliding windows."""
from _real import out, torch
from monai.inferers import sliding_window_inference
from monai.networks.nets import UNet

model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(32, 64, 128, 256), strides=(2, 2, 2), num_res_units=2).eval()
with torch.no_grad():
    out("windows", sliding_window_inference(torch.randn(1, 1, 48, 32, 32), (32, 32, 32), 1, model))
