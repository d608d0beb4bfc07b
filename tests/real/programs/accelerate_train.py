"""accelerate: a training loop, checkpoints of its state."""
import tempfile

from _real import mlp, nn, out, rows, torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = mlp(depth=6).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(3):
    loss = nn.functional.mse_loss(model(rows(step)), rows(step + 10))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    out(f"loss{step}", loss)
with tempfile.TemporaryDirectory() as where:
    accelerator.save_state(where)
    out("before", model(rows()))
    accelerator.load_state(where)
out("after", [model(rows()), *model.parameters()])
