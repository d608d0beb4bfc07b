"""gevent: patched sockets and threads, a server whose greenlets compute."""
from gevent import monkey

monkey.patch_all()

import urllib.request

import gevent
from gevent.pywsgi import WSGIServer

from _real import digest, mlp, out, rows, torch

models = [mlp(depth=6), mlp(depth=6)]


def application(environ, start_response):
    seed = int(environ["PATH_INFO"][1:])
    with torch.no_grad():
        x = rows(seed)
        for layer in models[seed % 2]:
            x = layer(x)
            gevent.sleep(0)
    start_response("200 OK", [])
    return [digest(x).encode()]


server = WSGIServer(("127.0.0.1", 0), application, log=None)
server.start()
jobs = [gevent.spawn(lambda seed: urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{seed}").read().decode(), seed) for seed in range(8)]
gevent.joinall(jobs)
out("answers", [job.value for job in jobs])
server.stop()
