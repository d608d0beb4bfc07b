"""torch.distributed: data-parallel training over gloo, two processes."""
import os
import socket

from _real import mlp, nn, out, rows, torch


def work(rank, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(mlp(depth=6).train())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2):
        nn.functional.mse_loss(model(rows(step + 10 * rank)), rows(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        out("weights", list(model.parameters()))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    torch.multiprocessing.spawn(work, (free,), nprocs=2)
