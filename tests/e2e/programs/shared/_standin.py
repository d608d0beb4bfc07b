"""The device that stands in for a GPU: tests/fakes/cuda, over host memory, for PyTorch's PrivateUse1 key."""
import contextlib
import ctypes
import os
import time
import types

import torch

LIVE = ("device", "registered", "managed", "reserved", "physical", "pinned")


class Standin:
    """Loads it from the directory; `device` is where tensors go. `name`: what the device is called, of PyTorch 2 on.
    `scope`: whether the runtime's functions are everybody's, or only those libraries' that are linked with it."""

    def __init__(self, directory, name="privateuseone", scope=ctypes.RTLD_GLOBAL):
        self.version = ".".join(torch.__version__.split(".")[:2])
        # The runtime first, as a PyTorch that is built for CUDA brings it before there is any tensor.
        self.lib = ctypes.CDLL(os.path.join(directory, "libcudart.so.12"), scope)
        self.lib.standin_peak.restype = ctypes.c_size_t
        path = os.path.join(directory, f"standin-{self.version}.so")
        torch.ops.load_library(path)
        self.streams = ctypes.CDLL(path)
        if name != "privateuseone":
            torch.utils.rename_privateuse1_backend(name)
        if hasattr(torch, "_register_device_module"):
            torch._register_device_module(name, self.module())
        self.device, self.other = (torch.device(f"{name}:{i}") for i in range(2))

    def load(self, path, **options):
        """torch.load to the device. PyTorch 1.13 makes storages on none but CUDA's, so there its steps are gone through."""
        if self.version != "1.13":
            return torch.load(path, map_location=self.device, **options)
        return {name: torch.ops.standin.load(t) for name, t in torch.load(path, **options).items()}

    @staticmethod
    def module():
        """What torch.cuda is to CUDA, as far as PyTorch asks for it."""
        module = types.ModuleType("standin")
        module.is_available = module.is_initialized = lambda: True
        module._is_in_bad_fork = lambda: False
        module._lazy_init = lambda: None
        module.manual_seed_all = lambda seed: None
        module.current_device, module.device_count = lambda: 0, lambda: 2
        module.device = lambda device: contextlib.nullcontext()
        return module

    def live(self):
        return {name: self.lib.standin_live(kind) for kind, name in enumerate(LIVE)}

    def read(self, tensor):
        """A kernel reads the CPU tensor where the device finds it, as long as it is registered."""
        at, size = ctypes.c_void_p(), ctypes.c_size_t(tensor.numel() * tensor.element_size())
        assert self.lib.cudaHostGetDevicePointer(ctypes.byref(at), ctypes.c_void_p(tensor.data_ptr()), 0) == 0
        self.lib.standin_launch(None, 300, ctypes.byref(at), ctypes.byref(size), 1)
        self.wait()

    def cudart(self):
        """What torch.cuda.cudart() gives: functions of a library that is linked with the runtime."""
        def register(pointer, size, flags):
            return self.streams.standin_host_register(ctypes.c_void_p(pointer), ctypes.c_size_t(size), flags)

        def unregister(pointer):
            return self.streams.standin_host_unregister(ctypes.c_void_p(pointer))
        return types.SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)

    def use_stream(self, stream):
        """From now on this thread launches on it."""
        self.streams.standin_use_stream(ctypes.c_int64(stream))

    def delay(self, seconds):
        """This thread's next operator has its tensors' addresses so long before it computes."""
        self.streams.standin_delay(ctypes.c_uint(int(seconds * 1e6)))

    def wait_for_delayed(self):
        """Until an operator of some thread's is at that point."""
        while not self.streams.standin_delayed():
            time.sleep(0.01)

    def reads(self, tensor, seconds):
        """A kernel reads the device's tensor for so long, on the default stream."""
        at, size = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.numel() * tensor.element_size())
        self.lib.standin_launch(None, ctypes.c_uint(int(seconds * 1e6)), ctypes.byref(at), ctypes.byref(size), 1)

    def busy(self, seconds):
        """The device has something to do for so long, on the default stream."""
        nothing, none = (ctypes.c_void_p * 1)(), (ctypes.c_size_t * 1)()
        self.lib.standin_launch(None, ctypes.c_uint(int(seconds * 1e6)), nothing, none, ctypes.c_uint(0))

    def register_slowly(self, seconds):
        """This thread's next registration with the driver returns so long after it is made."""
        self.lib.standin_register_slowly(ctypes.c_uint(int(seconds * 1e6)))

    def hide_streams(self, hide):
        """Whether PyTorch throws where it is asked for a stream's handle."""
        self.streams.standin_hide_streams(int(hide))

    def capture(self, stream, begin):
        """What is launched on the stream is put into a graph from now on, or no more."""
        if begin:
            self.streams.standin_new_graph()
        assert self.lib.standin_capture(ctypes.c_void_p(stream), int(begin)) == 0, "the capture has been broken off"

    def replay(self):
        """Runs what was captured last, at the addresses that it had then."""
        self.streams.standin_replay()

    def empty(self, *kinds):
        """Whether there is nothing of these kinds any more, as soon as that is so, or not after some seconds."""
        for _ in range(500):
            live = self.live()
            if not any(live[kind] for kind in kinds):
                return True
            time.sleep(0.01)
        return False

    def wait(self):
        self.lib.cudaDeviceSynchronize()
