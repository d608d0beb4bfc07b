"""multiprocessing: a pool of forked processes infers with its parent's model."""
import multiprocessing

from _real import digest, mlp, out, rows, torch

model = mlp()


def infer(i):
    torch.set_num_threads(1)
    with torch.no_grad():
        return digest(model(rows(i)))


if __name__ == "__main__":
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    with torch.no_grad():
        out("parent", model(rows()))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        out("children", pool.map(infer, range(8)))
