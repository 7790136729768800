"""Near-duplicates of other making than those of ``contamination.py``, and problems that are none.

Six kinds of rewording by rule, and some by hand ("another person's words"), of held-out problems of
GSM8K and MATH stand among the training problems; 60 other held-out problems, and 60 of another
source in the same style, have no copy. Written down before the search was read.

    RLVR_DATA=FOLDER python benchmarks/rewordings.py
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

from rlvr_core.api import Problem
from rlvr_core.builtin.evals.contamination import Contamination, Trained

Words = Callable[[str, random.Random], str]

INTROS = [
    "You are tutoring a pupil who brings this question from class.",
    "Here is something from last year's exam; read it twice.",
    "My daughter asked me the following at dinner.",
    "Quiz time! Team A gets this one.",
    "Consider the situation below, and reason in small steps.",
    "Below you find a task. Use no calculator.",
    "Translate the story into equations first.",
    "A friend sent me this puzzle by mail.",
]
OUTROS = [
    "Show all your work.",
    "Finish with the bare result on a line of its own.",
    "How would you explain it to a ten-year-old?",
    "Check your result by a second method.",
    "Give the reasoning, then the result between two stars.",
    "",
    "Be brief.",
    "Write the result as JSON with the key result.",
]
PEOPLE = [
    "Oluwaseun",
    "Xiadani",
    "Björk",
    "Ravindra",
    "Ingeborg",
    "Tariq",
    "Zofia",
    "Kwame",
    "Aroha",
]
UNITS = [
    ("dollars", "euros"), ("dollar", "euro"), ("cents", "pence"), ("miles", "kilometers"),
    ("mile", "kilometer"), ("pounds", "kilograms"), ("pound", "kilogram"), ("ounces", "grams"),
    ("feet", "meters"), ("foot", "meter"), ("inches", "centimeters"), ("inch", "centimeter"),
    ("gallons", "liters"), ("gallon", "liter"), ("yards", "meters"), ("hours", "minutes"),
    ("hour", "minute"), ("days", "weeks"), ("day", "week"), ("degrees", "grad"),
]  # fmt: skip
_SPELT = "zero,one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve"
DIGITS = _SPELT.split(",")


def frame(text: str, rng: random.Random) -> str:
    """Other sentences before and behind, no two problems alike."""
    return f"{rng.choice(INTROS)} {text} {rng.choice(OUTROS)}".strip()


def persons(text: str, rng: random.Random) -> str:
    """Other persons, of the other sex, and the numbers as words where they are small."""
    inside = re.findall(r"(?<=[a-z,] )[A-Z][a-z]{2,}", text)
    first = re.findall(
        r"(?:^|[.?!] )([A-Z][a-z]{2,})(?='s| has| is| buys| had| wants| and [A-Z])", text
    )
    plain = {"The", "How", "What", "There", "This", "Each", "Find", "Let", "She", "They", "Monday"}
    for name in sorted(set(inside + first) - plain):
        text = re.sub(rf"\b{name}\b", rng.choice(PEOPLE), text)
    swap = {"he": "she", "she": "he", "his": "her", "her": "his", "him": "her"}
    swap |= {"He": "She", "She": "He", "His": "Her", "Her": "His"}
    text = re.sub(r"\b(" + "|".join(swap) + r")\b", lambda m: swap[m[0]], text)
    return re.sub(
        r"(?<![\d.,$^_{/])\b\d{1,2}\b(?![\d.,%}/:])",
        lambda m: DIGITS[int(m[0])] if int(m[0]) < len(DIGITS) else m[0],
        text,
    )


def numbers(text: str, rng: random.Random) -> str:
    """Every number another one, of the same length."""

    def other(found: re.Match[str]) -> str:
        value = found[0]
        return "".join(rng.choice("123456789") for _ in value)

    return re.sub(r"\d+", other, text)


def notation(text: str, rng: random.Random) -> str:
    """LaTeX written otherwise, symbols as words, other quotes and dashes."""
    for pattern, value in (
        (r"\\d?frac\{([^{}]+)\}\{([^{}]+)\}", r"(\1)/(\2)"), (r"\\cdot|\\times", "*"),
        (r"\\left|\\right|\\,|\\;|\\!", ""), (r"\\le(q)?\b", "<="), (r"\\ge(q)?\b", ">="),
        (r"\\sqrt\{([^{}]+)\}", r"sqrt(\1)"), (r"\\text\{([^{}]+)\}", r"\1"),
        (r"\\\[|\\\]", " "), (r"\$(\d[\d.,]*)(?![^$]*\$[a-z])", r"\1 dollars "), (r"\$", ""),
        (r"(\d)%", r"\1 percent"), (r"'", "\u2019"), (r" - |--", " \u2014 "),
        (r"\bdo not\b", "don't"),
        (r"\bcan ?not\b", "can't"), (r"\band\b", "&"), (r"\bfor example\b", "e.g."),
    ):  # fmt: skip
        text = re.sub(pattern, value, text)
    return text


def reorder(text: str, rng: random.Random) -> str:
    """The question first, the facts behind it in another order."""
    *facts, question = re.split(r"(?<=[.?!])\s+", text.strip())
    rng.shuffle(facts)
    return " ".join([question, "You know this:", *facts]) if facts else "Please: " + question


def units(text: str, rng: random.Random) -> str:
    """Other units, and numbers that were converted."""
    text = re.sub(r"\$(?=\d)", "€", text)
    for before, after in UNITS:
        text = re.sub(rf"\b{before}\b", f"\0{after}", text)
    text = text.replace("\0", "")
    return re.sub(r"(?<![\d.^_{])\d{1,4}(?![\d}])", lambda m: str(int(m[0]) * 3 + 1), text)


KINDS: dict[str, Words] = {
    "frame": frame,
    "persons": persons,
    "numbers": numbers,
    "notation": notation,
    "reorder": reorder,
    "units": units,
}

#: Row of the test split: the same problem in another person's words.
BY_HAND = {
    "gsm8k": {
        1275: (
            "An automobile of 1200 lb has broken down. Inside are two kids of 75 lb each "
            "and 250 lb of bags. Pushing takes a force of one percent of everything's "
            "weight. What force is that for John?"
        ),
        523: (
            "On a Monday, 200 loaves came out of the ovens of the Beverly Hills Bakery. "
            "Before noon 93 were bought, after noon 39 more, and a shop brought back 6 that"
            " it could not sell. What is the number of loaves still there?"
        ),
        734: (
            "How heavy is Cindy's load if she takes all her schoolbooks together? Maths and"
            " science are 2 pounds apiece, French is 4, English is 3, and history is double"
            " of English."
        ),
        1085: (
            "In four years a crocodile becomes 8 inches longer. If it keeps that pace, by "
            "how much does it lengthen in thirteen years?"
        ),
        59: (
            "On a bush hang 67 single raspberries and also half a dozen bunches with twenty"
            " in each. Count all the raspberries."
        ),
        510: (
            "Andy resolved on December 31st to be 30 pounds lighter on July 19th, his "
            "birthday. A pound goes for every 3500 calories burned. By how many calories "
            "must what he burns exceed what he eats, per day?"
        ),
        106: (
            "Three boxes measure 5 by 6 by 4 inches on the outside, with walls an inch "
            "thick. How much space is inside them altogether?"
        ),
        321: (
            "You pay $4 for a book and twice as much as for a magazine. Magazines are a "
            "dollar dearer than pens. What does a pen cost?"
        ),
        231: (
            "Robert found 20 shells at the beach on Monday and Kylie 5 more than that. The "
            "day after, her catch was double her own of the day before. How large was it?"
        ),
        761: (
            "Of Jana's litter, 2/3 are Pomeranians, and of those a third is female. Six of "
            "the dogs are female Pomeranians. What is the size of the litter?"
        ),
    },
    "math": {
        3119: (
            "Numbers such as 35, whose divisors are 1, 5, 7 and 35, have four divisors in "
            "all. Add up the five least natural numbers with that property."
        ),
        835: (
            "Completing the square turns $3x^2-24x+72$ into $a(x+b)^2+c$ with constants. "
            "Compute the sum $a+b+c$."
        ),
        107: (
            "From 16 feet up you let a ball fall. After each impact it rises to half of the"
            " previous height. Determine the total distance in feet at the moment of impact"
            " number six."
        ),
        1775: (
            "Two right cylinders are equally large in volume. One has a height of an inch "
            "and a radius of two; the other has a radius of one inch. What height in inches"
            " has the other?"
        ),
        1491: (
            "Around a fire sit eight people of a tribe, the chief with his mother on one "
            "side and his wife on the other. Count the seatings, where rotations are the "
            "same seating."
        ),
        1136: (
            "The graph of $x^2 - 10x + y^2 + 6y + c = 0$ is to be a unit circle. Determine $c$."
        ),
        43: (
            "When a certain book costs $p \\le 32$ dollars, a shop sells $128-4p$ copies of "
            "it monthly. At which price does it take in the most money?"
        ),
        1358: (
            "From the 52 cards of a standard deck, how many sets of five can a player be given?"
        ),
        4417: (
            "A triangle's angles are to each other as $3:5:7$. How large, in degrees, is "
            "the biggest?"
        ),
        1193: (
            "On Jumble, words have three letters out of A to Z, and each has to have an A "
            "somewhere. How large can the vocabulary be?"
        ),
    },
}


def problems(data: Path, name: str) -> tuple[list[str], list[str], list[str]]:
    """Training problems, held-out problems, and problems of another source."""

    def lines(path: str, key: str) -> list[str]:
        file = data / path
        data_ = file.read_bytes()
        text = (gzip.decompress(data_) if path.endswith("gz") else data_).decode()
        return [json.loads(line)[key] for line in text.splitlines()]

    if name == "gsm8k":
        train, test = (
            lines("gsm8k/train.jsonl.gz", "question"),
            lines("gsm8k/test.jsonl", "question"),
        )
        return train, test, []
    others = lines("math/olympiadbench.jsonl.gz", "question")
    train = lines("math/train_7500.jsonl.gz", "problem")
    return train, lines("math/test_5000.jsonl.gz", "problem"), others


def search(name: str, data: Path, each: int) -> tuple[list[str], Contamination]:
    """Ids of the held-out problems, and what is found of them."""
    train, test, others = problems(data, name)
    rng = random.Random(17)
    hand = BY_HAND[name]
    usable = [i for i, text in enumerate(test) if len(text) < 1200 and i not in hand]
    rng.shuffle(usable)
    held: list[dict[str, str]] = []
    rows = [{"id": f"train{i}", "prompt": text} for i, text in enumerate(train)]
    for kind, change in KINDS.items():
        for _ in range(each):
            index = usable.pop()
            held.append({"id": f"{kind}-{index}", "prompt": test[index]})
            rows.append({"id": f"copy-{kind}-{index}", "prompt": change(test[index], rng)})
    for index, words in hand.items():
        held.append({"id": f"hand-{index}", "prompt": test[index]})
        rows.append({"id": f"copy-hand-{index}", "prompt": words})
    for _ in range(60):
        index = usable.pop()
        held.append({"id": f"none-{index}", "prompt": test[index]})
    short = [i for i, text in enumerate(others) if len(text) < 1200]
    for index in rng.sample(short, min(60, len(short))):
        held.append({"id": f"other-{index}", "prompt": others[index]})
    rng.shuffle(rows)
    trained = Trained()
    trained.add(name, [(row["id"], row["prompt"]) for row in rows])
    problems_ = [Problem(row["id"], row["prompt"], "core/exact", {}, name) for row in held]
    return [row["id"] for row in held], trained.search(problems_)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=50, help="copies of each kind")
    parser.add_argument("--missed", action="store_true", help="list what was not found")
    arguments = parser.parse_args()
    print(f"{'':6} {'kind':9} found exactly wrong copy  of")
    for name in ("gsm8k", "math"):
        ids, found = search(name, Path(os.environ["RLVR_DATA"]), arguments.each)
        matches = {match.id: match for match in found.matches}
        counts: dict[str, list[int]] = {}
        for held in ids:
            kind, _, _number = held.partition("-")
            counted = counts.setdefault(kind, [0, 0, 0, 0])
            counted[3] += 1
            match = matches.get(held)
            if match:
                right = match.trained == f"copy-{held}"
                counted[0] += right or kind in ("none", "other")
                counted[1] += match.by != "near"
                counted[2] += not right
            elif arguments.missed and kind not in ("none", "other"):
                print("missed:", held)
            if match and arguments.missed and match.trained != f"copy-{held}":
                print("named:", held, match)
        for kind, (hits, exact, wrong, n) in counts.items():
            print(f"{name:6} {kind:9} {hits:5} {exact:7} {wrong:10} {n:4}")


if __name__ == "__main__":
    main()
