"""A model.py: code of the repository's owner, with a class Model."""
import gc
import importlib.util
import inspect
import os
import sys

from swapnet_worker import tensors


class PythonModel:
    """Model() of the file, loaded. `inputs`, `outputs`: [(name, type or None, shape or None)]."""

    def __init__(self, path, config):
        directory = self.directory = os.path.dirname(path)
        sys.path.insert(0, directory)  # for modules beside it
        spec = importlib.util.spec_from_file_location("model", path)
        module = sys.modules["model"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if not callable(getattr(module, "Model", None)):
            raise TypeError("model.py has no class Model")
        self.model = module.Model()
        if not callable(self.model):
            raise TypeError("its class Model has no __call__")
        if hasattr(self.model, "load"):
            self.model.load(directory)
        self.inputs, self.outputs = config
        self.inputs = self.inputs or declared(self.model, "inputs") or parameters(self.model)
        self.outputs = self.outputs or declared(self.model, "outputs")
        try:
            self.defaults = tensors.defaults(inspect.signature(self.model).parameters.values(), self.inputs)
        except ValueError:  # no function of Python's
            self.defaults = set()
        self.weights = tensors.weights(attributes(self.model))

    def __call__(self, inputs):
        return tensors.outputs(self.model(**inputs))

    def forget(self):
        """Its modules are read anew when it is loaded again."""
        directory = sys.path.pop(sys.path.index(self.directory))
        for name, module in list(sys.modules.items()):
            if any(place.startswith(directory + os.sep) for place in places(module)):
                del sys.modules[name]
        self.model = None
        gc.collect()  # a model that is in a circle has weights, too


def places(module):
    """Where it was read from: a file, or the folders of a package, which may have none."""
    found = getattr(module, "__dict__", {})
    file, folders = found.get("__file__"), found.get("__path__")
    return [file] * isinstance(file, str) + [place for place in folders or () if isinstance(place, str)]


def declared(model, which):
    """The model's own list of inputs or outputs: of (name, datatype, shape), or of names alone."""
    found = []
    for one in getattr(model, which, None) or ():
        one = (one,) if isinstance(one, str) else tuple(one)
        if not one or not isinstance(one[0], str) or len(one) > 3:
            raise TypeError(f"Model.{which}: {one} is no (name, datatype, shape)")
        found.append(one + (None,) * (3 - len(one)))
    return found


def parameters(model):
    """The parameters of the call that have to be given are its inputs, of any type and shape."""
    signature = inspect.signature(model)
    given = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not given:
        raise TypeError("nothing says what its inputs are: neither config.pbtxt, nor Model.inputs, nor the call's "
                        "parameters")
    return [(p.name, None, None) for p in given if p.default is p.empty]


def attributes(model):
    return getattr(model, "__dict__", {}).values()
