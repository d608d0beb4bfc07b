"""peft: LoRA on GPT-2, trained, merged."""
from _real import out, torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

base = GPT2LMHeadModel(GPT2Config(n_embd=512, n_layer=6, n_head=8, vocab_size=4000, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0))
model = get_peft_model(base, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.0))
tokens = torch.arange(40).reshape(2, 20) * 7
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
for step in range(3):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    out(f"loss{step}", loss)
merged = model.merge_and_unload().eval()
with torch.no_grad():
    out("merged", merged(tokens).logits)
