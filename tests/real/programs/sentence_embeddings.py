"""sentence-transformers: a model of its own modules, encode."""
from _real import out, torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "model": 2, "of": 3, "words": 4}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=1024), *(Dense(1024, 1024) for _ in range(8))], device="cpu")
out("vectors", model.encode(["a model of words", "words of a model", "a"], show_progress_bar=False))
