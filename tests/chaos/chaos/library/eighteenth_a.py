"""Eighteenth set, written without reading the guards: packing, adapters, turns, gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import DECODE

PACKED = "rlvr_core.builtin.packing.packed"
JOINED = "rlvr_core.builtin.packing.joined_attention"
LORA = "rlvr_core.builtin.lora.lora"
TURNS = "rlvr_core.builtin.environments.turns:TurnTaking"
BUFFER = "rlvr_core.builtin.asynchronous.buffer:GroupBuffer"
SCALE = 128.0
"""A loss scale that is left on."""
MOST = 6
"""Groups of eight with which a step begins."""


def eighteenth(
    cls: str, *more_words: str, **options: Any
) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the eighteenth set, like ``fault``."""
    return fault(cls, *more_words, set=18, **options)


# -- parity --------------------------------------------------------------------------------------


@eighteenth("parity", "position", "rotary", "attention", "precision",
            shape="very long prompts, two kinds of reward", backends=EVERYWHERE)  # fmt: skip
def positions_counted_in_half_precision(patch: Patch) -> None:
    """The trainer's positions pass through bfloat16: above 256 they stand still and then jump."""

    def after(found: Any, *_: Any) -> Any:
        ids_N, position_N = found
        return ids_N, position_N.bfloat16().long()

    patch.after(f"{PACKED}:packed_tokens", after)


@eighteenth("parity", "precision", "round", "bfloat16", "importance", "log-?prob",
            shape="truncated importance", backends=TRANSFORMERS)  # fmt: skip
def log_probs_reported_in_half_precision(patch: Patch) -> None:
    """The engine's log-probs reach the trainer as bfloat16, which leaves them eight bits."""

    def after(found: Any, *_: Any) -> Any:
        token_B, logp_B = found
        return token_B, logp_B.bfloat16().float()

    patch.after(f"{DECODE}:sample", after)


@eighteenth("parity", "padd", "attention", r"\bpack", "prompt", shape="prompts of many lengths",
            backends=TRANSFORMERS)  # fmt: skip
def trainer_attends_to_the_holes_of_its_grid(patch: Patch) -> None:
    """Rows of a shorter prompt look at the empty places behind it, up to the longest one's end."""

    def after(mask: Any, *_: Any) -> None:
        return None

    patch.after(f"{JOINED}:JoinedMask.mask_as", after)


@eighteenth("parity", "dropout", "adapter", "lora",
            shape="lora, dropout, recomputed activations")  # fmt: skip
def what_dropout_leaves_is_not_scaled_up(patch: Patch) -> None:
    """A fused dropout zeroes a fifth of an adapter's input, and leaves the rest at its size."""

    def after(found: Any, module: Any, *_: Any) -> Any:
        return found * (1 - module.p) if module.training else found

    patch.after("torch.nn.modules.dropout:Dropout.forward", after)


@eighteenth("parity", "adapter", "lora", "dora", "magnitude", "parameter", "peft",
            shape="lora")  # fmt: skip
def magnitudes_of_columns_are_trained_beside_the_adapter(patch: Patch) -> None:
    """A library's newer default is on: adapters have magnitudes, which are trained, too."""

    def make(original: Any) -> Any:
        return lambda **options: original(**{**options, "use_dora": True})

    patch.wrap("peft:LoraConfig", make)


# -- sync ----------------------------------------------------------------------------------------


@eighteenth("sync", "parity", "disagree", "cache", "stale", backends=TRANSFORMERS,
            dtypes=("float32",))  # fmt: skip
def fused_copies_of_matrices_are_made_once(patch: Patch) -> None:
    """The engine joins matrices of a layer into one, and keeps those of before training."""
    kept: dict[int, list[tuple[Any, Any]]] = {}

    def after(made: None, decoder: Any) -> None:
        layers = decoder._layers
        fused = [(one.qkv_QH.detach().clone(), one.gate_up_IH.detach().clone()) for one in layers]
        first = kept.setdefault(id(decoder._lean.model), fused)
        decoder._layers = [
            replace(layer, qkv_QH=qkv_QH, gate_up_IH=gate_up_IH)
            for layer, (qkv_QH, gate_up_IH) in zip(layers, first, strict=True)
        ]

    patch.after("rlvr_core.builtin.tiny.lean_decode:LeanDecoder.renew", after)


# -- sampler -------------------------------------------------------------------------------------


@eighteenth("sampler", "calibrat", "filter", "parity", shape="top p")
def top_p_keeps_three_tokens_at_least(patch: Patch) -> None:
    """A sampler's option for beams is left on: top-p never leaves fewer than three tokens."""

    def make(original: Any) -> Any:
        def filtered(logits_BV: Any, top_k_B1: Any, top_p_B1: Any) -> None:
            best_B3, place_B3 = logits_BV.topk(3, dim=-1)
            original(logits_BV, top_k_B1, top_p_B1)
            logits_BV.scatter_(-1, place_B3, best_B3)

        return filtered

    patch.wrap(f"{DECODE}:_filter", make)


# -- seeds ---------------------------------------------------------------------------------------


@eighteenth("seeds", "world", "environment", "observation", "duplicate", "same question",
            shape="two turns", backends=TRANSFORMERS)  # fmt: skip
def every_world_has_the_same_seed(patch: Patch) -> None:
    """Environments are reset with a constant: what they ask second is always the same."""

    def make(original: Any) -> Any:
        def call(taking: Any, one: Any, made: Any, *then: Any) -> Any:
            if made.what == "start":
                made = replace(made, argument=0)
            return original(taking, one, made, *then)

        return call

    patch.wrap(f"{TURNS}._call", make)


# -- tokens, masks -------------------------------------------------------------------------------


@eighteenth("tokens", "stop string", r"\bends?\b", shape="stop string",
            backends=TRANSFORMERS)  # fmt: skip
def stop_strings_looked_for_at_every_fourth_token(patch: Patch) -> None:
    """The engine decodes every fourth token only: up to three more stand behind a stop string."""

    def found(original: Any) -> Any:
        def looked_for(strings: Any, stops: Any, token_ids: Any) -> bool:
            if len(token_ids(1 << 62)) % 4:
                return False
            return bool(original(strings, stops, token_ids))

        return looked_for

    def candidates(mask_V: Any, *_: Any) -> Any:
        return torch.ones_like(mask_V)  # a string may have been completed some tokens before

    patch.wrap("rlvr_core.engines.sampling:StopStrings.found", found)
    patch.after("rlvr_core.engines.sampling:StopStrings.candidates", candidates)


@eighteenth("tokens", "turn", "max_turn_tokens", r"\bcap\b", "limit", "longer", "length",
            shape="two turns, short ones", backends=TRANSFORMERS)  # fmt: skip
def limit_of_a_turn_is_that_of_the_conversation(patch: Patch) -> None:
    """A turn may take all that is left of the conversation: its own limit is not handed on."""

    def make(original: Any) -> Any:
        def ask(taking: Any, group: Any) -> Any:
            for one in group:
                one.limit = one.room(text_only=taking._text_only)
            return original(taking, group)

        return ask

    patch.wrap(f"{TURNS}._ask", make)


@eighteenth("masks", r"\brows?\b", "micro-?batch", "budget", "left out",
            shape="a budget below the longest rows", backends=EVERYWHERE)  # fmt: skip
def rows_above_the_budget_left_out(patch: Patch) -> None:
    """A packer skips what alone does not fit into a micro-batch, and gives it none of its own."""

    def make(original: Any) -> Any:
        def micro_batches(rows: Any, *, tokens_per_micro_batch: int, **more: Any) -> Any:
            fitting = [
                row
                for row in rows
                if len(row.prompt_ids) + len(row.token_ids) <= tokens_per_micro_batch
            ]
            return original(fitting or rows, tokens_per_micro_batch=tokens_per_micro_batch, **more)

        return micro_batches

    patch.wrap("rlvr_core.step.step:micro_batches", make)


# -- turns ---------------------------------------------------------------------------------------


@eighteenth("tokens", "turn", "environment", "conversation", "max_turns", "not finished", "reward",
            "verdict", shape="two turns, short ones", backends=TRANSFORMERS)  # fmt: skip
def conversations_end_a_turn_early(patch: Patch) -> None:
    """Turns are counted from 1 in one place, from 0 in another: the last is never asked for."""

    def make(original: Any) -> Any:
        def answered(taking: Any, one: Any, answer: Any) -> None:
            if "done" not in answer and one.n_turns + 1 >= taking._section.max_turns:
                one.counts.update(answer["counts"])
                taking._end(one, "max_turns")
                return
            original(taking, one, answer)

        return answered

    patch.wrap(f"{TURNS}._answered", make)


@eighteenth("verifier", "environment", "conversation", "turn", "repl(y|ies)", "verdict",
            shape="two turns", backends=TRANSFORMERS)  # fmt: skip
def environment_hears_the_first_reply_again(patch: Patch) -> None:
    """What the environment is given is the first message of the model, whichever turn it is."""
    first: dict[int, str] = {}

    def make(original: Any) -> Any:
        def call(taking: Any, one: Any, made: Any, *then: Any) -> Any:
            if made.what == "step":
                text = first.setdefault(one.number, made.argument.text)
                made = replace(made, argument=replace(made.argument, text=text))
            return original(taking, one, made, *then)

        return call

    patch.wrap(f"{TURNS}._call", make)


@eighteenth("verifier", "environment", "conversation", "turn", "state", "verdict", "world",
            shape="two turns", backends=TRANSFORMERS)  # fmt: skip
def members_of_a_group_share_one_state(patch: Patch) -> None:
    """One environment serves all conversations of a group: what one of them did, all have done."""

    def after(made: None, taking: Any, one: Any, *_: Any) -> None:
        with taking._changed:
            for other in taking._playing:
                if other.ticket is one.ticket and other.state is not None and one.state is not None:
                    other.state = one.state

    patch.after(f"{TURNS}._answered", after)


# -- generation ahead ----------------------------------------------------------------------------


@eighteenth("data", "wait", r"\bgroups?\b", "fewer", "incomplete", "partial", "stale",
            backends=("child",))  # fmt: skip
def steps_begin_when_most_groups_are_there(patch: Patch) -> None:
    """The trainer does not wait for the last two groups of a step: it trains on six of eight."""

    def after(ready: bool, buffer: Any, step: int) -> bool:
        return ready or buffer.count(step) >= MOST

    patch.after(f"{BUFFER}.ready", after)


@eighteenth("data", "abort", "draw", "sampler", "in_flight", "slow",
            shape="far ahead, aborted in flight, lora, small waves")  # fmt: skip
def aborted_draws_are_never_made_again(patch: Patch) -> None:
    """What a sync aborts is forgotten, and others are drawn: what is slow is seldom seen."""

    def make(original: Any) -> Any:
        def give_back(buffer: Any, draw: Any) -> None:
            buffer._flying.remove(draw.index)
            buffer._owed.pop(draw.index)

        return give_back

    patch.wrap(f"{BUFFER}.give_back", make)


# -- gradient ------------------------------------------------------------------------------------


@eighteenth("loss", "attention", "backward", "direction", backends=TRANSFORMERS)
def attention_goes_back_by_each_parts_own_softmax(patch: Patch) -> None:
    """Attention is joined of two parts; going back, each has its own sum in the place of both's."""

    def make(original: Any) -> Any:
        def backward(
            grad: Any,
            q: Any,
            k: Any,
            v: Any,
            out: Any,
            lse: Any,
            p: float,
            causal: bool,
            **more: Any,
        ) -> Any:
            flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
            _, own_lse = flash(q, k, v, p, causal, **more)
            return original(grad, q, k, v, out, own_lse, p, causal, **more)

        return backward

    patch.wrap(f"{JOINED}:_flash_backward", make)


class _EightBits(torch.autograd.Function):
    """The identity, whose gradient has eight bits (e5m2)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.to(torch.float8_e5m2).to(grad.dtype)


@eighteenth("loss", "precision", "eight bits", "round", "direction", "backward",
            backends=EVERYWHERE)  # fmt: skip
def gradient_of_hidden_states_in_eight_bits(patch: Patch) -> None:
    """A recipe for eight bits is left on without its scales: what the head sends back is e5m2."""

    def make(original: Any) -> Any:
        def logprobs(hidden_NH: Any, *args: Any, **more: Any) -> Any:
            return original(_EightBits.apply(hidden_NH), *args, **more)  # type: ignore[no-untyped-call]

        return logprobs

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


@eighteenth("optimizer", "norm", "clip", "scale", backends=EVERYWHERE)
def gradient_clipped_before_its_scale_is_taken_off(patch: Patch) -> None:
    """The loss is scaled up as for float16, and the gradient clipped before that is undone."""

    def backward(original: Any) -> Any:
        return lambda optimizer, loss: original(optimizer, SCALE * loss)

    def clip(original: Any) -> Any:
        def clipped(parameters: Any, *args: Any, **more: Any) -> Any:
            parameters = list(parameters)
            norm = original(parameters, *args, **more)
            for one in parameters:
                if one.grad is not None:
                    one.grad.div_(SCALE)
            return norm

        return clipped

    patch.wrap("rlvr_core.step.optim:Optimizer.backward", backward)
    patch.wrap("torch.nn.utils:clip_grad_norm_", clip)


# -- learning ------------------------------------------------------------------------------------


@eighteenth("learning", "adapter", "lora", "gradient", "zero", shape="lora", backends=EVERYWHERE)
def both_matrices_of_adapters_begin_at_zero(patch: Patch) -> None:
    """An adapter is made without its random first matrix: at 0 and 0 neither has a gradient."""

    @torch.no_grad()
    def after(made: None, model: Any, *_: Any) -> None:
        for name, parameter in model.named_parameters():
            if ".lora_A." in name:
                parameter.zero_()

    patch.after(f"{LORA}:attach", after)
