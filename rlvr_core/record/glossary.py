"""What every metric means; ``docs/metrics.md`` is generated from it.

python -m rlvr_core.record.glossary > docs/metrics.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from rlvr_core.api import Metric

SECTIONS: dict[str, tuple[Metric, ...]] = {
    "Reward": (
        Metric("reward/mean", "Mean shaped reward of all scored completions drawn.", "reward"),
        Metric("reward/std", "Standard deviation of the shaped reward over them.", "reward"),
        Metric("reward/<name>", "Mean score the verifier <name> gave, before weights.", "score"),
        Metric("reward_weight/<name>", "Weight of <name> in the reward at this step.", "factor"),
        Metric("pass_rate", "Share of completions with a known outcome that passed.", "share"),
        Metric("pass_rate/<dataset>", "The same, over problems of <dataset> alone.", "share"),
        Metric("unique_rate", "Distinct completions over completions, within groups.", "share"),
    ),
    "Length": (
        Metric("length/mean", "Mean tokens of a completion, an environment's included.", "tokens"),
        Metric("length/max", "Tokens of the longest completion.", "tokens"),
        Metric("truncated_rate", "Share of completions cut off by the token cap.", "share"),
        Metric("stop/<reason>", "Completions whose finish reason is <reason>.", "completions"),
    ),
    "Conversations": (
        Metric("turns/mean", "Mean turns that the model wrote in a conversation.", "turns"),
        Metric("turns/max", "Turns of the model in the longest conversation.", "turns"),
        Metric("ended/<how>", "Conversations that ended by <how>.", "conversations"),
        Metric("environment/<name>", "Sum of what environments counted as <name>.", ""),
        Metric("tokens/environment", "Tokens that environments put in, out of the loss.", "tokens"),
    ),
    "Groups": (
        Metric("groups/drawn", "Groups drawn, replacements of dropped ones included.", "groups"),
        Metric("groups/kept", "Groups the sampler kept for training.", "groups"),
        Metric("groups/all_passed", "Groups dropped as every completion passed.", "groups"),
        Metric("groups/all_failed", "Groups dropped as no completion passed.", "groups"),
        Metric("groups/equal", "Groups dropped as all rewards are equal otherwise.", "groups"),
        Metric("groups/dropped/<why>", "Groups dropped as one_scored, stale and so on.", "groups"),
        Metric("groups/zero_variance", "Groups of equal rewards, dropped or trained on.", "groups"),
        Metric("groups/none_passed", "Groups of failures alone, dropped or trained on.", "groups"),
        Metric("groups/size", "Mean completions of a group drawn.", "completions"),
        Metric("groups/replayed", "Groups of earlier steps trained on again.", "groups"),
        Metric("advantage/<name>", "A number <name> of the advantage estimator.", ""),
        Metric("groups/lone", "Kept groups with fewer than two rewards: advantage 0.", "groups"),
    ),
    "Sampler": (
        Metric("sampler/epoch", "Passes over the data, the one that goes on in part.", "epochs"),
        Metric("sampler/epoch/<source>", "The same, for a source that has its own.", "epochs"),
        Metric("sampler/unseen", "Problems whose pass rate is not known yet.", "problems"),
        Metric("sampler/hard", "Problems with a pass rate of hard_threshold or less.", "problems"),
        Metric("sampler/normal", "Problems with a pass rate between the two.", "problems"),
        Metric("sampler/easy", "Problems with a pass rate of easy_threshold or more.", "problems"),
        Metric("sampler/solved", "Problems left out as solved.", "problems"),
        Metric("sampler/<name>", "A number <name> of a plugin's sampler.", ""),
    ),
    "Ledger": (
        Metric("ledger/drawn", "Completions drawn in this step.", "completions"),
        Metric("ledger/trained", "Completions first trained on in this step.", "completions"),
        Metric(
            "ledger/zero_variance",
            "Completions of groups dropped because all their rewards are equal.",
            "completions",
        ),
        Metric("ledger/stale", "Completions dropped as older than max_staleness.", "completions"),
        Metric("ledger/too_long", "Completions whose sequence was too long to use.", "completions"),
        Metric("ledger/truncated", "Completions dropped for hitting the token cap.", "completions"),
        Metric("ledger/unscorable", "Completions that no verifier could judge.", "completions"),
        Metric("ledger/error", "Completions whose verdict was an error or timeout.", "completions"),
        Metric(
            "ledger/in_flight",
            "Completions drawn so far in the run and not settled when the step ended.",
            "completions",
        ),
        Metric(
            "ledger/<fate>/<detail>",
            "Those of ledger/<fate> that have <detail>, such as all_passed or all_failed.",
            "completions",
        ),
    ),
    "Staleness": (
        Metric("staleness/mean", "Mean updates between sampling and training.", "updates"),
        Metric("staleness/max", "Most updates between sampling and training.", "updates"),
        Metric(
            "staleness/<fate>/<n>",
            "Completions of ledger/<fate> sampled <n> updates before this step.",
            "completions",
        ),
        Metric(
            "staleness/reread/<n>",
            "Completions of groups/replayed sampled <n> updates before this step.",
            "completions",
        ),
        Metric("staleness/expired", "Groups too old for the reads they had left.", "groups"),
    ),
    "Batch": (
        Metric("rows", "Completions with at least one loss token, over all ranks.", "completions"),
        Metric("tokens/prompt", "Prompt tokens of the groups drawn, once a group.", "tokens"),
        Metric("tokens/completion", "Tokens the model wrote in all completions drawn.", "tokens"),
        Metric("tokens/loss", "Tokens the loss was taken over.", "tokens"),
        Metric("<loss>/rows", "Given answers that <loss> learned from.", "answers"),
        Metric("<loss>/tokens/loss", "Tokens of them.", "tokens"),
        Metric(
            "rows/read",
            "Rows that the step's updates read: one counts once an iteration.",
            "completions",
        ),
        Metric("<loss>/rows/read", "The same, of given answers.", "answers"),
    ),
    "Optimizer": (
        Metric(
            "loss",
            "Weighted sum of the losses an update was given; mean over the updates applied, as is "
            "every mean here, or over all where none was.",
            "loss",
        ),
        Metric(
            "grad_norm",
            "Norm of the gradient before clipping; mean over the same updates.",
            "norm",
        ),
        Metric(
            "grad_norm/max",
            "The largest norm of any update, skipped or not, where several are asked for.",
            "norm",
        ),
        Metric("updates/applied", "Updates of the step, where several are asked for.", "updates"),
        Metric("updates/skipped", "Updates not made, as their gradient was not finite.", "updates"),
        Metric(
            "updates/missing",
            "Updates not made, as there were fewer groups to train on than mini-batches.",
            "updates",
        ),
        Metric("lr", "Learning rate of the step.", "rate"),
        Metric("step_skipped", "1 if no update was made, as no gradient was finite.", "0/1"),
    ),
    "Policy": (
        Metric("ratio/mean", "Mean probability ratio of new to old policy.", "ratio"),
        Metric("ratio/max", "Largest probability ratio of new to old policy.", "ratio"),
        Metric(
            "iteration/<i>/<metric>",
            "A metric of ratio/ or clip_fraction/ over the applied updates of iteration <i> alone.",
            "",
        ),
        Metric(
            "clip_fraction/low", "Share of units of the loss clipped at the low bound.", "share"
        ),
        Metric("clip_fraction/high", "Share of them clipped at the high bound.", "share"),
        Metric(
            "off_policy/dropped",
            "Share of loss tokens in completions that off_policy_mask left out.",
            "share",
        ),
        Metric(
            "off_policy/drift_max",
            "Largest drop of a completion's mean log-prob since it was sampled.",
            "nats",
        ),
        Metric("kl/mean", "Mean estimate per token of KL(policy || reference).", "nats"),
        Metric("kl/max", "Largest estimate of the KL at one token.", "nats"),
        Metric(
            "gate/mean", "Mean slope of sapo's gate: 1 at ratio 1, 0 where it is shut.", "share"
        ),
        Metric("entropy/mean", "Mean entropy of the policy at the loss tokens.", "nats"),
        Metric(
            "entropy/bonus",
            "Mean weight of the entropy bonus that entropy_control applied, 0 above its target.",
            "factor",
        ),
        Metric(
            "entropy/coefficient",
            "The weight entropy_control had reached at the end of the step, applied or not.",
            "factor",
        ),
        Metric("entropy/threshold", "Least entropy of the tokens that top_entropy chose.", "nats"),
        Metric("entropy/chosen", "Share of the loss tokens that it chose.", "share"),
        Metric(
            "distill/divergence", "Mean divergence from the teacher at the loss tokens.", "nats"
        ),
        Metric("distill/covered", "Mean probability of the teacher's compared tokens.", "share"),
        Metric("sft/nll", "Mean minus log-prob of the given answers' tokens.", "nats"),
        Metric("reference/version", "Policy version the reference last took over.", "updates"),
        Metric(
            "loss/<name>",
            "A number <name> that the loss reports and its own page explains, or a term <name> of "
            "several: its mean, before its weight, over the applied updates that had a row of it.",
            "",
        ),
    ),
    "Mismatch between trainer and engine": (
        Metric("mismatch/abs_mean", "Mean |trainer - engine| log-prob of trained tokens.", "nats"),
        Metric("mismatch/abs_max", "Largest |trainer - engine| log-prob of them.", "nats"),
        Metric("mismatch/k3", "Estimate of KL(engine || trainer) per token by k3, mean.", "nats"),
        Metric("mismatch/truncated", "Share of units whose importance weight was capped.", "share"),
        Metric("mismatch/weight", "Mean importance weight of trainer against engine.", "ratio"),
        Metric("mismatch/ess", "Effective sample size of the weights over their number.", "share"),
        Metric(
            "parity/mean",
            "Mean |trainer - engine| log-prob over all sampled tokens, where it was checked.",
            "nats",
        ),
        Metric("parity/max", "Largest of those differences.", "nats"),
    ),
    "Engine": (
        Metric("engine/servers", "vLLM servers that answer and hold the weights.", "servers"),
        Metric(
            "engine/restarts",
            "vLLM servers, or processes of asynchronous engines, started again since the last "
            "step.",
            "restarts",
        ),
        Metric(
            "engine/resent",
            "Completions asked for again, because the server or process that was to give them was "
            "lost, or a server aborted them.",
            "completions",
        ),
    ),
    "Verification": (
        Metric("verify/error_rate", "Share of verdicts that were errors or timeouts.", "share"),
        Metric("verify/requests", "Requests to judges, failed tries included.", "requests"),
        Metric("verify/prompt_tokens", "Tokens sent to judges, as they counted them.", "tokens"),
        Metric("verify/completion_tokens", "Tokens judges sent, as they counted them.", "tokens"),
        Metric("verify/cost", "Cost of those tokens by the prices configured.", "money"),
    ),
}


class Glossary:
    """Every metric that may be reported: the kernel's own, and those that components declare.

    Args:
        declared: The components' own.
    """

    def __init__(self, declared: Iterable[Metric] = ()) -> None:
        own = [metric for metrics in SECTIONS.values() for metric in metrics]
        every = [*own, *declared]
        self._fixed = {metric.name: metric for metric in every if "<" not in metric.name}
        self._families = [
            (re.compile(re.sub(r"<\w+>", ".+", metric.name)), metric)
            for metric in every
            if "<" in metric.name
        ]

    def lookup(self, name: str) -> Metric | None:
        """The metric of this name, or the family it belongs to; None if it is not explained."""
        if name in self._fixed:
            return self._fixed[name]
        found = (metric for pattern, metric in self._families if pattern.fullmatch(name))
        return next(found, None)


KERNEL = Glossary()
"""The kernel's own metrics alone."""


def lookup(name: str) -> Metric | None:
    """The kernel's metric of this name; see ``Glossary.lookup``."""
    return KERNEL.lookup(name)


_HEAD = """\
# Metrics

One line a step in `metrics.jsonl`: `{"step": …, "version": …, …}`. `step` counts the steps
of the loop from 0, and is thus the number of steps done before it; what is shown to a person
counts from 1, so that `step 3/150` on a screen is `"step": 2` here. `version` is the policy
version at the step's beginning, that is, the number of updates applied before it. It sampled the
step's completions, but for [asynchronous](asynchronous.md) runs, whose groups may be older. There,
what is "drawn" are the groups that came to the step, kept or dropped; `ledger/drawn` alone counts
what was judged since the step before, and so goes ahead of them by `ledger/in_flight`.

- A metric that was not computed in a step is absent from its line; it is never written as 0.
- Nothing here depends on time: two runs with one seed write the same file, and so does a run
  that was killed and resumed. Times are in `traces/timing.jsonl`.
- A value that is not finite is `null`, and the line's `non_finite` says what it was:
  `{"loss": null, "non_finite": {"loss": "nan"}}`. Every line is valid JSON.
- An engine may report metrics of its own, which it declares ([engines.md](engines.md)). A name
  that is neither on this page nor declared is refused when it is written.
- The ledger balances in every step: what was in flight after the step before, plus
  `ledger/drawn`, is the sum of the fates (`trained` to `error`) plus `ledger/in_flight`.

This page is generated by `python -m rlvr_core.record.glossary`.
"""

_TAIL = """
## Timing

`traces/timing.jsonl` has one line a step: `seconds` by phase (`train.backward` is a part
of `train`; the phases without a dot add up to the step), and `rates` in units per second. A
resumed run appends to it, with a line `{"resumed": …}` where it went on; for a step that is there
twice the last line counts.
"""


def markdown() -> str:
    """The text of ``docs/metrics.md``."""
    parts = [_HEAD]
    for title, metrics in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| metric | meaning | unit |\n|---|---|---|\n")
        parts += [f"| `{m.name}` | {_escape(m.meaning)} | {m.unit} |\n" for m in metrics]
    return "".join([*parts, _TAIL])


def _escape(text: str) -> str:
    """Bars would end a table's cell, angle brackets would be taken for HTML."""
    return re.sub(r"<(\w+)>", r"`<\1>`", text).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(markdown())
