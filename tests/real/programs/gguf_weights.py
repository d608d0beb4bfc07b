"""gguf: quantized weights of a memory-mapped file, taken apart by numpy, as transformers does."""
import tempfile

import gguf
from _real import np, out, rows, torch

with tempfile.TemporaryDirectory(dir="/var/tmp") as where:
    writer = gguf.GGUFWriter(f"{where}/m.gguf", "llama")
    for i in range(8):
        array = np.random.default_rng(i).standard_normal((1024, 1024), dtype=np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"w{i}", gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = [torch.from_numpy(gguf.dequantize(t.data, t.tensor_type)) for t in gguf.GGUFReader(f"{where}/m.gguf").tensors]
    for i in range(3):
        x = rows(i)
        for w in weights:
            x = torch.relu(torch.nn.functional.linear(x, w)) / 20
        out(f"out{i}", x)
