"""Loads the policy, its tokenizer and the frozen reference, and says plainly what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import MachineError, one_line
from rlvr_core.step.forward_paths import choose_forward_paths

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlvr_core.config.model import ModelSection

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class Precision:
    """The run's one precision plan: float32 master weights, ``compute`` everywhere else."""

    compute: torch.dtype

    @property
    def autocast(self) -> torch.dtype | None:
        """The dtype of autocast regions, or None when everything is float32."""
        return None if self.compute == torch.float32 else self.compute


def load_tokenizer(
    path: str, section: ModelSection, where: str = "model.path"
) -> PreTrainedTokenizerBase:
    """The tokenizer that goes with the model; ``where`` says where the user named it.

    Raises:
        MachineError: If it cannot be loaded.
    """
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = _loaded("tokenizer", AutoTokenizer, path, section, where)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # Transformers makes one of no files
        raise _unloadable("tokenizer", path, ValueError("its files are missing"), where)
    return tokenizer


def max_positions(path: str, section: ModelSection) -> int:
    """Tokens the model can attend to, prompt and answer together; 2048 if its config does not say.

    Raises:
        MachineError: If its config cannot be loaded.
    """
    return stated_positions(path, section) or 2048


def stated_positions(path: str, section: ModelSection) -> int | None:
    """Tokens the model can attend to, as its config says; None if it does not.

    A scaled RoPE counts as far as it was scaled, whether or not the number beside it knows.

    Raises:
        MachineError: If its config cannot be loaded.
    """
    from transformers import AutoConfig

    inner = _loaded("config", AutoConfig, path, section).get_text_config()
    names = ("max_position_embeddings", "n_positions", "n_ctx")
    given = next((n for name in names if (n := getattr(inner, name, None))), None)
    if given is None:
        return None
    positions = int(given)
    rope = getattr(inner, "rope_parameters", None) or {}
    rope = rope.get("full_attention") or rope  # of models with local layers beside them
    if rope.get("rope_type") in ("linear", "dynamic", "yarn"):
        trained = rope.get("original_max_position_embeddings") or positions
        positions = max(positions, int(trained * rope.get("factor", 1.0)))
    return positions


def load_policy(
    path: str, section: ModelSection, device: torch.device, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """The model with float32 master weights on ``device``, every weight accounted for.

    In the ``dtype`` of its files, it takes no memory on a CPU until it is changed.

    Raises:
        MachineError: If it cannot be loaded, or if the files lack a weight the architecture has
            (a model must never start from random weights unnoticed).
    """
    from transformers import AutoModelForCausalLM

    options: Any = {"attn_implementation": section.attention, "output_loading_info": True}
    model, info = _loaded("model", AutoModelForCausalLM, path, section, dtype=dtype, **options)
    _all_weights_found(path, info)
    policy: PreTrainedModel = model.to(device)
    # dropout is off in RL: the ratio needs the same function twice
    policy.requires_grad_(True).train(False)
    choose_forward_paths(policy, section.forward_paths)
    return policy


def enable_checkpointing(model: PreTrainedModel, which: str = "all") -> None:
    """Recompute activations layer by layer in the backward pass.

    transformers does so only in layers whose ``training`` flag is set. It is set on the layers
    themselves and not on what is inside them, so that dropout stays off.

    Args:
        model: The policy.
        which: ``train.gradient_checkpointing``: ``auto``, ``none``, ``all`` or ``every-N``.

    Raises:
        MachineError: If the model has no layers that know how.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    if which in ("auto", "none"):  # a choice is made for a GPU alone
        return
    every = 1 if which == "all" else int(which.removeprefix("every-"))
    model.gradient_checkpointing_enable(every_n_layers=every)
    # hooks for reentrant checkpoints, which these are not; a model that has them is not pickled
    model.disable_input_require_grads()  # type: ignore[no-untyped-call]
    layers = [
        module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
    if not layers:
        raise MachineError(
            f"{type(model).__name__} cannot recompute activations",
            where="train.gradient_checkpointing",
            remedy="set it to none",
        )
    for layer in layers:
        layer.training = True


def load_reference(
    path: str, section: ModelSection, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """A reference without gradients: the weights of ``model.path``, also after a resume."""
    frozen: PreTrainedModel = load_policy(path, section, device, dtype).to(dtype)  # type: ignore[arg-type]
    return frozen.requires_grad_(False)


def _all_weights_found(path: str, info: dict[str, Any]) -> None:
    missing = sorted(info.get("missing_keys", ()))
    mismatched = sorted(str(key) for key in info.get("mismatched_keys", ()))
    if missing or mismatched:
        shown = ", ".join((missing + mismatched)[:3])
        raise MachineError(
            f"model '{path}' lacks {len(missing)} weights and has {len(mismatched)} of the wrong "
            f"shape: {shown}",
            where="model.path",
            remedy="the files and config.json do not belong together; export the model again",
        )


def _loaded(
    what: str, auto: Any, path: str, section: ModelSection, where: str = "model.path", **more: Any
) -> Any:
    """Load the model's files by one of the Auto classes of transformers."""
    more |= {"revision": section.revision, "trust_remote_code": section.trust_remote_code}
    try:
        return auto.from_pretrained(path, **more)
    except Exception as error:
        raise _unloadable(what, path, error, where) from error


def _unloadable(what: str, path: str, error: Exception, where: str = "model.path") -> MachineError:
    return MachineError(
        f"the {what} of '{path}' cannot be loaded: {one_line(error)}",
        where=where,
        remedy="a hub id needs the network or a filled cache; of a folder, rlvr models check PATH "
        "says what is missing or damaged: download or copy that again",
    )
