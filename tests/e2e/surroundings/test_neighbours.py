"""Libraries that a program brings in a second copy, or built otherwise."""
import os
import pathlib
import subprocess

import pytest

import harness

MKL = pathlib.Path(os.environ.get("SWAPNET_TEST_MKL", harness.REPO / ".deps" / "mkl" / "lib"))

RUNTIME = """
static int calls;
int cudaHostRegister(void *p, unsigned long bytes, unsigned flags) { return p && bytes && !flags ? NUMBER + calls++ : 0; }
int cudaHostUnregister(void *p) { return p ? NUMBER + calls++ : 0; }
"""
PLUGIN = """
int cudaHostRegister(void *p, unsigned long bytes, unsigned flags);
int cudaHostUnregister(void *p);
int one_of_each(void *p) { return 1000 * cudaHostRegister(p, 1, 0) + cudaHostUnregister(p); }
"""
SHOW = "import ctypes; print([ctypes.CDLL(f'./{name}').one_of_each(ctypes.create_string_buffer(8)) for name in ('b.so', 'a.so', 'b.so')])"


def _compiled(where, name, text, *more):
    source = where / f"{name}.c"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", where / name, source, "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", *more], check=True)


def test_two_cuda_runtimes(disk):
    """One of them bundled, under a name of its own as in wheels: each library's calls reach the runtime that it is linked with."""
    for plugin, runtime, number in (("a.so", "libcudart.so.12", 100), ("b.so", "libcudart-d0da41ae.so.11.0", 200)):
        _compiled(disk, runtime, RUNTIME, f"-DNUMBER={number}", f"-Wl,-soname,{runtime}")
        _compiled(disk, plugin, PLUGIN, disk / runtime)
    python = harness.TORCH113.python
    plain = harness.Process([python, "-c", SHOW], cwd=disk).finish()
    run = harness.Process([python, "-c", SHOW], harness.swapnet_env(64, disk / "stats.json", disk), cwd=disk).finish()
    assert plain.stdout == "[200201, 100101, 202203]\n", plain.describe()
    assert (run.rc, run.stdout, run.stderr) == (0, plain.stdout, ""), run.describe()


BRINGS = """
#include <dlfcn.h>
__attribute__((constructor)) static void bring(void) { if (!dlopen(ANOTHER, RTLD_NOW | RTLD_LOCAL)) __builtin_trap(); }
"""


def test_two_libc10(torch, disk):
    """One that the program brings and has loaded first, of no PyTorch that there is a backend for: the tensors are the other one's."""
    another = harness.BUILD / "tests" / "fakes" / "libc10.so.9.99"
    _compiled(disk, "brings.so", BRINGS, f'-DANOTHER="{another}"', "-ldl")
    run = harness.both(torch, "infer", "mlp", budget=48, env={"LD_PRELOAD": f"{harness.LIBRARY} {disk / 'brings.so'}"})[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()


def test_shared_mkl(torch113, disk):
    """As conda builds PyTorch: MKL's own libraries, which are loaded late, and Intel's OpenMP beside another one."""
    mkl = [*MKL.glob("libmkl_rt.so.*")]
    if not mkl:
        pytest.skip("no MKL (scripts/setup --with-mkl)")
    env = {"LD_LIBRARY_PATH": str(MKL), "MKL_THREADING_LAYER": "INTEL"}
    plain, run = (harness.start(torch113, "infer", "mlp", where=disk / name, budget=budget, preload=f"{mkl[0]} {library}", env=env).finish()
                  for name, budget, library in (("plain", None, ""), ("with", 48, harness.LIBRARY)))
    assert plain.record and run.record, (plain.describe(), run.describe())
    assert plain.record["values"] != harness.plain(torch113, "infer", "mlp").record["values"], "these are not MKL's bits"
    harness.assert_same(plain, run)
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()
