"""concurrent.futures: threads, and processes that get the model pickled."""
import concurrent.futures
import multiprocessing

from _real import digest, mlp, out, rows, torch


def infer(model, i):
    torch.set_num_threads(2)
    with torch.no_grad():
        return digest(model(rows(i)))


if __name__ == "__main__":
    net = mlp()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        out("threads", list(pool.map(infer, [net] * 9, range(9))))
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        out("processes", list(pool.map(infer, [net] * 2, range(2))))
