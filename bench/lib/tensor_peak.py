"""How many bytes of tensors a piece of a program has alive at once."""
import torch


def peak_tensor_bytes(run):
    """(result of run, peak of the tensor bytes that it allocated and had not freed yet).

    PyTorch's own allocator reports every allocation and free to the profiler, so the number does
    not depend on swapnet. The recorded events take memory themselves: not for a measured run."""
    with torch.autograd.profiler.profile(profile_memory=True) as profiler:
        result = run()
    events = [(event.start_ns() if hasattr(event, "start_ns") else event.start_us(),
               event.nbytes())
              for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for _, change in sorted(events, key=lambda event: event[0]):
        live += change
        peak = max(peak, live)
    return result, peak
