"""The page ``docs/traps.md``: silent failures by number, and the tests that cover each.

A test covers a trap when its name says so: ``test_t19_...``, ``test_t3_t6_...``.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEST = re.compile(r"^def (test_((?:t\d+_)+)\w+)\(", re.MULTILINE)
PLACES = ("tests", "plugins/*/tests", "examples/*/tests")

AREAS = {
    1: "Numerics, loss, KL",
    18: "Rollouts, weight sync, buffer",
    37: "Prompts, data, curricula",
    51: "Verifiers and sandboxes",
    71: "Evaluation",
    87: "Operations",
}
TRAPS = """
The KL estimator has its log-ratio reversed: it explodes where the policy is sure.
Trainer and engine take log-probs at different temperatures, so every ratio is wrong.
A length is inferred from token ids, and padding's id is an ordinary token in some tokenizers.
Adam's epsilon too small and no warmup: NaN within a few steps.
Learning rate too high or KL penalty too low: the policy collapses after looking well.
The loss mask is made from `token != pad`: where pad is the end token, stopping is never trained.
Half-precision logits go into the log-softmax: ratios differ from 1 on fresh samples.
Sampling by top-p or top-k while old log-probs are those of the full distribution.
Dr. GRPO at GRPO's learning rate: its gradients have another scale.
The loss is normalised per micro-batch, so that packing changes gradients.
A last partial batch is never stepped, or is stepped with the wrong denominator.
One completion per problem: its standard deviation is NaN and passes a zero-variance filter.
A metric that is no longer computed is still logged as 0.
float16 parameters without loss scaling underflow.
Too few prompts a step: days without learning.
Trainer, wire and engine use different dtypes, and each weight sync rounds silently.
Per-row loops on the log-probs make the backward pass slow.
One seed for all requests: completions repeat.
Weights are new, but the engine's prefix cache still holds the old ones' keys and values.
The truncated output of an aborted request is graded as an answer.
Fewer groups are left than a step needs: the run waits for ever.
A schedule of syncs that no staleness bound can meet: deadlock.
A buffer without bound fills with groups that are thrown away as stale.
Thousands of tasks started at once wait for each other.
Prompts too long and answers empty are tried again for ever.
Any exception loses the problem for good, and the data set shrinks silently.
A new epoch begins while problems of the last are still in flight: duplicates and losses.
The reference's context is one token too short for the longest sequence.
Two sides of a weight sync join one after the other, or a network interface is hard-coded: hang.
Weights were never loaded: training starts from random ones.
Device masks set too late, ports used twice: hangs and bind errors.
Dead engines and orphaned processes hold memory while the run waits.
Groups without variance are dropped after their full cost.
Length limits drop a large share of the data unnoticed.
Ragged groups break code that wants rows divisible by the micro-batch.
Traces grow without bound.
A chat template is applied to a base model: garbage from the first step.
Training and evaluation word the prompt differently.
The verifier wants a format that the model does not produce: reward 0 everywhere.
A strict verifier is expected to teach format, and format gets worse.
A curriculum's ids do not match the data set's, and unmatched ones are dropped.
Ids depend on row order or filters, so that joins find the wrong rows.
An empty or partial folder passes for a cached data set.
The hub is not reachable where the job runs.
Type inference of columnar formats fails on mixed rows and huge integers.
A programming problem without tests: an empty program scores full marks.
A loader assumes a fixed number of tests.
Duplicate, unknown or misplaced YAML keys are ignored.
Demonstrations without an end token, padded left without a mask.
An empty string cannot override an inherited value.
Symbolic mathematics hangs, and one stuck worker spoils the verdicts after it.
Alarm signals as timeouts never fire outside the main thread.
Regular expressions backtrack without end on hostile text.
An unexpected option is swallowed as an exception: every model scores 0.
Unknown constraints and unexpected options score 0 instead of being refused.
An unseeded language detector gives the same text two verdicts.
A keyword is used as a regular expression: "C++" matches any C.
Degenerate short answers satisfy a constraint trivially.
Normalisation drops the minus sign.
One field holds a full solution in one data set and a final answer in another.
The last number of rambling text is graded, because the stop strings missed the next question.
Too many stop strings cut good answers.
The graded text ends at the stop string, the trained tokens do not.
A program's exit code decides: leaving early scores full marks.
Pass counts are read from the program's own output, which can be forged.
A container for each test case blocks workers for minutes.
Limits kept on a shared object are changed by concurrent calls.
Without a sandbox, programs run on the host with only a warning.
Cutting code at the second definition removes helpers.
A dead verifier process fails its problem for good.
Tensor parallelism in evaluation changes scores.
An evaluation's token budget truncates answers.
One grader alone reports far too low an accuracy.
A model with stop strings is compared with a baseline without.
The default split of an evaluation is the training split.
Appending and resuming duplicates results.
Two estimators of pass@k are mixed, and any score above 0 counts as a pass.
Strict and lenient metrics move in opposite directions, and only one is shown.
A watcher reads half-written checkpoints, never retries and never ends.
A launcher ignores the evaluation's config, or watches a place nothing is written to.
An exported checkpoint's index names files that do not exist.
What a code evaluation must be allowed to do is missing, and it fails late.
Names of metrics drift, and tables have gaps or overwrite rows.
A token limit reaches the engine by two ways that conflict.
Tables of results are written by hand and contradict their configs.
One seed and a hundred problems: noise is read as signal.
Checkpoints are uploaded only at the end, and a lost machine loses them.
A run's identity is the name of a rewritten file.
Model paths are rewritten as text: collisions and missing files.
Which job is which run is known to nobody.
A job's name breaks the cloud's rules and is refused late.
Dependencies of cloud tools and harnesses clash with the trainer's.
Relative paths and shell quirks break remote commands.
Resuming restarts the optimizer, the schedule, the data order, or moves the reference.
Temporary files fill the root disk.
A defect that was mended returns, because its code exists twice.
Debug output at every token drowns the log.
Ignore rules drop files that the job needs.
Secrets in source, ports open to all, a viewer that serves any path.
"""


def page() -> str:
    """The page as Markdown.

    Raises:
        ValueError: A trap has no test, or a test names a trap that does not exist.
    """
    traps = TRAPS.strip().split("\n")
    found: dict[int, list[str]] = {number: [] for number in range(1, len(traps) + 1)}
    for place in PLACES:
        for folder in sorted(ROOT.glob(place)):
            for path in sorted(folder.rglob("test_*.py")):
                for name, numbers in TEST.findall(path.read_text(encoding="utf-8")):
                    for number in re.findall(r"\d+", numbers):
                        if int(number) not in found:
                            raise ValueError(f"{path}: {name} names no trap that is known")
                        file = path.relative_to(ROOT).as_posix()
                        link = f"[{file}](../{file})"
                        if link not in found[int(number)]:
                            found[int(number)].append(link)
    if missing := [f"T{number}" for number, tests in found.items() if not tests]:
        raise ValueError(f"no test covers {', '.join(missing)}")
    lines = [
        "# Traps",
        "",
        "Ways in which such a system fails silently, each met in practice, and the tests that keep "
        "rlvr from them. `T19` in code is the number here, and the tests of a trap have it in "
        "their names: `pytest -k test_t19_`. This page is made by `make docs` from those names.",
    ]
    for number, trap in enumerate(traps, 1):
        if number in AREAS:
            head = [
                "",
                f"## {AREAS[number]}",
                "",
                "| | what goes wrong | tests in |",
                "|---|---|---|",
            ]
            lines += head
        lines.append(f"| T{number} | {trap} | {'; '.join(found[number])} |")
    return "\n".join(lines) + "\n"
