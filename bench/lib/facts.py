"""Measure a model once: sizes from the profiler, base memory from a plain run in its own cgroup."""
import dataclasses
import json
import subprocess

import lane as lanes
import plan
import variants

# Passes of the plain program before its memory is read: allocators need some to settle.
SETTLING_PASSES = 12
# malloc otherwise keeps a share of the freed tensors that changes from run to run by up to 50 MiB
# (VGG-19), which would count as base although it is tensor memory. So told, it varies by 1 to 5.
RETURN_FREED = {"MALLOC_MMAP_THRESHOLD_": str(64 << 10)}


def measure(setup, model, weights_path=None, checkpoint=None, samples=None):
    """Facts without base, and the details that go into the report. Writes the weights file, the
    checkpoint and the samples, if they are named."""
    argv = [setup.interpreter(model), str(variants.HERE / "measure_model.py"), "--model", model]
    if weights_path:
        argv += ["--weights", str(weights_path)]
    if checkpoint:
        argv += ["--checkpoint", str(checkpoint)]
    if samples:
        argv += ["--samples", str(samples)]
    if setup.threads:
        argv += ["--threads", str(setup.threads)]
    done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, text=True,
                          env=variants.plain_environment())
    if done.returncode:
        raise SystemExit(f"bench: measuring {model} failed with exit code {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    names = {field.name for field in dataclasses.fields(plan.Facts)}
    return plan.Facts(**{name: found[name] for name in names & found.keys()}), found


_READ_LIBRARIES = """
import {0}
for path in {{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}}:
    with open(path, "rb", buffering=0) as library:
        while library.read(1 << 20):
            pass
"""


def warm_libraries(setup, model, ncnn=None):
    """Have all of the shared libraries in the page cache, charged to us: the first cgroup that
    touches a page would otherwise pay for all the others, and its limit would have to be wider.
    ncnn: an interpreter that has that."""
    if ncnn:
        _read_libraries(ncnn, "ncnn, numpy")
    libraries = ("torch, transformers.models.gpt2.modeling_gpt2" if model in variants.TRANSFORMERS
                 else "torch, torchvision")
    _read_libraries(setup.interpreter(model), libraries)


def _read_libraries(python, modules):
    subprocess.run([python, "-c", _READ_LIBRARIES.format(modules)], check=True, env=variants.plain_environment())


def with_base(facts, setup, sampler, group_kind, model, timeout, passes=SETTLING_PASSES):
    """Facts with base, from the sampled peaks of a plain run of so many passes in a cgroup of its own. Its libraries
    are in the page cache.

    Base is what the program needs besides tensors: the interpreter, the libraries' own data,
    the work buffers of BLAS and oneDNN."""
    lane = lanes.start(setup, sampler, group_kind, variants.PLAIN, model, f"{model}-base", timeout,
                       passes=passes, extra_env=RETURN_FREED)
    try:
        lane.require()
        peaks = sampler.peaks(lane.worker.group)
    finally:
        lane.worker.close()
    return dataclasses.replace(facts, base_bytes=max(0, peaks["anon"] - facts.peak_alloc_bytes),
                               file_bytes=peaks["file"])
