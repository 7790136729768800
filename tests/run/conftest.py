from tests.support.run_fixtures import lab, make_lab, model_dir, toy_site, wide_model

__all__ = ["lab", "make_lab", "model_dir", "toy_site", "wide_model"]
