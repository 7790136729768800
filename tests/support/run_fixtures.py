"""The laboratory, and a model that vLLM can run."""

import subprocess
import sys

import pytest

from rlvr_core.testing.random_model import save_random_model
from rlvr_core.testing.run_lab import lab, make_lab, model_dir, toy_site

__all__ = ["lab", "make_lab", "model_dir", "toy_site"]


@pytest.fixture(scope="session")
def wide_model(tmp_path_factory):
    """The laboratory's model with heads that vLLM has kernels for."""
    return save_random_model(tmp_path_factory.mktemp("wide"), head_dim=32)


def run_beside_with_nothing_ahead(lab):
    """A run by the machinery of asynchronous rollouts at staleness 0; the run's folder."""
    force = (
        "import sys, rlvr_core.run.build as to; "
        "from rlvr_core.rollout.ahead.ahead import Ahead; "
        "to.rollout_mode = Ahead; "
        "Ahead.check = lambda *_, **__: None; "
        "from rlvr_core.cli.main import main; sys.exit(main())"
    )
    subprocess.run(
        [sys.executable, "-c", force, "run", "config.yaml", "--display", "none"],
        cwd=lab.folder,
        env=lab.env(),
        check=True,
        timeout=300,
    )
    return lab.runs()[-1]
