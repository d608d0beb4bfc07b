"""The cheapest way to read beside a computation: the bound of any program that has to.

The program is plain: all of its weights are in memory. At each boundary of its layers the thread that computes asks for
the next layer's share of what an exact program within the budget would have to read (beside.c), and goes on."""
import ctypes
import os

import double_buffer


def _large(module, smallest, seen):
    """Bytes of a module's weights that can be streamed, each storage once."""
    total = 0
    for tensor in [*module.parameters(), *module.buffers()]:
        size = tensor.numel() * tensor.element_size()
        if size >= smallest and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            total += size
    return total


class Beside:
    def __init__(self, model, weights, pass_bytes, smallest, helper):
        """pass_bytes are read in each pass, from the file weights. helper: path of what beside.c was made into."""
        self.helper, self.pass_bytes, self.asked = ctypes.CDLL(str(helper)), pass_bytes, 0
        self.helper.beside_ask.argtypes = self.helper.beside_settle.argtypes = [ctypes.c_uint64]
        self._check(self.helper.beside_open(os.fsencode(weights)))
        total, seen = _large(model, smallest, set()), set()
        model.register_forward_pre_hook(lambda *_: self.begin())
        for _, module in double_buffer.leaves(model):
            share = pass_bytes * _large(module, smallest, seen) // max(1, total)
            module.register_forward_pre_hook(lambda *_, share=share: self.before(share))
        model.register_forward_hook(lambda *_: self.end())

    def before(self, share):
        share = min(share, self.pass_bytes - self.asked)  # of a layer that comes twice in a pass, too
        self.asked += share
        self._check(self.helper.beside_ask(share))

    def end(self):
        """Weights that are no layer's are asked for at last."""
        self.before(self.pass_bytes - self.asked)
        self.asked = 0

    def begin(self):
        """Within a pass nothing is waited for. But what two passes ago was asked for should have been submitted by now:
        where the disk is too slow for that, a program that has to read so much waits, too."""
        self._check(self.helper.beside_settle(self.pass_bytes))

    @staticmethod
    def _check(rc):
        if rc < 0:
            raise OSError(-rc, f"reading beside: {os.strerror(-rc)}")
