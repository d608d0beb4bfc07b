"""The servers that masa_serving.py compares, each in a memory cgroup of its own."""
import contextlib
import os
import subprocess
from pathlib import Path

import masa_jobs
import programs
import pythons
import zoo
from plan import MIB

OPTIONS = ("--buffers", "12M", "--connections", "32", "--queue", "64", "--threads", "1")
# What swapnet-serve takes with these beside the budget of its engine, by its own account.
FRONT = 12 * MIB + 20 * MIB
# What its programs take where nobody has looked (masa_terms.py does).
BESIDE = 100 * MIB
RIVALS = ("swap", "mmap")
# Their allocator gives freed tensors back: else each thread that answers has an arena of its own, which keeps them.
LEAN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "1048576"}


def write_ensemble(repository, networks):
    """Model `job`: all of them on one image."""
    steps = "".join(f"  step {{ model_name: '{n.name}' model_version: -1 input_map {{ key: '{n.input}' value: 'image' }} "
                    f"output_map {{ key: 'OUTPUT__0' value: '{n.name}' }} }}\n" for n in networks)
    outputs = "".join(f"output {{ name: '{n.name}' data_type: TYPE_FP32 dims: [1, -1] }}\n" for n in networks)
    (repository / "job" / "1").mkdir(parents=True, exist_ok=True)
    (repository / "job" / "config.pbtxt").write_text(
        f"platform: 'ensemble'\ninput {{ name: 'image' data_type: TYPE_FP32 dims: [1, 3, 224, 224] }}\n{outputs}"
        f"ensemble_scheduling {{\n{steps}}}\n")


@contextlib.contextmanager
def swap_file(where, size):
    """More swap than there is. None, or why there is none."""
    path = Path(where) / "swap"
    why = None
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        path.chmod(0o600)
        for command in ("mkswap", "swapon"):
            done = subprocess.run([command, str(path)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise OSError(f"{command}: {done.stderr.strip()}")
    except OSError as error:
        why = str(error)
    try:
        yield why
    finally:
        if not why:
            subprocess.run(["swapoff", str(path)], check=False)
        path.unlink(missing_ok=True)


def let_swap(group, size):
    """The group may have so many bytes in swap, beside its limit."""
    for name, text in (("memory.memsw.limit_in_bytes", str(group.limit_bytes + size)), ("memory.swap.max", str(size)),
                       ("memory.swappiness", "60")):
        with contextlib.suppress(OSError):
            if (group.path / name).exists():
                (group.path / name).write_text(text)


def environment():
    """Of programs that compute with one thread, as engines do here: how many there are changes the bits of OpenBLAS."""
    return pythons.plain_environment() | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def forget_pages():
    """What we or a server that has ended have left in the page cache is at nobody's cost: rivals would have it beside their limit."""
    os.sync()
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1")


class Place:
    """Where things are, and what all servers have in common. terms: of masa_terms."""
    front = FRONT

    def __init__(self, build, python, folder, networks, group, may_swap=False):
        self.build, self.python, self.folder, self.networks, self.group, self.may_swap = build, python, folder, networks, group, may_swap
        self.terms = None

    def repository(self, kind):
        """Of the networks alone; no server finds in the page cache what another one has brought there."""
        path = self.folder / f"{kind}-{'-'.join(n.name for n in self.networks)}"
        if not path.exists():
            for n in self.networks:
                (path / n.name / "1").mkdir(parents=True)
                os.link(self.folder / "models" / n.name / "1" / "model.pt", path / n.name / "1" / "model.pt")
            if kind == "swapnet":
                write_ensemble(path, self.networks)
            elif kind == "mmap":
                self._python("convert", path)
        return path

    def _python(self, *args):
        subprocess.run([self.python, zoo.HERE / "mmap_server.py", *map(str, args)], check=True, env=environment())

    def start(self, policy, budget, title="", options=()):
        """(a programs.Server, the protocol that it speaks); budget: bytes for weights and activations. title: of several servers of one
        policy, which have options of their own."""
        limit, memory = (self.terms.limits(policy, budget, RIVALS) if self.terms else (FRONT + budget + BESIDE, FRONT + budget))
        return self.launch(policy, limit, memory, title, options)

    def launch(self, policy, limit, memory, title="", options=()):
        """The same, with a limit of its cgroup, and --memory for one of swapnet's."""
        log = self.folder / f"{policy}{title}.log"
        group = self.group(f"swapnet-masa-{policy}{title}", limit)
        if self.may_swap and limit:
            let_swap(group, 2 * sum(n.bytes for n in self.networks) + 512 * MIB)
        if policy not in RIVALS:
            return programs.swapnet(self.build, self.python, self.repository("swapnet"), memory, group, log, self.folder / "store",
                                    options=("--policy", policy, *OPTIONS, *options)), masa_jobs.Ensemble
        return self._rival(policy, self.repository("mmap"), group, log), masa_jobs.Raw

    def _rival(self, policy, repository, group, log):
        forget_pages()
        port = programs.free_port()
        return programs.Server(policy, group, [self.python, zoo.HERE / "mmap_server.py", port, repository,
                                               *(("anonymous",) if policy == "swap" else ())], port, "/", log,
                               environment() | LEAN)


def processor_seconds(server):
    ticks = 0
    for pid in server.processes():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
