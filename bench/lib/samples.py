"""What the plain program answered: inputs, outputs and its number of threads, for workers that have no PyTorch."""
import hashlib
from dataclasses import dataclass

import numpy


@dataclass
class Samples:
    inputs: numpy.ndarray   # one after the other along the first axis, each of a batch of 1
    outputs: numpy.ndarray  # likewise
    threads: int

    def deviation(self, index, output):
        """The largest difference from the plain program's output, relative to the largest number in that."""
        expected = self.outputs[index]
        return float(abs(output.reshape(expected.shape) - expected).max() / abs(expected).max())

    def digest(self):
        """Tells networks apart: by what they make of the same inputs."""
        return hashlib.sha256(self.inputs.tobytes() + self.outputs.tobytes()).hexdigest()


def save(path, found):
    with open(path, "wb") as file:
        numpy.savez(file, inputs=found.inputs, outputs=found.outputs, threads=found.threads)


def load(path):
    with numpy.load(path) as file:
        return Samples(file["inputs"], file["outputs"], int(file["threads"]))
