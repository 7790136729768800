"""Mistakes planted in a copy of the quick start, one a time, and what names each.

``python -m tests.doctor.planted [NAME ...]`` examines each copy with ``rlvr doctor``, and
``--run`` with a few steps of ``rlvr run``; it prints which mistakes were named.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart.yaml"

Plant = Callable[[dict[str, Any], Path], None]


@dataclass(frozen=True)
class Mistake:
    """A planted mistake.

    Attributes:
        name: Its name.
        plant: Changes a configuration, and writes files into its folder.
        checks: Ids of the checks that may name it.
        words: What a message of ``rlvr run`` that names it must match.
    """

    name: str
    plant: Plant
    checks: tuple[str, ...]
    words: str


MISTAKES: list[Mistake] = []


def mistake(*checks: str, words: str) -> Callable[[Plant], Plant]:
    """Register the function as a mistake that one of the checks must name."""

    def register(plant: Plant) -> Plant:
        MISTAKES.append(Mistake(plant.__name__, plant, checks, words))
        return plant

    return register


def rows(n: int = 400, seed: int = 0) -> list[dict[str, Any]]:
    """Return problems as the quick start's data set asks them."""
    rng, made = random.Random(seed), {}
    while len(made) < n:
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        made[f"{a}+{b}"] = {
            "id": f"sum_{a}_{b}",
            "question": f"What is {a}+{b}?",
            "answer": str(a + b),
            "first": str(a),
        }
    return list(made.values())


def use_rows(
    config: dict[str, Any], folder: Path, data: list[dict[str, Any]], **options: Any
) -> None:
    """Train on these rows."""
    text = "".join(json.dumps(row) + "\n" for row in data)
    (folder / "data.jsonl").write_text(text, encoding="utf-8")
    given = {
        "path": str(folder / "data.jsonl"),
        "prompt": "question",
        "id": "id",
        "verifier": "math/boxed",
    }
    config["data"]["sources"] = [{"use": "core/jsonl", "with": given | options}]
    config["eval"]["tasks"] = []


def use_function(config: dict[str, Any], folder: Path, body: str) -> None:
    """Judge by a function of the user's own."""
    head = "import random, time\n\nCALLS = [0]\n\n\ndef judge(text, answer):\n"
    (folder / "reward.py").write_text(head + body, encoding="utf-8")
    use_rows(config, folder, rows())
    config["rewards"] = [f"{folder}/reward.py:judge"]


def own_model(config: dict[str, Any], folder: Path, name: str = "tiny-base") -> Path:
    """Train a copy of the quick start's model, whose files may be changed."""
    from rlvr_core.builtin.tiny.tiny import resolve_tiny
    from rlvr_core.host.host import load_host

    path = folder / name
    shutil.copytree(resolve_tiny("tiny:math/arithmetic", load_host()), path)
    config["model"]["path"] = str(path)
    return path


def edit(path: Path, **changes: Any) -> None:
    """Change values of a JSON file; None removes one."""
    data = json.loads(path.read_text())
    for key, value in changes.items():
        data[key] = value
        if value is None:
            del data[key]
    path.write_text(json.dumps(data))


# -- data -----------------------------------------------------------------------------------------


@mistake("batch/consensus", "verifier/gold", "data/references", words="reference|gold|column")
def answer_column_is_another(config, folder):
    use_rows(config, folder, [{**row, "answer": row["first"]} for row in rows()])


@mistake("data/references", words="reference|same answer|one answer")
def every_answer_is_the_same(config, folder):
    use_rows(config, folder, [{**row, "answer": "7"} for row in rows()])


@mistake("data/leaks", words="prompt.*(hold|contain).*(answer|reference)|leak")
def answer_in_prompt_with_label(config, folder):
    data = [{**r, "question": f"{r['question']} (Answer: {r['answer']})"} for r in rows()]
    use_rows(config, folder, data)


@mistake("data/leaks", words="prompt.*(hold|contain).*(answer|reference)|leak")
def answer_in_prompt_at_the_end(config, folder):
    use_rows(
        config, folder, [{**r, "question": f"{r['question']} [{r['answer']}]"} for r in rows()]
    )


@mistake("data/copies", words="repeat|duplicate|cop(y|ies)")
def few_problems_under_many_ids(config, folder):
    data = [{**row, "id": f"{row['id']}_{i}"} for row in rows(5) for i in range(80)]
    use_rows(config, folder, data)


@mistake("data/copies", words="repeat|duplicate|cop(y|ies)")
def copies_with_other_spacing(config, folder):
    data = rows(200)
    twins = [{**r, "id": r["id"] + "b", "question": "  " + r["question"].upper()} for r in data]
    use_rows(config, folder, data + twins)


@mistake("data/templates", words="template.*twice|twice.*template")
def a_template_applied_to_half_of_the_prompts_again(config, folder):
    data = [f"Work out: {r['question']} Answer in brackets." for r in rows()]
    again = [
        {**r, "question": f"Work out: {text} Answer in brackets." if at % 2 else text}
        for at, (r, text) in enumerate(zip(rows(), data, strict=True))
    ]
    use_rows(config, folder, again)


@mistake("data/contradictions", words="contradict|different references")
def one_prompt_with_two_answers(config, folder):
    data = rows(300)
    twins = [{**r, "id": r["id"] + "b", "answer": str(int(r["answer"]) + 3)} for r in data[:40]]
    use_rows(config, folder, data + twins)


@mistake("batch/consensus", words="consensus|references? .*wrong|gold.*wrong")
def a_third_of_the_gold_is_wrong(config, folder):
    rng = random.Random(1)
    use_rows(
        config,
        folder,
        [
            {**r, "answer": str(int(r["answer"]) + rng.choice([-10, -2, 1, 3, 10]))}
            if rng.random() < 0.3
            else r
            for r in rows()
        ],
    )


@mistake("batch/consensus", words="consensus|references? .*wrong|gold.*wrong")
def gold_of_other_problems(config, folder):
    data = rows()
    answers = [row["answer"] for row in data[1:]] + [data[0]["answer"]]
    use_rows(config, folder, [{**r, "answer": a} for r, a in zip(data, answers, strict=True)])


@mistake("batch/pass_rate", "data/copies", words="pass|column|repeat")
def prompt_column_is_another(config, folder):
    use_rows(config, folder, rows(), prompt="id")


@mistake("data/held_out", words="trained on")
def eval_data_are_training_data(config, folder):
    use_rows(config, folder, rows())
    given = config["data"]["sources"][0]
    task = {"use": "core/dataset", "with": {"data": given}}
    config["eval"]["tasks"] = [task]


@mistake("data/overlong", "run/start", words="longer than")
def every_prompt_is_too_long(config, folder):
    config["data"]["max_prompt_tokens"] = 8


@mistake("data/amount", words="more prompts than")
def a_step_has_more_prompts_than_there_are(config, folder):
    use_rows(config, folder, rows(20))


# -- verifiers ------------------------------------------------------------------------------------


@mistake("batch/reading", "batch/extraction", "batch/pass_rate", words="verifier|exact|no.*pass")
def verifier_wants_the_bare_answer(config, folder):
    use_rows(config, folder, rows(), verifier="core/exact")


@mistake("verifier/canaries", words="empty answer|passes anything|wrong answer")
def verifier_always_says_one(config, folder):
    use_function(config, folder, "    return 1.0\n")


@mistake("verifier/forms", "batch/rewards", words="passes nothing|every completion gets")
def verifier_always_says_zero(config, folder):
    use_function(config, folder, "    return 0.0\n")


@mistake("verifier/canaries", words="filler|longer|wrong answer")
def verifier_likes_length(config, folder):
    use_function(config, folder, "    return min(1.0, len(text) / 40)\n")


@mistake("verifier/canaries", words="wrong answer|corrupt")
def verifier_reads_the_last_character(config, folder):
    body = "    return float(text.strip(' }.')[-1:] == str(answer)[-1])\n"
    use_function(config, folder, body)


@mistake("verifier/canaries", words="wrong answer|corrupt")
def verifier_reads_the_first_digit(config, folder):
    body = (
        "    found = [c for c in text.rpartition('boxed{')[2] if c.isdigit()]\n"
        "    return float(found[:1] == [str(answer)[0]])\n"
    )
    use_function(config, folder, body)


@mistake("verifier/canaries", words="wrong answer|taken back|anywhere")
def verifier_finds_the_answer_anywhere(config, folder):
    use_function(config, folder, "    return float(str(answer) in text)\n")


@mistake("verifier/canaries", words="prompt|echo|wrong answer")
def verifier_accepts_the_prompt(config, folder):
    use_function(config, folder, "    return float('What is' in text or str(answer) in text)\n")


@mistake("verifier/repeatable", words="second time|random|state")
def verifier_draws_at_random(config, folder):
    use_function(config, folder, "    return float(random.random() < 0.5)\n")


@mistake("verifier/repeatable", words="second time|state")
def verifier_counts_its_calls(config, folder):
    body = "    CALLS[0] += 1\n    return float(CALLS[0] % 3 == 0)\n"
    use_function(config, folder, body)


@mistake("batch/rewards", words="failed on|verdicts failed")
def verifier_raises(config, folder):
    body = "    if len(text) % 2:\n        raise ValueError('odd')\n"
    use_function(config, folder, body + "    return float(f'{{{answer}}}' in text)\n")


@mistake("cost/verifiers", words="verifier.*(slow|latency|workers)")
def verifier_is_slow(config, folder):
    body = "    time.sleep(0.08)\n    return float(f'{{{answer}}}' in text)\n"
    use_function(config, folder, body)


@mistake("batch/rewards", words="negative|wrong answers are rewarded|lower reward")
def reward_has_the_wrong_sign(config, folder):
    config["rewards"] = [{"use": "auto", "weight": -1.0}]


# -- prompts and model ----------------------------------------------------------------------------

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@mistake("prompt/template", words="base model")
def template_on_a_base_model(config, folder):
    path = own_model(config, folder)
    edit(path / "tokenizer_config.json", chat_template=TEMPLATE)
    config["data"]["prompt"] = {"chat_template": "always"}


@mistake("prompt/template", words="chat model")
def raw_text_on_a_chat_model(config, folder):
    path = own_model(config, folder, "tiny-chat")
    edit(path / "tokenizer_config.json", chat_template=TEMPLATE)
    config["data"]["prompt"] = {"chat_template": "never"}


@mistake("prompt/bos", words="BOS|begin with two|twice")
def bos_twice(config, folder):
    path = own_model(config, folder)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    piece = {"SpecialToken": {"id": "<pad>", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [piece, piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<pad>": {"id": "<pad>", "ids": [1], "tokens": ["<pad>"]}},
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    edit(path / "tokenizer_config.json", bos_token="<pad>")


@mistake("prompt/special", words="special token")
def special_tokens_in_the_prompt(config, folder):
    config["data"]["prompt"] = {"system": "<|endoftext|>Solve it."}


@mistake("prompt/eos", "batch/ending", words="end-of-sequence|eos|truncated")
def eos_of_all_files_is_wrong(config, folder):
    path = own_model(config, folder)
    edit(path / "config.json", eos_token_id=1)
    edit(path / "generation_config.json", eos_token_id=1)
    edit(path / "tokenizer_config.json", eos_token="<pad>")


@mistake("prompt/eos", words="end-of-sequence|eos")
def eos_of_the_tokenizer_is_wrong(config, folder):
    path = own_model(config, folder)
    edit(path / "tokenizer_config.json", eos_token="Z")


@mistake("batch/stops", words="stop")
def stop_string_cuts_answers(config, folder):
    config["sampling"]["stop"] = ["\\boxed{"]


@mistake("batch/ending", words="max_tokens|truncated")
def too_few_tokens(config, folder):
    config["sampling"]["max_tokens"] = 4


@mistake("batch/ending", words="max_tokens|truncated")
def some_answers_do_not_fit(config, folder):
    config["sampling"]["max_tokens"] = 6


@mistake("batch/noise", words="temperature|noise")
def text_is_noise(config, folder):
    config["sampling"]["temperature"] = 3.0


@mistake("batch/reading", words="reference|answer")
def references_are_sentences(config, folder):
    data = [{**row, "answer": f"the sum is {row['answer']} apples"} for row in rows()]
    use_rows(config, folder, data)


@mistake("data/overlong", words="max_prompt_tokens")
def most_prompts_are_left_out(config, folder):
    data = rows()
    for row in data[len(data) // 3 :]:
        row["question"] = "Dear reader, " * 20 + row["question"]
    use_rows(config, folder, data)
    config["data"] |= {"max_prompt_tokens": 40, "max_overlong_share": 0.9}


@mistake("weights/lr", words="eps|lr")
def updates_are_too_small_to_matter(config, folder):
    config["train"]["optimizer"] = {"with": {"eps": 10.0}}


@mistake("batch/rewards", words="reward")
def form_is_kept_already(config, folder):
    config["rewards"] = [{"use": "auto"}, {"use": "math/boxed-format", "weight": 0.1}]


@mistake("prompt/context", words="context|positions")
def context_is_too_short(config, folder):
    path = own_model(config, folder)
    edit(path / "config.json", max_position_embeddings=32)


@mistake("prompt/vocabulary", "model/vocabulary", "batch/pass_rate", words="tokenizer|vocab")
def tokenizer_of_another_model(config, folder):
    path = own_model(config, folder)
    from rlvr_core.builtin.tiny.tiny import resolve_tiny
    from rlvr_core.host.host import load_host

    other = resolve_tiny("tiny:ifeval/synthetic", load_host())
    shutil.copy(other / "tokenizer.json", path / "tokenizer.json")


@mistake("model/lora", "run/start", words="target_modules")
def lora_targets_match_nothing(config, folder):
    config["model"]["lora"] = {"rank": 4, "target_modules": ["query_key_value"]}


@mistake("model/attention", words="attention|flash")
def attention_is_not_installed(config, folder):
    config["model"]["attention"] = "flash_attention_2"


# -- sampling and training ------------------------------------------------------------------------


@mistake("config", words="temperature")
def temperature_zero(config, folder):
    config["sampling"]["temperature"] = 0


@mistake("batch/repeats", words="temperature|repeated")
def temperature_nearly_zero(config, folder):
    config["sampling"]["temperature"] = 0.01


@mistake("config", words="sampling.n")
def one_completion(config, folder):
    config["sampling"]["n"] = 1


@mistake("weights/parity", words="top_p|truncated distribution")
def nucleus_sampling(config, folder):
    config["sampling"]["top_p"] = 0.5


@mistake("config", words="lr")
def learning_rate_zero(config, folder):
    config["train"]["lr"] = 0


@mistake("weights/lr", words="train.lr")
def learning_rate_too_high(config, folder):
    config["train"]["lr"] = 0.1


@mistake("weights/lr", words="train.lr|next to nothing")
def learning_rate_too_low(config, folder):
    config["train"]["lr"] = 1e-12


@mistake("data/mini_batches", words="divide")
def batches_do_not_divide(config, folder):
    config["train"]["mini_batches"] = 5


@mistake("config", words="warmup_steps")
def warmup_longer_than_the_run(config, folder):
    config["train"]["warmup_steps"] = 500


@mistake("config", words="temprature")
def a_key_is_misspelt(config, folder):
    config["sampling"]["temprature"] = 0.7


@mistake("disk/checkpoints", "disk/files", words="free|disk")
def disk_is_too_small(config, folder):
    config["train"]["steps"] = 1_000_000
    config["checkpoint"] = {"every": 1, "keep": 1_000_000}


def ten_of_data(config, folder):
    """Plant ten mistakes in data, verifier, sampling and training."""
    rng, data = random.Random(3), rows(300)
    for row in data:
        if rng.random() < 0.3:
            row["answer"] = str(int(row["answer"]) + rng.choice([-10, -2, 3, 10]))
    twins = [{**row, "id": row["id"] + "b"} for row in data[:120]]
    use_rows(config, folder, data + twins, verifier="core/exact")
    given = config["data"]["sources"][0]
    config["eval"]["tasks"] = [{"use": "core/dataset", "with": {"data": given}}]
    config["sampling"] |= {"temperature": 0, "n": 1, "max_tokens": 4}
    config["train"] |= {"lr": 0, "mini_batches": 5}
    config["model"]["lora"] = {"rank": 4, "target_modules": ["query_key_value"]}
    disk_is_too_small(config, folder)


TEN_OF_DATA = {
    "config": ["temperature", "sampling.n", "train.lr"],
    "batch/consensus": [""],
    "batch/ending": ["max_tokens"],
    "batch/reading": [""],
    "data/copies": [""],
    "data/held_out": ["trained on"],
    "data/mini_batches": [""],
    "disk/files": [""],
    "model/lora": ["query_key_value"],
}
"""What names each of them: a check, and a word of what it measured or advises."""


def ten_of_model(config, folder):
    """Plant ten mistakes in model, prompts, data and training."""
    path = own_model(config, folder)
    use_rows(
        config, folder, [{**r, "question": f"{r['question']} ({r['answer']})"} for r in rows(24)]
    )
    edit(path / "tokenizer_config.json", chat_template=TEMPLATE)
    edit(path / "generation_config.json", eos_token_id=1)
    edit(path / "config.json", eos_token_id=1, max_position_embeddings=40)
    config["data"]["prompt"] = {"chat_template": "always", "system": "<|endoftext|>Solve."}
    config["model"]["attention"] = "flash_attention_2"
    config["sampling"] |= {"temperature": 0.01, "stop": ["\\boxed{"], "top_p": 0.5}
    config["train"] |= {"lr": 5.0, "warmup_steps": 500}


TEN_OF_MODEL = {
    "config": ["warmup_steps"],
    "batch/repeats": ["temperature"],
    "batch/stops": ["stop"],
    "data/amount": ["24"],
    "data/leaks": [""],
    "model/attention": ["flash_attention_2"],
    "prompt/context": ["40"],
    "prompt/eos": [""],
    "prompt/special": ["<|endoftext|>"],
    "prompt/template": ["base model"],
    "weights/lr": ["train.lr"],
}


def written(names: list[str], folder: Path) -> Path:
    """Write a copy of the quick start with these mistakes; return its path."""
    config = yaml.safe_load(QUICKSTART.read_text())
    known = {one.name: one for one in MISTAKES}
    for name in names:
        known[name].plant(config, folder)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


def _rlvr(*arguments: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "rlvr_core.cli.main", *arguments],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def by_run(one: Mistake) -> tuple[bool, str]:
    """Whether a few steps of ``rlvr run`` name a mistake, and what they said."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = written([one.name], folder)
        config = yaml.safe_load(path.read_text())
        steps = [] if one.name == "disk_is_too_small" else ["--set", "train.steps=8"]
        if "warmup" not in one.name and steps:
            steps += ["--set", "train.warmup_steps=0"]
        if not steps:
            return False, "not run"
        del config
        _, text = _rlvr("run", str(path), "--display", "plain", *steps, cwd=folder)
    lines = [
        line
        for line in text.splitlines()
        if re.search(r"error|warning|guard|preflight|^  ", line) and "step " not in line[:8]
    ]
    told = "\n".join(lines)
    return re.search(one.words, told, re.IGNORECASE) is not None, told[:400]


def by_doctor(one: Mistake) -> tuple[bool, str]:
    """Whether the doctor names a mistake, and what else it said."""
    from rlvr_core.builtin.doctor.examination import examine

    with tempfile.TemporaryDirectory() as name:
        report = examine(written([one.name], Path(name)))
    wrong = report.level("warn", "fail")
    named = any(finding.id in one.checks for finding in wrong)
    return named, "; ".join(f"{f.id}: {f.answer.value[:90]}" for f in wrong) or report.verdict


def main() -> None:
    """Print which mistakes are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--run", action="store_true", help="by rlvr run in the place of the doctor")
    arguments = parser.parse_args()
    some = [one for one in MISTAKES if not arguments.names or one.name in arguments.names]
    found = 0
    for one in some:
        named, said = (by_run if arguments.run else by_doctor)(one)
        found += named
        sys.stdout.write(f"{'named' if named else 'MISSED':<7}{one.name}: {said}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{found} of {len(some)} named\n")


if __name__ == "__main__":
    main()
