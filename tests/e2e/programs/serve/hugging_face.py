"""Makes Hugging Face folders NAME/1 of small models in the directory of argv, and says what the models answer: files NAME.OUTPUT.out for
the inputs NAME.INPUT.in. "bin" is "bert" with its weights in a pytorch_model.bin."""
import os

import torch
import transformers

from _record import begin

record, (where,) = begin()
SIZES = {"vocab_size": 128, "num_attention_heads": 4}
MODELS = {
    "bert": transformers.BertModel(transformers.BertConfig(hidden_size=256, num_hidden_layers=8, intermediate_size=1024, **SIZES)),
    "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=256, n_layer=8, n_head=4, vocab_size=128, bos_token_id=0,
                                                                 eos_token_id=0)),
    "vit": transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=256, num_hidden_layers=8, num_attention_heads=4, intermediate_size=1024, image_size=64, patch_size=16)),
}
ids = torch.randint(0, 128, (2, 12), generator=torch.Generator().manual_seed(1))
mask = torch.ones(2, 12, dtype=torch.int64)
mask[1, 7:] = 0
pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))


def put(file, tensor):
    with open(os.path.join(where, file), "wb") as out:
        out.write(tensor.contiguous().numpy().tobytes())


for name, model in MODELS.items():
    folder = os.path.join(where, name, "1")
    model.save_pretrained(folder)
    if name == "bert":
        other = os.path.join(where, "bin", "1")
        model.config.save_pretrained(other)
        torch.save(model.state_dict(), os.path.join(other, "pytorch_model.bin"))
    loaded = type(model).from_pretrained(folder).eval()
    inputs = {"pixel_values": pixels} if name == "vit" else {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        outputs = loaded(**inputs)
    for key, tensor in inputs.items():
        put(f"{name}.{key}.in", tensor)
    for key in ("last_hidden_state", "pooler_output", "logits"):
        if key in outputs:
            put(f"{name}.{key}.out", outputs[key])
record.save()
