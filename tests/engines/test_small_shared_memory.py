"""Where /dev/shm is small, as in a container of docker's defaults, weights go another way."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rlvr_core.builtin.asynchronous import shared_weights

HERE = Path(__file__).parent
_SMALL = "mount -t tmpfs -o size=1m tmpfs /dev/shm"


def with_small_memory(code, *, more="true", **environment):
    """Run Python code where /dev/shm really holds one MiB; return what it wrote and its code."""
    command = ["unshare", "-m", "sh", "-c"]
    try:
        allowed = subprocess.run([*command, _SMALL], capture_output=True, check=False).returncode
    except OSError:
        allowed = 1
    if allowed != 0:
        pytest.skip("a mount namespace with a small /dev/shm is not allowed here")
    script = f'{_SMALL} && {more} && exec "$0" -c "$1"'
    return subprocess.run(
        [*command, script, sys.executable, textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"} | environment,
    )


ENGINE = """
    import torch
    from embedded import generate, make_model, make_tokenizer, request
    from rlvr_core.api import EngineContext
    from rlvr_core.builtin.asynchronous.child import in_child
    from rlvr_core.engines.sync import ModuleSource
    from rlvr_core.engines.transformers import TransformersEngine

    if __name__ == "__main__":
        tokenizer = make_tokenizer()
        model = make_model(tokenizer, hidden_size=128, intermediate_size=512)
        assert 4 * sum(p.numel() for p in model.parameters()) > 2**20
        engine = in_child(TransformersEngine(TransformersEngine.Config()), 120.0)
        engine.start(EngineContext("", model, tokenizer, torch.float32, 256, 0))
        for version in (1, 2):
            with torch.no_grad():
                model.lm_head.weight.add_(0.1)
            engine.load_weights(version, ModuleSource(model))
        ((answer,),) = generate(engine, request((5, 6, 7), max_tokens=4))
        print("VERSION", answer.version)
        print("EVENTS", engine.take_events(), engine.take_events())
        print("DISK", engine.metrics()["engine/syncs_on_disk"], engine.metrics())
        engine.close()
"""


@pytest.mark.slow
def test_weights_of_a_child_engine_pass_through_the_temporary_folder(tmp_path):
    done = with_small_memory(ENGINE, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "VERSION 2" in done.stdout
    assert f"EVENTS ['weights go to the engine's process through a file in {tmp_path}" in (
        done.stdout.replace('"', "'")
    )
    assert "--shm-size" in done.stdout
    assert "DISK 2.0" in done.stdout
    assert "'engine/syncs_on_disk': 0.0" in done.stdout


RESERVE = """
    import os
    import torch
    from rlvr_core.api import MachineError
    from rlvr_core.builtin.asynchronous.shared_weights import SharedTensors, folder_on_disk

    def reserve(count):
        try:
            memory = SharedTensors.create([torch.empty(count, device="meta")])
        except MachineError as error:
            return f"REFUSED {str(error).splitlines()[0]}"
        memory.write([("a", torch.ones(count))])
        folder, blocks = folder_on_disk(memory.fd), os.fstat(memory.fd).st_blocks
        memory.close()
        return f"{folder} {512 * blocks >= 4 * count}"

    print(reserve(100_000))
    print(reserve(300_000))
    print(reserve(100_000))
"""


def test_memory_is_reserved_before_it_is_written_or_refused_with_a_clear_word(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=1m tmpfs {small}"
    done = with_small_memory(RESERVE, more=mount, TMPDIR=str(small))
    assert done.returncode == 0, done.stderr[-2000:]
    fits, refused, again = done.stdout.strip().splitlines()
    assert fits == again == "None True"
    assert refused.startswith(
        "REFUSED no room for the weights of an engine in a process of its own"
    )
    assert "/dev/shm (0.000977 GiB free)" in refused
    assert f"{small} (0.000977 GiB free)" in refused
    assert "No space left on device" in refused


FILES = """
    import torch
    from rlvr_core.api import MachineError, TensorMeta
    from rlvr_core.builtin.vllm.files import Files, folder_on_disk

    class Weights:
        tensors = [TensorMeta("a", torch.float32, (300_000,))]
        told = 300_000

        def __iter__(self):
            yield "a", torch.ones(self.told)

    class Link:
        def deliver(self, message):
            self.message = message

    files, link = Files(Files.Config()), Link()
    files.send(Weights(), link)
    print(folder_on_disk([link.message]))
    files.close()
    grown, link = Files(Files.Config()), Link()
    weights = Weights()
    weights.tensors = [TensorMeta("a", torch.float32, (100,))]  # room for this, not for what comes
    try:
        grown.send(weights, link)
    except MachineError as error:
        print("REFUSED", str(error).splitlines()[0])
"""


def test_files_for_servers_lie_in_the_temporary_folder_and_a_full_one_is_said(tmp_path):
    done = with_small_memory(FILES, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    folder, refused = done.stdout.strip().splitlines()
    assert folder.startswith(str(tmp_path))
    assert refused.startswith("REFUSED no room for a copy of the weights, 0.00 GiB, in /dev/shm")
    assert "No space left on device" in refused


def test_where_nothing_sets_bytes_aside_they_are_written(tmp_path, monkeypatch):
    """As on macOS: a file of 2.5 MiB whose blocks are all there, where a hole would have none."""
    monkeypatch.setattr(sys, "platform", "darwin")
    size = 5 << 19
    with (tmp_path / "weights").open("w+b") as file:
        shared_weights._set_aside(file.fileno(), size)
        os.fsync(file.fileno())
        held = os.fstat(file.fileno())
    assert held.st_size == size
    assert held.st_blocks * 512 >= size
