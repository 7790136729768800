"""The laboratory, and a model that vLLM can run."""

import pytest

from rlvr_core.testing.random_model import save_random_model
from rlvr_core.testing.run_lab import lab, make_lab, model_dir, toy_site

__all__ = ["lab", "make_lab", "model_dir", "toy_site"]


@pytest.fixture(scope="session")
def wide_model(tmp_path_factory):
    """The laboratory's model with heads that vLLM has kernels for."""
    return save_random_model(tmp_path_factory.mktemp("wide"), head_dim=32)
