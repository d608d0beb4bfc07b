"""Which suites of Triton's qa are run, with which models, and what is known to differ. A test that is named in `known` may fail
for the reason that stands there; any other has to pass."""
import dataclasses

ROW = [[16]]  # a vector, of which the batch's dimension is none
ANY = [[-1]]
NAME = "the server's name and version are not Triton's"
SENTENCE = "the same refusal in other words"
SHARED = "no shared memory of clients, by design"
TRACE = "no trace settings"
HELD = "no request is held back until a batch is full"


@dataclasses.dataclass
class Suite:
    file: str                                     # below qa/
    models: list = dataclasses.field(default_factory=list)  # calls of models.py
    only: tuple = ()                              # classes and tests; () means all
    program: tuple = None                         # arguments, if it is no unittest
    options: tuple = ()                           # of swapnet-serve
    environment: dict = dataclasses.field(default_factory=dict)
    known: dict = dataclasses.field(default_factory=dict)   # test, or the last part of its name: why it fails
    left_out: dict = dataclasses.field(default_factory=dict)  # test: why it is not run
    timeout_s: int = 300
    log: str = ""                                 # a CSV file that boofuzz writes, where the time ends a test that goes on for hours
    name: str = ""

    @property
    def title(self):
        return self.name or self.file


def identity(name, dtype="float32", dims=None, **more):
    return ["identity", {"name": name, "dtype": dtype, "dims": dims or ANY} | more]


def sums(name, kind="int32", out0=None, out1=None, **more):
    return ["sums", {"name": name, "in_dtype": kind, "out0": out0 or kind, "out1": out1 or kind} | more]


def zero_models():
    """onnx_zero_1_float32 and so on, those without a batch, and ensembles of them."""
    kinds = {("float32", 1): ANY, ("float32", 3): ANY * 3, ("float16", 1): [[-1, -1]], ("float16", 3): [[-1, -1]] * 3, ("bool", 1): ANY,
             ("object", 1): ANY, ("object", 3): [[-1, -1]] * 3}
    for (dtype, count), dims in kinds.items():
        for word, batch in (("", 8), ("_nobatch", 0)):
            inner = f"onnx{word}_zero_{count}_{dtype}"
            yield identity(inner, dtype, dims, batch=batch)
            if dtype not in ("object", "float16"):
                yield identity(f"libtorch{word}_zero_{count}_{dtype}", dtype, dims, batch=batch)
            if dtype != "object":
                for kind, steps in (("simple", 1), ("sequence", 2), ("fan", 3)):
                    yield ["ensemble", {"name": f"{kind}_zero{word}_zero_{count}_{dtype}", "dtype": dtype, "dims": dims,
                                        "batch": batch, "steps": [[inner, ""]] * steps}]


POLICIES = {"int8": "latest { num_versions: 1 }", "int16": "latest { num_versions: 2 }", "int32": "all {}",
            "float16": "specific { versions: [1] }", "float32": "specific { versions: [1, 3] }"}


def raw_models():
    """libtorch_A_B_C and onnx_A_B_C with and without a batch, for the types that PyTorch adds."""
    combinations = ["int8 int8 int8", "int16 int16 int16", "int32 int32 int32", "int64 int64 int64", "float32 float32 float32",
                    "int8 int32 int32", "int32 int8 int8", "int32 int8 int16", "int32 float32 float32", "float32 int32 int32",
                    "float16 float16 float16", "uint8 float32 float32", "uint8 uint8 uint8", "float32 uint8 uint8"]
    for one in combinations:
        a, b, c = one.split()
        policy = POLICIES.get(a) if a == b == c else None
        more = {"versions": [1, 2, 3], "swapped": [2, 3], "more": f"version_policy {{ {policy} }}"} if policy else {}
        for word, batch in (("", 8), ("_nobatch", 0)):
            for kind in ("libtorch", "onnx"):
                yield sums(f"{kind}{word}_{a}_{b}_{c}", a, b, c, batch=batch, labels=16, **more)


def variable_models():
    for name, in_dtype, out0, out1, dims in (("float32_int64_int64", "float32", "int64", "int64", 2),
                                             ("float32_int32_int64", "float32", "int32", "int64", 3)):
        for word, batch in (("", 8), ("_nobatch", 0)):
            for kind in ("libtorch", "onnx"):
                yield sums(f"{kind}{word}_{name}", in_dtype, out0, out1, batch=batch, dims=[-1] * dims, labels=32)


IO_NAMES = {"io_index": "INPUT__0 INPUT__1 OUTPUT__0 OUTPUT__1", "output_index": "INPUT0 INPUT1 OUTPUT__0 OUTPUT__1",
            "no_output_index": "INPUT0 INPUT1 OUTPUT0 OUTPUT1", "no_arguments_output_index": "INPUTA INPUTB OUTPUTA OUTPUTB",
            "mix_index": "INPUTA INPUT__1 OUTPUTA OUTPUT__1", "mix_arguments": "INPUT0 INPUTB OUTPUTA OUTPUT__1",
            "mix_arguments_index": "INPUT0 INPUT__1 OUTPUT0 OUTPUT__1", "unordered_index": "INPUT1 INPUT0 OUT__1 OUT__0"}

NAN_INF = """
import torch
class Model:
    def __call__(self, INPUT0):
        return {"OUTPUT0": torch.tensor([float("nan"), float("inf"), float("-inf"), 1, 2, 3])}
"""
FIRST = """
class Model:
    def __call__(self, **inputs):
        import numpy
        return {"OUTPUT0": numpy.zeros(1, numpy.float32)}
"""
THREE = [[f"INPUT{i}", "float32", [-1], ""] for i in range(3)]
ONE_OUT = [["OUTPUT0", "float32", [1], ""]]


def given(optional, count):
    inputs = THREE + [["INPUT3", "float32", [-1], "optional: true"]] if optional == "one" else THREE
    if optional == "all":
        inputs = [[*one[:3], "optional: true"] for one in THREE]
    return inputs[:count]


SUITES = [
    Suite("L0_http/http_test.py", [
        identity("onnx_zero_1_float32"), identity("onnx_zero_1_object", "object"), identity("onnx_zero_1_object_1_element", "object", [[1]]),
        identity("onnx_zero_1_float16", "float16", [[-1, -1]]), identity("onnx_zero_3_float32", "float32", ANY * 3),
        identity("onnx_zero_1_float32_queue", delay=2, more="dynamic_batching { default_queue_policy { max_queue_size: 1 } }"),
        identity("simple_identity", "object"), identity("simple_identity_int64", "int64")],
        options=("--model-control-mode=explicit", "--load-model=*"),
        known={"test_descriptive_status_code": "a request leaves the queue when it begins; Triton's waits there for a batch",
               "test_negative_dimensions": "400 where Triton answers 500",
               "test_load_oversized_file_parameter": "400 where Triton answers 500",
               "test_repository_index_deeply_nested_json": "a body of 500 KB for the index is refused with 413",
               "test_json_recursion_depth_limit": SENTENCE},
        left_out={"HttpTest.test_loading_large_invalid_model": "takes 8 GB of memory in the client"}),
    Suite("L0_http/python_http_aio_test.py", [sums("simple")] + [identity(f"other_{i}") for i in range(6)],
          known={"test_get_server_metadata": NAME, "test_update_trace_settings": TRACE, "test_get_trace_settings": TRACE,
                 "test_get_system_shared_memory_status": SHARED, "test_get_cuda_shared_memory_status": SHARED,
                 "test_unregister_system_shared_memory": SHARED, "test_unregister_cuda_shared_memory": SHARED}),
    Suite("L0_http_fuzz/fuzztest.py", [sums("simple")], timeout_s=600, log="fuzz_results.csv"),
    Suite("L0_infer_zero/infer_zero_test.py", list(zero_models()), environment={"BACKENDS": "onnx libtorch"}, timeout_s=900),
    Suite("L0_infer/infer_test.py", list(raw_models()), timeout_s=1200,
          environment={"BACKENDS": "onnx libtorch", "ENSEMBLES": "0", "CPU_ONLY": "1", "NOBATCH": "1", "USE_GRPC": "1", "USE_HTTP": "1"},
          only=tuple(f"InferTest.test_raw_{kind}" for kind in ("uuu bbb sss iii lll fff bii ibb ibs fuu uff iff fii version_latest_1 version_latest_2 version_all "
                                                               "version_specific_1 version_specific_1_3").split())
          + tuple(f"InferTest.test_{word}_{kind}" for word in ("class", "mix") for kind in "bbb sss iii lll fff iff".split())),
    Suite("L0_infer_variable/infer_variable_test.py", list(variable_models()), timeout_s=600,
          only=tuple(f"InferVariableTest.test_{word}_{kind}" for word in ("raw", "class") for kind in ("fll", "fil"))),
    Suite("L0_parameters/class_count_test.py", [
        ["python", {"name": name, "source": "class Model:\n    def __call__(self, INPUT0):\n        return {'OUTPUT0': INPUT0}\n",
                    "batch": 64, "inputs": [["INPUT0", dtype, [-1], ""]], "outputs": [["OUTPUT0", dtype, [-1], ""]]}]
        for name, dtype in (("identity_fp32", "float32"), ("identity_bytes", "object"))]),
    Suite("L0_nan_inf/nan_inf_test.py", [["python", {"name": "nan_inf_output", "source": NAN_INF, "inputs": [["INPUT0", "float32", [-1], ""]],
                                                    "outputs": [["OUTPUT0", "float32", [-1], ""]]}]]),
    Suite("L0_server_status/server_status_test.py", only=("ServerMetadataTest",), models=[
        sums("libtorch_int32_int8_int8", "int32", "int8", "int8"), sums("onnx_int32_int8_int8", "int32", "int8", "int8"),
        *(sums(f"{kind}_int32_int32_int32", versions=[1, 2, 3], swapped=[2, 3], more="version_policy { all {} }")
          for kind in ("onnx", "plan")),
        *(sums(f"{kind}_float32_float32_float32", "float32", versions=[1, 2, 3], swapped=[2, 3],
               more="version_policy { specific { versions: [1, 3] } }") for kind in ("libtorch", "onnx", "plan"))],
        known={"test_basic": NAME, "test_unknown_model": NAME}),
    Suite("L0_client_timeout/client_infer_timeout_test.py", [identity("custom_identity_int32", "int32", delay=3)],
          only=("ClientInferTimeoutTest.test_http_infer", "ClientInferTimeoutTest.test_http_async_infer")),
    Suite("L0_client_nobatch/client_test.py", [sums("onnx_int32_int8_int8", "int32", "int8", "int8"),
                                               sums("onnx_nobatch_int32_int8_int8", "int32", "int8", "int8", batch=0)]),
    Suite("L0_string_io/string_client_test.py", [identity("string_identity", "object", batch=0)]),
    Suite("L0_nullchar_string/nullchar_string_client.py", [identity("onnx_nobatch_zero_1_object", "object", batch=0)],
          program=("-m", "onnx_nobatch_zero_1_object")),
    Suite("L0_libtorch_io_names/io_names_client.py",
          [sums(f"libtorch_{name}", "float32", swapped=[1] , names=names.split()) for name, names in IO_NAMES.items()]),
    Suite("L0_simple_ensemble/ensemble_test.py", [sums("simple", versions=[1, 2], more="version_policy { all {} }"),
                                                 "ensemble_add_sub_int32_int32_int32"], only=("EnsembleTest.test_ensemble_add_sub",),
          name="L0_simple_ensemble (add_sub)"),
    Suite("L0_simple_ensemble/ensemble_test.py", [sums("simple", versions=[1, 2], more="version_policy { all {} }"),
                                                 "ensemble_add_sub_int32_int32_int32"],
          only=("EnsembleTest.test_ensemble_add_sub_one_output",), name="L0_simple_ensemble (one output)"),
    Suite("L0_input_validation/input_validation_test.py", [
        ["python", {"name": "input_all_required", "source": FIRST, "inputs": given("", 3), "outputs": ONE_OUT}],
        ["python", {"name": "input_optional", "source": FIRST, "inputs": given("one", 4), "outputs": ONE_OUT}],
        ["python", {"name": "input_all_optional", "source": FIRST, "inputs": given("all", 3), "outputs": ONE_OUT}],
        identity("pt_identity", "float32", [[8]]), sums("onnx_object_int32_int32", "object", "int32", "int32")],
        only=("InputValTest", "InputShapeTest.test_input_shape_validation", "InputShapeTest.test_input_string_shape_validation"),
        known={"test_input_shape_validation": SENTENCE, "test_input_string_shape_validation": SENTENCE}),
    Suite("L0_optional_input/optional_input_test.py", [identity("identity_2_float32", "float32", [[1], [1]], optional=[0, 1])],
          only=("OptionalInputTest.test_all_inputs", "OptionalInputTest.test_optional_same_input",
                "OptionalInputTest.test_optional_mix_inputs", "OptionalInputTest.test_optional_mix_inputs_2"),
          known={"test_all_inputs": HELD, "test_optional_same_input": HELD, "test_optional_mix_inputs": HELD,
                 "test_optional_mix_inputs_2": HELD}),
    Suite("L0_scalar_io/scalar_test.py", [
        ["config", {"name": "onnx_scalar_1dim", "batch": 0, "inputs": [["INPUT", "float32", [1], ""]],
                    "outputs": [["OUTPUT", "float32", [1], ""]]}],
        ["graph", {"name": "onnx_scalar_1dim", "number": 1, "source": "def forward(self, INPUT: Tensor) -> Tensor:\n    return INPUT\n"}],
        ["config", {"name": "onnx_scalar_2dim", "batch": 0, "inputs": [["INPUT", "float32", [1, 1], ""]],
                    "outputs": [["OUTPUT", "float32", [1, 1], ""]]}],
        ["graph", {"name": "onnx_scalar_2dim", "number": 1, "source": "def forward(self, INPUT: Tensor) -> Tensor:\n    return INPUT\n"}]]),
    Suite("L0_output_validation/lt_op_val_client.py", [
        identity("libtorch_zero_1_float32", "float32"),
        ["config", {"name": "libtorch_datatype_1_float32", "batch": 1, "inputs": [["INPUT__0", "float32", [-1], ""]],
                    "outputs": [["OUTPUT__0", "int32", [-1], ""]]}],
        ["graph", {"name": "libtorch_datatype_1_float32", "number": 1,
                   "source": "def forward(self, INPUT__0: Tensor) -> Tensor:\n    return INPUT__0\n"}],
        ["config", {"name": "libtorch_index_1_float32", "batch": 1, "inputs": [["INPUT__0", "float32", [-1], ""]],
                    "outputs": [["OUTPUT__1", "float32", [-1], ""]]}],
        ["graph", {"name": "libtorch_index_1_float32", "number": 1,
                   "source": "def forward(self, INPUT__0: Tensor) -> Tensor:\n    return INPUT__0\n"}]],
        options=("--strict-readiness=false",), known={"test_datatype": "the model's own type is answered, whatever its config says",
               "test_index": "the output of a wrong config is refused in other words"}),
]
