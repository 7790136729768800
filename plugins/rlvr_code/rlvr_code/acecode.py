"""AceCode's shape: a question and a list of assertions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from rlvr_code.names import unclear
from rlvr_code.rows import INSTRUCT, Common, field, located
from rlvr_core.api import Problem

HUB = ("TIGER-Lab/AceCode-87K", None, "train")
_log = logging.getLogger(__name__)


class AceCode:
    """Functions described at length, tested by assertions; to train on."""

    class Config(Common):
        """Options of AceCode."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the source; rows without tests are counted.

        So are rows whose tests leave open which names the program defines.

        Raises:
            DataError: If a row is unusable; names file and line.
            MachineError: If the hub cannot be reached.
        """
        left_out: Counter[str] = Counter()
        for where, row in islice(located(self.config.path, HUB), self.config.limit):
            tests = row.get("test_cases")
            if not isinstance(tests, list) or not tests:
                left_out["without tests"] += 1
                continue
            if unclear(list(map(str, tests))):
                left_out["with unclear names"] += 1
                continue
            shown = "\n".join(map(str, tests[:3]))
            question = (
                f"{field(row, ('question',), where).strip()}\n\nIt is tested like this:\n{shown}\n"
            )
            base = self.config.style == "base"
            yield Problem(
                id=f"acecode_{field(row, ('id',), where)}",
                prompt=f"{question}[BEGIN]\n" if base else f"{question}\n{INSTRUCT}",
                verifier="code/mbpp",
                spec={"test_list": tests},
                dataset="code/acecode",
                stop=("[DONE]",) if base else (),
            )
        if left_out:
            reasons = ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
            _log.warning("code/acecode left out rows: %s", reasons)
