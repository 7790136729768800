from rlvr_core.testing.run_lab import lab, make_lab, model_dir, toy_site

__all__ = ["lab", "make_lab", "model_dir", "toy_site"]
