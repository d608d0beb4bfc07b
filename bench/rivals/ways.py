"""The ways to run a model in little memory, how each is started, and which files it reads."""
import functools
import shutil
from dataclasses import dataclass
from pathlib import Path

import pythons
import variants
import weights_file
from plan import MIB

HERE = Path(__file__).resolve().parent
# Where scripts/bench puts the engines and what converts models for them.
ENGINES, EXPORTERS = pythons.BASELINES / "rivals", pythons.BASELINES / "exporters"
# Whose versions say whether a converted model is the one at hand.
NAMED = ("onnxruntime", "openvino", "mnn", "ncnn", "onnx", "onnxscript")

PLAIN, MMAP, DOUBLE, ACCELERATE, SWAPNET = "plain", "mmap", "double buffer", "accelerate", "swapnet"
ORT, ORT_PACKED, ORT_MAPPED, OPENVINO, MNN = "ONNX Runtime", "ONNX Runtime packed", "ONNX Runtime mapped", "OpenVINO", "MNN"
NCNN, NCNN_LEAN = variants.NCNN, variants.NCNN_LEAN
_ENGINE = {ORT: "onnx", ORT_PACKED: "onnx-packed", ORT_MAPPED: "onnx-mapped", OPENVINO: "openvino", MNN: "mnn"}
_TORCH = {PLAIN: "loaded", MMAP: "mapped", DOUBLE: "double", ACCELERATE: "accelerate", SWAPNET: "loaded"}
ENGINE_NAMES = tuple(_ENGINE)
ALL = (PLAIN, SWAPNET, MMAP, DOUBLE, ACCELERATE, *_ENGINE, NCNN, NCNN_LEAN)


@dataclass
class Start:
    """What is executed in the cgroup."""
    argv: list
    env: dict
    files: list         # whose pages leave the page cache before


def python_of_engines():
    return str(ENGINES / "bin" / "python")


def environment_of_engines():
    env = pythons.plain_environment()
    env.pop("PYTHONPATH", None)
    return env


def engine_versions():
    found = {}
    for place in (_site(ENGINES), EXPORTERS, _site(pythons.NCNN)):
        for info in place.glob("*.dist-info"):
            name, _, version = info.stem.partition("-")
            if name.lower() in NAMED:
                found[name.lower()] = version
    return " ".join(f"{name} {found[name]}" for name in sorted(found))


def missing(setup):
    """Ways that cannot be measured here, and why."""
    found = {}
    if not (setup.library.exists() and swapnetctl(setup).exists()):
        found[SWAPNET] = "the release preset is not built"
    if not pythons.imports(python_of_engines(), "onnxruntime, openvino, MNN"):
        found.update(dict.fromkeys(ENGINE_NAMES, "not installed, see scripts/bench"))
    if not pythons.with_ncnn():
        found.update(dict.fromkeys(variants.OF_NCNN, "not installed, see scripts/bench"))
    if not pythons.imports(setup.python, "torch, accelerate"):
        found[ACCELERATE] = "not installed, see scripts/setup --with-2.13"
    return found


def swapnetctl(setup):
    return setup.library.parent.parent / "bin" / "swapnetctl"


def converted(setup, model):
    """A directory with what ONNX Runtime, OpenVINO and MNN load."""
    return setup.out / f"{model}.rivals"


def _site(venv):
    return next(iter(Path(venv).glob("lib/python3*/site-packages")), Path(venv))


def prepare(setup, way, model, limit_bytes, floor_bytes):
    """limit_bytes: of the cgroup, None without one. floor_bytes: with how little accelerate answers when no weight may stay
    in memory; what there is above it may hold weights."""
    if way in _ENGINE:
        return Start([python_of_engines(), str(HERE / "engines.py"), "--engine", _ENGINE[way], "--samples",
                      str(setup.samples(model)), "--model", str(converted(setup, model))], environment_of_engines(),
                     [*converted(setup, model).iterdir(), *_libraries(_site(ENGINES))])
    if way in variants.OF_NCNN:
        argv = [str(pythons.NCNN / "bin" / "python"), str(variants.HERE / "ncnn_worker.py"), "--samples",
                str(setup.samples(model)), "--model", str(setup.ncnn(model)), *variants.OF_NCNN[way]]
        return Start(argv, environment_of_engines(), [*setup.ncnn(model).iterdir(), *_libraries(_site(pythons.NCNN))])
    env = pythons.plain_environment() | {"PYTHONPATH": pythons.TORCHVISION_213}
    argv = [setup.python, str(variants.HERE / "worker.py"), "--model", model, "--variant", _TORCH[way],
            "--weights", str(setup.weights(model)), "--checkpoint", str(setup.checkpoint(model))]
    if setup.threads:
        argv += ["--threads", str(setup.threads)]
    if way == ACCELERATE:
        room = max(0, (limit_bytes or 0) - (floor_bytes or limit_bytes or 0))
        offload = setup.out / f"{model}.offload"
        shutil.rmtree(offload, ignore_errors=True)
        argv += ["--room", str(room), "--offload", str(offload)]
    if way == SWAPNET:
        argv = _under_swapnet(setup, argv, limit_bytes)
    libraries = _libraries(_site(Path(setup.python).parent.parent)) + _libraries(Path(pythons.TORCHVISION_213))
    return Start(argv, env, [setup.weights(model), setup.checkpoint(model), *libraries])


@functools.cache
def _libraries(place):
    return list(place.rglob("*.so*"))


def _under_swapnet(setup, argv, limit_bytes):
    """As a user would start it."""
    store = setup.out / "store"
    store.mkdir(exist_ok=True)
    return [str(swapnetctl(setup)), "run", "--memory", f"{limit_bytes // MIB}M", "--store",
            str(store), "--", *argv]


def drop_page_cache(files):
    """What a way reads is charged to its own cgroup then: weights, and shared libraries, which are most of what an engine
    without them takes. Pages that another process maps at the time stay, and are charged to nobody here."""
    for path in files:
        if path.is_file():
            weights_file.drop_page_cache(path)
