"""Promises of forward paths. N loss tokens of a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlvr_core.api import MicroBatch
from rlvr_core.builtin.conformance.engines import tiny_context
from rlvr_core.builtin.conformance.subject import Check, Subject, Unchecked, demand

if TYPE_CHECKING:
    from torch import Tensor


def _batch() -> MicroBatch:
    """Return three rows of different lengths for two prompts; not all tokens are trained."""
    import torch

    from rlvr_core.api.services import Row, micro_batches

    texts = [((3, 4, 5, 6), 4), ((3, 4, 5, 6), 7), ((11, 12), 5)]
    rows = []
    for i, (prompt, n) in enumerate(texts):
        ids = tuple((17 * (i + 1) + 5 * t) % 200 for t in range(n))
        mask = tuple(t != 2 for t in range(n))
        rows.append(Row(prompt, ids, mask, (0.0,) * n, 0.0))
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000, device=torch.device("cpu"))
    return batch


def _expected(module: Any, batch: MicroBatch) -> Tensor:
    """Return the module's own (N, ...) output, row by row and without padding."""
    import torch

    found = []
    for row in range(len(batch.completion_len_B)):
        prompt = int(batch.prompt_of_row_B[row])
        length = int(batch.prompt_len_S[prompt])
        answer = batch.completion_ids_BT[row, : int(batch.completion_len_B[row])]
        ids = torch.cat([batch.prompt_ids_SP[prompt, :length], answer])
        output = module(input_ids=ids[None], use_cache=False)[0][0]
        places = batch.mask_BT[row].nonzero()[:, 0]
        found.append(output[length + places - 1])
    return torch.cat(found)


def _model(subject: Subject) -> Any:
    model = tiny_context(subject.folder).model
    assert model is not None
    return model.train(False)


def _path(subject: Subject, model: Any) -> Any:
    from rlvr_core.api.services import WHOLE_MODEL

    demand(callable(subject.component), f"it is a {type(subject.component).__name__}, no function")
    path = subject.component(model, WHOLE_MODEL)
    if path is None:
        raise Unchecked(f"it does not take a {type(model).__name__} on a CPU")
    return path


def _pairs(subject: Subject, model: Any) -> list[tuple[str, Tensor, Tensor]]:
    """Return the outputs of the path and of the model, for hidden states and logits."""
    import torch

    path, batch = _path(subject, model), _batch()
    pairs = []
    for name, module in (("hidden states", model.model), ("logits", model)):
        got = path.predict(batch, module, dtype=torch.float32, compiled=False)
        if got is not None:
            pairs.append((name, got, _expected(module, batch)))
    if not pairs:
        raise Unchecked("it cannot compute this micro-batch")
    return pairs


def path_has_the_models_numbers(subject: Subject) -> None:
    """Compare the path's output with the model's own, computed row by row."""
    for name, got, expected in _pairs(subject, _model(subject)):
        shapes = (tuple(got.shape), tuple(expected.shape))
        demand(shapes[0] == shapes[1], f"{name} have the shape {shapes[0]}, not {shapes[1]}")
        relative_error = float((got - expected).detach().norm() / expected.detach().norm())
        demand(
            relative_error < 1e-3,
            f"{name} differ from the model's own by {relative_error:.2g} of their size",
        )


def path_has_the_models_gradients(subject: Subject) -> None:
    """Check that the weights get the same gradients as without the path."""
    import torch

    model = _model(subject)
    for name, *sides in _pairs(subject, model):
        weights = list(model.model.parameters())
        grads = []
        for side in sides:
            demand(side.requires_grad, f"{name} have no graph: nothing would be trained")
            found = torch.autograd.grad(side.square().sum(), weights, allow_unused=True)
            grads.append(torch.cat([g.flatten() for g in found if g is not None]))
        same = grads[0].shape == grads[1].shape
        demand(same, f"the gradient of {name} does not reach every weight")
        apart = float((grads[0] - grads[1]).norm() / grads[1].norm())
        demand(apart < 1e-3, f"the gradient of {name} differs from the model's by {apart:.2g}")


def path_leaves_others_alone(subject: Subject) -> None:
    """Check that a model of an unknown class keeps its own forward."""
    import torch

    from rlvr_core.api.services import WHOLE_MODEL

    class Unheard(torch.nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            return ids

    found = subject.component(Unheard(), WHOLE_MODEL)
    demand(found is None, "it takes a model of which it knows nothing: return None unless certain")


FORWARD_PATH_CHECKS: tuple[Check, ...] = (
    Check("numbers", "it gives the model's own numbers", path_has_the_models_numbers),
    Check("gradients", "it gives the model's own gradients", path_has_the_models_gradients),
    Check("doubt", "a model of unknown make is left alone", path_leaves_others_alone),
)
