"""torch.func and an average of weights: functional_call over stacked copies, AveragedModel."""
from _real import mlp, nn, out, rows, torch
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

models = [mlp(depth=3), mlp(depth=3)]
weights, buffers = stack_module_state(models)
with torch.no_grad():
    out("stacked", vmap(lambda w, b, x: functional_call(models[0], (w, b), (x,)), (0, 0, None))(weights, buffers, rows()))
average = AveragedModel(models[0], multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.Adam(models[0].parameters())
for step in range(2):
    nn.functional.mse_loss(models[0](rows(step)), rows(step + 1)).backward()
    optimizer.step()
    average.update_parameters(models[0])
out("average", list(average.parameters()))
