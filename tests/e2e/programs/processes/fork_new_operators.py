"""Children forked while other threads are busy with many operators; each calls one that this process has not called yet.
A lock that one of those threads held at the fork would stay held in the child for ever."""
import os
import signal
import threading
import time

import torch

from _models import mlp, rows
from _record import begin

CHILDREN, SECONDS = 50, 20

record, _ = begin()
model = mlp(depth=8)
with torch.no_grad():
    for i in range(3):
        record.tensor(f"output{i}", model(rows(i)))

UNARY = """abs absolute neg negative sign sgn ceil floor round trunc fix frac exp exp2 expm1 sin cos tan sinh cosh tanh
asin acos atan arcsin arccos arctan sigmoid erf erfc sqrt rsqrt reciprocal square log log2 log10 log1p lgamma digamma
relu clone alias t isnan isinf isfinite isposinf isneginf signbit logical_not deg2rad rad2deg sinc nan_to_num angle
conj positive selu celu hardtanh hardswish hardsigmoid relu6 silu mish softplus log_sigmoid detach ravel sum mean max
min prod std var norm nansum median argmax argmin cumsum""".split()
UNARY = [name for name in UNARY if name not in ("cumsum",) and hasattr(torch.ops.aten, name)]
stop = threading.Event()


def many():
    """In a new thread all of them are new."""
    x = torch.ones(2)
    for name in UNARY:
        try:
            getattr(torch.ops.aten, name)(x)
        except RuntimeError:
            pass  # not with these arguments
        except TypeError:
            pass


def busy():
    while not stop.is_set():
        thread = threading.Thread(target=many)
        thread.start()
        thread.join()


threads = [threading.Thread(target=busy) for _ in range(4)]
for thread in threads:
    thread.start()
hung = 0
for i in range(CHILDREN):
    child = os.fork()
    if not child:
        torch.asinh(torch.ones(2))
        os._exit(0)
    until = time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            hung += 1
            break
        time.sleep(0.0005)
    if hung:
        break
stop.set()
for thread in threads:
    thread.join()
record.value("children that hung", hung)
record.save()
