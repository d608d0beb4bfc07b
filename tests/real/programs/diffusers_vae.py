"""diffusers: an autoencoder there and back."""
from _real import out, torch
from diffusers import AutoencoderKL

vae = AutoencoderKL(block_out_channels=(128, 256), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                    layers_per_block=2).eval()
with torch.no_grad():
    for i in range(2):
        latent = vae.encode(torch.randn(1, 3, 32, 32)).latent_dist.mode()
        out(f"picture{i}", vae.decode(latent).sample)
