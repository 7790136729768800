"""What a run says of its choices on a machine with a GPU, which is simulated."""

import subprocess
import sys

from tests.support.installed import needs

SIMULATED = """
import sys
import torch
torch.cuda.is_available = lambda: True
torch.cuda.mem_get_info = lambda *_: (22 << 30, 24 << 30)
from rlvr_core.cli.main import main
sys.exit(main(["run", "config.yaml", "--dry-run", *sys.argv[1:]]))
"""


def dry_run(lab, *words):
    return subprocess.run(
        [sys.executable, "-c", SIMULATED, *words],
        cwd=lab.folder,
        env=lab.env(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@needs("rlvr_doctor")
def test_auto_is_chosen_for_the_gpu_and_said_before_anything_is_loaded(lab):
    lab.write()
    done = dry_run(lab)
    assert done.returncode == 0, done.stderr
    assert "gradient checkpointing: none, auto: training is planned to take 1.5 of" in done.stderr
    asked = dry_run(lab, "--set", "train.gradient_checkpointing=all")
    assert asked.returncode == 0, asked.stderr
    assert "gradient checkpointing:" not in asked.stderr
