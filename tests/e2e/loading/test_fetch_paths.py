"""Each way of fetching gives the same bits: io_uring, a pread thread, buffered reads; and each fallback is taken."""
import ctypes
import errno
import os
import platform
import struct
import tempfile

import pytest

import harness


def _fetched(torch, path, **options):
    run = harness.both(torch, "infer", "mlp", budget=48, **options)[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    if path:
        assert path in run.stats["fetch_path"], run.describe()
    return run


@pytest.mark.halved
@pytest.mark.forked
@pytest.mark.parametrize("path", ["uring", "pread", "buffered"])
def test_each_fetch_path_has_equal_bits(torch, path):
    if path == "uring" and (why := harness.uring_refused()):
        pytest.skip(f"this kernel has no io_uring for us: {why}")
    _fetched(torch, path, env={"SWAPNET_FETCH": path})


def test_default_is_uring_on_a_disk(torch113):
    if why := harness.uring_refused():
        pytest.skip(f"this kernel has no io_uring for us: {why}")
    _fetched(torch113, "uring")


def _direct_refused(directory):
    """Whether the file system at `directory` refuses O_DIRECT (tmpfs did until Linux 6.6)."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError as error:
            assert error.errno == errno.EINVAL
            return True
    return False


def test_store_in_memory(torch):
    """A store on tmpfs: buffered where O_DIRECT is refused, any path else; the same bits."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="swapnet-e2e-") as store:
        path = "buffered" if _direct_refused(store) else None
        _assert_warned(_fetched(torch, path, env={"SWAPNET_STORE": store}), store)


def _assert_warned(run, store):
    line, = run.own_lines()
    assert f"the store directory {store} lies in memory" in line and "SWAPNET_STORE" in line, run.describe()


def test_store_in_an_overlay(torch113, disk):
    """Which does not say that what is written to it lies in memory."""
    with harness.overlay_in_memory(disk) as store:
        _assert_warned(_fetched(torch113, None, env={"SWAPNET_STORE": str(store)}), store)
    with harness.mounted("-t", "overlay", "-o", f"lowerdir={disk}/lower,upperdir={disk}/files,workdir={disk}/work",
                         "swapnet-test", at=_made(disk, "files", "work", "overlay")) as store:
        run = _fetched(torch113, None, env={"SWAPNET_STORE": str(store)})
    assert run.own_lines() == [], run.describe()


def _made(disk, *names):
    for name in names:
        (disk / name).mkdir(exist_ok=True)
    return disk / names[-1]


def _block_uring():
    """Run between fork and exec: a seccomp filter that answers io_uring_setup with EPERM, as containers do."""
    number, ret_allow, ret_eperm = 425, 0x7FFF0000, 0x00050000 | errno.EPERM
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in (
        (0x20, 0, 0, 0),          # load the system call's number
        (0x15, 0, 1, number),     # io_uring_setup?
        (0x06, 0, 0, ret_eperm),
        (0x06, 0, 0, ret_allow)))
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):  # NO_NEW_PRIVS, SECCOMP filter
        raise OSError(ctypes.get_errno(), "seccomp")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the filter knows two architectures")
def test_uring_blocked_by_seccomp(torch, disk):
    process = harness.start(torch, "infer", "mlp", where=disk, budget=48, preexec=_block_uring)
    run = process.finish()
    assert run.rc == 0, run.describe()
    harness.assert_same(harness.plain(torch, "infer", "mlp"), run)
    harness.assert_streamed(run)
    assert "pread" in run.stats["fetch_path"], run.describe()
