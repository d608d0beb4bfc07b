"""uvicorn and FastAPI: requests side by side, handled in threads."""
import concurrent.futures
import threading
import time

import fastapi
import httpx
import uvicorn
from _real import digest, mlp, out, rows, torch

app, model = fastapi.FastAPI(), mlp()


@app.get("/{seed}")
def infer(seed: int):
    with torch.no_grad():
        return digest(model(rows(seed)))


server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
threading.Thread(target=server.run).start()
while not server.started:
    time.sleep(0.05)
at = "http://127.0.0.1:%d" % server.servers[0].sockets[0].getsockname()[1]
with concurrent.futures.ThreadPoolExecutor(3) as clients:
    out("answers", list(clients.map(lambda seed: httpx.get(f"{at}/{seed}", timeout=100, trust_env=False).json(), range(9))))
server.should_exit = True
