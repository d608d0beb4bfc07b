"""The servers that masa_serving.py compares, each in a memory cgroup of its own."""
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import masa_jobs
import programs
import pythons
import zoo
from plan import MIB

# What swapnet-serve takes with these options beside the budget of its engine.
OPTIONS = ("--buffers", "48M", "--connections", "64", "--queue", "256", "--threads", "1")
FRONT = 48 * MIB + 32 * MIB
# What its programs and their libraries take.
BESIDE = 170 * MIB
RIVALS = ("swap", "mmap")


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


def file_pages(pid):
    """Bytes of files that are in memory and mapped by it: libraries, and no model's weights. Whose cgroup is charged for them is
    another question: who was first."""
    total, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            counts = len(words) > 5 and words[5].startswith("/") and not words[5].endswith(".weights")
        elif counts and words[0] in ("Rss:", "Anonymous:"):
            total += int(words[1]) * (1024 if words[0] == "Rss:" else -1024)
    return total


class Place:
    """Where things are, and what all servers have in common."""

    def __init__(self, build, python, folder, networks, group):
        self.build, self.python, self.folder, self.networks, self.group = build, python, folder, networks, group
        self._base = None

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
        log = self.folder / f"{policy}{title}.log"
        if policy not in RIVALS:
            group = self.group(f"swapnet-masa-{policy}{title}", FRONT + budget + BESIDE)
            return programs.swapnet(self.build, self.python, self.repository("swapnet"), FRONT + budget, group, log, self.folder / "store",
                                    options=("--policy", policy, *OPTIONS, *options)), masa_jobs.Ensemble
        group = self.group(f"swapnet-masa-{policy}", self._base_bytes() + budget)
        if policy == "swap":
            let_swap(group, 2 * sum(n.bytes for n in self.networks) + 512 * MIB)
        return self._rival(policy, self.repository("mmap"), group, log), masa_jobs.Raw

    def _rival(self, policy, repository, group, log):
        forget_pages()
        port = programs.free_port()
        return programs.Server(policy, group, [self.python, zoo.HERE / "mmap_server.py", port, repository,
                                               *(("anonymous",) if policy == "swap" else ())], port, "/", log, environment())

    def _base_bytes(self):
        """What the rivals' program takes beside weights when it has computed each network: with the libraries' pages, and what
        allocators keep. Of one whose weights are no file's, so that they are counted, and can be taken off."""
        if self._base is None:
            group = self.group("swapnet-masa-base", None)
            with self._rival("swap", self.repository("mmap"), group, self.folder / "base.log") as server:
                image = (self.folder / "samples" / "0.in").read_bytes()
                rows = masa_jobs.play(server.port, masa_jobs.Raw, [masa_jobs.Job(0, (n,), 0) for n in self.networks], [image])
                if any(row["status"] != 200 for row in rows):
                    raise RuntimeError(f"base: {rows}\n{server.last_words()}")
                now = group.sample()
                self._base = (now["anon"] + now["shmem"] + now["kernel"] + sum(map(file_pages, server.processes())) -
                              sum(n.bytes for n in self.networks))
            group.close()
            print(f"masa_serving: beside weights and activations: rivals {self._base / MIB:.0f} MiB, swapnet-serve's engines "
                  f"{BESIDE / MIB:.0f} MiB", file=sys.stderr, flush=True)
        return self._base


def processor_seconds(server):
    ticks = 0
    for pid in server.processes():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
