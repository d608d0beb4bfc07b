"""torch.distributed.rpc between two processes under swapnet, each with a model of its own: TensorPipe copies tensors from
one process to the other by process_vm_readv, which it calls by its number.

rpc_weights.py OUT: starts its own peer, as rpc_weights.py peer MEETING.
"""
import os
import subprocess
import sys

os.environ["GLOG_minloglevel"] = "2"  # it would say when, and in which process
import torch
from torch import nn
from torch.distributed import rpc

from _models import mlp, rows
from _record import begin


def join(name, rank, meeting):
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["TP_SOCKET_IFNAME"] = "lo"
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{meeting}", rpc_timeout=100)
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)


model = None


def peer_model():
    """Made at its first use, with the same weights in either process."""
    global model
    if model is None:
        torch.manual_seed(0)
        model = mlp()
    return model


def compute(x, weight):
    with torch.no_grad():
        return peer_model()(x) @ weight


def product(a, b):
    return a @ b


def all_weights():
    return [m.weight.detach() for m in peer_model() if isinstance(m, nn.Linear)]


def ask():
    record, _ = begin()
    meeting = os.path.abspath(f"meeting.{os.getpid()}")
    env = {k: v for k, v in os.environ.items() if k != "SWAPNET_STATS"}
    peer = subprocess.Popen([sys.executable, __file__, "peer", meeting], env=env)
    join("asks", 0, meeting)
    weights = all_weights()
    with torch.no_grad():
        for i in range(3):
            record.tensor(f"alone{i}", peer_model()(rows(i)))
            record.tensor(f"answer{i}", rpc.rpc_sync("peer", compute, (rows(i), weights[i])))
        for k, weight in enumerate(rpc.rpc_sync("peer", all_weights, ())):
            record.tensor(f"weight{k}", weight)
        for i in range(3):
            asked = [rpc.rpc_async("peer", product, (weights[k], weights[k + 1])) for k in range(4 * i, 4 * i + 8)]
            for k, answer in enumerate(asked):
                record.tensor(f"product{i}.{k}", answer.wait())
            record.tensor(f"then{i}", peer_model()(rows(i)))
    rpc.shutdown()
    record.value("peer", peer.wait(timeout=60))
    record.save()


if sys.argv[1] == "peer":
    torch.set_num_threads(2)
    join("peer", 1, sys.argv[2])
    rpc.shutdown()
else:
    ask()
