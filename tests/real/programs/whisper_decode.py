"""whisper: a spectrogram, the encoder, and steps of the decoder with its cache."""
import whisper
from _real import out, torch
from whisper.model import ModelDimensions, Whisper

model = Whisper(ModelDimensions(80, 1500, 384, 6, 4, 51865, 448, 384, 6, 4)).eval()
mel = whisper.log_mel_spectrogram(torch.sin(torch.arange(480000) / 20.0))
with torch.no_grad():
    sound = model.encoder(mel[None, :, :3000])
    out("sound", sound)
    tokens = torch.tensor([[50258, 50259]])
    for _ in range(5):
        tokens = torch.cat([tokens, model.decoder(tokens, sound)[:, -1:].argmax(-1)], 1)
out("tokens", tokens)
