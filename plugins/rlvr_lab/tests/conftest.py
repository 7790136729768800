from tests.support.eval_fixtures import lab, make_lab, model_dir, other_model, toy_site

__all__ = ["lab", "make_lab", "model_dir", "other_model", "toy_site"]
