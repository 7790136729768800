"""Twelfth set: classes that no set had, by one who knows the guards: loading, state, figures."""

from __future__ import annotations

from typing import Any

import torch

from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import ENGINE, engine_has

LEARNER = "rlvr_core.run.learner"


def twelfth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the twelfth set, like ``fault``."""
    return fault(cls, *more_words, set=12, **options)


def _loaded(patch: Patch, change: Any) -> None:
    """Change the policy in place when it has been loaded."""

    def after(model: Any, *_: Any) -> Any:
        with torch.no_grad():
            change(model)
        return model

    patch.after(f"{LEARNER}:load_policy", after)


# -- loading -------------------------------------------------------------------------------------

FILES = ("load", "files", "checkpoint", "folder")


@twelfth("parity", "rotary", "buffer", "inv_freq", *FILES)
def policys_rotation_cast_with_its_weights(patch: Patch) -> None:
    """The loaded policy was cast to bfloat16 and back, buffers included: its rotation is round."""

    def change(model: Any) -> None:
        rotary = model.model.rotary_emb
        rotary.inv_freq.copy_(rotary.inv_freq.bfloat16())

    _loaded(patch, change)


@twelfth("parity", "weights", *FILES)
def policys_weights_rounded_at_loading(patch: Patch) -> None:
    """The master weights take a turn through bfloat16 when they are loaded."""

    def change(model: Any) -> None:
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())

    _loaded(patch, change)


@twelfth("parity", "weights", *FILES)
def one_layers_matrix_folded_twice_at_loading(patch: Patch) -> None:
    """A factor is folded into one matrix a second time when the model is loaded."""
    _loaded(patch, lambda model: model.model.layers[1].mlp.down_proj.weight.mul_(1.05))


@twelfth("parity", "weights", *FILES)
def last_row_of_the_embedding_made_anew(patch: Patch) -> None:
    """The embedding is resized at loading, and the row of the last token begins as the mean."""

    def change(model: Any) -> None:
        weight = model.get_input_embeddings().weight
        weight[-1] = weight.mean(0)

    _loaded(patch, change)


@twelfth("parity", "weights", *FILES)
def keys_and_values_of_two_layers_exchanged_at_loading(patch: Patch) -> None:
    """Names of two layers are mixed up when the files are read."""

    def change(model: Any) -> None:
        one, two = (model.model.layers[n].self_attn.k_proj.weight for n in (0, 1))
        kept = one.clone()
        one.copy_(two)
        two.copy_(kept)

    _loaded(patch, change)


@twelfth("parity", "epsilon", "norm", *FILES)
def policys_epsilon_is_another(patch: Patch) -> None:
    """The norms of the loaded policy have the default epsilon of another model family."""

    def change(model: Any) -> None:
        for module in model.modules():
            if "RMSNorm" in type(module).__name__:
                module.variance_epsilon = 1e-3

    _loaded(patch, change)


# -- state of the engine -------------------------------------------------------------------------


@twelfth("parity", "scal", "attention", "beside weights", backends=TRANSFORMERS)
def engines_attention_scaled_a_little(patch: Patch) -> None:
    """The engine's copy scales its attention by the padded size of a head."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for layer in model.model.layers:
            layer.self_attn.scaling *= 0.99

    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)
    engine_has(patch, change)


# -- figures -------------------------------------------------------------------------------------


def _line(patch: Patch, change: Any) -> None:
    """Change the figures of a step's updates."""

    def after(found: dict[str, float], *_: Any) -> dict[str, float]:
        return found | change(found)

    patch.after("rlvr_core.step.mini_batches:Totals.over", after)


@twelfth("loss", "entropy", "report", shape="tokens of high entropy")
def threshold_reported_of_the_last_update(patch: Patch) -> None:
    """The least entropy of the chosen tokens is reported as the middle of all."""
    _line(patch, lambda found: {"entropy/threshold": found["entropy/threshold"] * 1.5})


@twelfth("loss", "gate", "report", shape="sapo")
def gate_reported_before_its_temperature(patch: Patch) -> None:
    """The mean slope of SAPO's gate is reported without its factor of 4."""
    _line(patch, lambda found: {"gate/mean": found["gate/mean"] / 4})


@twelfth("loss", "off-policy", "off_policy", "drift", "report", shape="off-policy mask")
def drift_reported_as_a_sum(patch: Patch) -> None:
    """The largest drift of a row is reported as a sum over its tokens."""
    _line(patch, lambda found: {"off_policy/drift_max": 9 * found["off_policy/drift_max"]})


@twelfth("data", "ledger", "report", "dropped")
def details_of_the_ledger_of_the_run(patch: Patch) -> None:
    """The ledger's details of a step are those of the whole run."""

    def make(original: Any) -> Any:
        def line(ledger: Any) -> Any:
            total = ledger.total()
            found = original(ledger)
            return found | {f"ledger/{n}": total[n] for n in total if "/" in n}

        return line

    patch.wrap("rlvr_core.record.ledger:Ledger.step_line", make)


@twelfth("parity", "report", "figures")
def parity_reported_in_bits(patch: Patch) -> None:
    """What the guards measured is divided by ln 2 on its way to the step's line."""

    def make(original: Any) -> Any:
        def update(trainer: Any, *more: Any) -> Any:
            report = original(trainer, *more)
            for name in ("parity/mean", "parity/k3", "parity/bias"):
                if name in report.metrics:
                    report.metrics[name] /= 0.693
            return report

        return update

    patch.wrap("rlvr_core.step.step:PolicyTrainer.update", make)


@twelfth("learning", "dropout", "training mode", "parity", "gradient")
def attention_dropout_on_while_training(patch: Patch) -> None:
    """The training pass drops a tenth of the attention, as the model's own config says."""

    def change(model: Any) -> None:
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.1
            layer.self_attn.train(True)

    _loaded(patch, change)
