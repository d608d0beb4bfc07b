"""Threads of an OpenMP team that run operators: openmp.py OUT LIBRARY SCENARIO, with a library made of in_openmp.c."""
import ctypes
import time

import torch

from _record import begin

record, (library, scenario) = begin()
run = ctypes.CDLL(library).in_openmp
function = ctypes.CFUNCTYPE(None, ctypes.c_int)

WIDTH, LAYERS, ROUNDS = 512, 64, 8
weights = [torch.randn(WIDTH, WIDTH) / WIDTH ** 0.5 for _ in range(LAYERS)]
homes = [weight.data_ptr() for weight in weights]
results = {}
moved = []


def network(x):
    for weight in weights:
        x = torch.nn.functional.linear(x, weight).tanh()
    return x


def layer_meanwhile(number):
    """One thread runs the network, the other its first layer alone, when an operator has that weight if ever."""
    with torch.no_grad():
        if number == 0:
            results[number] = network(few)
            return
        end = time.monotonic() + 0.01
        while weights[0].data_ptr() == homes[0] and time.monotonic() < end:
            pass
        moved.append(weights[0].data_ptr() != homes[0])
        results[number] = torch.nn.functional.linear(many, weights[0])


def network_each(number):
    with torch.no_grad():
        results[number] = network((few, more)[number])


few, more, many = torch.randn(8, WIDTH), torch.randn(48, WIDTH), torch.randn(4000, WIDTH)
work = function({"layer": layer_meanwhile, "network": network_each}[scenario])
for i in range(ROUNDS):
    run(2, work)
    for number in (0, 1):
        record.tensor(f"result{i}.{number}", results[number])
record.check("no weight has moved", not any(moved))
record.check("all are at home", [weight.data_ptr() for weight in weights] == homes)
record.save()
