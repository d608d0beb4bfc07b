"""torch_geometric: a graph network, trained."""
from _real import nn, out, torch
from torch_geometric.nn import GCN

edges = torch.randint(0, 60, (2, 300), generator=torch.Generator().manual_seed(4))
x, model = torch.randn(60, 1024), GCN(1024, 1024, 8, out_channels=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(2):
    loss = nn.functional.cross_entropy(model(x, edges), torch.arange(60) % 4)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    out(f"loss{step}", loss)
out("weights", list(model.parameters()))
