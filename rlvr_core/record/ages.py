"""Summarises how old the completions were that an asynchronous run trained on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_core.api import Json

_AGE = re.compile(r"staleness/(\w+)/(\d+)")


def staleness(lines: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """Return completions trained on by age, and the fates of those of each policy version."""
    ages: Counter[int] = Counter()
    versions: dict[int, Counter[str]] = {}
    for line in lines:
        for name, count in line.items():
            match = _AGE.fullmatch(name)
            if match is None or not isinstance(line.get("version"), int):
                continue
            fate, age = match[1], int(match[2])
            if fate == "reread":  # the ledger counted it when it was first read
                ages[age] += int(count)
                continue
            versions.setdefault(line["version"] - age, Counter())[fate] += int(count)
            if fate == "trained":
                ages[age] += int(count)
    if not versions:
        return {}
    return {
        "staleness": {str(age): ages[age] for age in sorted(ages)},
        "ledger_by_version": {str(v): dict(versions[v]) for v in sorted(versions)},
    }
