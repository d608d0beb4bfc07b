"""A swapnet-engine and the messages that swapnet-serve would send it: scheduler/protocol/engine_wire.h in Python."""
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "programs", "shared"))
from serve_backend import ELEMENT, ELEMENTS, ServeError, Tensor  # noqa: E402

MAGIC, VERSION, STEPS = 0x6E657773, 11, 64
OPS = "READY LOAD LOADED UNLOAD UNLOADED RUN RAN STORE STORED DROP BUDGET BUDGETED".split()
OP = {name: number for number, name in enumerate(OPS, 1)}


class Head(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("magic", "version", "op", "status")] + [
        ("request", ctypes.c_uint64)] + [
        (name, ctypes.c_uint32) for name in ("model", "group", "groups", "inputs", "outputs", "weighed", "text_bytes", "foretold", "is_stored",
                                         "batch_most", "may_differ", "following", "joined", "placed")] + [
        (name, ctypes.c_uint64) for name in ("ns", "weight_bytes", "budget_bytes", "read_bytes", "wait_ns", "idle_bytes")]


class Group(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("bytes", "in_memory", "identity", "dense", "activation_bytes", "state_bytes",
                                                     "alone_ns")] + [("joined_ns", ctypes.c_uint64 * 5)]


class Step(ctypes.Structure):
    _fields_ = [("model", ctypes.c_uint32), ("group", ctypes.c_uint32)]


class Place(ctypes.Structure):
    _fields_ = [("model", ctypes.c_uint32), ("group", ctypes.c_uint32), ("in_memory", ctypes.c_uint64)]


class Engine:
    """Use as a context. The buffer is a memory file of `buffer` bytes."""

    def __init__(self, program, environment, buffer=64 << 20, options=()):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(300)
        self.memory = os.memfd_create("buffer")
        os.ftruncate(self.memory, buffer)
        with theirs:
            self.process = subprocess.Popen(
                [str(program), "--socket", str(theirs.fileno()), "--buffer", str(self.memory), *options],
                pass_fds=(theirs.fileno(), self.memory), env=environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.requests, self.groups, self.last_groups, self.division = 0, [], [], {}
        self.read_bytes = self.idle_bytes = 0  # that answers told
        self.places = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=300)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
        os.close(self.memory)

    def send(self, op, tensors=(), text="", inputs=0, steps=(), **fields):
        """steps: (model, group) of each that RUN foretells."""
        body = text.encode()
        head = Head(magic=MAGIC, version=VERSION, op=OP[op], inputs=inputs, outputs=len(tensors) - inputs,
                    text_bytes=len(body), foretold=len(steps), **fields)
        self.ours.send(bytes(head) + b"".join(bytes(t) for t in tensors) + b"".join(bytes(Step(*s)) for s in steps) + body)

    def receive(self, op=None):
        """(head, tensors, text) of one message; a status other than 0 raises."""
        packet = self.ours.recv(1 << 20)
        if not packet:
            raise EOFError("the engine has closed its end")
        head = Head.from_buffer_copy(packet)
        self.read_bytes += head.read_bytes + head.idle_bytes
        self.idle_bytes += head.idle_bytes
        at, tensors = ctypes.sizeof(Head), []
        for _ in range(head.inputs + head.outputs):
            tensors.append(Tensor.from_buffer_copy(packet, at))
            at += ctypes.sizeof(Tensor)
        self.groups = []  # of the last message: the weights of the model's layer groups
        for _ in range(head.weighed):
            self.groups.append(Group.from_buffer_copy(packet, at))
            at += ctypes.sizeof(Group)
        if self.groups:
            self.last_groups = self.groups
            self.division[head.model] = head.weighed
        if head.placed:  # by model: what of each group is in memory
            self.places = {}
        for _ in range(head.placed):
            place = Place.from_buffer_copy(packet, at)
            assert place.group == len(self.places.setdefault(place.model, []))
            self.places[place.model].append(place.in_memory)
            at += ctypes.sizeof(Place)
        text = packet[at:at + head.text_bytes].decode(errors="replace")
        if op:
            assert OPS[head.op - 1] == op, OPS[head.op - 1]
        if head.status:
            raise ServeError(head.status, text)
        return head, tensors, text

    def ask(self, op, **what):
        self.send(op, **what)
        return self.receive(OPS[OP[op]])

    def load(self, number, path, groups=0, **fields):
        return self.ask("LOAD", model=number, groups=groups, text=str(path), **fields)

    def tensors(self, inputs, at=0):
        """Descriptions of (name, element, shape, bytes), whose bytes are written to the buffer from `at` on."""
        described = []
        for name, element, shape, data in inputs:
            t = Tensor(name=name.encode(), element=ELEMENT[element], rank=len(shape), offset=at, bytes=len(data))
            t.shape[:len(shape)] = shape
            os.pwrite(self.memory, data, at)
            at += -(-len(data) // 64) * 64
            described.append(t)
        return described

    def begin(self, model, inputs, at=0, steps=()):
        """Runs the first group. (request's number, its groups, outputs if that was all)."""
        self.requests += 1
        described = self.tensors(inputs, at)
        head, outputs, _ = self.ask("RUN", request=self.requests, model=model, tensors=described, inputs=len(described),
                                    steps=steps)
        return self.requests, head.groups, outputs

    def fetch(self, request, outputs, at=0):
        """{name: (element, shape, bytes)} of the outputs that RAN described."""
        for t in outputs:
            t.offset = at
            at += -(-t.bytes // 64) * 64
        self.ask("STORE", request=request, tensors=outputs)
        return {t.name.decode(): (ELEMENTS[t.element - 1], tuple(t.shape[:t.rank]), os.pread(self.memory, t.bytes, t.offset))
                for t in outputs}

    def foretell(self, model, group, then):
        """The steps behind that group, where requests for the models `then` follow; None: it is not known what follows."""
        own = [(model, g) for g in range(group + 1, self.division.get(model, 0))]
        return () if then is None else (own + [(m, g) for m in then for g in range(self.division.get(m, 0))])[:STEPS]

    def infer(self, model, inputs, then=None):
        request, groups, outputs = self.begin(model, inputs, steps=self.foretell(model, 0, then))
        for group in range(1, groups):
            _, outputs, _ = self.ask("RUN", request=request, model=model, group=group,
                                     steps=self.foretell(model, group, then))
        return self.fetch(request, outputs)
