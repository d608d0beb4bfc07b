"""Models for MLServer, named by the model-settings.json that peers.py and identity.py write."""
import numpy
from mlserver import MLModel
from mlserver.codecs import Base64Codec
from mlserver.types import InferenceResponse, ResponseOutput


class Identity(MLModel):
    """Gives its input back, and has no part of PyTorch."""

    async def predict(self, payload):
        x = payload.inputs[0]
        return InferenceResponse(model_name=self.name, outputs=[
            ResponseOutput(name=x.name, shape=x.shape, datatype=x.datatype, data=x.data)])


class TorchScript(MLModel):
    """A TorchScript file, as MLServer's documentation has custom runtimes: loaded with the server."""

    async def load(self):
        import torch
        self.torch = torch
        self.net = torch.jit.load(self.settings.parameters.uri).eval()
        return True

    async def predict(self, payload):
        data = Base64Codec.decode_input(payload.inputs[0])[0]
        image = self.torch.from_numpy(numpy.frombuffer(data, numpy.float32).copy().reshape(1, 3, 224, 224))
        with self.torch.inference_mode():
            answer = self.net(image).numpy().tobytes()
        return InferenceResponse(model_name=self.name, outputs=[
            Base64Codec.encode_output("y", [answer])])
