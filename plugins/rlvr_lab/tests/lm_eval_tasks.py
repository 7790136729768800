"""Tasks of lm-evaluation-harness for the tests, on local data."""

import json
import random
from pathlib import Path

SHOTS = """
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/test.jsonl, shots: FOLDER/shots.jsonl}}
test_split: test
fewshot_split: shots
doc_to_text: "Q: {{q}}\\nA:"
"""

FILES = {
    "gen.yaml": """
task: toy_gen
output_type: generate_until
num_fewshot: 2
doc_to_target: "{{a}}"
process_results: !function toy_utils.process_results
generation_kwargs: {until: ["Q:", "e", "1"], do_sample: false, max_gen_toks: 20}
metric_list:
  - {metric: even, aggregation: mean, higher_is_better: true}
  - {metric: bytes, aggregation: !function toy_utils.share_low, higher_is_better: true}
filter_list:
  - {name: first, filter: [{function: take_first}]}
  - {name: letter, filter: [{function: regex, regex_pattern: "(.)"}, {function: take_first}]}
metadata: {version: 1.5}
""",
    "toy_utils.py": '''
def process_results(doc, results):
    """A number, and a list that only an aggregation of its own can average."""
    return {"even": len(results[0]) % 2 == 0, "bytes": list(results[0].encode())}


def share_low(lists):
    flat = [byte for one in lists for byte in one]
    return sum(byte < 128 for byte in flat) / len(flat)
''',
    "mc.yaml": """
task: toy_mc
output_type: multiple_choice
num_fewshot: 3
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 2.0}
""",
    "letters.yaml": """
task: toy_letters
output_type: multiple_choice
num_fewshot: 1
doc_to_text: "{{q}}? a) {{choices[0]}} b) {{choices[1]}} Answer:"
doc_to_choice: [a, b, c, d]
doc_to_target: gold
test_split: shots
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 0}
""",
    "last.yaml": """
task: toy_last
output_type: loglikelihood
doc_to_target: " {{a}}"
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 0}
""",
    "whole.yaml": """
task: toy_whole
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}} makes {{a}}"
metric_list:
  - {metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}
metadata: {version: 0}
""",
    "group.yaml": """
group: toy_group
task: [toy_mc, toy_letters]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
metadata: {version: 3}
""",
}


def write_tasks(folder: Path) -> Path:
    """Ten sums as a generation, two multiple choices, log-likelihoods of parts and of wholes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    rows = []
    for _ in range(16):
        one, other, gold = rng.randint(1, 99), rng.randint(1, 99), rng.randrange(4)
        choices = [str(one + other + shift) for shift in (1, -3, 10, 100)]
        choices[gold] = str(one + other)
        rows.append(
            {"q": f"{one}+{other}", "a": str(one + other), "choices": choices, "gold": gold}
        )
    for name, part in (("test", rows[:10]), ("shots", rows[10:])):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{name}.jsonl").write_text(text)
    for name, text in FILES.items():
        shared = SHOTS.replace("FOLDER", str(folder)) if "output_type" in text else ""
        own = {line.split(":")[0] for line in text.splitlines()}
        kept = [line for line in shared.splitlines() if line.split(":")[0] not in own]
        (folder / name).write_text("\n".join(kept) + text)
    return folder
