"""Weights whose pages the kernel is given, and not only their bytes: zero_copy.py OUT ZERO_COPY WAY.

ZERO_COPY is the library of zero_copy.c. What arrives, after the model has gone on, must be the weight's bytes;
and weights that the kernel was given stay in memory.
"""
import ctypes
import fcntl
import os
import socket
import threading

import torch
import torch.nn.functional as F

from _record import begin

record, (library, way) = begin()
helper = ctypes.CDLL(library)
libc = ctypes.CDLL(None, use_errno=True)
LAYERS, WIDTH, PART = 64, 512, 1 << 18
MSG_ZEROCOPY, SO_ZEROCOPY, F_SETPIPE_SZ = 0x4000000, 60, 1031
weights = [torch.randn(WIDTH, WIDTH) / 22 for _ in range(LAYERS)]
want = [bytes(memoryview(w.numpy()).cast("B")) for w in weights]
stop = threading.Event()


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.c_void_p), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]


class Mmsghdr(ctypes.Structure):
    _fields_ = [("hdr", Msghdr), ("len", ctypes.c_uint)]


for name in ("vmsplice", "send", "sendto", "sendmsg", "write", "pwrite", "writev"):
    getattr(libc, name).restype = ctypes.c_ssize_t


def infer(after=None):
    x = torch.ones(4, WIDTH)
    with torch.no_grad():
        for k, weight in enumerate(weights):
            x = F.linear(x, weight).tanh()
            if after:
                after(k)
    return x


def piped():
    """(send, receive) of a pipe that holds the pages."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)

    def send(at, n):
        return libc.vmsplice(writer, ctypes.byref(Iovec(at, n)), ctypes.c_size_t(1), 0)

    return send, lambda n: os.read(reader, n)


def connected():
    """A sender whose receiver has room for little, so that most waits in the sender's queue: as pages, not as bytes."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
        server.bind(("127.0.0.1", 0))
        server.listen()
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        ours.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        ours.connect(server.getsockname())
        theirs = server.accept()[0]
    return ours, theirs


def by_socket(call):
    def make():
        ours, theirs = connected()
        keep = []
        return lambda at, n: call(ours.fileno(), at, n), lambda n: (keep.append(ours), theirs.recv(n))[1]
    return make


def message(at, n):
    iov = Iovec(at, n)
    return Msghdr(iov=ctypes.addressof(iov), iovlen=1), iov


def sendmsg(fd, at, n):
    header, iov = message(at, n)
    return libc.sendmsg(fd, ctypes.byref(header), MSG_ZEROCOPY)


def sendmmsg(fd, at, n):
    header, iov = message(at, n)
    several = Mmsghdr(header)
    got = libc.sendmmsg(fd, ctypes.byref(several), 1, MSG_ZEROCOPY)
    return several.len if got == 1 else got


def send(fd, at, n):
    return libc.send(fd, ctypes.c_void_p(at), ctypes.c_size_t(n), MSG_ZEROCOPY)


def sendto(fd, at, n):
    return libc.sendto(fd, ctypes.c_void_p(at), ctypes.c_size_t(n), MSG_ZEROCOPY, None, 0)


QUEUES = {"vmsplice": piped, "send": by_socket(send), "sendto": by_socket(sendto), "sendmsg": by_socket(sendmsg),
          "sendmmsg": by_socket(sendmmsg)}


def queued(make):
    """Each weight is given away right after its operator, and arrives after two more passes."""
    threading.Thread(target=stop.wait).start()  # a second thread of the program
    wrong = sent = 0
    for first in range(0, LAYERS, 8):
        give, take = make()
        lengths = {}

        def after(k):
            if first <= k < first + 3:
                lengths[k] = give(weights[k].data_ptr(), PART)

        infer(after)
        for _ in range(2):
            infer()
        assert len(lengths) == 3 and all(n > 0 for n in lengths.values()), (lengths, ctypes.get_errno())
        for k, n in lengths.items():
            data = b""
            while len(data) < n:
                data += take(n - len(data))
            wrong += data != want[k][:n]
            sent += 1
    return wrong, sent


def direct(write):
    """A thread writes weights to the disk past the page cache, while another computes with them."""
    wrong, sent = [0], [0]
    plain = os.open("direct.bin", os.O_RDWR | os.O_CREAT, 0o600)
    fd = os.open("direct.bin", os.O_RDWR | os.O_DIRECT)

    def store():
        for k in range(16):
            at = (weights[k].data_ptr() + 4095) // 4096 * 4096
            off, n = at - weights[k].data_ptr(), len(want[k]) - 65536
            write(fd, at, n)
            os.posix_fadvise(plain, 0, 0, os.POSIX_FADV_DONTNEED)
            wrong[0] += os.pread(plain, n, 0) != want[k][off:off + n]
            sent[0] += 1

    thread = threading.Thread(target=store)
    thread.start()
    while thread.is_alive():
        infer()
    thread.join()
    return wrong[0], sent[0]


def is_anonymous(weight):
    """Whether its pages are its own: neither a file's nor the pool's, which is one."""
    first, n = weight.data_ptr() // 4096 + 1, weight.numel() * 4 // 4096 - 1
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(first * 8)
        entries = torch.frombuffer(bytearray(pages.read(n * 8)), dtype=torch.int64)
    there, file = (entries >> 62) & 3, (entries >> 61) & 1
    return bool((there != 0).all() and (file == 0).all())


def by_helper(name):
    def write(fd, at, n):
        done = getattr(helper, name)(fd, ctypes.c_void_p(at), ctypes.c_size_t(n))
        assert done == 0, done
    return write


def by_write(fd, at, n):
    done = libc.pwrite(fd, ctypes.c_void_p(at), ctypes.c_size_t(n), ctypes.c_long(0))
    assert done == n, (done, ctypes.get_errno())


def by_writev(fd, at, n):
    os.lseek(fd, 0, os.SEEK_SET)
    done = libc.writev(fd, ctypes.byref(Iovec(at, n)), 1)
    assert done == n, (done, ctypes.get_errno())


def by_append(fd, at, n):
    os.lseek(fd, 0, os.SEEK_SET)
    done = libc.write(fd, ctypes.c_void_p(at), ctypes.c_size_t(n))
    assert done == n, (done, ctypes.get_errno())


WRITES = {"write": by_append, "pwrite": by_write, "writev": by_writev, "libaio": by_helper("aio_write_all"),
          "posix-aio": by_helper("posix_write_all")}

infer(), infer()
wrong, sent = queued(QUEUES[way]) if way in QUEUES else direct(WRITES[way])
stop.set()
infer(), infer()
record.notes["wrong"] = wrong
given = [k for k in range(LAYERS) if k % 8 < 3] if way in QUEUES else range(16)
record.check("and stay where they are", all(is_anonymous(weights[k]) for k in given))
record.check("all arrived as they were", wrong == 0)
record.value("sent", sent)
record.tensor("output", infer())
for k, weight in enumerate(weights):
    record.tensor(f"weight{k}", weight)
record.save()
