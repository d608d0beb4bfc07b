"""add_torch TARGET SHIPPED JOBS KIND...: builds backends for this interpreter's PyTorch into the directory TARGET, unless SHIPPED has them.

A KIND is aten or serve. `swapnetctl add-torch` has checked that TARGET is its user's alone. A backend gets its name when it has been
loaded beside its PyTorch once, so no half-made one is ever found.
"""
import concurrent.futures
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COMMON = ["-O2", "-fPIC", "-fvisibility=hidden", "-w"]
# In a directory of backends: the installations, lib/swapnet of each, whose add-torch has built into it.
USERS = "used-by"

# Loads a backend beside its PyTorch, with a library that has the name by which it asks for that one. Nothing is imported from the working directory, which may be anybody's.
TRIAL = """
import sys
sys.path[:] = [p for p in sys.path if p]
import ctypes, os
torch, link, backend, symbol = sys.argv[1:]
ctypes.CDLL(torch, os.RTLD_NOW | os.RTLD_GLOBAL)
ctypes.CDLL(link, os.RTLD_NOW | os.RTLD_LOCAL)
ctypes.c_int.in_dll(ctypes.CDLL(backend, os.RTLD_NOW | os.RTLD_LOCAL), symbol)
"""


class Refused(Exception):
    """Why there will be no backend, and what the user can do."""


def say(text):
    print(f"swapnetctl: {text}", file=sys.stderr, flush=True)


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False)
    if done.returncode:
        lines = done.stdout.splitlines()
        first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
        raise Refused("this failed: " + shlex.join(map(str, command)) + "\n" + "\n".join(lines[first:first + 12]))


def compiler(variable, names, package):
    """The command of a compiler: the user's choice in the environment, or the first that is there."""
    chosen = shlex.split(os.environ.get(variable, ""))
    found = [shutil.which(name) for name in (chosen[:1] or names)]
    if not any(found):
        raise Refused(f"no {' or '.join(chosen[:1] or names)} here; install {package}, or name a compiler in {variable}")
    return [next(path for path in found if path), *chosen[1:]]


def torch_info():
    asked = subprocess.run([sys.executable, HERE / "torch_info.py"], capture_output=True, text=True, check=False)
    if asked.returncode:
        raise Refused(asked.stderr.strip().splitlines()[-1])
    if not asked.stdout:
        raise Refused(f"{sys.executable} has no PyTorch; name an interpreter that has one")
    return dict(line.split("=", 1) for line in asked.stdout.splitlines())


class Builder:
    def __init__(self, info, recipe, work, jobs):
        self.info, self.work, self.jobs = info, work, jobs
        self.recipe = recipe
        self.cc = compiler("CC", ["cc", "gcc", "clang"], "gcc")
        self.cxx = compiler("CXX", ["c++", "g++", "clang++"], "g++")
        self.flags = [*COMMON, "-iquote", HERE / "source", "-iquote", HERE / "include", "-DNDEBUG",
                      f"-D_GLIBCXX_USE_CXX11_ABI={info['CXX11_ABI']}", f"-DSWAPNET_TORCH_MAJOR={info['MAJOR']}",
                      f"-DSWAPNET_TORCH_MINOR={info['MINOR']}", f'-DSWAPNET_VERSION="{recipe["version"]}"', "-I", HERE / "include"]
        self.cxx_flags = [f"-std=gnu++{info['STANDARD']}", "-fvisibility-inlines-hidden",
                          *(word for include in info["INCLUDES"].split(";") for word in ("-isystem", include))]

    def build(self, kind):
        """Compiles and links; returns the file."""
        parts = self.recipe[kind]
        objects = self.work / kind
        objects.mkdir()
        # As one file, since most of the time goes into PyTorch's headers.
        joined = objects / "all.cpp"
        joined.write_text("".join(f'#include "{source}"\n' for source in parts["sources"] if not source.endswith(".c")))
        sources = [joined, *(HERE / "source" / source for source in parts["sources"] if source.endswith(".c"))]

        def compile_one(number, source):
            to = objects / f"{number}.o"
            if source.suffix == ".c":
                run([*self.cc, "-std=gnu11", *self.flags, "-c", source, "-o", to])
            else:
                run([*self.cxx, *self.flags, *self.cxx_flags, "-c", source, "-o", to])
            return to

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            made = list(pool.map(compile_one, *zip(*enumerate(sources))))
        library, link = self.work / f"{kind}.so", self.named()
        run([*self.cxx, "-shared", "-o", library, *made, *parts["link"], "-Wl,--no-as-needed", link, *(HERE / archive for archive in parts["archives"])])
        run([sys.executable, "-c", TRIAL, self.info["TORCH_CPU"], link, library, parts["symbol"]])
        return library

    def named(self):
        """A library with nothing but the name that skeleton/abi/torch_link.h gives to PyTorch's."""
        link = self.work / "libswapnet-torch.so"
        if not link.exists():
            empty = self.work / "empty.c"
            empty.write_text("")
            run([*self.cc, "-shared", "-nostdlib", "-Wl,-soname,swapnet-torch", "-o", link, empty])
        return link


@contextlib.contextmanager
def opened(directory):
    """Its descriptor; an OSError if it is a link or another user's."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(f"{directory} is another user's")
        yield fd
    finally:
        os.close(fd)


def read_users(fd):
    with contextlib.suppress(OSError):
        with open(os.open(USERS, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd), encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    return []


def add_user(fd, shipped):
    """Appends a line, as others may do at the same time."""
    if shipped not in read_users(fd):
        with open(os.open(USERS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600, dir_fd=fd), "wb", 0) as file:
            file.write(os.fsencode(f"{shipped}\n"))


def build_of(shipped):
    """The build that an installation is of, which is its directory's name; None where there is none any more."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((pathlib.Path(shipped) / "add_torch" / "recipe.json").read_text()).get("build")
    return None


def remove_replaced(target):
    """Backends of other builds of the same version that no installation looks for any more: all that had them built have been replaced.
    A process that has one mapped keeps it. What add-torch did not put there stays."""
    above, own = os.path.split(os.path.abspath(target))
    version, hyphen, _ = own.rpartition("-")
    for name in os.listdir(above):
        if not hyphen or name == own or not re.fullmatch(re.escape(version) + "-[0-9a-f]{12}", name):
            continue
        with contextlib.suppress(OSError), opened(os.path.join(above, name)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # who builds into it holds a lock
            if any(build_of(user) == name for user in read_users(fd)):
                continue
            for part in os.listdir(fd):
                if part == USERS or re.fullmatch(r"(aten|serve)-[0-9.]+(-precxx11)?\.so", part):
                    os.unlink(part, dir_fd=fd)
                elif part.startswith(".making-"):  # that compiler was killed
                    shutil.rmtree(f"/proc/self/fd/{fd}/{part}", ignore_errors=True)
            os.rmdir(os.path.join(above, name))


def main():
    target, shipped, jobs, *kinds = sys.argv[1:]
    os.umask(0o077)
    info = torch_info()
    strings = "" if info["CXX11_ABI"] == "1" else "-precxx11"
    names = {kind: f"{kind}-{info['MAJOR']}.{info['MINOR']}{strings}.so" for kind in kinds}
    wanted = [kind for kind in kinds if not os.path.exists(os.path.join(shipped, names[kind]))]
    if not wanted:
        say(f"PyTorch {info['VERSION']} needs nothing: swapnet came with {' and '.join(names.values())}")
        return
    recipe = json.loads((HERE / "recipe.json").read_text())
    with opened(target) as fd, tempfile.TemporaryDirectory(dir=target, prefix=".making-") as work:
        with contextlib.suppress(OSError):  # where there are no locks, nobody gets the one to remove it
            fcntl.flock(fd, fcntl.LOCK_SH)
        builder = Builder(info, recipe, pathlib.Path(work), max(1, int(jobs)))
        for kind in wanted:
            say(f"building {names[kind]} for PyTorch {info['VERSION']}")
            built = builder.build(kind)
            add_user(fd, os.path.realpath(shipped))  # nothing is there of one for which nothing could be built
            os.replace(built, os.path.join(target, names[kind]))
            say(f"{os.path.join(target, names[kind])} is there")
    with contextlib.suppress(OSError):
        remove_replaced(target)


try:
    main()
except Refused as why:
    say(why)
    sys.exit(1)
except OSError as error:
    say(f"cannot build: {error}")
    sys.exit(1)
except KeyboardInterrupt:
    sys.exit(130)
