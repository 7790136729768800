"""Transports of somebody else's, which carry one tensor through a file of NumPy."""

from pathlib import Path

import numpy as np
import torch

from rlvr_core.api import ComponentConfig, TransportTraits


class Carrier:
    traits = TransportTraits(lasting=True)

    class Config(ComponentConfig):
        folder: str
        fails: str = ""
        spoils: bool = False

    def __init__(self, config):
        self.config, self.file = config, Path(config.folder) / "w.npy"

    def send(self, weights, link):
        if self.config.fails == "send":
            raise OSError("the horse is lame")
        for name, tensor in weights:
            np.save(self.file, tensor.detach().numpy() + self.config.spoils)
            link.deliver([name, link.receivers])

    def receive(self, message, load, index):
        if self.config.fails == "receive":
            raise OSError("nobody opens the gate")
        assert 0 <= index < message[1]
        load([(message[0], torch.from_numpy(np.load(self.file)))])
        (self.file.parent / f"received {index}").touch()

    def close(self):
        pass


class Streaming(Carrier):
    """Received while it is sent."""

    traits = TransportTraits()
