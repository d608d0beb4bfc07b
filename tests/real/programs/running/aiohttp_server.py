"""aiohttp: a server and its client in one loop, inferences in the loop's executor."""
import asyncio

from _real import digest, mlp, out, rows, torch
from aiohttp import ClientSession, web

model = mlp()


def infer(seed):
    with torch.no_grad():
        return digest(model(rows(seed)))


async def answer(request):
    return web.Response(text=await asyncio.get_running_loop().run_in_executor(None, infer, int(request.match_info["seed"])))


async def main():
    app = web.Application()
    app.router.add_get("/{seed}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]

    async def ask(seed):
        async with session.get(f"http://127.0.0.1:{port}/{seed}") as response:
            return await response.text()

    async with ClientSession() as session:
        out("answers", await asyncio.gather(*map(ask, range(8))))
    await runner.cleanup()


asyncio.run(main())
