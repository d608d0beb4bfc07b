"""The device that stands in for a GPU: tests/standin, over host memory, for PyTorch's PrivateUse1 key."""
import ctypes
import os
import types

import torch

LIVE = ("device", "registered", "managed")


class Standin:
    """Loads it from the directory; `device` is where tensors go."""

    def __init__(self, directory):
        version = ".".join(torch.__version__.split(".")[:2])
        # The runtime first, as a PyTorch that is built for CUDA brings it before there is any tensor.
        self.lib = ctypes.CDLL(os.path.join(directory, "libcudart.so.12"), ctypes.RTLD_GLOBAL)
        self.lib.standin_peak.restype = ctypes.c_size_t
        torch.ops.load_library(os.path.join(directory, f"standin-{version}.so"))
        if hasattr(torch, "_register_device_module"):
            torch._register_device_module("privateuseone", self.module())
        self.device = torch.device("privateuseone:0")

    @staticmethod
    def module():
        """What torch.cuda is to CUDA, as far as PyTorch asks for it."""
        module = types.ModuleType("standin")
        module.is_available = module.is_initialized = lambda: True
        module._is_in_bad_fork = lambda: False
        module._lazy_init = lambda: None
        module.manual_seed_all = lambda seed: None
        module.current_device, module.device_count = lambda: 0, lambda: 1
        return module

    def live(self):
        return {name: self.lib.standin_live(kind) for kind, name in enumerate(LIVE)}

    def wait(self):
        self.lib.cudaDeviceSynchronize()
