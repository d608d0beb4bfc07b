"""Which interpreters there are: torchvision and transformers want different PyTorches."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON_113 = "/usr/bin/python3"
PYTHON_213 = str(ROOT / ".deps" / "torch-2.13" / "bin" / "python")
# Where scripts/bench puts accelerate and ncnn: apart from the virtual environments of the tests.
BASELINES = ROOT / "build" / "bench"
NCNN = BASELINES / "ncnn"
# And torchvision for PyTorch 2.13, as a PYTHONPATH.
TORCHVISION_213 = str(BASELINES / "torchvision-2.13")


def plain_environment():
    """Ours, without whatever would put swapnet or another budget in front of a program."""
    return {key: value for key, value in os.environ.items()
            if key != "LD_PRELOAD" and not key.startswith("SWAPNET")}


def imports(python, modules, path=""):
    """Whether `import modules` works there, with path as PYTHONPATH."""
    if not shutil.which(python):
        return False
    return subprocess.run([python, "-c", f"import {modules}"], check=False, capture_output=True,
                          env=plain_environment() | {"PYTHONPATH": path}).returncode == 0


def with_torchvision(preferred=None):
    """An interpreter that has torch: the preferred or running one, else the system's."""
    for python in [preferred] if preferred else [sys.executable, PYTHON_113]:
        if imports(python, "torch, torchvision"):
            return python
    raise SystemExit("no python with torch and torchvision found; name one with --python")


def with_accelerate(transformers):
    """(interpreter, PYTHONPATH) that have accelerate beside transformers or torchvision, or None."""
    python, path = ((PYTHON_213, str(BASELINES / "accelerate-2.13")) if transformers else
                    (str(BASELINES / "accelerate-1.13" / "bin" / "python"), ""))
    return (python, path) if imports(python, "torch, accelerate", path) else None


def with_ncnn():
    """An interpreter that has ncnn, with pnnx beside it, or None."""
    python = str(NCNN / "bin" / "python")
    return python if imports(python, "ncnn, numpy") and pnnx() else None


def pnnx():
    """The converter itself, which wants no PyTorch; the Python module around it does. None: it is not there."""
    return next(map(str, NCNN.glob("lib/python3*/site-packages/pnnx/pnnx")), None)


def pnnx_version():
    return next(path.stem for path in NCNN.glob("lib/python3*/site-packages/pnnx-*.dist-info"))
