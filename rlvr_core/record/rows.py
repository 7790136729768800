"""Serialises judged groups as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from rlvr_core.api import Completion, Group, Json, Judged, Usage, Verdict
from rlvr_core.api.problems import Fate
from rlvr_core.api.rollouts import Sampled
from rlvr_core.record.text import Redactor


def rollout_row(
    step: int,
    version: int,
    group: Group,
    prompt_text: str,
    fates: Sequence[Fate],
    advantages: Sequence[float | None],
    draw_index: int,
) -> dict[str, Json]:
    """Build a line of ``rollouts.jsonl``: one group with everything about its completions."""
    rows = []
    for member, fate, advantage in zip(group.members, fates, advantages, strict=True):
        completion = member.completion
        row = completion_row(member) | _tokens(completion)
        if completion.branches:
            row["branches"] = [
                {"prompt_ids": branch.prompt_ids, **_tokens(branch), **transcript_row(branch)}
                for branch in completion.branches
            ]
        row["advantage"] = advantage
        row["fate"] = fate
        rows.append(row)
    line: dict[str, Json] = {
        "step": step,
        "version": version,
        "problem_id": group.problem.id,
        "draw_index": draw_index,
        "dataset": group.problem.dataset,
        "sampled_version": group.version,
    }
    if len(set(fates)) == 1:
        line["fate"] = fates[0]
    line |= {"tags": dict(group.problem.tags), "prompt": prompt_text}
    line["prompt_ids"] = group.members[0].completion.prompt_ids if group.members else []
    line["completions"] = rows
    return line


def _tokens(completion: Completion) -> dict[str, Json]:
    versions = {"token_versions": completion.token_versions} if completion.token_versions else {}
    return {
        "token_ids": completion.token_ids,
        "logprobs": completion.logprobs,
        **versions,
        "loss_mask": list(bytes(completion.loss_mask)),  # 0 and 1
    }


def evaluation_rows(sampled: Iterable[Sampled]) -> Iterator[dict[str, Json]]:
    """Yield one row for each completion of an evaluation."""
    for sample_group in sampled:
        for sample, member in enumerate(sample_group.group.members):
            yield {
                "problem_id": sample_group.group.problem.id,
                "sample": sample,
                "prompt": sample_group.prompt_text,
                **completion_row(member),
            }


def completion_row(member: Judged) -> dict[str, Json]:
    """Serialise one judged completion as JSON, without its tokens."""
    completion = member.completion
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "version": completion.version,
        "n_tokens": completion.n_tokens,
        "verdicts": {name: verdict_row(verdict) for name, verdict in member.verdicts.items()},
        "reward": member.reward,
        "passed": member.passed,
        **transcript_row(completion),
    }


def transcript_row(completion: Completion) -> dict[str, Json]:
    """Return the turns of a conversation under ``transcript``; empty for a single answer."""
    script = completion.transcript
    if script is None:
        return {}
    # a redactor reads the environment, which takes longer than the rest of a row
    row = {**asdict(script), "detail": script.detail and Redactor().known(script.detail)}
    return {"transcript": row}


def verdict_row(verdict: Verdict) -> dict[str, Json]:
    """Serialise a verdict as JSON."""
    return {
        "score": verdict.score,
        "status": verdict.status,
        "passed": verdict.passed,
        "parts": dict(verdict.parts),
        "extracted": verdict.extracted,
        "detail": verdict.detail,
        **({"spans": [asdict(span) for span in verdict.spans]} if verdict.spans else {}),
        **usage_row(verdict.usage),
    }


def usage_row(usage: Usage | None) -> dict[str, Json]:
    """Return the cost of requests to a remote model under ``usage``; empty if there were none."""
    return {} if usage is None else {"usage": asdict(usage)}
