"""Why not just do that: a hand-written double buffer around a model, one reading thread.
Before a large leaf module runs: have the next one's weights read, wait for its own."""
import mmap
import os
import queue
import threading
import torch
import weights


def leaves(module, prefix=""):
    """(prefix, module) of all leaf modules; attention reads its child's weights itself, compiled code its children's."""
    if isinstance(module, torch.nn.MultiheadAttention) or hasattr(module, "_orig_mod") or not list(module.children()):
        return [(prefix, module)]
    parts = [leaves(child, f"{prefix}{name}.") for name, child in module.named_children()]
    return [leaf for part in parts for leaf in part]


class DoubleBuffer:
    def __init__(self, model, path, smallest):
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:  # a file system without O_DIRECT
            self.fd = os.open(path, os.O_RDONLY)
        index, tensors, units = weights.load_index(path), weights.named_tensors(model), []
        for prefix, module in leaves(model):
            names = [name for name in tensors if name.startswith(prefix)]
            if sum(index[name]["bytes"] for name in names) >= smallest:
                start, last = index[names[0]]["offset"], index[names[-1]]
                size = -(-(last["offset"] + last["bytes"] - start) // 4096) * 4096
                units.append((module, names, start, size))
        for name in tensors.keys() - {name for unit in units for name in unit[1]}:
            tensors[name].data = weights.read_one(path, index[name])
        # Neighbours never share a buffer, nor do the last one and the first of the next pass.
        slots = [i % 2 for i in range(len(units))]
        slots[-1] = 2 if len(units) % 2 else 1
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        buffers = [mmap.mmap(-1, max(u[3] for u, s in zip(units, slots) if s == slot),
                             flags=private) for slot in sorted(set(slots))]
        self.reads, self.todo = [], queue.SimpleQueue()
        self.ready = [threading.Semaphore(0) for _ in units]
        for i, (module, names, start, size) in enumerate(units):
            for name in names:
                whole = torch.frombuffer(buffers[slots[i]], dtype=torch.uint8)
                tensors[name].data = weights.tensor_at(whole, index[name], base=start)
            self.reads.append((memoryview(buffers[slots[i]])[:size], start))
            module.register_forward_pre_hook(lambda *_, i=i: self.before(i))
        threading.Thread(target=self.read_loop, daemon=True).start()
        self.todo.put(0)

    def before(self, i):
        self.todo.put((i + 1) % len(self.reads))
        self.ready[i].acquire()

    def read_loop(self):
        while True:
            view, offset = self.reads[i := self.todo.get()]
            while view:
                got = os.preadv(self.fd, [view], offset)
                view, offset = view[got:], offset + got
            self.ready[i].release()
