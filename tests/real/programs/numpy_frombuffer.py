"""numpy and torch.frombuffer: weights in arrays, in buffers and in a file mapped for reading, which the budget does not cover."""
import warnings

from _real import np, out, rows, torch

warnings.filterwarnings("ignore")  # of arrays that may not be written
arrays = [np.random.default_rng(i).standard_normal((1024, 1024), dtype=np.float32) / 20 for i in range(6)]
for i in (4, 5):
    np.save(f"{i}.npy", arrays[i])
weights = [torch.from_numpy(array) for array in arrays[:2]]
weights += [torch.frombuffer(bytearray(array.tobytes()), dtype=torch.float32).reshape(1024, 1024) for array in arrays[2:4]]
weights += [torch.from_numpy(np.load(f"{i}.npy", mmap_mode="r")) for i in (4, 5)]
weights += [torch.randn(1024, 1024) / 20 for _ in range(8)]  # PyTorch's own, more than the budget
with torch.no_grad():
    for i in range(3):
        x = rows(i)
        for w in weights:
            x = torch.relu(torch.nn.functional.linear(x, w))
        out(f"out{i}", x)
out("weights", weights)
