"""A medium that has lost bytes: btrfs on a loop device, in whose image one byte is changed. The kernel finds that the checksum is
another and answers EIO, however the page is read. A program's bits are equal, or it ends with exit code 5 and names file and offset.

    SWAPNET_TEST_POINTS=60 python3 -m pytest tests/e2e/surroundings/test_bad_media.py -s

tries so many places of a file, 6 without that variable, and prints what came of them. A program need not read such a place again.
So the last medium of each test has lost a byte in every part of the file: of what the program reads, whatever that is, some is gone.
"""
import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys

import pytest

import harness
from daemons import dnns, plain_bits, stop, wait_for
from harness import MIB

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.getuid() != 0 or not shutil.which("mkfs.btrfs"),
                                                   reason="needs root and mkfs.btrfs (Debian: btrfs-progs)")]
POINTS = int(os.environ.get("SWAPNET_TEST_POINTS", "6"))
PARTITION = harness.BUILD / "bin" / "swapnet-partition"
PAGE = 4096
PART = MIB // 4


class Medium:
    """`at` is the file system, and `image` what it lies on."""

    def __init__(self, at, image):
        self.at, self.image = at, image

    @contextlib.contextmanager
    def spoilt(self, path, *at):
        """One byte of the page at each of those places of the file is another one on the medium."""
        with open(path, "rb") as file, open(self.image, "r+b", buffering=0) as image:
            os.fsync(file.fileno())
            pages = [os.pread(file.fileno(), PAGE, place) for place in at]
            copies = list(find(image.fileno(), *pages))  # what was overwritten may still lie at its old place
            assert len(copies) >= len(at), "it is not there"
            change(image.fileno(), copies)
            try:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for place in at:
                    with pytest.raises(OSError) as refused:
                        os.pread(file.fileno(), PAGE, place)
                    assert refused.value.errno == errno.EIO
                yield
            finally:
                change(image.fileno(), copies)


def find(fd, *pages, chunk=4 * MIB):
    """Where the pages lie in a file that is mostly holes: file systems put a page where one begins."""
    end, at, pages = os.fstat(fd).st_size, 0, set(pages)
    while at < end:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            return
        at -= at % PAGE
        hole = os.lseek(fd, at, os.SEEK_HOLE)
        while at < hole:
            data = os.pread(fd, chunk, at)
            yield from (at + i for i in range(0, len(data), PAGE) if data[i:i + PAGE] in pages)
            at += chunk
        at = max(at, hole)


def change(fd, pages):
    for page in pages:
        byte = os.pread(fd, 1, page + PAGE // 3)[0]
        os.pwrite(fd, bytes([byte ^ 0xFF]), page + PAGE // 3)
    os.fsync(fd)


@pytest.fixture
def medium(disk):
    image = disk / "image"
    with open(image, "wb") as f:
        f.truncate(1024 * MIB)
    subprocess.run(["mkfs.btrfs", "-q", "-d", "single", "-m", "single", image], check=True, capture_output=True)
    with harness.mounted("-t", "btrfs", "-o", "loop", image, at=disk / "medium") as at:
        yield Medium(at, image)


def places(path, count, seed):
    """Of pages whose bytes are no other page's: so many, by chance, in order."""
    with open(path, "rb") as f:
        data = f.read()
    pages = [data[at:at + PAGE] for at in range(0, len(data) - PAGE + 1, PAGE)]
    often = {}
    for page in pages:
        often[page] = often.get(page, 0) + 1
    single = [i * PAGE for i, page in enumerate(pages) if often[page] == 1 and page.count(0) < PAGE // 2]
    return sorted(random.Random(seed).sample(single, min(count, len(single))))


def throughout(path):
    """One page in each quarter of a MiB of the file; the weights of these programs have MiB. None at its ends, where a store has its
    directory: without that no program would begin to read it."""
    every, size = {}, os.path.getsize(path)
    for place in places(path, sys.maxsize, 0):
        if MIB <= place < size - MIB:
            every.setdefault(place // PART, place)
    assert len(every) > 20, "the file is too small, or its pages are too much alike"
    return list(every.values())


def assert_named(text, path):
    assert "ending the program" in text and "offset" in text and str(path) in text, text


@pytest.mark.parametrize("path", ["auto", "pread", "buffered"])
def test_a_store_that_cannot_be_read(torch113, disk, medium, path):
    checkpoint, args = disk / "model.pth", None
    harness.make(torch113, "make_weights", "pth", str(checkpoint), where=disk / "made")
    args = ("load_model", "pth", str(checkpoint), "lean")
    (medium.at / "store").mkdir()
    env = {"SWAPNET_STORE": str(medium.at / "store"), "SWAPNET_FETCH": path}
    plain = harness.plain(torch113, *args)

    def run():
        shutil.rmtree(disk / "run", ignore_errors=True)
        return harness.run(torch113, *args, where=disk / "run", budget=24, env=env)
    harness.assert_same(plain, run())
    store, = (medium.at / "store").rglob("*.swnstore")
    points, ended = [[0], *([place] for place in places(store, POINTS, path)), throughout(store)], 0
    for at in points:
        with medium.spoilt(store, *at):
            got = run()
        if got.rc:
            assert got.rc == 5 and got.record is None, got.describe()
            assert_named(got.own_lines()[-1], medium.at)
            ended += 1
        else:
            harness.assert_same(plain, got)
        for extra in set((medium.at / "store").rglob("*.swnstore")) - {store}:
            extra.unlink()
        assert store.exists(), "what cannot be read is still the user's"
    print(f"store, {path}: {len(points)} times, {ended} ended the program")
    assert got.rc == 5, got.describe()


@pytest.mark.parametrize("path", ["auto", "pread", "buffered"])
def test_a_spill_file_that_cannot_be_read(place, medium, path):
    ended = 0
    for point in range(POINTS + 1):
        last = point == POINTS
        (medium.at / "store").mkdir(exist_ok=True)
        with dnns() as make:
            dnn = make(place, 12, SWAPNET_STORE=str(medium.at / "store"), SWAPNET_FETCH=path, SWAPNET_DAEMON="off",
                       SWAPNET_BUDGET="24M")
            dnn.goes_on(6)
            stop(dnn.pid)
            spills = [f"/proc/{dnn.pid}/fd/{n}" for n in os.listdir(f"/proc/{dnn.pid}/fd")]
            spill = max((n for n in spills if os.readlink(n).startswith(str(medium.at))), key=os.path.getsize)
            with medium.spoilt(spill, *(throughout(spill) if last else places(spill, 1, f"{path} {point}"))):
                os.kill(dnn.pid, signal.SIGCONT)
                before = dnn.inferences()
                wait_for(lambda: dnn.process.poll() is not None or not last and dnn.inferences() > before + 10,
                         why="it stands still, or reads what is not there")
                if dnn.process.poll() is None:  # a page that is not read any more
                    assert dnn.end()[0] == plain_bits(12)
                    continue
                said = dnn.process.stderr.read()
            assert dnn.process.returncode == 5, (dnn.process.returncode, said)
            assert_named(said.splitlines()[-1], medium.at)
            ended += 1
    print(f"spill file, {path}: {POINTS + 1} times, {ended} ended the program")


def test_a_checkpoint_that_cannot_be_read(torch113, disk, medium):
    """swapnet-partition names it, and leaves nothing; a store whose bytes are gone is found by verify."""
    checkpoint, store = medium.at / "model.pth", medium.at / "model.swnstore"
    harness.make(torch113, "make_weights", "pth", str(checkpoint), where=disk / "made")

    def part(*args):
        return subprocess.run([PARTITION, *args], capture_output=True, text=True, timeout=harness.HANG_S, env=harness.clean_env())
    points = places(checkpoint, POINTS, 1)
    for point in points:
        with medium.spoilt(checkpoint, point):
            done = part("build", "-q", checkpoint, "-o", store)
        assert done.returncode not in (0, -signal.SIGBUS) and done.stderr.startswith("swapnet-partition: "), done
        assert str(checkpoint) in done.stderr and os.strerror(errno.EIO) in done.stderr, done
        assert os.listdir(medium.at) == ["model.pth"], done
    assert part("build", "-q", checkpoint, "-o", store).returncode == 0
    for point in (0, *places(store, POINTS, 2)):
        with medium.spoilt(store, point):
            done = part("verify", store)
        assert done.returncode not in (0, -signal.SIGBUS) and str(store) in done.stdout + done.stderr, done
    assert part("verify", store).returncode == 0
    print(f"checkpoint: {len(points)} places; store: {POINTS + 1}")
