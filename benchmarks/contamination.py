"""Recall and precision of the contamination check, on GSM8K and MATH with near-duplicates of ours.

Copies of held-out problems are put among the training problems, changed in one way each, and in
another prompt style; then the check looks for the originals. Beside it stand what exact comparison
alone finds, and what is found among the true training problems, where nothing was planted.

    RLVR_DATA=FOLDER python benchmarks/contamination.py     # a minute or two on one core

The folder has gsm8k/ and math/ as docs/data.md describes them.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

from rlvr_core.api import Problem
from rlvr_core.builtin.evals.contamination import Trained
from rlvr_math.styles import MATHS_PROBLEMS, STYLES, WORD_PROBLEMS

PLANTED = 100
NAMES = re.findall(
    r"\w+",
    "Amara Boris Chiara Dmitri Esme Farid Greta Hiro Ilse Jomo Katya Luca Mireille Nadia Oskar "
    "Priya Quentin Rosa Stefan Tomas Umar Vera Wanda Xavier Yusuf Zelda",
)
NO_NAMES = frozenset(
    re.findall(
        r"\w+",
        "The She They His Her How What When Each Every There Then After Before But Let "
        "Compute Determine Given Suppose Evaluate Simplify Express Find Which Monday "
        "Tuesday Wednesday Thursday Friday Saturday Sunday January February March April "
        "May June July August September October November December Two Three Four Five Six "
        "Seven Eight Nine Ten One This That These Those All Both Some Many Yesterday "
        "Today Tomorrow Assume Calculate Write Consider Points Point Enter Your During "
        "From With Last First Next While Because Once Only Out Half Their You Mrs Its For "
        "Are Does Into Also Now Over Per Not",
    )
)
IN_OTHER_WORDS = {
    "how many": "what number of",
    "how much": "what amount of",
    "total": "overall sum",
    "altogether": "in all",
    "bought": "purchased",
    "buys": "purchases",
    "buy": "purchase",
    "sells": "offers",
    "sold": "handed over",
    "costs": "is priced at",
    "cost": "are priced at",
    "each": "every",
    "gives": "hands",
    "gave": "handed",
    "has": "owns",
    "have": "own",
    "had": "owned",
    "makes": "produces",
    "made": "produced",
    "earns": "gets paid",
    "needs": "requires",
    "need": "require",
    "wants": "would like",
    "left": "remaining",
    "more than": "above",
    "less than": "below",
    "twice": "two times",
    "half": "one half",
    "friends": "pals",
    "children": "kids",
    "house": "home",
    "big": "large",
    "small": "little",
    "find": "determine",
    "compute": "work out",
    "what is": "determine",
    "value": "size",
    "positive": "greater than zero",
    "integers": "whole numbers",
    "integer": "whole number",
    "number": "count",
    "if": "supposing that",
    "then": "afterwards",
    "and": "as well as",
    "also": "too",
    "during": "in the course of",
    "per": "for every",
    "spends": "pays out",
    "spent": "paid out",
    "eats": "consumes",
    "ate": "consumed",
    "takes": "needs",
    "went": "travelled",
    "drives": "travels",
    "runs": "jogs",
    "walks": "strolls",
    "people": "persons",
    "store": "shop",
    "money": "cash",
    "price": "tag",
    "express": "write down",
    "let": "say that",
    "such that": "so that",
    "points": "dots",
}


def other_numbers(text: str, rng: random.Random) -> str:
    """Change every number."""
    return re.sub(
        r"\d+", lambda found: str(max(2, int(found[0][:8]) + rng.choice((1, 2, 3, 5, 7, 11)))), text
    )


def other_names(text: str, rng: random.Random) -> str:
    """Change every name of a person or place."""
    found = sorted(set(re.findall(r"\b[A-Z][a-z]{2,}\b", text)) - NO_NAMES)
    for old, new in zip(found, rng.sample(NAMES, len(NAMES)), strict=False):
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def rephrased(text: str, rng: random.Random) -> str:
    """Put three in five of the words above in other words."""
    for old, new in IN_OTHER_WORDS.items():
        if rng.random() < 0.6:
            text = re.sub(rf"(?i)\b{old}\b", new, text)
    return text


def cut(text: str, rng: random.Random) -> str:
    """Keep the first half to four fifths."""
    words = text.split(" ")
    return " ".join(words[: max(8, int(len(words) * rng.uniform(0.5, 0.8)))])


def reordered(text: str, rng: random.Random) -> str:
    """Put the sentences in another order, of a single one its parts between commas."""
    for pattern, joint in ((r"(?<=[.?!])\s+", " "), (r", ", ", ")):
        parts = re.split(pattern, text)
        if len(parts) > 1:
            order = parts[:]
            while order == parts and len(set(parts)) > 1:
                rng.shuffle(order)
            return joint.join(order)
    return text


Change = Callable[[str, random.Random], str]
CHANGES: dict[str, Change] = {
    "none (verbatim)": lambda text, rng: text,
    "numbers": other_numbers,
    "names": other_names,
    "names and numbers": lambda text, rng: other_numbers(other_names(text, rng), rng),
    "other words": rephrased,
    "other words and numbers": lambda text, rng: other_numbers(rephrased(text, rng), rng),
    "cut": cut,
    "reordered": reordered,
    "reordered, names, numbers": lambda text, rng: other_numbers(
        other_names(reordered(text, rng), rng), rng
    ),
}


def lines(path: Path, key: str) -> list[str]:
    """Read one field of every row."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line)[key] for line in text.splitlines()]


def search(
    train: list[str], held_out: list[str], planted: list[int]
) -> tuple[int, int, int, float]:
    """Look for held-out problems; return planted ones found, exactly found, others, seconds."""
    begun = time.process_time()
    trained = Trained()
    trained.add("train", ((f"t{index}", text) for index, text in enumerate(train)))
    problems = [
        Problem(id=f"e{index}", prompt=text, verifier="", spec={}, dataset="")
        for index, text in enumerate(held_out)
    ]
    matches = trained.search(problems).matches
    first = len(train) - len(planted)
    copies = {f"e{index}": f"t{first + place}" for place, index in enumerate(planted)}
    right = [match for match in matches if copies.get(match.id) == match.trained]
    exact = sum(match.by != "near" for match in right)
    others = sum(match.id not in copies for match in matches)
    return len(right), exact, others, time.process_time() - begun


def main() -> None:
    """Print the tables."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    root = Path(os.environ["RLVR_DATA"])
    sets = {
        "GSM8K": (
            lines(root / "gsm8k/train.jsonl.gz", "question"),
            lines(root / "gsm8k/test.jsonl", "question"),
            WORD_PROBLEMS,
        ),
        "MATH": (
            lines(root / "math/train_7500.jsonl.gz", "problem"),
            lines(root / "math/math500.jsonl", "problem"),
            MATHS_PROBLEMS,
        ),
    }
    for name, (train, test, examples) in sets.items():
        print(f"\n{name}: {len(train)} training problems, {len(test)} held out, {PLANTED} planted")
        print("\n| changed | found | by exact comparison |\n|---|---|---|")
        rng = random.Random(0)
        planted = sorted(rng.sample(range(len(test)), PLANTED))
        framed = [STYLES["minerva"].prompt(text, examples[:2]) for text in test]
        for change, make in CHANGES.items():
            copies = [make(test[index], rng) for index in planted]
            plain = [STYLES["plain"].prompt(text, ()) for text in [*train, *copies]]
            found, exact, others, seconds = search(plain, framed, planted)
            print(f"| {change} | {found} | {exact} |")
        print(f"\nof {len(test) - PLANTED} others {others} are found; {seconds:.1f} s for the last")
        pairs = []
        for one, other in itertools.permutations(STYLES, 2):
            some = planted[:10]
            mixed = [*train, *(test[index] for index in some)]
            shots = {style: examples[: STYLES[style].shots] for style in (one, other)}
            found, exact, _, _ = search(
                [STYLES[one].prompt(text, shots[one]) for text in mixed],
                [STYLES[other].prompt(text, shots[other]) for text in test],
                some,
            )
            pairs.append(exact)
        print(f"verbatim in {len(pairs)} pairs of styles, of 10 each, exactly: {pairs}")


if __name__ == "__main__":
    main()
