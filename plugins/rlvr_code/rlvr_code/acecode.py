"""AceCode's shape: a question and a list of assertions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from rlvr_code.rows import INSTRUCT, Common, field, located
from rlvr_core import Problem

HUB = ("TIGER-Lab/AceCode-87K", None, "train")
_log = logging.getLogger(__name__)


class AceCode:
    """Functions described at length, tested by assertions; to train on."""

    class Config(Common):
        """Options of AceCode."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the source; rows without tests are counted (T46).

        Raises:
            DataError: If a row is unusable; names file and line.
            MachineError: If the hub cannot be reached.
        """
        left_out = 0
        for where, row in islice(located(self.config.path, HUB), self.config.limit):
            tests = row.get("test_cases")
            if not isinstance(tests, list) or not tests:
                left_out += 1
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
            _log.warning("code/acecode left out rows: %d without tests", left_out)
