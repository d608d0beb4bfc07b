"""asyncio: inferences in threads, several at a time."""
import asyncio

from _real import mlp, out, rows, torch

models = [mlp(depth=6), mlp(depth=6)]


def infer(i):
    with torch.no_grad():
        return models[i % 2](rows(i))


async def main():
    out("gathered", await asyncio.gather(*(asyncio.to_thread(infer, i) for i in range(10))))


asyncio.run(main())
