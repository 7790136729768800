"""Updates are wrong, smaller than they seem, or not made."""

from __future__ import annotations

import math
from typing import Any

from tests.together.chaos.changes import OPTIM, after_update, before_update, frozen
from tests.together.chaos.registry import BOTH, TWO, Patch, fault


@fault("updates", "idle", backends=BOTH)
def learning_rate_zero(patch: Patch) -> None:
    """The schedule gives a learning rate of 0."""
    patch.after(f"{OPTIM}:learning_rate", lambda *_: 0.0)


@fault("updates", "optimizer")
def learning_rate_hundredfold(patch: Patch) -> None:
    """The learning rate is a hundred times that of the config."""
    patch.after(f"{OPTIM}:learning_rate", lambda rate, *_: 100 * rate)


@fault("updates", "optimizer")
def warm_up_counts_completions(patch: Patch) -> None:
    """The warm-up is in completions, where the config has steps: 64 of these are one of them."""
    patch.after(
        f"{OPTIM}:learning_rate",
        lambda rate, train, schedule, step: rate * min(1.0, (step + 1) / 64),
    )


@fault("updates", "optimizer", "idle", backends=BOTH)
def optimizer_updates_a_copy(patch: Patch) -> None:
    """The optimizer updates a copy of the weights."""
    frozen(patch, lambda name: True)


@fault("updates", "optimizer")
def one_tensor_frozen(patch: Patch) -> None:
    """One projection of many is put back after each update."""
    frozen(patch, lambda name: name.endswith("layers.0.self_attn.k_proj.weight"))


@fault("updates", "optimizer", shape="lora")
def second_matrices_of_adapters_frozen(patch: Patch) -> None:
    """The second matrices of the adapters stay 0."""
    frozen(patch, lambda name: "lora_B" in name)


@fault("updates", "optimizer", shape="small lr")
def master_weights_rounded(patch: Patch) -> None:
    """Master weights are rounded to bfloat16 after each update, at a learning rate of 1e-6."""
    after_update(patch, lambda name, new, old: new.copy_(new.bfloat16().float()))


@fault("optimizer")
def gradients_never_cleared(patch: Patch) -> None:
    """Gradients of all steps pile up."""
    kept: dict[str, Any] = {}

    def pile(optimizer: Any, number: int) -> None:
        for name, parameter in zip(optimizer.names, optimizer.parameters, strict=True):
            if parameter.grad is not None:
                kept[name] = kept.get(name, 0) + parameter.grad.clone()
                parameter.grad.copy_(kept[name])

    before_update(patch, pile)


@fault("optimizer")
def moments_forgotten_each_step(patch: Patch) -> None:
    """The optimizer forgets its moments after each update."""
    before_update(patch, lambda optimizer, number: optimizer.inner.state.clear())


@fault("optimizer")
def every_update_twice(patch: Patch) -> None:
    """Every update is applied twice, and counted once."""
    after_update(patch, lambda name, new, old: new.add_(new - old))


@fault("optimizer", "tokens", shape="micro batches")
def last_micro_batch_alone(patch: Patch) -> None:
    """Each micro-batch's gradient overwrites that of the one before."""

    def make(original: Any) -> Any:
        def backward(self: Any, loss: Any) -> None:
            self.inner.zero_grad(set_to_none=True)
            original(self, loss)

        return backward

    patch.wrap(f"{OPTIM}:Optimizer.backward", make)


@fault("optimizer", shape="tight norm")
def norm_clipped_tensor_by_tensor(patch: Patch) -> None:
    """Each tensor's gradient is clipped to the norm by itself; the norm of all is reported."""

    def make(original: Any) -> Any:
        def clip(parameters: Any, most: float, *args: Any, **options: Any) -> Any:
            tensors = list(parameters)
            norm = original(tensors, math.inf, *args, **options)
            for tensor in tensors:
                original([tensor], most, *args, **options)
            return norm

        return clip

    patch.wrap("torch.nn.utils:clip_grad_norm_", make)


@fault("optimizer", "sync", "updates", backends=TWO)
def gradients_never_summed_over_processes(patch: Patch) -> None:
    """Each process makes its updates of its own rows: no pass counts as the last one."""

    def make(original: Any) -> Any:
        return lambda parallel, model, *, last: original(parallel, model, last=False)

    patch.wrap("rlvr_core.parallel.model:ParallelModel.accumulating", make)


@fault("collapse", "updates", config={"train": {"lr": 0.1, "warmup_steps": 30, "steps": 40}})
def learning_rate_far_too_high(patch: Patch) -> None:
    """The config's learning rate breaks the model as the warm-up goes on."""
    patch.hit()
