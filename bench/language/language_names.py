"""The names of language_models.py, for scripts that run without PyTorch."""
NAMES = ("smollm_360m", "qwen_05b", "olmoe", "mixtral", "llama_60m", "tiny")
