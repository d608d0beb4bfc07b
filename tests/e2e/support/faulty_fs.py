"""A directory seen through FUSE, whose reads fail, fall short or stall: faulty_fs.py DIRECTORY MOUNTPOINT FAULT.

All ways to read meet the fault, also io_uring and memory maps, which a preload or strace cannot see. FAULT is one of:

    none         nothing
    eio:N        the N-th read of a file's bytes fails with EIO, once; N counts from 1
    eio-after:N  that read and all that follow
    eio-at:O     each read of the page that has a file's byte O
    short:K      each K-th read that bypasses the page cache gives half of what was asked, rounded down to 512 bytes
    stall:N:S    the N-th read waits for S seconds; others go on meanwhile
    stall-write:N:S  so does the N-th write

When the file system is unmounted it prints how many reads (of stall-write: writes) there were and how many had the fault. Needs fusepy.
"""
import errno
import os
import sys
import threading
import time

import fusepy as fuse


class Faulty(fuse.Operations):
    def __init__(self, root, fault):
        self.root = os.path.realpath(root)
        self.kind, *numbers = fault.split(":")
        self.numbers = [float(number) for number in numbers]
        self.reads = self.hits = 0
        self.direct = set()
        self.guard = threading.Lock()

    def __call__(self, op, path, *args):
        return super().__call__(op, self.root + path, *args)

    def _meets(self, direct, offset=0, size=0):
        with self.guard:
            self.reads += 1
            first = self.numbers[0] if self.numbers else 0
            page = first // 4096 * 4096
            met = {"eio-at": offset < page + 4096 and page < offset + size,
                   "eio": self.reads == first, "stall": self.reads == first, "stall-write": self.reads == first, "eio-after": self.reads >= first,
                   "short": direct and self.reads % max(first, 1) == 0}.get(self.kind, False)
            self.hits += met
        return met

    def read(self, path, size, offset, fh):
        met = self.kind != "stall-write" and self._meets(fh in self.direct, offset, size)
        if met and self.kind.startswith("eio"):
            raise fuse.FuseOSError(errno.EIO)
        if met and self.kind == "stall":
            time.sleep(self.numbers[1])
        if met and self.kind == "short":
            size = max(512, size // 2 // 512 * 512)
        return os.pread(fh, size, offset)

    def open(self, path, flags):
        fh = os.open(path, flags & ~(os.O_DIRECT | os.O_APPEND))  # what FUSE gives us to read into is not aligned
        if flags & os.O_DIRECT:
            self.direct.add(fh)
        return fh

    def create(self, path, mode, fi=None):
        return os.open(path, os.O_RDWR | os.O_CREAT, mode)

    def write(self, path, data, offset, fh):
        if self.kind == "stall-write" and self._meets(False):
            time.sleep(self.numbers[1])
        return os.pwrite(fh, data, offset)

    def release(self, path, fh):
        self.direct.discard(fh)
        os.close(fh)

    def truncate(self, path, length, fh=None):
        os.truncate(path if fh is None else fh, length)

    def getattr(self, path, fh=None):
        st = os.lstat(path) if fh is None else os.fstat(fh)
        return {name: getattr(st, name) for name in dir(st) if name.startswith("st_") and not name.endswith("_ns")}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(path)]

    def statfs(self, path):
        st = os.statvfs(path)
        return {name: getattr(st, name) for name in dir(st) if name.startswith("f_")}

    def fsync(self, path, datasync, fh):
        os.fsync(fh)

    def rename(self, old, new):
        os.rename(old, self.root + new)

    def utimens(self, path, times=None):
        os.utime(path, times)

    access = staticmethod(lambda path, mode: None)
    chmod = staticmethod(os.chmod)
    chown = staticmethod(os.chown)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    unlink = staticmethod(os.unlink)


if __name__ == "__main__":
    faulty = Faulty(sys.argv[1], sys.argv[3])
    # Without direct_io the kernel takes a short answer for the end of the file.
    fuse.FUSE(faulty, sys.argv[2], foreground=True, default_permissions=True, direct_io=faulty.kind == "short")
    print(faulty.reads, faulty.hits, flush=True)
