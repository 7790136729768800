"""Weight transports of one's own, in runs whose engine has a process and weights of its own."""

import json

import pytest

from tests.support.run_records import lines

CARRIER = '''
"""Carries weights through files of NumPy."""

import json
import os
from pathlib import Path

import numpy as np
import torch

from rlvr_core.api import ComponentConfig, TransportTraits


class Carrier:
    traits = TransportTraits(lasting=True)

    class Config(ComponentConfig):
        folder: str = "carried"

    def __init__(self, config):
        self.config = config
        self.folder = Path(config.folder).absolute()
        self.folder.mkdir(exist_ok=True)

    def send(self, weights, link):
        names = {}
        for number, (name, tensor) in enumerate(weights):
            names[name] = str(self.folder / f"{number}.npy")
            np.save(names[name], tensor.detach().cpu().numpy())
        self.note("sent", len(names))
        link.deliver(names)

    def receive(self, message, load, index):
        load((name, torch.from_numpy(np.load(path))) for name, path in message.items())
        self.note("received", len(message))

    def close(self):
        self.note("closed", 0)

    def note(self, what, count):
        with (self.folder / "log").open("a") as log:
            log.write(json.dumps([what, count, os.getpid()]) + "\\n")


class Streaming(Carrier):
    traits = TransportTraits()
'''

AHEAD = {"steps": 3, "lr": 1e-3, "warmup_steps": 1, "max_staleness": 1}


@pytest.fixture
def carried(lab):
    (lab.folder / "carrier.py").write_text(CARRIER)

    def write(name="Carrier", train=AHEAD, **options):
        transport = {"use": f"./carrier.py:{name}", "with": options}
        lab.write(engine={"use": "transformers", "transport": transport}, train=train)
        return lab

    return write


@pytest.mark.slow
@pytest.mark.essential
def test_a_run_whose_weights_go_by_a_transport_from_a_file(carried):
    lab = carried()
    lab.rlvr("run", "config.yaml", "--display", "none")
    (run,) = lab.runs()
    assert len(lines(run / "metrics.jsonl")) == 3
    log = lines(lab.folder / "carried" / "log")
    sent = [pid for what, count, pid in log if what == "sent" and count]
    received = [pid for what, count, pid in log if what == "received" and count]
    # the weights of the start, and those of each step but the last, after which nothing is drawn
    assert len(sent) == len(received) >= 3
    assert len(set(sent)) == len(set(received)) == 1
    assert sent[0] != received[0]
    # the probe after every sync held: the engine has the trainer's weights
    recorded = json.loads((run / "run.json").read_text())
    assert "./carrier.py:Carrier" in json.dumps(recorded)
    resolved = (run / "resolved.yaml").read_text()
    assert "use: ./carrier.py:Carrier" in resolved


@pytest.mark.parametrize(
    ("name", "options", "train", "code", "said"),
    [
        ("Carrier", {"fodler": "x"}, AHEAD, 2, "folder"),
        ("Cart", {}, AHEAD, 2, "Carrier"),
        ("Streaming", {}, AHEAD, 2, "with the trait lasting"),
        ("Carrier", {}, AHEAD | {"max_staleness": 0}, 2, "there is no transport"),
    ],
    ids=["option", "name", "not lasting", "in process"],
)
def test_a_transport_that_does_not_fit_is_a_clear_error(carried, name, options, train, code, said):
    train = dict(train)
    lab = carried(name, train, **options)
    result = lab.rlvr("run", "config.yaml", "--display", "none", check=code)
    assert said in " ".join((result.stdout + result.stderr).split())
    assert not lab.runs()
