"""A slower disk than this machine has: what this process and all that it starts read from it is throttled, together.

Fast disks hide what a budget is divided for, and boards have slow ones: eMMC gives some 250 MB/s, a SATA drive 500. The
kernel's throttle lets reads of the page cache and O_DIRECT wait alike. It is in the blkio controller of cgroup v1, which
a process is in apart from its memory's cgroup."""
import atexit
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup/blkio")
LIMIT = "blkio.throttle.read_bps_device"
MB = 1000 * 1000


def _disk_of(directory):
    """MAJOR:MINOR of the disk with this directory; of a partition, that of the whole."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    known = Path("/sys/dev/block") / number
    if not known.exists():
        raise SystemExit(f"--disk: {directory} is on no disk of its own")
    if (known / "partition").exists():
        number = (known.resolve().parent / "dev").read_text().strip()
    return number


def _leave(group):
    try:
        (ROOT / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()
    except OSError:
        pass  # something that we started still lives: its cgroup stays with it


def throttle(directory, mb_per_s):
    """From now on until this process ends; None: as fast as the disk is. Exits with a message where it can't be done."""
    if mb_per_s is None:
        return
    number = _disk_of(directory)
    group = ROOT / f"swapnet-disk-{os.getpid()}"
    try:
        group.mkdir()
        (group / LIMIT).write_text(f"{number} {mb_per_s * MB}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        if group.exists():
            group.rmdir()
        raise SystemExit(f"--disk: reads can't be throttled here (root and the blkio controller of cgroup v1 are "
                         f"needed): {error}") from None
    atexit.register(_leave, group)
