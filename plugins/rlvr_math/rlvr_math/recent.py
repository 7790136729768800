"""Recent competitions and DAPO's training set; ids are hashes of the problems' texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import DataError
from rlvr_math.competition import CommonConfig, Competition, Located, Row, content_hash, text


class _Hashed(Competition):
    """A competition whose ids do not depend on the order of the rows."""

    def _id(self, index: int, row: Row, question: str) -> str:
        return f"{self.NAME}_{content_hash(question)}"


class Aime25(_Hashed):
    """AIME 2025, both papers: 30 problems with whole-number answers."""

    NAME = "aime25"
    HUB = ("MathArena/aime_2025", None, "train")


class Aime26(_Hashed):
    """AIME 2026, both papers: 30 problems with whole-number answers."""

    NAME = "aime26"
    HUB = ("MathArena/aime_2026", None, "train")


class Hmmt(_Hashed):
    """HMMT, the Harvard-MIT tournament: 30 or 33 problems a round, answers of any form."""

    class Config(CommonConfig):
        """Options of HMMT."""

        round: Literal["feb_2025", "nov_2025", "feb_2026"] = "feb_2025"
        """Which tournament; part of the problems' ids."""

    NAME = "hmmt"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.HUB = (f"MathArena/hmmt_{config.round}", None, "train")  # type: ignore[misc]

    def _id(self, index: int, row: Row, question: str) -> str:
        return f"hmmt_{self.config.round}_{content_hash(question)}"


_BEFORE = re.compile(
    r"\ASolve the following math problem step by step\. The last line of your response should be "
    r"of the form Answer: \S{1,40}(?: \(without quotes\))? where \\?\$Answer is the answer to the "
    r"problem\.\s*"
)
_BEHIND = re.compile(r'\s*Remember to put your answer on its own line after "Answer:"\.?\s*\Z')


class Dapo(_Hashed):
    """DAPO-Math-17k: about 17,000 competition problems with whole-number answers, to train on.

    Reads the published layouts: ``prompt`` as a chat, whose instructions are taken off, with the
    answer in ``reward_model.ground_truth`` or ``label``, and the processed one with ``prompt`` as
    text and the answer in ``solution``. Repeated rows are left out.
    """

    class Config(CommonConfig):
        """Options of DAPO-Math-17k."""

        limit: Annotated[int, Field(gt=0)] | None = None
        """Take only so many problems, from the start, repeated rows not counted."""

    NAME = "dapo17k"
    HUB = ("open-r1/DAPO-Math-17k-Processed", "en", "train")

    def _rows(self) -> Iterator[Located]:
        seen = set()
        for index, where, row in super()._rows():
            question = self._question(row, where)
            if question not in seen:
                seen.add(question)
                yield index, where, {"problem": question, "answer": self._given(row, where)}

    @staticmethod
    def _question(row: Row, where: str) -> str:
        prompt = row.get("prompt")
        if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
            prompt = prompt[-1].get("content")
        whole = text({"prompt": prompt}, ("prompt",), where)
        return _BEHIND.sub("", _BEFORE.sub("", whole)).strip()

    @staticmethod
    def _given(row: Row, where: str) -> str:
        judged = row.get("reward_model")
        answer = judged.get("ground_truth") if isinstance(judged, dict) else None
        for field in ("solution", "label"):
            answer = row.get(field) if answer is None else answer
        if isinstance(answer, int) and not isinstance(answer, bool):
            answer = str(answer)
        if not isinstance(answer, str) or not answer.strip():
            raise DataError(
                "no answer in 'reward_model.ground_truth', 'solution' or 'label'",
                where=where,
                remedy=f"fields there are: {', '.join(map(str, row)) or 'none'}",
            )
        return answer.strip()
