#!/usr/bin/env python3
"""PORT REPOSITORY: Ray Serve with model multiplexing, which keeps the model that was asked for last."""
import pathlib
import sys
import time

import numpy
import ray
import torch
from ray import serve
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=16, ray_actor_options={"num_cpus": 1})
class Models:
    def __init__(self, repository):
        self.repository = pathlib.Path(repository)

    @serve.multiplexed(max_num_models_per_replica=1)
    async def load(self, name):
        return torch.jit.load(self.repository / name / "1" / "model.pt").eval()

    async def __call__(self, request):
        net = await self.load(serve.get_multiplexed_model_id())
        image = numpy.frombuffer(await request.body(), numpy.float32).copy().reshape(1, 3, 224, 224)
        with torch.inference_mode():
            return Response(net(torch.from_numpy(image)).numpy().tobytes())


if __name__ == "__main__":
    ray.init(include_dashboard=False, num_cpus=2, object_store_memory=80 << 20)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Models.bind(sys.argv[2]), name="models", route_prefix="/")
    while True:
        time.sleep(60)
