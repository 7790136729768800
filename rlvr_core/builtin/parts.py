"""Parts of the kernel in rooms of their own, as ``module:attribute``; see ``host.parts``.

They are no components: nothing in a config names them.
"""

from __future__ import annotations

LORA = "rlvr_core.builtin.lora.model_adapter:LORA"

FORWARD_PATHS = dict.fromkeys(
    ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
    "rlvr_core.builtin.tiny.lean_path:recognise_lean",
)
"""By class of the model, so that no other model on a CPU imports it."""

FUNCTIONS = {
    "verifier": "rlvr_core.builtin.verifiers.function:verifier_of",
    "dataset": "rlvr_core.builtin.datasets.function:dataset_of",
}
"""By kind, what makes a component class of a plain function."""
