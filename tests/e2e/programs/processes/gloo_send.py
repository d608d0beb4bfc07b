"""gloo sends of weights that are still under way while inferences go on; the receiver is a plain process.

gloo_send.py OUT: starts its own receiver, as gloo_send.py receive FILE.
"""
import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn

from _models import mlp, rows
from _record import begin, digest

LAYERS = 12


def join(rank, meeting):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)


def receive(meeting):
    join(1, meeting)
    got = []
    for k in range(LAYERS):
        weight = torch.empty(1024, 1024)
        dist.recv(weight, src=0, tag=k)
        got.append(digest(weight))
    dist.destroy_process_group()
    print(json.dumps(got))


def send():
    record, _ = begin()
    meeting = os.path.abspath(f"meeting.{os.getpid()}")
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("SWAPNET")}
    receiver = subprocess.Popen([sys.executable, __file__, "receive", meeting], env=env, stdout=subprocess.PIPE)
    join(0, meeting)
    model = mlp()
    weights = [m.weight.detach() for m in model if isinstance(m, nn.Linear)][:LAYERS]
    with torch.no_grad():
        for i in range(3):
            record.tensor(f"before{i}", model(rows(i)))
        pending = [dist.isend(weight, dst=1, tag=k) for k, weight in enumerate(weights)]
        for i in range(10):
            record.tensor(f"during{i}", model(rows(i)))
    for request in pending:
        request.wait()
    got = json.loads(receiver.communicate(timeout=60)[0])
    record.value("received", got)
    record.check("received what was sent", got == [digest(w) for w in weights])
    dist.destroy_process_group()
    record.save()


receive(sys.argv[2]) if sys.argv[1] == "receive" else send()
