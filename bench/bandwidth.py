"""Sequential O_DIRECT read bandwidth of one file: what a perfect fetcher could get right now."""
import mmap
import os
import queue
import threading
import time

CHUNK_BYTES = 2 << 20
IN_FLIGHT = 4
TOTAL_BYTES = 256 << 20
SMALLEST_BYTES = 1 << 20


def _open_direct(path):
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT), True
    except OSError:
        return os.open(path, os.O_RDONLY), False


def _read_all(fd, offsets, failures):
    # An anonymous mapping is page-aligned, as O_DIRECT wants its buffers.
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    view = memoryview(buffer)
    try:
        while True:
            offset, size = offsets.get_nowait()
            if os.preadv(fd, [view[:size]], offset) != size:
                raise OSError(f"short read at {offset}")
    except queue.Empty:
        pass
    except OSError as error:
        failures.append(error)


def measure(path, total_bytes=TOTAL_BYTES):
    """Bytes per second; a small file is read over and over until total_bytes have been read."""
    size = os.path.getsize(path)
    chunk = min(CHUNK_BYTES, size // 4096 * 4096)
    if chunk < SMALLEST_BYTES:
        raise ValueError(f"{path} is too small to measure with")
    in_file = size // chunk
    offsets = queue.SimpleQueue()
    for i in range(-(-total_bytes // chunk)):
        offsets.put((i % in_file * chunk, chunk))
    count = offsets.qsize()
    fd, direct = _open_direct(path)
    failures = []
    try:
        if not direct:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        readers = [threading.Thread(target=_read_all, args=(fd, offsets, failures))
                   for _ in range(IN_FLIGHT)]
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        elapsed = time.perf_counter() - start
    finally:
        os.close(fd)
    if failures:
        raise failures[0]
    return count * chunk / elapsed
