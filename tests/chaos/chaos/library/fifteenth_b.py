"""Fifteenth set, written without reading the guards: objective, updates, resuming, figures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import after_update
from chaos.library.fifteenth_a import fifteenth
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch

OPTIM = "rlvr_core.step.optim"
POLICY = "rlvr_core.algorithm.policy:PolicyLoss"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
RESTORE = "rlvr_core.builtin.resumption.resumption:restore"
REPORTED = ("metric", "reported", "report", "record")
FAR = "far ahead, four updates a step"

# -- loss, KL ------------------------------------------------------------------------------------


@fifteenth("loss", "entropy", "temperature", shape="cool, with an entropy bonus",
           backends=EVERYWHERE)  # fmt: skip
def entropy_taken_before_the_temperature(patch: Patch) -> None:
    """The bonus is on the entropy at temperature 1, not on that of what is sampled from."""

    def make(original: Any) -> Any:
        def logprobs(*args: Any, temperature: float, **more: Any) -> Any:
            logp_N, _ = original(*args, temperature=temperature, **more)
            return logp_N, original(*args, temperature=1.0, **more)[1]

        return logprobs

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


@fifteenth("loss", "importance", "weight", "mismatch", "geometric", shape=FAR)
def importance_weight_of_a_row_without_its_root(patch: Patch) -> None:
    """The weight of a row is the product of its tokens' ratios, not their geometric mean."""

    def make(original: Any) -> Any:
        def weight(d_BT: Any, mask_BT: Any, mode: str) -> Any:
            return original(d_BT, mask_BT, mode.replace("_geo", "_truncate"))

        return weight

    patch.wrap("rlvr_core.algorithm.ratio:_log_weight", make)


@fifteenth("loss", "old log-?probs", "importance", "mismatch", "parity", "engine",
           shape="two iterations ahead")  # fmt: skip
def ratios_begin_at_the_engines_log_probs(patch: Patch) -> None:
    """Old log-probs are those that the engine reported: what is stale is clipped, not weighed."""

    def make(original: Any) -> Any:
        def loss(self: Any, batch: Any, normalizer: Any) -> Any:
            return original(self, replace(batch, old_logp_BT=batch.behaviour_logp_BT), normalizer)

        return loss

    patch.wrap(f"{POLICY}.__call__", make)


@fifteenth("loss", "clip", "geometric", "gmpo", shape="gmpo, a high rate, many updates",
           backends=("in process", "vllm"))  # fmt: skip
def gmpo_clips_the_mean_and_not_its_tokens(patch: Patch) -> None:
    """The clip is on the geometric mean of a row, which one token can take far, not on tokens."""
    from rlvr_core.algorithm.ratio import exp_linear, row_mean_log_ratio

    def make(original: Any) -> Any:
        def surrogate(loss: Any, terms: Any, tally: Any) -> Any:
            original(loss, terms, tally)
            advantage_B1 = terms.advantage_B1
            mean_B1 = row_mean_log_ratio(terms.log_ratio_BT, terms.mask_BT)
            clipped_B1 = torch.where(
                advantage_B1 > 0, mean_B1.clamp(max=loss._high), mean_B1.clamp(min=loss._low)
            )
            return (-advantage_B1 * exp_linear(clipped_B1)).expand_as(terms.log_ratio_BT)

        return surrogate

    patch.wrap("rlvr_core.builtin.losses.gmpo:GMPO.surrogate", make)


@fifteenth("loss", "given answer", "imitat", "sft", "denominator", "normali[sz]",
           shape="grpo and given answers", backends=EVERYWHERE)  # fmt: skip
def given_answers_divided_by_the_rows_of_completions(patch: Patch) -> None:
    """All losses of a step have one denominator, that of its completions."""

    def make(original: Any) -> Any:
        def split(parts: Any, n: int, normalizer: Any, pack: Any) -> Any:
            return original(parts, n, lambda part: normalizer(parts[0]), pack)

        return split

    patch.wrap("rlvr_core.step.step:split_into_mini_batches", make)


@fifteenth("loss", "teacher", "distil", "reference", shape="grpo and a teacher")
def teacher_is_the_policy_itself(patch: Patch) -> None:
    """Two models of one path are loaded once: the teacher has the policy's weights for ever."""

    def make(original: Any) -> Any:
        def aux(trainer: Any, part: Any, batch: Any) -> Any:
            terms = tuple(
                replace(term, teacher=term.teacher and replace(term.teacher, model=None))
                for term in part.terms
            )
            return original(trainer, replace(part, terms=terms), batch)

        return aux

    patch.wrap(f"{TRAINER}._aux_logprobs", make)


@fifteenth("kl", "entropy", "chosen", "loss", shape="tokens of high entropy", backends=EVERYWHERE)
def kl_on_the_chosen_tokens_alone(patch: Patch) -> None:
    """The choice of tokens by entropy masks the whole loss: others have no KL term either."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        return torch.where(terms.entropy_mask_BT, kl_BT, 0.0)

    patch.after(f"{POLICY}._kl", after)


@fifteenth("kl", "importance", "weight", "mismatch", shape=FAR)
def kl_weighed_as_the_surrogate_is(patch: Patch) -> None:
    """Importance weights are put on the whole loss of a token, and so on its KL term, too."""

    def after(kl_BT: Any, loss: Any, batch: Any, *_: Any) -> Any:
        drift_BT = torch.where(batch.mask_BT, batch.old_logp_BT - batch.behaviour_logp_BT, 0.0)
        return kl_BT * drift_BT.exp().clamp(max=3.0)

    patch.after(f"{POLICY}._kl", after)


@fifteenth("kl", "advantage", "return", "token", shape="reinforce++ with a strong kl",
           backends=EVERYWHERE)  # fmt: skip
def kl_of_a_row_all_at_its_end(patch: Patch) -> None:
    """The KL in the reward is paid at a row's last token: each return has all of the row's KL."""

    def after(kl_N: Any, *_: Any) -> Any:
        for kl_T in kl_N or ():
            total = kl_T.sum()
            kl_T[:] = 0.0
            kl_T[-1:] = total
        return kl_N

    patch.after(f"{TRAINER}._reference_kl", after)


@fifteenth("learning", "adapter", "lora", "layer", "gradient", "reference", "parity",
           shape="lora", backends=TRANSFORMERS)  # fmt: skip
def adapters_of_one_layer_stay_off_after_the_reference(patch: Patch) -> None:
    """Adapters are switched off for the reference, and those of the first layer never on again."""

    def make(original: Any) -> Any:
        @contextmanager
        def base(model: Any) -> Any:
            with original(model):
                yield
            for name, layer in model.named_modules():
                if ".layers.0." in f".{name}." and hasattr(layer, "enable_adapters"):
                    layer.enable_adapters(False)

        return base

    patch.wrap("rlvr_core.builtin.lora.lora:base", make)


# -- optimizer -----------------------------------------------------------------------------------


@fifteenth("optimizer", "clip", "norm", shape="tight norm", backends=EVERYWHERE)
def norm_is_measured_and_not_clipped(patch: Patch) -> None:
    """The norm of the gradient is measured for the records, and nobody scales the gradient."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            train = optimizer._train
            optimizer._train = train.model_copy(update={"max_grad_norm": None})
            try:
                return original(optimizer, number)
            finally:
                optimizer._train = train

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fifteenth("optimizer", "weights", "average", "back", backends=EVERYWHERE)
def lookahead_left_on(patch: Patch) -> None:
    """A wrapper takes weights halfway back to where they were, at every second update."""
    slow: dict[str, Any] = {}

    def change(name: str, one: Any, before: Any, made: int) -> None:
        slow.setdefault(name, before.clone())
        if made % 2:
            one.lerp_(slow[name], 0.5)
            slow[name] = one.detach().clone()

    after_update(patch, change)


class _Mini(torch.optim.Optimizer):
    """AdamW with one mean square a tensor."""

    def __init__(self, tensors: Sequence[Any], lr: float, config: Any) -> None:
        super().__init__(tensors, {"lr": lr})
        self._config = config

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update."""
        first, second = self._config.betas
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(one)
                    state["exp_avg_sq"] = torch.zeros_like(one)
                state["step"] += 1
                count = state["step"].item()
                mean = state["exp_avg"].lerp_(one.grad, 1 - first) / (1 - first**count)
                square = state["exp_avg_sq"].lerp_(one.grad.square().mean(), 1 - second)
                root = (square / (1 - second**count)).sqrt() + self._config.eps
                one.mul_(1 - group["lr"] * self._config.weight_decay)
                one.addcdiv_(mean, root, value=-group["lr"])


@fifteenth("optimizer", "square", "adam", backends=EVERYWHERE)
def one_mean_square_for_a_whole_tensor(patch: Patch) -> None:
    """An AdamW that saves memory is built: all numbers of a tensor share their mean square."""

    def make(original: Any) -> Any:
        def build(builder: Any, parameters: Any, lr: float) -> Any:
            return _Mini([one.tensor for one in parameters], lr, builder.config)

        return build

    patch.wrap(f"{OPTIM}:AdamW.build", make)


@fifteenth("optimizer", "embedding", "scale", "row", shape="own forward", backends=TRANSFORMERS)
def gradients_of_tokens_divided_by_their_number(patch: Patch) -> None:
    """The embedding divides the gradient of a row by how often its token is in a micro-batch."""

    def after(model: Any, *_: Any) -> Any:
        model.get_input_embeddings().scale_grad_by_freq = True
        return model

    patch.after("rlvr_core.run.learner:load_policy", after)


@fifteenth("optimizer", "decay", shape="weight decay, warm-up, cosine", backends=EVERYWHERE)
def weight_decay_never_reaches_the_optimizer(patch: Patch) -> None:
    """The optimizer is built without its weight decay, which stays at the default 0."""

    def make(original: Any) -> Any:
        def build(builder: Any, parameters: Any, lr: float) -> Any:
            config = builder.config.model_copy(update={"weight_decay": 0.0})
            return original(type(builder)(config), parameters, lr)

        return build

    patch.wrap(f"{OPTIM}:AdamW.build", make)


# -- resuming ------------------------------------------------------------------------------------


@fifteenth("resume", "version", "seed", shape="two iterations", resume=True)
def resume_with_the_version_counted_in_steps(patch: Patch) -> None:
    """A resumed run takes its step for the version, of which each step made four."""

    def after(made: Any, session: Any, *_: Any) -> None:
        session.version = session.step
        session.engine.load_weights(session.version, session.source)

    patch.after(RESTORE, after)


@fifteenth("resume", "dropout", "adapter", "lora", resume=True,
           shape="lora, dropout, recomputed activations")  # fmt: skip
def resume_with_the_adapters_dropout_left_off(patch: Patch) -> None:
    """An adapter is loaded for inference by default: a resumed run trains without its dropout."""

    def after(made: Any, session: Any, *_: Any) -> None:
        for name, one in session.trainer.model.named_modules():
            if "lora_dropout" in name and isinstance(one, torch.nn.Dropout):
                one.p = 0.0

    patch.after(RESTORE, after)


# -- figures -------------------------------------------------------------------------------------


@fifteenth("optimizer", only=(*REPORTED, "learning rate", r"\blr\b", "schedule"), shape="cosine")
def learning_rate_reported_of_the_next_step(patch: Patch) -> None:
    """The learning rate in the records is read when the schedule has moved on."""

    def after(found: Any, session: Any, *_: Any) -> Any:
        return found | {"lr": session.trainer.optimizer.learning_rate(session.step + 1)}

    patch.after("rlvr_core.run.session:Session._applied", after)


@fifteenth("loss", only=(*REPORTED, "entropy"))
def surprise_reported_for_the_entropy(patch: Patch) -> None:
    """The mean entropy in the records is that of minus the log-probs of what was sampled."""

    def make(original: Any) -> Any:
        def loss(self: Any, batch: Any, normalizer: Any) -> Any:
            return original(self, replace(batch, entropy_BT=-batch.logp_BT.detach()), normalizer)

        return loss

    patch.wrap(f"{POLICY}.__call__", make)


@fifteenth("data", only=(*REPORTED, "ledger", "drop", "conserv", "rollouts", "missing"))
def dropped_groups_are_not_recorded(patch: Patch) -> None:
    """The records of completions have the groups that were trained on alone."""

    def make(original: Any) -> Any:
        def rollout(recorder: Any, *args: Any) -> None:
            fates = args[4]
            if set(fates) != {"zero_variance"}:
                original(recorder, *args)

        return rollout

    patch.wrap("rlvr_core.record.recorder:Recorder.rollout", make)
