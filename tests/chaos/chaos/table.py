"""The suite's results as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chaos.registry import DTYPES, EVERYWHERE, Fault

HEAD = """# The chaos suite

`make chaos` breaks runs, one fault at a time, and notes what each run says of its fault.
`tests/chaos` has the faults: {faults} of them in the first set, {more} in later ones, in the
training pass, the sampler, the sync, the data, the verifiers and wherever else a run can go wrong
in silence. Each is put into runs of eight steps of a small model that has half learned its task, in
float32 and bfloat16, with the engine in the trainer's process, in a process of its own, and with
vLLM where that applies, or strikes when a
healthy run is resumed.

- **A fault matters.** A fault that moves no token, reward, loss, gradient or weight against the
  same run without it is an error of the suite, as is one whose code was not used, and one that ends
  in an exception that is nobody's check.
- **Right names are declared beforehand.** Each fault comes with the words (`WORDS` in
  `registry.py`, and its own) of which a message has to have one to count as the right name. That
  rule alone judges.
- **Blind.** The faults were written without reading the guards.

`make chaos` measures all and writes this page. `make test-long` runs a twentieth of the faults,
each with one engine and in one precision, and a sixth of the healthy shapes, by the newest commit's
turn; `make test-all` runs all of them, and `make test` a sample.

## In figures

Runs with a fault, by precision. *Stopped*: the run ended with an error that names the cause.
*Note*: it went on, and a line of its output or of `rlvr show` names the cause. *Wrong name*:
something was said, and not the cause.

"""
BODY = """
## Fault by fault

`parity 1`: the guard `parity` stopped the run at step 1; `start`: before the first step. In
brackets: something was said, and not the cause. A dash: the fault does not apply there.

"""
BEFORE = """
Before the checks of each step (`parity` on what the loss used, `calibration`, `advantages`,
`tokens`, `kl`, `updates`) and the preflight, of 210 runs in float32 with the engine in process 55
were stopped with the right name, 2 noted, 5 given a wrong name and 148 missed; of 153 in bfloat16
33 were stopped with the right name, 2 noted and 118 missed.
"""
MUTANTS = """
## Mutants

`python tests/chaos/mutate.py --folder build/mutants` changes the code of a step by rule, and not by
anybody's choice: one operator, constant, condition or argument of a function, or a statement that
is left out, in the step, the algorithm, rollouts, engines, data and the built-in parts of a step.
Each mutant is put into a run of a shape that comes by its line. Of 301 (seed 18, bfloat16, engine
in process, 2026-11-27) 103 changed nothing that a run records, 94 raised an exception of their own
and 36 an error with a message; 42 were stopped by a guard, and 26 changed a run in silence. Of
these 26 the changed lines were read. Fifteen do no harm: they choose another way to compute the
same, the size of a chunk, or how long to wait, or divide by a deviation that is 1. Eleven were
faults. Ten of them guards name since: steps without an update, groups that are never read again,
conversations that are not played, or cut off without a verdict, or end otherwise than they say
(two), log-probs of what an environment said, figures that a loss no longer reports (two), and given
answers whose loss gets completions; the eleventh left the head's gradient as it lay in memory,
which was right in that run by chance, and was stopped when it was run again in two precisions. So
guards stopped 42 of 53 mutants that harm in silence, 79 %, by whatever name, where nobody had
chosen the faults.

Three more grounds and another seed were measured after that (2026-11-27, `--ground`, `--dtype` and
`--seed`): the step again, generation ahead of training with the engine's process and the pool of
verifiers (`child`), and what saves, loads and resumes (`resume`: runs that are stopped after four
of eight steps, with the mutant in both parts). *same*: nothing differs in metrics, rollouts,
samples, evaluations, checkpoints, or the outcome in `run.json`; *error*: an exception or a message
of its own; *harm*: those of the silent ones that are faults, by hand. The last two columns are the
share of mutants that harm without an error of their own which a guard stopped: before anybody read
the silent ones, and after what was mended since.

| ground, precision, seed | n | same | error | hang | guard | silent | harm | before | after |
|---|---|---|---|---|---|---|---|---|---|
| step, float32, 41 | 150 | 54 | 54 | 0 | 24 | 18 | 11 | 24 of 35, 69 % | 28 of 35, 80 % |
| step, bfloat16, 45 | 55 | 22 | 18 | 0 | 9 | 6 | 4 | 9 of 13, 69 % | 9 of 13, 69 % |
| child, float32, 44 | 46 | 21 | 20 | 2 | 2 | 1 | 1 | 2 of 3 | 3 of 3 |
| resume, float32, 43 | 120 | 42 | 61 | 1 | 7 | 9 | 8 | 7 of 15, 47 % | 14 of 15, 93 % |

Those of a step come by 40 shapes and not by all, those of the child by one, those of resumptions by
five; they are few, so each share is good to ten points and more. Five of the silent ones were right
in their run by chance, as a ratio or a weight was 1 or there was one reward. They are among those
that harm, before and after; four were put into another shape or precision, and guards that were
there stopped all four. Mended were: runs that go on from an older checkpoint or begin again, or of
which `run.json` does not say that they were resumed (four); losses on rewards without advantages; a
bonus of entropy before an entropy is known; reasons for dropped groups (two); shares that are
clipped, the likelihood of given answers and expired groups, which a step's line no longer had; and
observations that are cut though they are short. Not mended: an environment that is asked for a
verdict on an unfinished conversation, and has none, so that it ends as failed (the line's
`ended/error`); fingerprints of prompts, of a sampler's data and of given answers, which no longer
tell them apart (three); a training pass in float32 where the config has bfloat16; the weight of a
bonus of entropy that is missing on the line; and weights that are handed on without their adapter
(an engine in process takes none; `sync/read_back`, the share that is compared, falls). With the
guards that came of it 70 healthy runs of 33 shapes, in both precisions, ended undisturbed.

"""
SECOND = """
## A second set

The guards were made better with the faults above in view, so these {faults} were written later, by
someone who had read neither the guards nor, but for their names, the faults of the first set. They
say how the guards do on faults that nobody had in mind. In figures, counted as above:

"""
SECOND_BEFORE = """
As they were first measured, when nobody but their author had seen them, of 98 runs in float32 with
the engine in process 63 were stopped with the right name, 5 noted, 3 given a wrong name and 27
missed; of 96 in bfloat16 61 were stopped with the right name, 5 noted, 2 given a wrong name and 28
missed. The table has the guards of some commits later.

With the faults came healthy runs of random shape: about 140 in each precision of 8 steps, 60 that
were resumed, 140 of 40 steps. False alarms that they found: `parity` and `kl` in bfloat16 at low
temperatures, `parity` in bfloat16 for a policy that is nearly sure, `advantages` under a KL term of
`k1` and a `beta` of 1, `sync` with LoRA, a reference that moves and an engine in a process of its
own, because it compared the reference's adapter too. They are mended.

"""
THIRD = """
## A third set

And {faults} more, written later still, again by someone who had not read the guards: most of them
partial, late or conditional, such as a fault in one of two sources, in the last row of each
micro-batch, from the third step on, with LoRA only. In figures, counted as above:

"""
THIRD_BEFORE = """
As they were first measured, when nobody but their author had seen them, of 105 runs in float32 with
the engine in process 67 were stopped with the right name, 6 noted, 6 given a wrong name and 26
missed; of 105 in bfloat16 65 were stopped with the right name, 6 noted, 6 given a wrong name and 28
missed. The guards `prompts`, `completions`, `draws`, `canaries` and `references` came after that,
and `seeds` by the exact stream.

"""
FOURTH = """
## A fourth set

And {faults} more, again by someone who had not read the guards, when most of the third set was
mended. In figures, counted as above:

"""
FOURTH_BEFORE = """
As they were first measured, of 55 runs in float32 (44 in process, 11 in a child) 49 were stopped
with the right name, 2 noted and 4 missed; of 55 in bfloat16 46, 2 and 7. Of the misses two were of
the size of rounding in bfloat16.

"""
FIFTH = """
## A fifth set

And {faults} more, once more by someone who had not read the guards, when most of the fourth set was
mended. In figures, counted as above:

"""
FIFTH_BEFORE = """
As they were first measured, of 63 runs in float32 58 and of 63 in bfloat16 55 were stopped with the
right name or noted.

"""
SIXTH = """
## A sixth set

And {faults} more by the author of the fifth set, measured when most of the fifth was mended. In
figures, counted as above:

"""
SIXTH_BEFORE = """
As they were first measured, of 28 runs in float32 27 were stopped with the right name or noted, and
of 28 in bfloat16 26. One fault, `template-mapped-twice`, was known when its check was written.

"""
SEVENTH = """
## A seventh set

And {faults} more by somebody else who had not read the guards, modelled on faults that frameworks
like this one have had, measured when most of the sixth was mended. In figures, counted as above:

"""
SEVENTH_BEFORE = """
As they were first measured, with the engine in process, 25 of 28 runs were stopped with the right
name or noted, in float32 and in bfloat16 alike.

"""
EIGHTH = """
## An eighth set

And {faults} more by a fourth author, in the same way, measured when most of the seventh was mended.
In figures, counted as above:

"""
EIGHTH_BEFORE = """
As they were first measured, 28 of 31 runs in float32 and 27 of 31 in bfloat16 were stopped with the
right name: an entropy bonus without gradient, a reward that was reported of the kept groups alone
and groups that stop growing at a failure were missed.
`rotary-buffer-lost-when-the-engine-wakes` was measured in its second form, which is weaker than the
first. What the earlier sets still miss:

- `prompts-cut`: prompts that lack their last word still say all that is asked, and nothing in a run
  says what they were;
- `gold-wrong-where-it-carries`: of 89 problems 8 are wrong, and in 8 steps too few of them are
  agreed on; a policy that forgets to carry looks the same in so few;
- `first-token-taken-greedily`: the model of the suite gives the first token .9996, so of 512 not
  one was another in a healthy run: the fault changes nothing here;
- `one-of-two-replicas-never-synced` with an engine in its own process: completions are of older
  weights by the time they are trained on, the trainer has those no longer, and what is
  read back is the first replica.

"""
NINTH = """
## A ninth set

And {faults} more by another author who had not read the guards, modelled on faults that frameworks
like this one have had. In figures, counted as above:

"""
NINTH_BEFORE = """
As they were first measured, 26 of 30 runs were stopped with the right name, in float32 and in
bfloat16 alike: advantages that each rank normalises, an embedding that Muon orthogonalises and
weights of difficulty the wrong way round were missed.

"""
TENTH = """
## A tenth set

And {faults} more by another author who had not read the guards, with healthy runs of unusual shape
beside them. In figures, with one fault in a child, too:

"""
TENTH_BEFORE = """
As they were first measured, with the engine in process, 29 of 37 runs in float32 and 28 of 36 in
bfloat16 were stopped with the right name. `first-wave-sampled-by-the-weights-before` changes
nothing in a run, and is no miss: 81 % and 80 % of those that count. Since then `draws` knows what
`core/difficulty` draws and `advantages` computes REINFORCE++ again, which was done before anybody
looked at this set; a steered entropy bonus, masks of conversations and ends of given answers and
notes on failures with unequal scores came after it. An engine's rotary frequencies in half
precision are found since buffers of engines are compared.

"""
ELEVENTH = """
## An eleventh set

And {faults} more by another author who had not read the guards, with ten healthy runs of unusual
shape beside them. In figures, counted as above:

"""
ELEVENTH_BEFORE = """
As they were first measured, with the engine in process and in bfloat16, when nobody but their
author had seen them, 38 of 44 were stopped with the right name (86 %), one was given a wrong name
and 5 were missed. References that share tensors with the policy, weights of losses on given
answers, seeds of later turns and observations came after them, then the guard `data`, and a count
of weights that were renewed amid completions. For the latter,
`versions-of-tokens-after-a-renewal-lost` was moved to a shape in which generation lags behind
training: in its first one no completion of a healthy run had tokens of two versions, so it changed
nothing.

"""
TWELFTH = """
## A twelfth set

And {faults} by one who mends the guards, and so not blind: of loading, and of figures that are
reported. In figures, counted as above:

"""
TWELFTH_BEFORE = """
Before the check of a policy's files, 20 of 30 runs were found by the right name.

"""
THIRTEENTH = """
## A thirteenth set

And {faults} more by another author who had not read the guards, with 15 healthy runs of unusual
shape beside them. In figures, counted as above:

"""
THIRTEENTH_BEFORE = """
As they were first measured, with the engine in process, when nobody but their author had seen them:
36 of 41 were stopped with the right name in bfloat16 (88 %), 38 of 42 in float32 (90 %), and the
others were missed. The edges of top-k and top-p, iterations that are left out, dropout that
repeats, and conversations that are played again came after them; for the last, the suite's
environment says that it is deterministic.

"""
FOURTEENTH = """
## A fourteenth set

And {faults} by yet another, who had not read them either, written while the guards were mended
after the thirteenth; 15 healthy runs beside them. In figures, counted as above:

"""
FOURTEENTH_BEFORE = """
First measured, likewise unseen: 33 of 36 in bfloat16 with the right name (92 %) and 34 of 38 in
float32 (89 %). The others were missed, one of them with a warning about something else that has
one of its words, which the suite would have counted. Dropout of a recomputed pass, references of
later updates and the text of recorded prompts came after them.

"""
FIFTEENTH = """
## A fifteenth set

And {faults} by another author who had not read the guards, after the mends that followed the
fourteenth; 11 healthy runs beside them. In figures, counted as above:

"""
FIFTEENTH_BEFORE = """
First measured, unseen: 39 of 44 in bfloat16 with the right name (89 %) and 41 of 45 in float32
(91 %); one was given a wrong name in float32, the others were missed. Teachers that are the policy
and the denominators of given answers came after them. Of an environment that hears otherwise than
it was meant to nothing in a run says so, as it hears the same when it is played again.

"""
SIXTEENTH = """
## A sixteenth set

And {faults} by another author who had not read the guards; 8 healthy runs of unusual shape beside
them. In figures, counted as above:

"""
SIXTEENTH_BEFORE = """
First measured, unseen: 33 of 39 with the right name in bfloat16 (85 %) and in float32 (85 %); five
were missed in either, one more in bfloat16, and one was given a wrong name in float32. Formulas of
the config's options for REINFORCE++ and the penalty on length, the choice by entropy over a whole
update, adapters that are not 0 at the start, options of the library's optimizer, and losses on
given answers in the line came after them.

"""
SEVENTEENTH = """
## A seventeenth set

And {faults} by another author who had not read the guards; 8 healthy runs of unusual shape beside
them. In figures, counted as above:

"""
SEVENTEENTH_BEFORE = """
First measured, unseen: 35 of 39 with the right name in bfloat16 (90 %) and 37 of 42 in float32
(88 %); one was given a wrong name in float32, the others were missed. The precision of the trainer
against the config, passes with dropout but without gradient, what a loss computes with beside its
options, and a narrower band of k3 in float32 came after them. That a verifier's own function reads
something else than it is given, nothing outside of it can know.

"""
EIGHTEENTH = """
## An eighteenth set

And {faults} by yet another, written at the same time without sight of the seventeenth; 8 healthy
runs beside them. In figures, counted as above:

"""
EIGHTEENTH_BEFORE = """
First measured, unseen: 26 of 35 with the right name in bfloat16 (74 %) and 29 of 36 in float32
(81 %); one was given a wrong name, the others were missed. Rounded log-probs of the engine, the
scale of dropout, tensors that are trained beside an adapter's two matrices, conversations of which
more are played again, versions in records, references that moved within a step, and old log-probs
of rows that are read again came after them. A draw that is aborted and never made again leaves no
trace in eight steps.

"""
NINETEENTH = """
## A nineteenth set

And {faults} that are like mutants which no guard had stopped ([Mutants](#mutants)), written with
what came after them: they say that it works, and nothing of what nobody thought of. In figures,
counted as above:

"""
NINETEENTH_BEFORE = """
"""
TWENTIETH = """
## A twentieth set

And {faults} by another author who had not read the guards, among them faults of evaluations, of
what begins late in a completion, of weights of rows, of accounts and of checkpoints. In figures,
counted as above:

"""
TWENTIETH_BEFORE = """
First measured, unread, with the engine in process: 45 of 54 with the right name in bfloat16 (83 %)
and 47 of 55 in float32 (85 %); the others were missed. With an engine of its own 15 of 18 and 18 of
19. None was thrown out: one had changed nothing, as its shape had no group of equal rewards, and
was put into another before it was known what finds it. By the rule no name was wrong; a reader
would call wrong what `kl` said of `bonus-of-entropy-is-of-the-sampled-tokens`, which it says no
more. The draws of evaluations, log-probs by depth and by what all are off alike, the share of a
row, the step of a recorded rollout, ledgers and the scale of saved adapters came after them. What
is left: a kernel without temperature behind the twelfth token, where four rows of a hundred are so
long, in bfloat16; and versions of tokens that begin one late, since nobody keeps the older weights.
A fault of the sampler that is at the edge of what one step tells is missed beside training in
bfloat16, where the first step alone is looked at.

With these guards 142 healthy runs, 60 of them of random shape, ended undisturbed. Of 176 before
them one had been stopped: `seeds`, in bfloat16 at a temperature of 0.2 with `top_p`, took tokens
that rounding keeps at the edge of top-p for other draws. It is mended. Of seven variants of these
faults that were tried afterwards in bfloat16 six were stopped; an evaluation that is one small
update behind is found in float32 alone.

"""
TWENTYFIRST = """## A twenty-first set

{faults} faults of evaluations alone, written before the guard was read: in runs of two processes,
with the engine in a process of its own, with vLLM, and of `rlvr eval` and `rlvr passk` on a run's
checkpoint. `message` is an error of these commands, which write no summary then. In figures,
counted as above:

"""
TWENTYFIRST_BEFORE = """
First measured, unread: 14 of 100 with the right name, all of them with the engine in a process of
its own, where `seeds` looked at evaluations; the other 86 were missed. The same faults were
measured again when the guard had been extended, so the table is no blind figure. What is left is a
task of a plugin that scores a half of its groups: what its figures are to be is not known.

With these guards 50 healthy runs of five shapes ended undisturbed: evaluations at temperatures of
1, 0.6 and 0, with top-p and top-k, and of LoRA, in both precisions, in process, with an engine of
its own, in two processes, with vLLM, and by `rlvr eval`; so did 108 calls of `rlvr eval` and
`rlvr passk` on random models, 18 of them with vLLM. Before, two of those had been stopped, in
bfloat16 by a band of k3 that was too narrow for large logits; it is wider since.

"""
TWENTYSECOND = """## A twenty-second set

{faults} faults that users of other trainers have met: bugs that were reported of TRL, verl,
NeMo-RL, prime-rl, OpenRLHF, open-instruct, SkyRL, slime and others, and of the libraries below
them, put into runs of rlvr by an author who had not read the guards. The comment above each fault
in `tests/chaos/chaos/library` says whose it was and what happened. In figures, counted as above:

"""
TWENTYSECOND_BEFORE = """
First measured, unread: with the engine in process 34 of 36 with the right name in float32 and 33 of
36 in bfloat16, in two processes 6 of 8 and 6 of 7, with an engine of its own 27 of 31 and 27 of 31,
with vLLM 23 of 24 and 24 of 25: 180 of 198 (91 %). The others were missed, none was given a wrong
name. Six of the 180 were right by the rule alone: that the second of two data sets is judged by the
verifier of the first was in a note of `gold` that says nothing of it to a reader; without them it
is 174 (88 %). One miss was the suite's own: it took a run that the watchdog had ended for one that
never ends. One fault was taken out with an engine of its own, where a rule of the config refuses
its shape.

Afterwards `rewards` asks whose a verdict is, `tokens` and `loss` hold the factor for the number of
processes, `tokens` names groups that are dropped ahead of training though their rewards differ, and
`reported` compares the best value of a checkpoint with all evaluations: 189 of 198 (95 %). What had
been right with vLLM, and with an engine of its own in float32, was not measured again. What is
left: a parser that stumbles over two words before an answer, of which nothing outside of a user's
verifier knows that it should not; and random numbers that are rounded to bfloat16, which differ
from others by less than the rounding of a model in bfloat16, and for which an engine ahead of
training gives one step to look at.

With these guards 294 of 296 healthy runs ended undisturbed: 94 shapes that these guards look at and
30 random ones (`--random 30 --seed 22`) with the engine in process, 11 in two processes and 13 with
an engine of its own, in both precisions. Two of random shape were stopped in bfloat16, as they had
been before: `loss` took the rounding of a gradient, of a row of which the policy is nearly sure,
for another gradient. It compares with the row's own rounding since, and both end.
"""

TWENTYTHIRD = """## A twenty-third set

{faults} ordinary faults in ordinary places, of all classes, as a team would meet them in silence:
written by somebody who was told what the guards claim to find, and had not read them. Ten are in a
user's own parts (a verifier, a loss, a sampler, an environment), seven in one of two processes. In
figures, counted as above:

"""
TWENTYTHIRD_BEFORE = """
First measured, unread: with the engine in process 31 of 40 with the right name in float32 and 30 of
39 in bfloat16, in two processes 6 of 7 and 6 of 7, with an engine of its own 24 of 34 and 24 of 34:
121 of 161 (75 %). The others were missed, none was given a wrong name. Four of the 121 were right
by the rule alone: in three runs `gold` said of a verifier that turns round each twelfth verdict
that it passes an empty answer, and in one `loss` said of a second process with another temperature
that a gradient is 1.15 times what it should be; without them it is 117 (73 %). What was missed lay
in parts that were a user's own (a loss, a sampler, an environment, a verifier that gives no score
to what it cannot read), in how rows became prompts, and in one row of an embedding; with an engine
ahead of training also a temperature that falls from version to version, and one reference answer in
seven that is wrong.

Afterwards `loss` holds losses of plugins to what every loss has promised, `optimizer` looks at each
token's row of embedding and head, `draws` tries copies of a plugin's sampler and knows what its
rounds leave out, `gold` names verifiers that give no score to an empty answer, and the examination
before the first step names prompts that are ids, hold another problem's prompt, or have line breaks
that were escaped twice: 153 of 161 (95 %). What had been right was not measured again, and nothing
with vLLM. What is left: an environment that judges its second question by the first one's answer,
of which nothing outside of it knows; an engine ahead of training whose temperature changes with the
version, as the tokens of older weights are not drawn again; and wrong references where too few
groups of eight steps agree against them.

With these guards all 430 healthy runs with the engine in process ended undisturbed and unremarked,
and 66 in two processes: 215 and 33 shapes in both precisions, own losses and samplers of a plugin
among them.

"""

TWENTYFOURTH = """## A twenty-fourth set

{faults} faults from the point of view of somebody who changes the code: a refactoring, a speed-up,
a feature that is half wired, a simplification, a merge that lost a line, a call of torch or
transformers that is a little wrong, or a verifier, estimator, sampler, environment or loss of one's
own. Written by an author who had not read the guards; the comment above each fault in
`tests/chaos/chaos/library` is the message of the commit that brought it. In figures, counted as
above:

"""
TWENTYFOURTH_BEFORE = """
First measured, unread, with the engine in process: 37 of 41 with the right name in float32 (90 %)
and 34 of 41 in bfloat16 (83 %); a strict reader takes off one in each, where `seeds` says of a draw
that the seeds are others. In bfloat16 three were given a wrong name. A first measurement of one
fault, of casts, had ended in an exception of its own; its second one counts.

Afterwards `advantages` compares factors with the config, and the plain pass that gradients are
compared with takes no casts of an enclosing region: 38 of 41 and 36 of 41. Those that had been
right were not measured again, and nothing was with an engine of its own or with vLLM. What is left:
problems that are asked otherwise and keep their answers, a worked example that is the problem
itself, an environment that lets a wrong answer be given again, and in bfloat16 a penalty of one nat
on the token of the row before, and positions of packed rows that go wrong in a later micro-batch,
of which `seeds` says that the engine draws otherwise.

"""
LATER = {
    2: (SECOND, SECOND_BEFORE),
    3: (THIRD, THIRD_BEFORE),
    4: (FOURTH, FOURTH_BEFORE),
    5: (FIFTH, FIFTH_BEFORE),
    6: (SIXTH, SIXTH_BEFORE),
    7: (SEVENTH, SEVENTH_BEFORE),
    8: (EIGHTH, EIGHTH_BEFORE),
    9: (NINTH, NINTH_BEFORE),
    10: (TENTH, TENTH_BEFORE),
    11: (ELEVENTH, ELEVENTH_BEFORE),
    12: (TWELFTH, TWELFTH_BEFORE),
    13: (THIRTEENTH, THIRTEENTH_BEFORE),
    14: (FOURTEENTH, FOURTEENTH_BEFORE),
    15: (FIFTEENTH, FIFTEENTH_BEFORE),
    16: (SIXTEENTH, SIXTEENTH_BEFORE),
    17: (SEVENTEENTH, SEVENTEENTH_BEFORE),
    18: (EIGHTEENTH, EIGHTEENTH_BEFORE),
    19: (NINETEENTH, NINETEENTH_BEFORE),
    20: (TWENTIETH, TWENTIETH_BEFORE),
    21: (TWENTYFIRST, TWENTYFIRST_BEFORE),
    22: (TWENTYSECOND, TWENTYSECOND_BEFORE),
    23: (TWENTYTHIRD, TWENTYTHIRD_BEFORE),
    24: (TWENTYFOURTH, TWENTYFOURTH_BEFORE),
}
"""What is said before and after the figures of each later set."""
KINDS = ("stopped", "note", "wrong name", "missed")
BACKENDS = {
    21: ("two processes", "child", "vllm", "rlvr eval"),
    22: ("in process", "two processes", "child", "vllm"),
    23: ("in process", "two processes", "child", "vllm"),
}
"""Those of sets that are put into other runs than ``EVERYWHERE``."""


def kind(line: Mapping[str, Any]) -> str:
    """What a result counts as."""
    if line["found"] == "missed":
        return "missed"
    if not line["right"]:
        return "wrong name"
    return "note" if line["found"] == "note" else "stopped"


def page(
    faults: Sequence[Fault],
    results: Sequence[Mapping[str, Any]],
    healthy: Sequence[Mapping[str, Any]],
) -> str:
    """The whole page."""
    by_set = {number: [f for f in faults if f.set == number] for number in (1, *LATER)}
    set_of = {fault.name: fault.set for fault in faults}
    lines = {n: [line for line in results if set_of[line["fault"]] == n] for n in by_set}
    shapes = {line["shape"] for line in healthy}
    disturbed = [line["case"] for line in healthy if line["code"] != 0]
    out = HEAD.format(faults=len(by_set[1]), more=len(faults) - len(by_set[1]))
    out += _summary(lines[1])
    out += (
        f"\nHealthy runs: {len(healthy)}, of {len(shapes)} shapes, {len(disturbed)} disturbed"
        f"{': ' if disturbed else ''}{', '.join(disturbed)}.\n"
    )
    out += BEFORE + MUTANTS.rstrip() + "\n" + BODY + _tables(by_set[1], results)
    for number, texts in LATER.items():
        out += later_set(number, by_set[number], lines[number], *texts)
    return out.rstrip() + "\n"


def later_set(
    number: int,
    faults: Sequence[Fault],
    results: Sequence[Mapping[str, Any]],
    head: str,
    before: str,
) -> str:
    """The section on a set of faults that was written after the guards."""
    out = head.format(faults=len(faults)) + _summary(results) + before
    return out + _tables(faults, results, f" (set {number})", BACKENDS.get(number, EVERYWHERE))


def _tables(
    faults: Sequence[Fault],
    results: Iterable[Mapping[str, Any]],
    more: str = "",
    backends: Sequence[str] = EVERYWHERE,
) -> str:
    columns = [(backend, dtype) for backend in backends for dtype in DTYPES]
    by_fault: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for line in results:
        by_fault.setdefault(line["fault"], {})[line["backend"], line["dtype"]] = line
    head = [
        "fault",
        *(f"{b}, {d}".replace("bfloat16", "bf16").replace("float32", "f32") for b, d in columns),
    ]
    out = ""
    for cls in dict.fromkeys(fault.cls for fault in faults):
        out += f"### {cls}{more}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
        for fault in faults:
            if fault.cls == cls:
                found = by_fault.get(fault.name, {})
                cells = [
                    _cell(found.get((backend, dtype)))
                    if backend in fault.backends and dtype in fault.dtypes
                    else "-"
                    for backend, dtype in columns
                ]
                out += f"| {fault.what.rstrip('.')} (`{fault.name}`) | {' | '.join(cells)} |\n"
        out += "\n"
    return out


def _summary(results: Sequence[Mapping[str, Any]]) -> str:
    head = ["class", *(f"{d}: {what}" for d in DTYPES for what in ("runs", *KINDS))]
    out = f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    classes = dict.fromkeys(line["cls"] for line in results)
    for cls in (*classes, "all"):
        cells = []
        for dtype in DTYPES:
            mine = [x for x in results if x["dtype"] == dtype and cls in (x["cls"], "all")]
            counts = Counter(kind(x) for x in mine)
            cells += [len(mine), *(counts[what] for what in KINDS)]
        bold = "**" if cls == "all" else ""
        out += f"| {bold}{cls}{bold} | {' | '.join(f'{bold}{c}{bold}' for c in cells)} |\n"
    return out


def _cell(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return "(not run)"  # in brackets: nothing is known that a run could contradict
    what = kind(line)
    if what == "missed":
        return "**missed**"
    by = line["by"] if line["found"] == "guard" else line["found"]
    said = by if line["found"] == "note" else f"{by} {line['step']}"
    return f"({said})" if what == "wrong name" else said
