"""The words of the suite's page; ``page`` puts the figures between them."""

HEAD = """# The chaos suite

The suite breaks runs, one fault at a time, and records what each run says about its fault. A run
that trains on wrong numbers looks like any other run; these {faults} faults measure how often rlvr
notices.

Each fault is put into a run of eight steps of a small model that has half learned its task, by a
monkeypatch, a config, data or a plugin, in float32 and in bfloat16. The engine is in the trainer's
process, in a child process that samples beside training, or vLLM; some faults strike in one of two
training processes, in `rlvr eval`, or when a healthy run is resumed.

- **A fault matters.** A fault that changes no token, reward, loss, gradient or weight compared with
  the same run without it counts as an error of the suite. So does one whose code is never reached,
  and one that ends in an exception that no check raised.
- **The right name is declared before measuring.** Each fault comes with patterns (`WORDS` in
  `registry.py`, and its own). A message names the cause if it matches one of them.
- **The authors had not read the guards**, except for sets 12 and 19. There are {sets} sets; each
  was measured before any guard was changed because of it.

`make chaos` runs everything and writes this page. `make test` runs a sample, `make test-long` a
twentieth of the faults and a sixth of the healthy runs, which change with the commit, and
`make test-all` all of them. `python tests/chaos/run.py --help` shows how to run a part;
`--page docs/chaos.md` updates the cells that were run and keeps the others.
"""

FIGURES = """## In figures

*Stopped*: the run ended with an error that names the cause. *Note*: it went on, and a line of its
output or of `rlvr show` names the cause. *Wrong name*: something was said, but not the cause. The
last column counts runs that have not been made.

These figures are not blind: the guards were improved after each set, with its faults in view. The
next section has the blind ones. Cells that were right are measured again in part only (all of the
first 22 sets in process were, on 2026-11-28 and 29); cells that had been wrong are measured again
after each change of the guards.
"""

UNREAD = """## Found before anybody had read the faults

What each set measured when only its author had seen it. This is the figure to expect for a fault of
your own.
"""

HEALTHY = """## Healthy runs

No guard may disturb a healthy run. The suite has healthy runs of many shapes: algorithms, adapters,
samplers, references, conversations, packing, engines, resumed runs, and shapes drawn at random.
Alarms that such runs have raised are mended: `parity` and `kl` in bfloat16 at low temperatures;
`advantages` under a KL term with `beta: 1`; `sync` with LoRA and a moving reference; `reported` for
GMPO; `completions` for environments without seeds; `seeds` at the edge of top-p; `loss` for rows of
which the policy is nearly sure.
"""

MISSED = """## What is missed

Every fault with a run that is missed or gets a wrong name. Four kinds recur:

- **A rule of the user's own that is wrong.** An environment, a verifier or a parser decides what is
  right; nothing outside of it knows better unless its verdicts contradict each other.
- **Data that are wrong and plausible**: questions in good English that ask for something else than
  their answers, or wrong references of which too few are met in eight steps.
- **Differences below the rounding of bfloat16**, such as coarser random numbers, a penalty of one
  nat on one token, or log-probs normalised over most of the vocabulary.
- **Seeds of vLLM**: its sampler cannot be replayed outside of it, so a wrong seed shows only if
  completions repeat.
"""

MUTANTS = """## Mutants

Nobody chooses a mutant. `python tests/chaos/mutate.py --folder build/mutants` changes the code by
rule (one operator, constant, condition or argument, or a statement left out) and runs a shape that
reaches the line. Three grounds: the code of a step, a child engine that generates ahead of
training, and what saves, loads and resumes a run.

*Same*: nothing that a run records differs. *Error*: the run ended with an exception or message of
its own. *Guard*: a guard stopped it. *Silent*: the run changed and nothing was said. *Harm*: the
silent ones that are faults, judged by reading them; the rest choose another way to compute the
same. The last two columns are the share of harmful mutants without an error of their own that a
guard stopped: before anybody read the silent ones, and after the guards were mended.

| ground, precision, seed | n | same | error | hang | guard | silent | harm | before | after |
|---|---|---|---|---|---|---|---|---|---|
| step, bfloat16, 18 | 301 | 103 | 130 | 0 | 42 | 26 | 11 | 42 of 53, 79 % | 52 of 53, 98 % |
| step, float32, 41 | 150 | 54 | 54 | 0 | 24 | 18 | 11 | 24 of 35, 69 % | 28 of 35, 80 % |
| step, float32, 61 | 110 | 41 | 39 | 0 | 22 | 8 | 6 | 22 of 28, 79 % | 26 of 28, 93 % |
| step, bfloat16, 45 | 55 | 22 | 18 | 0 | 9 | 6 | 4 | 9 of 13, 69 % | 9 of 13, 69 % |
| child, float32, 44 | 46 | 21 | 20 | 2 | 2 | 1 | 1 | 2 of 3 | 3 of 3 |
| resume, float32, 43 | 120 | 42 | 61 | 1 | 7 | 9 | 8 | 7 of 15, 47 % | 14 of 15, 93 % |

The samples are small: a share is good to ten points at best. Not mended: an environment that is
asked for a verdict on an unfinished conversation (the line's `ended/error` rises); fingerprints of
prompts, of a sampler's data and of given answers that no longer differ; a training pass in float32
where the config has bfloat16; a missing `weight` of an entropy bonus on the line; weights handed on
without their adapter (`sync/read_back` falls); a bound on k3's exponent; and a rule for several
rewards in a run of one.
"""

FAULTS = """## Fault by fault

`parity 1`: the guard `parity` stopped the run at step 1; `start`: before the first step; `message`:
an error that is no guard's. In brackets: something was said, and not the cause. A dash: the fault
does not apply there.
"""
