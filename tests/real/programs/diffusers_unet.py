"""diffusers: three steps of a denoising loop."""
from _real import out, torch
from diffusers import DDPMScheduler, UNet2DConditionModel

unet = UNet2DConditionModel(sample_size=16, block_out_channels=(128, 256), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=256, layers_per_block=1).eval()
scheduler = DDPMScheduler()
scheduler.set_timesteps(3)
x, text = torch.randn(1, 4, 16, 16), torch.randn(1, 7, 256)
with torch.no_grad():
    for t in scheduler.timesteps:
        x = scheduler.step(unet(x, t, text).sample, t, x, generator=torch.Generator().manual_seed(3)).prev_sample
        out(f"t{int(t)}", x)
