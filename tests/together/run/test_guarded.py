"""Runs that the guards of rlvr-guards stop, and what their checkpoints remember."""

import json

from tests.support.run_records import lines


def test_t18_an_engine_that_ignores_seeds_is_stopped(lab):
    engine = """
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.api import GenerationRequest
from dataclasses import replace


class Deaf(TransformersEngine):
    def submit(self, request):
        seeds = [request.seeds[i // 2] for i in range(len(request.seeds))]
        return super().submit(replace(request, seeds=tuple(seeds)))
"""
    (lab.folder / "deaf.py").write_text(engine)
    lab.write(engine="./deaf.py:Deaf")
    done = lab.rlvr("run", "config.yaml", check=1)
    assert "guard seeds" in done.stderr
    assert "repeat an earlier one of their prompt" in done.stderr
    lab.write(engine="./deaf.py:Deaf", guards=[{"use": "guards/seeds", "off": True}])
    lab.rlvr("run", "config.yaml")


def test_t5_what_collapse_has_seen_is_in_the_checkpoints(lab):
    """The toy's verifier passes nothing and the random model never ends: cut off from step 1."""
    run = lab.run(sampling={"n": 4, "max_tokens": 1}, checkpoint={"every": 1})
    metrics = lines(run / "metrics.jsonl")
    assert all(line["truncated_rate"] > 0.75 for line in metrics)
    saved = json.loads(max(run.glob("checkpoints/step*/trainer/state.json")).read_text())
    remembered = saved["guards"]["guards/collapse"]
    assert remembered["ordered"] is False  # the laboratory shuffles
    assert remembered["start"]["truncated"]["test"][0][-1] > -1e8
