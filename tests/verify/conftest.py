from tests.support.run_fixtures import lab, make_lab, model_dir, toy_site

__all__ = ["lab", "make_lab", "model_dir", "toy_site"]
