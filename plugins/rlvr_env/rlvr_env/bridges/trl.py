"""A verifier as a reward function of TRL's trainers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr_core.api import Completion, ConfigError, DataError, Json, Problem, Verdict
from rlvr_env.bridges.judging import Judging, answer_of

_NOT_COLUMNS = ("trainer_state", "log_extra", "log_metric", "environments")
"""The arguments that TRL passes besides the columns of the data set."""


def trl_reward(
    verifier: str,
    options: Mapping[str, Json] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    group: int | None = None,
    **limits: Any,
) -> TrlReward:
    """Make a reward function for TRL, as ``GRPOTrainer(reward_funcs=...)`` takes it.

    It gives each completion the score of its verdict, and None (TRL's "no reward") where there is
    none: an error, a timeout, or a row that the verifier cannot judge.

    Args:
        verifier: The verifier's name as in a config: ``math/answer``, ``./my.py:fn``.
        options: The verifier's options, as under ``with`` in a config.
        columns: The column of each field that the verifier needs, by field; a column that is not
            named here is the field of its own name.
        group: TRL's ``num_generations``, for a verifier that compares the completions of a prompt.
        limits: ``workers``, ``timeout``, ``memory_mb`` and ``max_error_rate`` of ``Judging``.

    Raises:
        ConfigError: If the name or the options are wrong.
        PluginError: If its plugin is missing or broken.
    """
    judging = Judging(verifier, options, columns=columns, **limits)
    if judging.compares and group is None:
        raise ConfigError(
            f"{judging.name} compares the completions of a prompt",
            where="group",
            remedy="say how many there are: group=num_generations",
        )
    return TrlReward(judging, group or 1)


class TrlReward:
    """A reward function of TRL, of a verifier.

    Attributes:
        judging: The verifier and its processes.
        group: Completions that are judged together.
    """

    def __init__(self, judging: Judging, group: int) -> None:
        self.judging = judging
        self.group = group
        self.__name__ = judging.name  # TRL logs rewards/<name>/mean

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **given: Any,
    ) -> list[float | None]:
        """Judge completions, as TRL asks.

        Raises:
            DataError: If no row has what the verifier needs.
            RunError: If the verifier fails too often to be trusted.
        """
        n = len(completions)
        if n % self.group:
            raise ConfigError(f"{n} completions are no groups of {self.group}", where="group")
        table = {k: v for k, v in given.items() if k not in _NOT_COLUMNS}
        rows = [{name: values[i] for name, values in table.items()} for i in range(n)]
        problems = [
            self.judging.problem(row, prompt) for row, prompt in zip(rows, prompts, strict=True)
        ]
        ids = completion_ids if completion_ids is not None else [()] * n
        answers = [_completion(text, some) for text, some in zip(completions, ids, strict=True)]
        verdicts = self._verdicts(problems, answers)
        self._log(verdicts, given.get("log_extra"), given.get("log_metric"))
        return [verdict.score for verdict in verdicts]

    def close(self) -> None:
        """End its processes; they end with the program in any case."""
        self.judging.close()

    def _verdicts(self, problems: list[Problem], answers: list[Completion]) -> list[Verdict]:
        refusals = [self.judging.refusal(problem) for problem in problems]
        if refusals and all(refusals):
            raise DataError(
                f"no row has what {self.judging.name} needs: {refusals[0]}",
                where="columns",
                remedy=f"a row has: {', '.join(problems[0].spec) or 'nothing'}; name the column "
                "of a field by columns={'field': 'column'}",
            )
        waiting = []
        for at in range(0, len(answers), self.group):
            some = slice(at, at + self.group)
            fault = next((refusal for refusal in refusals[some] if refusal), "")
            judged = None if fault else self.judging.submit(problems[at], answers[some])
            waiting.append((fault, judged))
        verdicts: list[Verdict] = []
        for fault, judged in waiting:
            if judged is None:
                verdicts += [Verdict(None, "unscorable", detail=fault)] * self.group
            else:
                verdicts += self.judging.verdicts(judged)
        return verdicts

    def _log(
        self,
        verdicts: list[Verdict],
        log_extra: Callable[[str, list[Any]], None] | None,
        log_metric: Callable[[str, float], None] | None,
    ) -> None:
        """Log the reasons, and the share without a score, by TRL's own functions."""
        if log_extra is not None:
            reasons = [
                f"{verdict.status}: {verdict.detail}" if verdict.detail else verdict.status
                for verdict in verdicts
            ]
            log_extra(f"{self.__name__} verdict", reasons)
        if log_metric is not None and verdicts:
            unscored = sum(verdict.score is None for verdict in verdicts)
            log_metric(f"{self.__name__}/unscored", unscored / len(verdicts))


def _completion(completion: Any, ids: Sequence[int]) -> Completion:
    n = len(ids)
    text = answer_of(completion)
    return Completion((), tuple(map(int, ids)), (0.0,) * n, (True,) * n, text, "stop")
