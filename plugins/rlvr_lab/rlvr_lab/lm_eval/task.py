"""Eval task ``lm_eval``: one task of lm-evaluation-harness, through our engines and our store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_core.api import (
    Completion,
    ComponentConfig,
    ConfigError,
    EvalReport,
    ExternalAnswer,
    Group,
    Json,
    Judged,
    ModelAccess,
    Problem,
    RunError,
    SamplingParams,
    Verdict,
)
from rlvr_core.config.model import Natural, Positive

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_lab.lm_eval.load import Document, Loaded

VERIFIER = "lm_eval"
Values = dict[str, Any]
"""Value of each metric on one document, by ``metric,filter``."""


class LmEval:
    """A task or a group of tasks of lm-evaluation-harness; its prompts, its graders."""

    class Config(ComponentConfig):
        """Which task, and how."""

        task: str
        """Name of a task or group, as ``lm_eval ls tasks`` prints it: ``mmlu``, ``gsm8k_cot``."""
        include_path: str | None = None
        """Folder with task files of your own, as the harness takes them."""
        num_fewshot: Natural | None = None
        """Worked examples before each question; null: what the task says."""
        fewshot_seed: Natural = 1234
        """Decides which examples are shown, in tasks that draw them; the harness's default."""
        chat: bool = False
        """Render prompts by the model's chat template, examples as turns."""
        limit: Positive | None = None
        """Only the first so many documents of each task of a group."""
        max_tokens: Positive | None = None
        """Tokens for a generated answer. null: what the task says or is known to need, else
        1024."""
        metric: str | None = None
        """Which of its metrics decides whether a document passed, as ``exact_match,strict-match``;
        null: the first."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._ready: Loaded | None = None
        self._values: dict[tuple[str, tuple[str, ...]], Values] = {}

    @property
    def _loaded(self) -> Loaded:
        if self._ready is None:
            from rlvr_lab.lm_eval.load import load

            self._ready = load(self.config)
        return self._ready

    @property
    def label(self) -> str:
        """Name of the harness's task."""
        return self.config.task

    @property
    def n(self) -> int:
        """Answers to each document: the task's ``repeats``."""
        return self._loaded.repeats

    def samples(self) -> bool:
        """Whether it generates; scored texts are not sampled."""
        return any(document.sampling for document in self._loaded.documents.values())

    @property
    def sampling(self) -> SamplingParams:
        """Sampling parameters; with the largest budget if the tasks of a group differ."""
        every = [
            document.sampling for document in self._loaded.documents.values() if document.sampling
        ]
        if not every:
            return SamplingParams(temperature=0.0, max_tokens=1)
        if len({(params.temperature, params.top_p, params.top_k) for params in every}) > 1:
            raise ConfigError(
                f"lm_eval task '{self.config.task}' holds tasks that sample differently",
                remedy="evaluate them one by one",
            )
        return replace(max(every, key=lambda params: params.max_tokens), stop=())

    def identity(self) -> Mapping[str, Json]:
        """Versions of the harness and of each task, and a hash of each task's definition."""
        from rlvr_lab.lm_eval.load import identity

        tasks = {name: identity(task) for name, task in self._loaded.tasks.items()}
        return {"lm_eval": self._loaded.version, "tasks": tasks}

    def problems(self) -> list[Problem]:
        """Return one problem for each document, in the harness's order."""
        from rlvr_lab.lm_eval.load import digest

        several = len(self._loaded.tasks) > 1
        return [
            Problem(
                id=document.id,
                prompt=document.shown,
                verifier=VERIFIER,
                spec={"requests": len(document.instances), "sha256": digest(document)},
                dataset=VERIFIER,
                stop=document.sampling.stop if document.sampling else (),
                max_tokens=document.sampling.max_tokens if document.sampling else None,
                tags={"task": document.id.rpartition("/")[0]} if several else {},
            )
            for document in self._loaded.documents.values()
        ]

    def longest(
        self, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, limit: int
    ) -> int:
        """See ``ExternalTask.longest``."""
        from rlvr_lab.lm_eval.ask import longest

        documents = [self._loaded.documents[problem.id] for problem in problems]
        return longest(documents, tokenizer, limit)

    def answer(self, problems: Sequence[Problem], model: ModelAccess) -> Iterator[ExternalAnswer]:
        """See ``ExternalTask.answer``."""
        from rlvr_lab.lm_eval.ask import ask

        by_id = {problem.id: problem for problem in problems}
        documents = [self._loaded.documents[id_] for id_ in by_id]
        for answered in ask(documents, self.n, model):
            verdict = self._judge(answered.document, answered.completions)
            yield ExternalAnswer(
                problem=by_id[answered.document.id],
                prompt=answered.prompt,
                members=tuple(
                    Judged(completion, {VERIFIER: verdict}, verdict.score, verdict.passed)
                    for completion in answered.completions
                ),
            )

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Return the harness's own aggregates; those of tasks in a group as ``task: metric``."""
        rows: dict[str, list[Values]] = {}
        for group in groups:
            document = self._loaded.documents[group.problem.id]
            values = self._of(document, [member.completion for member in group.members])
            rows.setdefault(document.id.rpartition("/")[0], []).append(values)
        results = {name: self._aggregate(name, values_of) for name, values_of in rows.items()}
        single = len(self._loaded.tasks) == 1
        for name, group_ in _bottom_up(self._loaded.groups):
            results[name] = group_.aggregate(results)
        metrics: dict[str, float] = {}
        for name, values_of in results.items():
            plain = name == self.config.task or single
            for key, value in values_of.items():
                if "," in key and "_stderr," not in key and _number(value) is not None:
                    metrics[key if plain else f"{name}: {key}"] = float(value)
        return EvalReport(metrics, len(groups))

    def _aggregate(self, name: str, rows: Sequence[Values]) -> dict[str, Any]:
        from lm_eval.api.metrics import mean

        how = self._loaded.tasks[name].aggregation()
        keys = dict.fromkeys(key for row in rows for key in row)
        aggregates: dict[str, Any] = {"alias": name, "name": name, "sample_len": len(rows)}
        for key in keys:
            aggregate = how.get(key.partition(",")[0], mean)
            try:
                aggregates[key] = aggregate([row[key] for row in rows if key in row])
            except Exception as error:
                if len(rows) > 1:  # some metrics are undefined for a single document
                    raise RunError(
                        f"lm_eval task '{name}': metric {key} could not be computed: "
                        f"{type(error).__name__}: {error}"
                    ) from error
        return aggregates

    def _judge(self, document: Document, completions: Sequence[Completion]) -> Verdict:
        values = self._of(document, completions)
        parts = {
            key: number for key, value in values.items() if (number := _number(value)) is not None
        }
        metric = self.config.metric or next(iter(values), None)
        if self.config.metric is not None and self.config.metric not in values:
            raise ConfigError(
                f"lm_eval task '{self.config.task}' has no metric '{self.config.metric}'",
                remedy=f"it has: {', '.join(values)}",
            )
        answer = self._judged(document, completions)
        score = parts.get(metric or "")
        if score is None:
            why = "its metrics are about all documents together"
            return Verdict(None, "unscorable", parts=parts, extracted=answer, detail=why)
        passed = bool(score) if score in (0.0, 1.0) else None
        return Verdict(score, passed=passed, parts=parts, extracted=answer, detail=f"by {metric}")

    def _of(self, document: Document, completions: Sequence[Completion]) -> Values:
        """Return the values of every metric on a document; each kind of answer is judged once."""
        key = (document.id, tuple(completion.text for completion in completions))
        if key not in self._values:
            self._values[key] = _values(document, [completion.text for completion in completions])
        return self._values[key]

    def _judged(self, document: Document, completions: Sequence[Completion]) -> str | None:
        """Return the judged answer: the filtered text, or the most likely choice."""
        if document.sampling is not None:
            filtered = next(iter(document.instances[0].filtered_resps.values()), None)
            return filtered if isinstance(filtered, str) else None
        if len(document.instances) < 2:
            return None
        scores = [answer[0] for answer in json.loads(completions[0].text)]
        return str(document.instances[int(np.argmax(scores))].args[-1])


def _values(document: Document, texts: Sequence[str]) -> Values:
    """Filter and judge the answers to a document with the harness."""
    task, instances = document.task, document.instances
    for index, instance in enumerate(instances):
        instance.resps = [_response(document, index, text) for text in texts]
        instance.filtered_resps = {}
    task._instances = instances
    try:
        task.apply_filters()
        values: Values = {}
        for name in instances[0].filtered_resps:
            answers = [instance.filtered_resps[name] for instance in instances]
            results = task.process_results(instances[0].doc, answers)
            values |= {f"{metric},{name}": value for metric, value in results.items()}
    except Exception as error:
        raise RunError(
            f"{document.id}: lm_eval could not judge the answer: {type(error).__name__}: {error}",
            remedy="the answers so far are kept; the same command continues with them",
        ) from error
    return values


def _response(document: Document, index: int, text: str) -> Any:
    """Return an answer in the form that the harness gets from its own models."""
    if document.sampling is None:
        answer = json.loads(text)[index]
        return tuple(answer) if isinstance(answer, list) else answer
    for stop in document.sampling.stop:
        text = text.partition(stop)[0]
    return text


def _bottom_up(groups: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return groups, each after its subgroups."""
    return sorted(groups.items(), key=lambda item: len(item[1].get_all_groups()))


def _number(value: Any) -> float | None:
    """Return a metric's value as a finite number; None if it is not one."""
    if isinstance(value, bool | int | float | np.number | np.bool_) and math.isfinite(value):
        return float(value)
    return None
