"""The configurations of examples/recipes are right, and fit."""

import pytest

from plugins.rlvr_doctor.tests.planner.tables import CARDS, RECIPES, plan_of_recipe


def test_each_recipe_has_gpus_here():
    assert {file.stem for file in RECIPES.glob("*.yaml")} == set(CARDS)


@pytest.mark.parametrize("name", CARDS)
def test_a_recipe_fits_on_its_gpus(name):
    plan = plan_of_recipe(name)
    assert plan.fits
    assert plan.memory.left > 0.05 * plan.memory.card
