"""Model repositories of torchvision networks with random weights, and what each answers alone in plain PyTorch."""
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pythons

HERE = Path(__file__).resolve().parent
# Twenty networks of many kinds, together 2.2 GB; the four largest are vit_b_32, alexnet, resnet152 and convnext_small.
TWENTY = ("alexnet", "convnext_small", "convnext_tiny", "densenet121", "densenet161", "densenet201", "efficientnet_b0",
          "efficientnet_b3", "efficientnet_b4", "mnasnet1_0", "mobilenet_v2", "regnet_y_8gf", "resnet18", "resnet34",
          "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "shufflenet_v2_x1_0", "vit_b_32")
SIX = ("resnet50", "densenet161", "efficientnet_b4", "convnext_tiny", "resnet101", "vit_b_32")
# Inputs for each model: an answer that belongs to another request is seen.
SAMPLES = 3
SHAPE = (1, 3, 224, 224)


@dataclass
class Model:
    name: str
    file: Path
    weight_bytes: int
    input_name: str
    inputs: list    # of bytes
    outputs: list   # of bytes


def make(python, plain, folder, names):
    """{name: Model}. `python`, which has torchvision, traces the models; `plain` says what they answer. Files that are
    there are used again."""
    repository, samples = folder / "models", folder / f"samples-{_version(plain)}"
    for path in (repository, samples):
        path.mkdir(parents=True, exist_ok=True)
    _run(python, "models", repository, names, lambda name: repository / name / "about.json")
    _run(plain, "answers", repository, names, lambda name: samples / f"{name}.{SAMPLES - 1}.out", samples, SAMPLES)
    found = {}
    for name in names:
        about = json.loads((repository / name / "about.json").read_text())
        found[name] = Model(name, repository / name / "1" / "model.pt", about["weight_bytes"], about["input"],
                            [(samples / f"{name}.{k}.in").read_bytes() for k in range(SAMPLES)],
                            [(samples / f"{name}.{k}.out").read_bytes() for k in range(SAMPLES)])
    return found


def of_these(models, folder):
    """A folder with a repository of exactly these models, copies of their own: no server finds what another one has
    brought into the page cache."""
    shutil.rmtree(folder, ignore_errors=True)
    for model in models.values():
        (folder / model.name / "1").mkdir(parents=True)
        shutil.copyfile(model.file, folder / model.name / "1" / "model.pt")
    return folder


def _version(python):
    return subprocess.run([python, "-c", "import torch; print(torch.__version__.split('+')[0])"], check=True,
                          stdout=subprocess.PIPE, text=True, env=pythons.plain_environment()).stdout.strip()


def _run(python, what, repository, names, made, *more):
    missing = [name for name in names if not made(name).exists()]
    if missing:
        print(f"bench: {what} of {len(missing)} networks", file=sys.stderr, flush=True)
        subprocess.run([python, str(HERE / "make_models.py"), what, str(repository), *map(str, more), *missing], check=True,
                       env=pythons.plain_environment())
