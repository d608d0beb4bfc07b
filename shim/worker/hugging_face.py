"""A Hugging Face folder: config.json, and weights in *.safetensors or, read without running anything, in *.bin.

No code of the folder is run, nothing is downloaded, and weights beside the folder are not read. transformers itself looks for
more than that, and each version for something else: it sees a folder of links to what was looked at here, and nothing in it
that can be code or lead elsewhere.
"""
import contextlib
import gc
import inspect
import json
import os
import stat
import tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"  # read when transformers is imported

import torch  # noqa: E402  pylint: disable=wrong-import-position

from swapnet_worker import tensors  # noqa: E402  pylint: disable=wrong-import-position

# What clients send beside the main input, where config.pbtxt names no inputs: a tokenizer's second output, and what
# begins the answer of an encoder-decoder model.
BESIDE = {"input_ids": ["attention_mask"]}


class HuggingFaceModel:
    """The model of config.json's architecture. `inputs`, `outputs`: [(name, type or None, shape or None)]."""

    def __init__(self, path, config):
        directory = os.path.dirname(path)
        self.model = from_folder(directory).eval()
        if hasattr(self.model.config, "use_cache"):
            self.model.config.use_cache = False  # a request has no next step
        self.parameters = inspect.signature(self.model.forward).parameters
        self.inputs, self.outputs = config
        self.inputs = self.inputs or self.usual_inputs()
        if wrong := [name for name, _, _ in self.inputs if name not in self.parameters]:
            raise TypeError(f"{type(self.model).__name__} takes no input '{wrong[0]}'")
        self.defaults = tensors.defaults(self.parameters.values(), self.inputs)
        self.weights = tensors.weights([self.model])

    def usual_inputs(self):
        main = self.model.main_input_name
        names = [main] + [name for name in BESIDE.get(main, ()) if name in self.parameters]
        if getattr(self.model.config, "is_encoder_decoder", False):
            names.append("decoder_input_ids")
        return [(name, "INT64", [-1, -1]) if name.endswith(("_ids", "_mask")) else (name, None, None) for name in names]

    def __call__(self, inputs):
        result = self.model(**inputs, return_dict=True)
        return tensors.outputs(dict(flat(result)))

    def forget(self):
        self.model = None
        gc.collect()


def flat(result, name=""):
    """(name, tensor) of all tensors of a model's output: those of tuples are NAME__0 and so on. What has none is left out."""
    if isinstance(result, torch.Tensor):
        yield name or "OUTPUT__0", result
    elif isinstance(result, dict):
        for key, value in result.items():
            yield from flat(value, f"{name}.{key}" if name else key)
    elif isinstance(result, (tuple, list)):
        for i, value in enumerate(result):
            yield from flat(value, f"{name}__{i}")


def read_json(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def check_shards(index, name, files):
    """Shards are files of the folder: transformers takes any path."""
    shards = index.get("weight_map") if isinstance(index, dict) else None
    for shard in shards.values() if isinstance(shards, dict) else ():
        if shard not in files:
            raise ValueError(f"{name}: {shard!r} is not in the folder")


def check_config(value, name):
    """A configuration, and those in it, may name weights, and code that computes attention, which are not in the folder."""
    for one in value if isinstance(value, list) else ():
        check_config(one, name)
    for key, one in value.items() if isinstance(value, dict) else ():
        if ("attn_implementation" in key and "/" in str(one)) or (key == "trust_remote_code" and one):
            raise ValueError(f"{name}: {key} {one!r} is code from elsewhere")
        if (key == "transformers_weights" and one) or (key == "backbone" and isinstance(one, str) and os.path.exists(one)):
            raise ValueError(f"{name}: {key} {one!r} is from elsewhere")
        check_config(one, name)


def forbid_code():
    """Whatever transformers would run of a folder goes through these, and who calls them is imported later. Where code is looked for that
    need not be there, an OSError says that it is not."""
    import transformers.dynamic_module_utils as dynamic

    def refuse(*args, **kwargs):
        raise OSError("code of a Hugging Face folder is not run")
    for name in ("get_cached_module_file", "get_class_in_module", "get_class_from_dynamic_module"):
        setattr(dynamic, name, refuse)


@contextlib.contextmanager
def looked_at(directory):
    """A folder with the configurations, as they were when they were looked at, and links to the weights."""
    files = os.listdir(directory)
    with tempfile.TemporaryDirectory(prefix="swapnet-") as safe:
        for name in files:
            path = os.path.join(directory, name)
            is_weights, is_index = name.endswith((".safetensors", ".bin")), name.endswith(".index.json")
            if not is_weights and not is_index and name not in ("config.json", "generation_config.json"):
                continue
            kind = os.lstat(path).st_mode
            if not stat.S_ISREG(kind):
                raise ValueError(f"{name} is {'a link' if stat.S_ISLNK(kind) else 'no file'}")
            if is_weights:
                os.symlink(os.path.abspath(path), os.path.join(safe, name))
                continue
            content = read_json(directory, name)
            if is_index:
                check_shards(content, name, files)
            else:
                check_config(content, name)
            with open(os.path.join(safe, name), "w", encoding="utf-8") as file:
                json.dump(content, file)
        yield safe


def from_folder(directory):
    import transformers  # takes seconds, and the worker of a model.py does without
    transformers.utils.logging.disable_progress_bar()
    forbid_code()
    with looked_at(directory) as folder:
        return load(transformers, folder)


def load(transformers, folder):
    here = {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **here)
    name = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    architecture = getattr(transformers, name, None)
    is_model = isinstance(architecture, type) and issubclass(architecture, transformers.PreTrainedModel)
    if not is_model and name != "AutoModel":
        raise ValueError(f"this version of transformers, {transformers.__version__}, has no architecture {name}")
    dtype = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    safe = any(file.endswith(".safetensors") for file in os.listdir(folder))
    if is_model:
        del here["trust_remote_code"]  # for automatic classes only
    return architecture.from_pretrained(folder, config=config, use_safetensors=safe, **here, **{dtype: "auto"},
                                        **({} if safe else {"weights_only": True}))
