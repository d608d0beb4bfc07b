#!/usr/bin/env python3
"""A network in ONNX Runtime, OpenVINO or MNN, serving inferences on request (bench/lib/serving.py) in a process without
PyTorch. Single precision throughout. Outputs are compared with the plain program's.

--pack has ONNX Runtime write its optimized form of the network with all weights, those that its kernels rearrange
included, into a file that later sessions map."""
import argparse
import sys
from pathlib import Path

import numpy

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "lib"))

import samples  # noqa: E402
import serving  # noqa: E402

def _session_options(threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Both keep memory for later that a small limit has no room for.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    return options


def pack(directory, threads):
    import onnxruntime
    options = _session_options(threads)
    options.optimized_model_filepath = str(directory / "packed.onnx")
    for key, value in (("optimized_model_external_initializers_file_name", "packed.bin"),
                       ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
                       ("save_external_prepacked_constant_initializers", "1")):
        options.add_session_config_entry(f"session.{key}", value)
    onnxruntime.InferenceSession(str(directory / "model.onnx"), options, providers=["CPUExecutionProvider"])


def _session(path, threads, *settings, optimized=False):
    import onnxruntime
    options = _session_options(threads)
    if optimized:  # it would be done again otherwise, in memory
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in settings:
        options.add_session_config_entry(f"session.{key}", value)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda data: session.run(None, {name: data})[0]


def onnx(directory, threads):
    return _session(directory / "model.onnx", threads)


def onnx_packed(directory, threads):
    return _session(directory / "packed.onnx", threads, optimized=True)


def onnx_mapped(directory, threads):
    """Kernels use the weights as they lie in the file, and rearrange nothing when they are loaded."""
    return _session(directory / "packed.onnx", threads, ("disable_prepacking", "1"), optimized=True)


def openvino(directory, threads):
    from openvino import Core
    compiled = Core().compile_model(str(directory / "model.xml"), "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    return lambda data: request.infer([data])[0]


def mnn(directory, threads):
    from MNN import expr, nn
    runtime = nn.create_runtime_manager(({"numThread": threads, "precision": "high", "backend": "CPU"},))
    module = nn.load_module_from_file(str(directory / "model.mnn"), ["in0"], ["out0"], runtime_manager=runtime)

    def forward(data):
        given = expr.placeholder(list(data.shape), expr.NCHW)
        given.write(data)
        return numpy.array(expr.convert(module.forward([given])[0], expr.NCHW).read())
    return forward


ENGINES = {"onnx": onnx, "onnx-packed": onnx_packed, "onnx-mapped": onnx_mapped, "openvino": openvino, "mnn": mnn}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--pack", action="store_true")
    parser.add_argument("--samples", required=True, help="inputs and the plain program's outputs (samples.py)")
    parser.add_argument("--model", required=True, type=Path, help="the directory that convert.py has made")
    args = parser.parse_args()
    answers, plain = serving.take_stdout(), samples.load(args.samples)
    if args.pack:
        pack(args.model, plain.threads)
        return
    serving.serve_engine(answers, lambda: ENGINES[args.engine](args.model, plain.threads),
                         lambda forward, index: serving.infer_compared(forward, plain.inputs[index], plain, index))


if __name__ == "__main__":
    main()
