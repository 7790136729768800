"""The trainer's side of a weight sync: the stream of weights, and the probe that they arrived."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr_core.api import Adapter, RunError, WeightSource
from rlvr_core.parallel.model_adapter import adapter_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """The weights of a module, straight from its parameters.

    Attributes:
        module: The trainer's model. Parameters may be sharded (FSDP); then every rank has to
            iterate, because gathering a shard is a collective.
    """

    module: PreTrainedModel

    @property
    def sharded(self) -> bool:
        """False: the whole model is in this process."""
        return False

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Full tensors by Hugging Face name, a tied weight once, adapters merged; no graph."""
        return adapter_of(self.module).merged_tensors(self.module)

    def adapter(self) -> Adapter:
        """The LoRA adapter alone."""
        return adapter_of(self.module).adapter(self.module)


@torch.no_grad()
def weight_checksums(
    tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype | None = None
) -> dict[str, int]:
    """Return a checksum over the bits of each tensor, read as integers, by its name.

    Its upper part, ``checksum >> 64``, is their sum: the same whatever the order of the elements,
    and sums of tensors that are put together add up. The lower 64 bits weigh rows and columns by
    their places, so that they change when elements change places. -0.0 counts as 0.0.

    Args:
        tensors: Whole tensors by name.
        dtype: What they are rounded to first; None for their own.
    """
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums: dict[str, Tensor] = {}
    for name, tensor in tensors:
        whole_RC = tensor.detach().flatten(1) if tensor.ndim > 1 else tensor.detach().view(-1, 1)
        row_sums, column_sums = list[Tensor](), list[Tensor]()
        # in parts that stay in a processor's cache
        most = 2**17 if tensor.device.type == "cpu" else 2**25
        rows = max(1, most // max(1, whole_RC.shape[1]))
        for part in whole_RC.split(rows):  # type: ignore[no-untyped-call]
            kept = (part.to(dtype or part.dtype) + 0).contiguous()
            bits = kept.view(integers[kept.element_size()]).long()
            row_sums.append(bits.sum(1))
            column_sums.append(bits.sum(0))
        row_R, column_C = torch.cat(row_sums), torch.stack(column_sums).sum(0)
        # sums of sums: each row and column counts as often as its number
        placed = row_R.flip(0).cumsum(0).sum() - 3**33 * column_C.flip(0).cumsum(0).sum()
        sums[name] = torch.stack([row_R.sum(), placed])
    # one transfer from the device
    found = torch.stack([one.cpu() for one in sums.values()]).tolist() if sums else []
    return {name: (a << 64) + b % 2**64 for name, (a, b) in zip(sums, found, strict=True)}


def model_state(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a module computes with beside its parameters, by name.

    Buffers, but for those of rotations that follow the length of what was computed last; and the
    numbers of its layers, such as an epsilon or a scale, of all layers of a class together.
    """
    numbers: dict[str, list[float]] = {}
    for owner, layer in module.named_modules():
        if ".lora_" in owner or re.search("dynamic|longrope", str(vars(layer).get("rope_type"))):
            continue
        buffers = layer.named_buffers(owner, recurse=False)
        yield from (one for one in buffers if one[1].is_floating_point())
        for name, value in vars(layer).items():
            if isinstance(value, float):
                numbers.setdefault(f"{type(layer).__name__}.{name}", []).append(value)
    yield from ((name, torch.tensor(some, dtype=torch.float64)) for name, some in numbers.items())


PROBE_TOKENS = 4
"""Tokens sampled by a probe."""

_MEAN_BAND = {torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.1}
# mean |difference| in nats over PROBE_TOKENS tokens. float32 engines differ by about 1e-5 on a
# CPU; TF32 in the trainer's matrix products reaches 1e-3 on a GPU. bfloat16 itself costs 0.03 on
# average: the band only has to tell rounding from old weights.
_TF32_BAND = 2e-2


def probe_prompt(tokenizer: PreTrainedTokenizerBase, vocab: int, length: int) -> tuple[int, ...]:
    """A fixed prompt of ordinary tokens.

    Longer than two cache blocks, it also shows a prefix cache that survived an update: the
    previous probe left its blocks there.

    Args:
        tokenizer: Tells special tokens from ordinary ones.
        vocab: Rows of the embedding; ids stay below it.
        length: Tokens wanted.
    """
    special = set(tokenizer.all_special_ids)
    known = range(min(len(tokenizer), vocab))
    ordinary = [token for token in known if token not in special] or list(range(vocab))
    return tuple(ordinary[(position * 7919 + 5) % len(ordinary)] for position in range(length))


@torch.no_grad()
def trainer_logprobs(
    module: PreTrainedModel,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    dtype: torch.dtype,
) -> list[float]:
    """The trainer's log-prob of each of ``token_ids`` after ``prompt_ids``, at temperature 1.

    Args:
        module: The trainer's model.
        prompt_ids: The prompt.
        token_ids: What was sampled after it.
        dtype: Compute precision of the run.
    """
    device = next(module.parameters()).device
    ids_1S = torch.tensor([[*prompt_ids, *token_ids]], device=device)
    autocast = torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)
    with evaluating(module), autocast:
        logits_1SV = module(
            input_ids=ids_1S, use_cache=False, logits_to_keep=len(token_ids) + 1
        ).logits
    logp_TV = logits_1SV[0, -len(token_ids) - 1 : -1].float().log_softmax(-1)
    target_T1 = ids_1S[0, -len(token_ids) :, None]
    logprobs: list[float] = logp_TV.gather(-1, target_T1)[:, 0].tolist()
    return logprobs


def source_logprobs(
    source: WeightSource, prompt_ids: Sequence[int], token_ids: Sequence[int], dtype: torch.dtype
) -> list[float]:
    """Return ``trainer_logprobs`` of a source's model. A collective if it is sharded."""
    if not source.sharded:
        return trainer_logprobs(source.module, prompt_ids, token_ids, dtype)
    sharded: Any = source
    return list(sharded.logprobs(prompt_ids, token_ids))


def check_probe(
    engine: Sequence[float],
    trainer: Sequence[float],
    dtype: torch.dtype,
    device: torch.device,
    version: int,
    *,
    name: str = "engine",
) -> None:
    """Compare an engine's log-probs of a probe with the trainer's.

    Raises:
        RunError: If they differ by more than rounding: weights did not arrive, or a cache built
            under older ones was used.
    """
    tf32 = dtype == torch.float32 and device.type == "cuda"
    band = _TF32_BAND if tf32 else _MEAN_BAND[dtype]
    apart = [abs(ours - theirs) for ours, theirs in zip(engine, trainer, strict=True)]
    mean = sum(apart) / max(len(apart), 1)
    if not mean <= band:  # a NaN fails too
        raise RunError(
            f"weight sync to version {version}: {name} and trainer disagree by {mean:.3g} nats on "
            f"a probe of {len(apart)} tokens (band {band:g} for {dtype})",
            remedy=(
                "the engine did not take all weights, or kept a cache of the old ones",
                "run with engine: transformers to go on, and report model and vLLM version",
            ),
        )


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Switch training off in the block; the flags of all layers are restored after it."""
    training = [child for child in module.modules() if child.training]
    module.eval()
    try:
        yield
    finally:
        for child in training:
            child.training = True
