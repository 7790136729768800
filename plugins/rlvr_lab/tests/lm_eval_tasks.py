"""Tasks of lm-evaluation-harness for the tests, on local data."""

import json
import random
from pathlib import Path

FILES = Path(__file__).with_suffix("")


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
    shots = (FILES / "shared.yaml.part").read_text().replace("FOLDER", str(folder))
    for path in FILES.glob("*.*"):
        text = path.read_text()
        own = {line.split(":")[0] for line in text.splitlines()}
        kept = [line for line in shots.splitlines() if line.split(":")[0] not in own]
        shared = "\n".join(kept) + "\n" if "output_type" in text else ""
        if path.name != "shared.yaml.part":
            (folder / path.name).write_text(shared + text)
    return folder
