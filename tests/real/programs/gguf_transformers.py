"""transformers and gguf: a Llama read from a GGUF file whose weights have 8 bits, dequantized by numpy."""
import gguf
from _real import np, out, torch
from transformers import AutoModelForCausalLM

WIDE, LAYERS, WORDS, HEADS = 512, 6, 2000, 8
writer = gguf.GGUFWriter("m.gguf", "llama")
for add, value in ((writer.add_block_count, LAYERS), (writer.add_context_length, 64), (writer.add_embedding_length, WIDE),
                   (writer.add_feed_forward_length, 4 * WIDE), (writer.add_head_count, HEADS), (writer.add_head_count_kv, HEADS),
                   (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_rope_dimension_count, WIDE // HEADS), (writer.add_vocab_size, WORDS)):
    add(value)
shapes = {"token_embd": (WORDS, WIDE), "output": (WORDS, WIDE), "output_norm": (WIDE,)}
for i in range(LAYERS):
    shapes |= {f"blk.{i}.attn_{name}": (WIDE, WIDE) for name in ("q", "k", "v", "output")}
    shapes |= {f"blk.{i}.ffn_{name}": (WIDE, 4 * WIDE) if name == "down" else (4 * WIDE, WIDE) for name in ("gate", "up", "down")}
    shapes |= {f"blk.{i}.attn_norm": (WIDE,), f"blk.{i}.ffn_norm": (WIDE,)}
for name, shape in shapes.items():
    array = np.random.standard_normal(shape).astype(np.float32) / 20
    kind = gguf.GGMLQuantizationType.Q8_0 if len(shape) > 1 else gguf.GGMLQuantizationType.F32
    writer.add_tensor(f"{name}.weight", gguf.quantize(array, kind), raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
model = AutoModelForCausalLM.from_pretrained(".", gguf_file="m.gguf").eval()
with torch.no_grad():
    out("logits", model(torch.arange(16).reshape(1, 16)).logits)
    out("tokens", model.generate(torch.arange(8).reshape(1, 8), max_new_tokens=6, do_sample=False))
out("weights", model.state_dict())
