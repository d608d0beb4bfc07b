"""NULL and extreme arguments for every function that swapnet stands before: the results, errno and ends of a plain process."""
import subprocess

import pytest

import harness

SOURCE = harness.HERE / "hostile_calls.c"
RUNTIME = harness.BUILD / "tests" / "fakes"
# PyTorch's own are called through PyTorch (programs/processes/hostile.py), and the driver's where there is none
# (test_harmless.test_no_cuda). The table is data.
OTHERS = {"_ZN3c108free_cpuEPv", "_ZN3c109alloc_cpuEm", "cuMemHostRegister_v2", "cuMemHostUnregister", "swn_serving_services"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "hostile_calls"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-DWITH_CUDA", "-o", path, SOURCE, RUNTIME / "libcudart.so.12", f"-Wl,-rpath,{RUNTIME}"],
                   check=True)
    return path


def _assert_equal(want, got):
    function, different = "", []
    for number in range(max(len(want), len(got))):
        a, b = (lines[number] if number < len(lines) else "nothing" for lines in (want, got))
        function = function if a.startswith(" ") else a
        if a != b:
            different.append(f"{function}: plainly {a.strip()}; with swapnet {b.strip()}")
    assert not different, "\n".join(different[:40])


def test_without_pytorch(program, disk):
    plain = harness.Process([program], cwd=disk).finish()
    run = harness.Process([program], harness.swapnet_env(64, disk / "stats.json", disk), cwd=disk).finish()
    assert (plain.rc, run.rc) == (0, 0) and plain.stdout and run.stderr == plain.stderr, run.describe()
    _assert_equal(plain.stdout.splitlines(), run.stdout.splitlines())
    called = {line for line in plain.stdout.splitlines() if line and not line.startswith(" ")}
    hooked = set((harness.REPO / "shim/hooks/exports.txt").read_text().split())
    assert hooked - OTHERS == called, "a function is hooked and not called here, or the other way round"


def test_beside_tensors(torch113, disk):
    """The engine runs, and the memory is a tensor's."""
    run = harness.both(torch113, "hostile", harness.hostile_calls(), budget=24)[1]
    harness.assert_streamed(run)
    assert run.stats["untracked_bytes"] == 0, run.describe()  # nothing is there of what was refused
