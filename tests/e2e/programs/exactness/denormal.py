"""Results that are denormal, in threads of which some take denormal numbers for 0: denormal.py OUT SCENARIO."""
import torch

from _record import begin

record, (scenario,) = begin()
PASSES = 14  # slices come with the plan


def passes(name, batch=16):
    x = torch.randn(batch, 1024, generator=torch.Generator().manual_seed(1)) * 1e-20
    with torch.no_grad():
        for i in range(PASSES):
            for k, weight in enumerate(weights):
                record.tensor(f"{name}{i}.{k}", torch.nn.functional.linear(x, weight))


def switch(on):
    if not torch.set_flush_denormal(on):
        record.value("cannot be switched", on)


if scenario == "threads":  # those that are made now have it from here
    switch(True)
    torch.ones(1 << 20).add_(1)
    switch(False)
weights = [torch.randn(4096, 1024) * 1e-20 for _ in range(8)]
if scenario == "switched":
    passes("off")
if scenario != "threads":
    switch(True)
passes("flushed")
if scenario == "switched":
    switch(False)
    passes("off again")
record.save()
