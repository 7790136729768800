"""The maths verifiers in the processes that a run judges in."""

from rlvr_core.api import Completion, Problem
from rlvr_core.verify.pool import VerifierPool, VerifierSpec
from tests.support.tables import table

SPECS = {
    name: VerifierSpec(f"rlvr_math.{target}", {})
    for name, target in {
        "answer": "answer:Answer",
        "math-verify": "answer:MathVerify",
        "minerva": "answer:Minerva",
        "qwen-math": "answer:QwenMath",
        "boxed": "verifiers:Boxed",
    }.items()
}
HARMFUL = [
    *table(__file__, "harmful"),
    "\\boxed{" + "7" * 100_000 + "}",
    "7" * 100_000,
    "\\boxed{" + "{" * 2000 + "8" + "}" * 2000 + "}",
    r"\boxed{0." + r"\overline{" * 500 + "3" + "}" * 500 + "}",
    r"\boxed{0." + "3" * 50_000 + "...}",
    r"\boxed{" + r"1 \over " * 400 + "2}",
    "\\boxed{" * 20_000,
    "<think>" * 20_000,
    "<think></think>" * 20_000 + "7",
]


def test_t51_harmful_answers_cost_no_worker_and_no_other_answer():
    problem = Problem("p", "q", "math/answer", {"answer": r"\frac{1}{2}"}, "d")
    texts = [text for harmful in HARMFUL for text in (harmful, r"\boxed{0.5}")]
    answers = [Completion.from_text(text) for text in texts]
    with VerifierPool(SPECS, workers=1, timeout=30, memory_mb=1024) as pool:
        rows = pool.submit_group(problem, answers, list(SPECS)).result()
        stats = pool.stats()
    for text, row in zip(texts, rows, strict=True):
        for name, verdict in row.items():
            assert verdict.score == float(text == r"\boxed{0.5}"), (name, text[:40], verdict)
    assert all((one.timeouts, one.errors) == (0, 0) for one in stats.values())
    assert {one.calls for one in stats.values()} == {len(texts)}
