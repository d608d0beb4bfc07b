"""A model in the forms that other engines take, made once, without a limit, below the work directory."""
import contextlib
import os
import shutil
import subprocess

import pythons
import samples
import ways

TIMEOUT_SECONDS = 600
FORMS = ("model.onnx", "packed.onnx", "model.xml", "model.mnn")


def make(setup, model):
    """Convert the model, unless the very same one is there already."""
    directory, digest = ways.converted(setup, model), samples.load(setup.samples(model)).digest()
    stamp, wanted = directory / "stamp", f"{ways.engine_versions()} {digest}\n"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    environment = pythons.plain_environment()
    _run([setup.python, str(ways.HERE / "export.py"), "--model", model, "--to", str(directory)], directory,
         environment | {"PYTHONPATH": f"{pythons.TORCHVISION_213}:{ways.EXPORTERS}"})
    _run([ways.python_of_engines(), str(ways.HERE / "engines.py"), "--pack", "--samples", str(setup.samples(model)),
          "--model", str(directory)], directory, ways.environment_of_engines())
    _run([str(ways.ENGINES / "bin" / "mnnconvert"), "-f", "ONNX", "--modelFile", str(directory / "model.onnx"),
          "--MNNModel", str(directory / "model.mnn"), "--bizCode", "swapnet"], directory, ways.environment_of_engines())
    for path in directory.iterdir():  # only pages that are clean can be dropped
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    if all((directory / name).exists() for name in FORMS):  # else the next run tries again
        stamp.write_text(wanted, encoding="utf-8")


def _run(command, directory, environment):
    """A conversion that fails leaves no file, and the engine says so when it is started."""
    with open(directory / "convert.log", "ab") as log:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, check=False, stdout=log, stderr=log, timeout=TIMEOUT_SECONDS, env=environment)
