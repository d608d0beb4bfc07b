"""What a model returns, and what a served request answers, as lists of raw bytes that can be compared."""
import torch


def flat(result):
    """The tensors of a result, in the order in which the outputs of a request are numbered."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, dict):
        result = result.values()
    return [t for part in result if part is not None for t in flat(part)]


def data(results):
    return [content for _, _, content in results.values()]


def raw(tensors):
    return [t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for t in tensors]
