"""What may be asked of a component stands in its traits, not in a ``getattr`` by a literal."""

import pytest

from rlvr_core.api import EngineTraits, PluginError, SamplerTraits, traits_of


class Plain: ...


class Typed:
    traits = EngineTraits(separate=True)

    def __init__(self, elsewhere):
        self.traits = EngineTraits(separate=True, elsewhere=elsewhere)


class Wrong:
    traits = {"separate": True}


def test_traits_are_read_of_classes_and_of_instances():
    assert traits_of(Plain, SamplerTraits).max_reads == 1
    assert traits_of(Plain(), EngineTraits) == EngineTraits()
    assert traits_of(Typed, EngineTraits).separate
    assert not traits_of(Typed, EngineTraits).elsewhere
    assert traits_of(Typed(True), EngineTraits).elsewhere


@pytest.mark.parametrize("component", [Wrong, Wrong(), Typed])
def test_traits_of_another_type_are_the_plugins_error(component):
    with pytest.raises(PluginError, match=r"traits of .*test_traits:\w+ are .*not SamplerTraits"):
        traits_of(component, SamplerTraits)
