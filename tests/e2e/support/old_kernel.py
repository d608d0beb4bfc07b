"""A process that meets an older kernel: a seccomp filter answers what that kernel does not know, as it would.

System calls that came later are ENOSYS, advice and questions to a ring that came later are EINVAL. Not to be had this way:
files in /proc, and what a kernel says in memory (the features of a ring).
"""
import ctypes
import errno
import os
import platform
import struct

MADVISE = {"x86_64": 28, "aarch64": 233}.get(platform.machine())
# (since, system call, which argument and its value, the answer); the numbers from 424 on are those of all architectures
RULES = [
    ((5, 1), 425, None, errno.ENOSYS),  # io_uring_setup
    ((5, 3), 434, None, errno.ENOSYS),  # pidfd_open
    ((5, 3), 435, None, errno.ENOSYS),  # clone3
    ((5, 4), MADVISE, (2, 20), errno.EINVAL),  # MADV_COLD
    ((5, 4), MADVISE, (2, 21), errno.EINVAL),  # MADV_PAGEOUT
    ((5, 6), 427, (1, 8), errno.EINVAL),  # IORING_REGISTER_PROBE
    ((5, 6), 437, None, errno.ENOSYS),  # openat2
    ((5, 8), 439, None, errno.ENOSYS),  # faccessat2
    ((5, 9), 436, None, errno.ENOSYS),  # close_range
    ((5, 10), 440, None, errno.ENOSYS),  # process_madvise
    ((5, 14), MADVISE, (2, 22), errno.EINVAL),  # MADV_POPULATE_READ
    ((5, 14), MADVISE, (2, 23), errno.EINVAL),  # MADV_POPULATE_WRITE
    ((5, 18), MADVISE, (2, 24), errno.EINVAL),  # MADV_DONTNEED_LOCKED
    ((5, 18), 427, (1, 20), errno.EINVAL),  # IORING_REGISTER_RING_FDS
    ((6, 1), MADVISE, (2, 25), errno.EINVAL),  # MADV_COLLAPSE
]
LOAD, EQUAL, ANSWER, ALLOW = 0x20, 0x15, 0x06, 0x7FFF0000


def instructions(rules):
    """A block for each rule; a comparison that fails goes on behind its block."""
    for number, argument, answer in rules:
        yield LOAD, 0, 0, 0
        yield EQUAL, 0, 3 if argument else 1, number
        if argument:
            yield LOAD, 0, 0, 16 + 8 * argument[0]  # its lower half
            yield EQUAL, 0, 1, argument[1]
        yield ANSWER, 0, 0, 0x00050000 | answer
    yield ANSWER, 0, 0, ALLOW


def install(rules):
    """For this process and all that it starts, between fork and exec."""
    code = b"".join(struct.pack("HBBI", *one) for one in instructions(rules))
    buffer = ctypes.create_string_buffer(code)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):  # NO_NEW_PRIVS, SECCOMP filter
        raise OSError(ctypes.get_errno(), "seccomp")


def of(version):
    """The step that makes a child process meet that kernel."""
    rules = [(number, argument, answer) for since, number, argument, answer in RULES if since > version]
    return lambda: install(rules)


if __name__ == "__main__":
    import sys
    of(tuple(map(int, sys.argv[1].split("."))))()
    os.execvp(sys.argv[2], sys.argv[2:])
