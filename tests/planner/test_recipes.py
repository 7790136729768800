"""The configurations of examples/recipes are right, and take what docs/plan.md says."""

import pytest

from tests.planner.tables import CARDS, RECIPES, ROOT, plan_of_recipe, recipes


def test_each_recipe_has_gpus_here():
    assert {file.stem for file in RECIPES.glob("*.yaml")} == set(CARDS)


@pytest.mark.parametrize("name", CARDS)
def test_a_recipe_fits_on_its_gpus(name):
    plan = plan_of_recipe(name)
    assert plan.fits
    assert plan.memory.left > 0.05 * plan.memory.card


def test_the_table_of_the_page_is_of_these_plans():
    assert recipes() in (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
