"""swapnet_worker - runs models in Python for swapnet-serve. A model.py may raise BadInput."""


class BadInput(Exception):
    """The request is wrong, and not the model: the client gets status 400 and this text."""
