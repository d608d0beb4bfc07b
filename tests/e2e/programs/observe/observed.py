"""What a program sees of its own operators with PyTorch's profiler, and a hook that it disables: observed.py OUT"""
import collections
import os
import threading

os.environ["KINETO_LOG_LEVEL"] = "99"  # it would say when, and in which process
import torch
from torch.autograd import profiler

import _models
from _record import begin, note_sizes

record, _ = begin()
model, data = _models.convnet(), _models.image(0)


def recorded(**options):
    with profiler.profile(**options) as seen:
        output = model(data)
    names = [event.name for event in seen.function_events]
    # The profiler makes tensors of its own, and divides some, now one more, now one less: plainly as well.
    return collections.Counter(name for name in names if name not in ("aten::empty", "aten::div_")), output


with torch.inference_mode():
    for i in range(6):  # operators have been seen to call others
        record.tensor(f"output{i}", model(data))
    for i, options in enumerate(({}, {"record_shapes": True}, {})):
        counts, output = recorded(**options)
        record.value(f"operators{i}", dict(counts))
        record.tensor(f"profiled{i}", output)
        record.tensor(f"after{i}", model(data))
    with profiler.profile() as outside:
        with profiler.record_function("of the program's"):
            model(data)
    record.value("nested", sorted({event.name for event in outside.function_events}))

    def in_a_thread():
        counts, output = recorded()
        record.value("thread", dict(counts))
        record.tensor("thread's output", output)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    record.check("enabled", torch._C._autograd._profiler_enabled() is False)
    record.tensor("at last", model(data))
note_sizes(record, model)
record.save()
