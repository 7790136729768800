"""Third set, written without reading the guards: weights on their way to the engine, waits."""

from __future__ import annotations

import time
from typing import Any

import torch

from chaos.changes import FOREVER
from chaos.registry import TRANSFORMERS, Patch, third
from chaos.when import ENGINE, engine_has

SLOW = "impatient"


def _named(model: Any, part: str) -> dict[str, Any]:
    """Parameters of a model whose name has a part."""
    return {name: one for name, one in model.named_parameters() if part in name}


# -- sync ----------------------------------------------------------------------------------------


@third("sync", "rounded", backends=TRANSFORMERS)
def one_layer_sent_in_eight_bits(patch: Patch) -> None:
    """The second layer reaches the engine rounded to eight bits."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for one in _named(model, "layers.1.").values():
            one.data = one.data.to(torch.float8_e4m3fn).to(one.dtype)

    engine_has(patch, change)


@third("sync", backends=TRANSFORMERS)
def from_the_fourth_sync_without_one_layer(patch: Patch) -> None:
    """From the fourth sync on, the engine's second layer stays as it was at the third."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, one in _named(model, "layers.1.").items():
            if syncs < 3:
                kept[name] = one.data.clone()
            else:
                one.data = kept[name].clone()

    engine_has(patch, change)


@third("sync", backends=TRANSFORMERS)
def third_sync_sends_the_weights_of_the_first(patch: Patch) -> None:
    """The third sync sends the weights of the first one; all others are right."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, one in model.named_parameters():
            if syncs == 0:
                kept[name] = one.data.clone()
            elif syncs == 2:
                one.data = kept[name].clone()

    engine_has(patch, change)


@third("sync", backends=TRANSFORMERS)
def one_weight_changes_its_sign_in_transit(patch: Patch) -> None:
    """One number of one matrix, the largest, reaches the engine with the other sign."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        weight = next(iter(_named(model, "down_proj").values())).data
        place = weight.abs().argmax()
        weight.view(-1)[place] = -weight.view(-1)[place]

    engine_has(patch, change)


@third("sync", "head", "order")
def heads_of_one_layer_exchanged(patch: Patch) -> None:
    """The query heads of the first layer reach the engine in another order."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        weight = next(iter(_named(model, "q_proj").values())).data
        half = len(weight) // 2
        weight.copy_(torch.cat([weight[half:], weight[:half]]))

    engine_has(patch, change)


@third("sync", "adapter", "scal", shape="lora")
def adapter_counted_twice_after_the_second_sync(patch: Patch) -> None:
    """From the third sync on the engine adds the adapter twice to the weights below it."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for module in model.modules():
            if syncs >= 2 and hasattr(module, "scaling") and hasattr(module, "lora_A"):
                module.scaling = {name: 2 * value for name, value in module.scaling.items()}

    engine_has(patch, change)


@third("sync", shape="two iterations")
def last_update_of_a_step_not_sent(patch: Patch) -> None:
    """The engine gets the weights of before the last of a step's updates."""
    before: list[Any] = []

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            before[:] = [one.detach().clone() for one in optimizer.parameters]
            return original(optimizer, number)

        return step

    def change(model: Any, syncs: int, kept: Any) -> None:
        for one, old in zip(model.parameters(), before, strict=True):
            one.data = old.clone()

    patch.wrap("rlvr_core.step.optim:Optimizer.step", make)
    engine_has(patch, change)


# -- hang ----------------------------------------------------------------------------------------


@third("hang", "train", "optimizer", shape=SLOW)
def optimizer_hangs_in_the_third_step(patch: Patch) -> None:
    """The optimizer does not come back from its third update."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            if number == 2:
                time.sleep(FOREVER)
            return original(optimizer, number)

        return step

    patch.wrap("rlvr_core.step.optim:Optimizer.step", make)


@third("hang", "train", "reference", shape=SLOW)
def reference_hangs_in_the_second_step(patch: Patch) -> None:
    """The log-probs of the reference are not there in the second step."""
    made = [0]

    def make(original: Any) -> Any:
        def compute(*args: Any) -> Any:
            made[0] += 1
            if made[0] > 1:
                time.sleep(FOREVER)
            return original(*args)

        return compute

    patch.wrap("rlvr_core.step.step:PolicyTrainer._aux_logprobs", make)


@third("hang", "prompt", "data", shape=SLOW)
def a_prompt_is_never_rendered(patch: Patch) -> None:
    """The tokenizer does not come back from the fortieth prompt, before the run has a folder."""
    made = [0]

    def make(original: Any) -> Any:
        def render(renderer: Any, problem: Any) -> Any:
            made[0] += 1
            if made[0] == 40:
                time.sleep(FOREVER)
            return original(renderer, problem)

        return render

    patch.wrap("rlvr_core.data.prompts:Renderer.render", make)


@third("hang", "sync", "weights", "engine", shape=SLOW)
def engine_spins_at_the_second_sync(patch: Patch) -> None:
    """The engine computes for ever, without sleeping, when it is given weights a second time."""
    made = [0]

    def make(original: Any) -> Any:
        def load(engine: Any, version: int, source: Any) -> None:
            made[0] += 1
            while made[0] == 2:
                pass
            original(engine, version, source)

        return load

    patch.wrap(f"{ENGINE}:TransformersEngine.load_weights", make)


@third("hang", "hook", "plugin", shape=SLOW)
def a_hook_hangs_in_the_third_step(patch: Patch) -> None:
    """The hook of a plugin that watches steps does not come back from the third."""

    def make(original: Any) -> Any:
        def observe(host: Any, hook: str, event: Any) -> None:
            if hook == "step_finished" and event.step == 2:
                time.sleep(FOREVER)
            original(host, hook, event)

        return observe

    patch.wrap("rlvr_core.host.host:Host.observe", make)
