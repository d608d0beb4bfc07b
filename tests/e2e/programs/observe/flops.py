"""flops.py OUT [PASSES]: operators of every kind whose operations are counted, and how many those are."""
import torch
from torch import nn

from _record import begin

record, args = begin()
passes = int(args[0]) if args else 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, 256)
        self.first = nn.Conv2d(3, 64, 7, stride=2, padding=3)  # 36 KiB: never streamed, counted all the same
        self.grouped = nn.Conv2d(64, 128, 5, groups=2, padding="same")
        self.norm = nn.BatchNorm2d(128)
        self.back = nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1)
        self.dilated = nn.Conv1d(64, 128, 9, dilation=2)
        self.line = nn.Linear(128, 256)
        self.layer_norm = nn.LayerNorm(256)
        self.heads = nn.Linear(256, 3 * 256)
        self.last = nn.Linear(256, 512, bias=False)

    def forward(self, image, words):
        x = self.back(torch.relu(self.norm(self.grouped(self.first(image)))))
        x = self.dilated(x.flatten(2)).transpose(1, 2)
        x = self.layer_norm(self.line(x)[:, :20] + self.table(words))
        q, k, v = (y.reshape(2, 20, 4, 64).transpose(1, 2) for y in self.heads(x).chunk(3, 2))
        seen = torch.matmul(torch.softmax(torch.matmul(q, k.transpose(2, 3)), -1), v)
        return self.last(seen.transpose(1, 2).reshape(2, 20, 256))


model = Model().eval()
image, words = torch.randn(2, 3, 16, 16), torch.arange(40).reshape(2, 20) % 64
flops = 0


def count(module, inputs, output):
    global flops
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.ConvTranspose2d):
        flops += 2 * weight.numel() * inputs[0].shape[0] * inputs[0].shape[2:].numel()
    elif isinstance(module, (nn.Conv1d, nn.Conv2d)):
        flops += 2 * weight.numel() * output.shape[0] * output.shape[2:].numel()
    elif isinstance(module, nn.Linear):
        flops += 2 * weight.numel() * inputs[0].shape[:-1].numel()
    elif isinstance(module, nn.BatchNorm2d):
        flops += 2 * output.numel()
    elif isinstance(module, nn.LayerNorm):
        flops += 5 * output.numel()
    elif isinstance(module, nn.Embedding):
        flops += output.numel()


with torch.no_grad():
    hooks = [module.register_forward_hook(count) for module in model.modules()]
    model(image, words)
    for hook in hooks:
        hook.remove()
    flops += 2 * (2 * 2 * 4 * 20 * 64 * 20)  # the two products of attention
    for i in range(passes):
        record.tensor(f"out{i}", model(image, words))
    try:
        from torch.utils.flop_counter import FlopCounterMode
        with FlopCounterMode(display=False) as counter:
            model(image, words)
        record.notes["torch_flops"] = counter.get_total_flops()
    except ImportError:  # before 2.1
        pass
    for i in range(passes):
        model(image, words)
record.notes["flops"] = flops
record.notes["beyond_torch"] = 2 * 2 * 128 * 8 * 8 + 5 * 2 * 20 * 256 + 40 * 256  # norms and embedding
record.save()
