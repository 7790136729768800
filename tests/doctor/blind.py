"""Mistakes of researchers, written down before the code of the doctor was read; which are named?

Unlike ``planted.py`` these are made in other configs as well: data of one's own, LoRA, tools,
structured output, a chat model. Each has words: an expression that a line of the report which is
DOUBT or WRONG (what was measured and the remedy, not the question) or the error of the command has
to match. They were chosen before the first measurement; afterwards two were widened by what a line
said as well, and two data sets that the verifier reads as it should became healthy ones.

    python -m tests.doctor.blind WORK [--only NAME ...] [--out FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS = {"sums": "math/arithmetic", "tools": "core/lookup", "json": "core/commands"}
PROMPT = "What is {a}+{b}?"


@dataclass
class Case:
    """A copy of a config, with the files that it reads."""

    folder: Path
    config: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    held: list[dict[str, Any]] = field(default_factory=list)

    @property
    def source(self) -> dict[str, Any]:
        """Options of the first data source."""
        options: dict[str, Any] = self.config["data"]["sources"][0]["with"]
        return options

    def reward(self, code: str, **entry: Any) -> None:
        """Judge by a function of our own alone."""
        (self.folder / "reward.py").write_text(code)
        self.config["rewards"] = [{"use": "./reward.py:reward", **entry}]

    def edit(self, name: str, change: Callable[[Any], None]) -> None:
        """Change a JSON file of the model's folder."""
        path = self.folder / "model" / name
        content = json.loads(path.read_text()) if path.exists() else {}
        change(content)
        path.write_text(json.dumps(content))


Change = Callable[[Case], None]


def _template(text: str) -> Change:
    return lambda case: case.edit("tokenizer_config.json", lambda c: c.update(chat_template=text))


CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
#: What the tiny model was trained on, as a template: a chat model whose turns end by its own token.
PLAIN_CHAT = (
    "{% for m in messages %}{{ m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ '<|endoftext|>' }}{% endif %}{% endfor %}"
)
LLAMA = (
    "{% for m in messages %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ ' ' }}{% endif %}"
)
RIGHT = "import re\ndef reward(text, answer):\n"
RIGHT += "    return re.findall(r'boxed\\{(\\d+)\\}', text)[-1:] == [str(answer)]\n"


# The mistakes -------------------------------------------------------------------------------


def gold_column(case: Case) -> None:
    case.source["spec"] = {"answer": "carry"}


def gold_units(case: Case) -> None:
    for row in case.rows + case.held:
        row["answer"] += " apples"


def gold_percent(case: Case) -> None:
    for row in case.rows + case.held:
        row["answer"] += "%"


def gold_shifted(case: Case) -> None:
    answers = [row["answer"] for row in case.rows]
    for row, answer in zip(case.rows, answers[1:] + answers[:1], strict=True):
        row["answer"] = answer


def gold_solution(case: Case) -> None:
    """The whole worked solution in place of the final answer."""
    for row in case.rows + case.held:
        row["answer"] = f"{row['a']} and {row['b']} make {row['answer']}, since we add them."


def gold_zero_width(case: Case) -> None:
    for row in case.rows + case.held:
        row["answer"] = row["answer"][:1] + "\u200b" + row["answer"][1:]


def gold_list(case: Case) -> None:
    for row in case.rows + case.held:
        row["answer"] = [row["answer"]]


def gold_in_system(case: Case) -> None:
    for row in case.rows + case.held:
        row["chat"] = [
            {"role": "system", "content": f"You are graded against: {row['answer']}."},
            {"role": "user", "content": PROMPT.format(**row)},
        ]
    _template(PLAIN_CHAT)(case)
    for options in (case.source, case.config["eval"]["tasks"][0]["with"]["data"]["with"]):
        options.pop("template")
        options["prompt"] = "chat"


def html_prompts(case: Case) -> None:
    case.source["template"] = "<p>What is&nbsp;{a}+{b}?</p>"


def zero_width_prompts(case: Case) -> None:
    case.source["template"] = "What is \u200b{a}+{b}?\ufeff"


def same_ids(case: Case) -> None:
    for row in case.rows[100:120]:
        row["id"] = case.rows[3]["id"]


def one_id_space(case: Case) -> None:
    for n, row in enumerate(case.rows):
        row["id"] = f"sum{n % 200}"
    second = copy.deepcopy(case.config["data"]["sources"][0])
    half = len(case.rows) // 2
    rows = case.rows[half:]
    del case.rows[half:]
    second["with"]["path"] = "second.jsonl"
    _write(case.folder / "second.jsonl", rows)
    case.config["data"]["sources"].append(second)


def eval_in_training(case: Case) -> None:
    case.rows += [{**row, "id": row["id"] + "x"} for row in case.held[:60]]


def few_rows(case: Case) -> None:
    del case.rows[24:]


def eval_style(case: Case) -> None:
    data = case.config["eval"]["tasks"][0]["with"]["data"]["with"]
    data["template"] = "Q: please add {a} and {b} for me.\nA: the sum is"


def instruction(case: Case) -> None:
    case.source["template"] = "What is {a}+{b}? Put it between <answer> and </answer>."
    case.config["rewards"] = ["math/boxed"]


def wrong_extractor(case: Case) -> None:
    case.config["rewards"] = [{"use": "math/answer", "with": {"extract": "hash"}}]


def chat_of_another(case: Case) -> None:
    _template(LLAMA)(case)
    case.config["data"]["prompt"] = {"chat_template": "always"}


def template_on_base(case: Case) -> None:
    _template(CHATML)(case)
    case.config["data"]["prompt"] = {"chat_template": "always"}


def raw_on_chat(case: Case) -> None:
    _template(PLAIN_CHAT)(case)
    case.config["data"]["prompt"] = {"chat_template": "never"}


def generation_eos(case: Case) -> None:
    case.edit("generation_config.json", lambda c: c.update(eos_token_id=77))


def many_tokens(case: Case) -> None:
    def add(content: dict[str, Any]) -> None:
        for n in range(30):
            content["added_tokens"].append(
                {"id": 270 + n, "content": f"<|extra_{n}|>", "special": True, "normalized": False}
                | {"single_word": False, "lstrip": False, "rstrip": False}
            )

    case.edit("tokenizer.json", add)


def other_tokenizer(case: Case) -> None:
    """Same size, other order: the tokenizer of a sister model."""

    def turn(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        names = [n for n, i in vocabulary.items() if i > 9]
        numbers = [vocabulary[n] for n in names]
        for name, number in zip(names, numbers[7:] + numbers[:7], strict=True):
            vocabulary[name] = number

    case.edit("tokenizer.json", turn)


def rope(case: Case) -> None:
    def change(content: dict[str, Any]) -> None:
        content["rope_parameters"] = {"rope_type": "default", "rope_theta": 30.0}

    case.edit("config.json", change)


def untied(case: Case) -> None:
    case.edit("config.json", lambda c: c.update(tie_word_embeddings=False))


def fresh_weights(case: Case) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    path = case.folder / "model" / "model.safetensors"
    torch.manual_seed(0)
    weights = load_file(path)
    noise = {n: torch.randn_like(w) * 0.02 if w.ndim > 1 else w for n, w in weights.items()}
    save_file(noise, path, {"format": "pt"})


def nan_weight(case: Case) -> None:
    from safetensors.torch import load_file, save_file

    path = case.folder / "model" / "model.safetensors"
    weights = load_file(path)
    name = next(n for n in weights if "layers.1.mlp.down" in n)
    weights[name][3, 5] = float("nan")
    save_file(weights, path, {"format": "pt"})


def small_max_tokens(case: Case) -> None:
    case.config["sampling"]["max_tokens"] = 5


def large_max_tokens(case: Case) -> None:
    case.config["sampling"]["max_tokens"] = 4096


def cold(case: Case) -> None:
    case.config["sampling"]["temperature"] = 0.01


def top_k_one(case: Case) -> None:
    case.config["sampling"]["top_k"] = 1


def stop_in_answer(case: Case) -> None:
    case.config["sampling"]["stop"] = ["boxed"]


def stop_space(case: Case) -> None:
    case.config["sampling"]["stop"] = [" "]


def negative_weight(case: Case) -> None:
    case.config["rewards"] = [{"use": "auto", "weight": -1.0}]


def penalty_sign(case: Case) -> None:
    """A penalty on length that was meant to be subtracted."""
    (case.folder / "long.py").write_text("def words(text):\n    return len(text) / 10\n")
    case.config["rewards"] = ["auto", "./long.py:words"]


def scales(case: Case) -> None:
    case.config["rewards"] = ["auto", {"use": "math/boxed-format", "weight": 100.0}]


def looks_at_prompt(case: Case) -> None:
    case.reward(
        "import re\n"
        "def reward(problem, completion):\n"
        "    asked = re.findall(r'\\d+', problem.prompt)\n"
        "    return any(n in asked for n in re.findall(r'\\d+', completion.text))\n"
    )


def near_enough(case: Case) -> None:
    case.reward(
        "import re\n"
        "def reward(text, answer):\n"
        "    found = re.findall(r'\\d+', text)\n"
        "    return bool(found) and abs(int(found[-1]) - int(answer)) <= 10\n"
    )


def empty_wins(case: Case) -> None:
    case.reward(
        "import re\n"
        "def reward(text, answer):\n"
        "    wrong = [n for n in re.findall(r'boxed\\{(\\d+)\\}', text) if n != answer]\n"
        "    return 0.0 if wrong else 1.0\n"
    )


def raises(case: Case) -> None:
    case.reward(
        "import re\n"
        "def reward(text, answer):\n"
        "    return re.search(r'boxed\\{(\\d+)\\}', text).group(1) == answer\n"
    )


def slow(case: Case) -> None:
    case.reward("import time\n" + RIGHT.replace("    return", "    time.sleep(0.25)\n    return"))


def lr_high(case: Case) -> None:
    case.config["train"]["lr"] = 0.05


def lr_low(case: Case) -> None:
    case.config["train"]["lr"] = 1e-9


def beta(case: Case) -> None:
    case.config["loss"] = {"use": "core/grpo", "with": {"beta": 50.0}}


def warmup(case: Case) -> None:
    case.config["train"]["warmup_steps"] = 2000


def clip(case: Case) -> None:
    """Percent where a fraction was meant."""
    case.config["loss"] = {"use": "core/grpo", "with": {"clip_high": 20}}


def lora_names(case: Case) -> None:
    case.config["model"]["lora"]["target_modules"] = ["q_proj", "query_key_value"]


def lora_rank(case: Case) -> None:
    case.config["model"]["lora"]["rank"] = 512


def lora_lr(case: Case) -> None:
    """The learning rate of full training kept for adapters."""
    case.config["train"]["lr"] = 1e-6


def one_turn(case: Case) -> None:
    case.config["environment"]["max_turns"] = 1


def short_call(case: Case) -> None:
    case.config["sampling"]["max_tokens"] = 12


def stop_in_json(case: Case) -> None:
    case.config["sampling"]["stop"] = [","]


TRUNCATED = r"cut off|at the (limit|cap)|max_tokens|truncat"
REFERENCE = r"reference"
NOISE = r"surprise|chance|untrained|tokenizer|weights"

#: Name: (config, change, words).
MISTAKES: dict[str, tuple[str, Change, str]] = {
    "gold_column": ("own", gold_column, REFERENCE),
    "gold_shifted": ("own", gold_shifted, REFERENCE),
    "gold_solution": ("own", gold_solution, REFERENCE),
    "gold_zero_width": ("own", gold_zero_width, r"invisible|zero.width|U\+200B|200b"),
    "gold_list": ("own", gold_list, r"answer.*(text|string|list)|reference"),
    "gold_in_system": (
        "own",
        gold_in_system,
        r"give (it|them) away|hold their own reference",
    ),
    "html_prompts": ("own", html_prompts, r"HTML|entit|markup|nbsp"),
    "zero_width_prompts": ("own", zero_width_prompts, r"invisible|zero.width|U\+(200B|FEFF)|200b"),
    "same_ids": ("own", same_ids, r"\bids?\b"),
    "one_id_space": ("own", one_id_space, r"\bids?\b"),
    "eval_in_training": ("own", eval_in_training, r"contaminat|training data|trained on"),
    "few_rows": ("own", few_rows, r"pass(es)? over|passes|epoch|times"),
    "eval_style": (
        "own",
        eval_style,
        r"(?=.*eval|.*task|.*dataset).*(style|template|prompts?|asked)",
    ),
    "instruction": ("own", instruction, r"<answer>|instruction|asks? for|prompt says"),
    "wrong_extractor": ("own", wrong_extractor, r"no answer|not read|found in|extract|####"),
    "chat_of_another": ("quick", chat_of_another, r"template"),
    "template_on_base": ("quick", template_on_base, r"template"),
    "raw_on_chat": ("quick", raw_on_chat, r"template|raw"),
    "generation_eos": ("quick", generation_eos, r"generation_config|end-of-sequence|eos"),
    "many_tokens": ("quick", many_tokens, r"embedding|vocabulary|tokens.*rows"),
    "other_tokenizer": ("quick", other_tokenizer, NOISE),
    "rope": ("quick", rope, rf"{NOISE}|rope|position"),
    "untied": ("quick", untied, r"lm_head|tie|missing|not in|initiali[sz]ed"),
    "fresh_weights": ("quick", fresh_weights, NOISE),
    "nan_weight": ("quick", nan_weight, r"nan|finite"),
    "small_max_tokens": ("quick", small_max_tokens, TRUNCATED),
    "large_max_tokens": ("quick", large_max_tokens, r"context|positions|made for that length"),
    "cold": ("quick", cold, r"temperature|copies|differ|equal rewards|same"),
    "top_k_one": ("quick", top_k_one, r"top_k"),
    "stop_in_answer": ("quick", stop_in_answer, r"stop"),
    "stop_space": ("quick", stop_space, r"stop|empty"),
    "negative_weight": ("quick", negative_weight, r"sign|negative|weight"),
    "penalty_sign": ("quick", penalty_sign, r"long|length|sign|outweigh|dominat"),
    "scales": ("quick", scales, r"scale|dominat|outweigh|share of the|weight|larger"),
    "looks_at_prompt": ("own", looks_at_prompt, r"prompt"),
    "near_enough": ("own", near_enough, r"wrong answer|digit|another number|canar|near"),
    "empty_wins": ("own", empty_wins, r"nothing|empty|random words|filler|without an answer"),
    "raises": ("own", raises, r"error|raise|AttributeError"),
    "slow": ("own", slow, r"slow|latenc|median|seconds"),
    "lr_high": ("quick", lr_high, r"learning rate|\blr\b"),
    "lr_low": ("quick", lr_low, r"learning rate|\blr\b"),
    "beta": ("quick", beta, r"beta|\bKL\b"),
    "warmup": ("quick", warmup, r"warm"),
    "clip": ("quick", clip, r"clip"),
    "lora_names": ("lora", lora_names, r"query_key_value"),
    "lora_rank": ("lora", lora_rank, r"rank"),
    "lora_lr": ("lora", lora_lr, r"learning rate|\blr\b"),
    "one_turn": ("tools", one_turn, r"turn"),
    "short_call": ("tools", short_call, TRUNCATED),
    "stop_in_json": ("json", stop_in_json, r"stop"),
}

#: Ten at once.
TENS: dict[str, tuple[str, list[str]]] = {
    "ten_own": (
        "own",
        [
            "gold_shifted",
            "html_prompts",
            "eval_in_training",
            "generation_eos",
            "small_max_tokens",
            "scales",
            "lr_high",
            "beta",
            "warmup",
            "eval_style",
        ],
    ),
    "ten_lora": (
        "lora",
        [
            "lora_names",
            "lora_rank",
            "large_max_tokens",
            "many_tokens",
            "top_k_one",
            "negative_weight",
            "clip",
            "warmup",
            "template_on_base",
            "lr_low",
        ],
    ),
}


# Healthy variants ---------------------------------------------------------------------------


def _sampling(**values: Any) -> Change:
    return lambda case: case.config["sampling"].update(values)


def two_sources(case: Case) -> None:
    second = copy.deepcopy(case.config["data"]["sources"][0])
    half = len(case.rows) // 2
    _write(case.folder / "second.jsonl", case.rows[half:])
    del case.rows[half:]
    second["with"]["path"] = "second.jsonl"
    case.config["data"]["sources"][0]["weight"], second["weight"] = 0.3, 0.7
    case.config["data"]["sources"].append(second)


def decimals(case: Case) -> None:
    for row in case.rows + case.held:
        row["answer"] += ".0"


def weak(case: Case) -> None:
    """A prompt that the model does badly on."""
    for options in (case.source, case.config["eval"]["tasks"][0]["with"]["data"]["with"]):
        options["template"] = PROMPT + "\n"


def own_function(case: Case) -> None:
    case.reward(RIGHT)
    case.config["sampling"].update(n=16, temperature=0.8)


def kl(case: Case) -> None:
    case.config["loss"] = {"use": "core/grpo", "with": {"beta": 0.001}}
    case.config["train"]["lr_schedule"] = "cosine"


def two_layers(case: Case) -> None:
    case.config["model"]["lora"] = {
        "rank": 8,
        "alpha": 16,
        "target_modules": ["q_proj", "v_proj"],
    }


def halves(case: Case) -> None:
    case.config["model"]["dtype"] = "bfloat16"


HEALTHY: dict[str, tuple[str, Change]] = {
    "own_data": ("own", lambda case: None),
    "two_sources": ("own", two_sources),
    "decimals": ("own", decimals),
    "units": ("own", gold_units),  # math/boxed reads "136 apples" and "136%" as it should
    "percent": ("own", gold_percent),
    "own_function": ("own", own_function),
    "kl": ("quick", kl),
    "bfloat16": ("quick", halves),
    "chat_model": ("quick", _template(PLAIN_CHAT)),
    "lora_two_layers": ("lora", two_layers),
    "tools": ("tools", lambda case: None),
    "json": ("json", lambda case: None),
    "weak_model": ("own", weak),
    "long_answers": ("quick", _sampling(max_tokens=256)),
}


# Running them -------------------------------------------------------------------------------


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _sums(first: int, n: int) -> list[dict[str, Any]]:
    """Sums of two-digit numbers, each pair once, in a mixed order."""
    numbers = [(k * 4567) % 8100 for k in range(first, first + n)]
    pairs = [(10 + k // 90, 10 + k % 90) for k in numbers]
    return [
        {"id": f"sum_{a}_{b}", "a": a, "b": b, "answer": str(a + b)}
        | {"carry": str((a % 10 + b % 10) // 10)}
        for a, b in pairs
    ]


def base(kind: str, folder: Path, models: Path) -> Case:
    """A healthy config of one kind, in a folder of its own."""
    name = {"own": "quickstart", "quick": "quickstart", "lora": "lora"}.get(kind, kind)
    config = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    if "extends" in config:
        below = yaml.safe_load((EXAMPLES / config.pop("extends")).read_text())
        for key, value in config.items():
            if isinstance(value, dict):
                below[key] = {**below.get(key, {}), **value}
            else:
                below[key] = value
        config = below
    folder.mkdir(parents=True)
    model = models / (kind if kind in MODELS else "sums")
    shutil.copytree(model, folder / "model")
    config["model"]["path"] = "model"
    config["run"]["dir"] = "runs"
    case = Case(folder, config)
    if kind == "own":
        case.rows, case.held = _sums(0, 900), _sums(2000, 100)
        options = {"template": PROMPT, "id": "id", "verifier": "math/boxed"}
        config["data"]["sources"] = [
            {"use": "core/jsonl", "with": {"path": "rows.jsonl", **options}}
        ]
        config["eval"]["tasks"] = [
            {
                "use": "core/dataset",
                "with": {
                    "max_tokens": 44,
                    "data": {"use": "core/jsonl", "with": {"path": "held.jsonl", **options}},
                },
            }
        ]
        config["train"]["steps"] = 20
    return case


def examine(case: Case) -> tuple[str, list[str], float]:
    """The verdict, all lines that are doubtful or wrong (or the error), processor seconds."""
    if case.rows:
        _write(case.folder / "rows.jsonl", case.rows)
        _write(case.folder / "held.jsonl", case.held)
    (case.folder / "run.yaml").write_text(yaml.safe_dump(case.config))
    rlvr = Path(sys.executable).parent / "rlvr"
    before = os.times()
    done = subprocess.run(
        [rlvr, "doctor", "run.yaml", "--json"],
        cwd=case.folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    after = os.times()
    seconds = after.children_user + after.children_system
    seconds -= before.children_user + before.children_system
    (case.folder / "report.json").write_text(done.stdout)
    (case.folder / "errors.txt").write_text(done.stderr)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        return f"exit {done.returncode}", [done.stderr], seconds
    if "checks" not in report:
        return f"exit {done.returncode}", [done.stdout + done.stderr], seconds
    lines = [
        f"{check['id']} {check['verdict']}: {check['measured']} -- {check['remedy']}"
        for check in report["checks"]
        if check["verdict"] not in ("ok", "note", "skip", "skipped")
    ]
    return report["verdict"], lines, seconds


def named(words: str, lines: list[str]) -> bool:
    """Whether one of the lines says it, outside the name of its check."""
    return any(re.search(words, line.partition(" ")[2], re.I | re.S) for line in lines)


def cases(work: Path, only: list[str]) -> Iterator[tuple[str, Case, dict[str, str]]]:
    """Name, case, and for each mistake in it the words that name it."""
    models = work / "models"
    for name, task in MODELS.items():
        if not (models / name).exists():
            rlvr = Path(sys.executable).parent / "rlvr"
            subprocess.run([rlvr, "tiny-model", models / name, "--task", task], check=True)
    plan: dict[str, tuple[str, list[Change], dict[str, str]]] = {}
    plan |= {n: (kind, [change], {}) for n, (kind, change) in HEALTHY.items()}
    plan |= {n: (kind, [change], {n: words}) for n, (kind, change, words) in MISTAKES.items()}
    for name, (kind, many) in TENS.items():
        words = {m: MISTAKES[m][2] for m in many}
        plan[name] = (kind, [MISTAKES[m][1] for m in many], words)
    for name, (kind, changes, words) in plan.items():
        if only and name not in only:
            continue
        shutil.rmtree(work / "cases" / name, ignore_errors=True)
        case = base(kind, work / "cases" / name, models)
        for change in changes:
            change(case)
        yield name, case, words


def main() -> None:
    """Print a line for each case, and the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = []
    for name, case, words in cases(arguments.work.resolve(), arguments.only):
        began = time.monotonic()
        try:
            verdict, lines, cpu = examine(case)
        except subprocess.TimeoutExpired:
            verdict, lines, cpu = "too slow", [], 400.0
        hits = {m: named(expression, lines) for m, expression in words.items()}
        results.append(
            {"name": name, "verdict": verdict, "named": hits, "lines": lines}
            | {"cpu": round(cpu, 1), "wall": round(time.monotonic() - began, 1)}
        )
        print(name, verdict, hits or [line.partition(" ")[0] for line in lines], f"{cpu:.0f} s")
        if arguments.out:
            arguments.out.write_text(json.dumps(results, indent=1))
    single = [r for r in results if len(r["named"]) == 1]
    alarms = [r["name"] for r in results if not r["named"] and r["verdict"] != "healthy"]
    print(f"single: {sum(all(r['named'].values()) for r in single)} of {len(single)} named")
    for r in results:
        if len(r["named"]) > 1:
            print(f"{r['name']}: {sum(r['named'].values())} of {len(r['named'])}")
    print(f"alarms in healthy ones: {alarms} of {sum(not r['named'] for r in results)}")


if __name__ == "__main__":
    main()
