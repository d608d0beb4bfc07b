"""transformers: Llama generates with a cache."""
from _real import out, torch
from transformers import LlamaConfig, LlamaForCausalLM

model = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                                     num_key_value_heads=4, vocab_size=4000, pad_token_id=0)).eval()
tokens = torch.arange(1, 13).reshape(1, 12) * 11
out("greedy", model.generate(tokens, max_new_tokens=8, do_sample=False))
torch.manual_seed(5)
out("sampled", model.generate(tokens, max_new_tokens=8, do_sample=True, top_k=20))
