"""opacus: a step of private training, gradients per sample."""
from _real import mlp, nn, out, rows, torch
from opacus import GradSampleModule

model = GradSampleModule(mlp(depth=6).train())
nn.functional.mse_loss(model(rows()), rows(2)).backward()
out("gradients", [p.grad_sample for p in model.parameters()])
