"""A model as ncnn takes it: traced by PyTorch and converted by pnnx, once, below the work directory."""
import os
import shutil
import subprocess

import pythons
import samples
import variants
import weights_file

TIMEOUT_SECONDS = 600
# What cannot be converted, and why. Of GPT-2, pnnx 20261020 makes a graph whose last layer has its own weights as
# input; ncnn then computes for minutes.
UNSUPPORTED = {"gpt2": "not converted: pnnx does not know tied weights"}
WEIGHTS = "model.ncnn.bin"
# All that ncnn reads; pnnx leaves a form of its own, ONNX and Python programs beside these.
KEPT = ("model.ncnn.param", WEIGHTS, "pnnx.log", "refused")


def make(setup, model):
    """Convert the model, unless the very same one is there already. Why that cannot be done goes into the file
    'refused', and the table says so."""
    directory, plain = setup.ncnn(model), samples.load(setup.samples(model))
    stamp = directory / "stamp"
    wanted = f"{pythons.pnnx_version()} {plain.digest()}\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    refused = UNSUPPORTED.get(model) or _convert(setup, model, plain.inputs[0].shape)
    if refused:
        (directory / "refused").write_text(f"{refused}\n")
    for path in directory.iterdir():
        if path.name not in KEPT:
            path.unlink()
    stamp.write_text(wanted)


def _convert(setup, model, shape):
    """Why there is no model of ncnn now; None if there is."""
    directory = setup.ncnn(model)
    traced = subprocess.run([setup.interpreter(model), str(variants.HERE / "ncnn_trace.py"), "--model", model, "--to",
                             str(directory / "model.pt")], check=False, env=pythons.plain_environment())
    if traced.returncode:
        return "not converted: PyTorch cannot trace it"
    # fp16=0: pnnx would halve the precision of the weights otherwise. It wants the shape of a batch.
    command = [pythons.pnnx(), "model.pt", f"inputshape=[{','.join(map(str, shape))}]", "fp16=0"]
    with open(directory / "pnnx.log", "wb") as log:
        try:
            done = subprocess.run(command, cwd=directory, check=False, stdout=log, stderr=log,
                                  timeout=TIMEOUT_SECONDS, env=pythons.plain_environment())
        except subprocess.TimeoutExpired:
            return f"not converted: pnnx took over {TIMEOUT_SECONDS} s"
    if done.returncode or not (directory / WEIGHTS).exists():
        return f"not converted: pnnx ended with exit code {done.returncode}"
    with open(directory / WEIGHTS, "rb") as weights:
        os.fsync(weights.fileno())  # only pages that are clean can be dropped
    return None


def drop_page_cache(setup, model):
    weights = setup.ncnn(model) / WEIGHTS
    if weights.exists():
        weights_file.drop_page_cache(weights)
