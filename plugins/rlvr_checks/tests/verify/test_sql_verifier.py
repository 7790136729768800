"""checks/sql: right and wrong queries, written before the verifier; attacks, order, limits."""

import json
import sqlite3
import time
from pathlib import Path

import pytest

from rlvr_checks.structured.sql import SqlVerifier
from rlvr_core.api import Completion, DataError, Problem
from rlvr_devkit.conformance.as_tests import conformance
from tests.support.tables import table

SCHEMA = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER, pay REAL);
INSERT INTO people VALUES
  (1, 'Ada', 'London', 36, 10.5), (2, 'Bob', 'Oslo', 25, 20.0), (3, 'Cy', 'Oslo', 25, NULL),
  (4, 'Dee', 'Paris', 41, 7.25), (5, 'Eve', NULL, 36, 20.0);
CREATE TABLE pets (owner INTEGER, kind TEXT);
INSERT INTO pets VALUES (1, 'cat'), (1, 'dog'), (2, 'cat'), (4, 'owl');
"""
OTHER = SCHEMA.replace("'Oslo', 25, 20.0", "'Rome', 25, 20.0")
QUERIES = {
    "names": "SELECT name FROM people WHERE city = 'Oslo'",
    "ages": "SELECT name, age FROM people ORDER BY age",
    "top": "SELECT name FROM people ORDER BY age DESC, name LIMIT 3",
    "counts": "SELECT city, COUNT(*) AS n FROM people GROUP BY city ORDER BY n DESC",
    "hidden": "SELECT name FROM people ORDER BY age",
    "mean": "SELECT AVG(pay) FROM people",
    "how_many": "SELECT COUNT(*) FROM people",
    "join": "SELECT p.name, q.kind FROM people p JOIN pets q ON q.owner = p.id",
    "cities": "SELECT DISTINCT city FROM people WHERE city IS NOT NULL ORDER BY city",
}
NAMES = QUERIES["names"]
ROWS = [
    {"note": ""} | json.loads(line)
    for line in (Path(__file__).parent / "cases" / "sql.jsonl").read_text().splitlines()
]
ROWS += [
    {"query": "names", "response": text, "passed": False, "note": ""}
    for text in (
        "SELECT " + "(" * 5000 + "1" + ")" * 5000 + " FROM people",
        "SELECT name FROM people" + " JOIN people" * 100,
        NAMES + " " * 30_000 + "--",
    )
]
CASES = [
    {
        "spec": {"schema": SCHEMA, "answer": QUERIES[row["query"]]},
        "response": row["response"],
        "passed": row["passed"],
    }
    for row in ROWS
]
WRONG = [(QUERIES[row["query"]], row["response"], row["note"]) for row in ROWS if not row["passed"]]

test_sql_keeps_its_promises = conformance(SqlVerifier, cases=CASES, config={"seconds": 0.5})


def verify(answer, text, schema=SCHEMA, **options):
    verifier = SqlVerifier(SqlVerifier.Config(**options))
    problem = Problem("p", "?", "checks/sql", {"answer": answer, "schema": schema}, "toy")
    verifier.check(problem)
    return verifier.verify(problem, Completion.from_text(text))


@pytest.mark.parametrize(("answer", "text", "said"), WRONG, ids=lambda value: ascii(value)[:60])
def test_wrong_and_the_verdict_says_why(answer, text, said):
    began = time.process_time()
    verdict = verify(answer, text)
    assert time.process_time() - began < 5
    assert verdict.passed is False
    assert verdict.score == 0.0
    assert said in verdict.detail, verdict
    assert verify(answer, answer).passed  # and the tables are as before


def test_rows_that_the_order_leaves_equal_may_be_in_any_order_but_not_others():
    schema = "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (1, 'y'), (2, 'z'), (2, 'w');"
    reference = "SELECT b FROM t ORDER BY a"
    for order, right in (("a, b", 1), ("a, b DESC", 1), ("a DESC, b", 0), ("b", 0), ("b DESC", 0)):
        assert verify(reference, f"SELECT b FROM t ORDER BY {order}", schema).passed is bool(right)
    aliased = "SELECT b, a + 1 AS c FROM t ORDER BY c * 2, 2"
    assert verify(aliased, "SELECT b, a + 1 FROM t ORDER BY a, b DESC", schema).passed
    assert not verify(aliased, "SELECT b, a + 1 FROM t ORDER BY b", schema).passed


def test_an_answer_must_hold_on_each_database():
    assert verify(NAMES, "SELECT name FROM people WHERE age = 25").passed
    assert not verify(NAMES, "SELECT name FROM people WHERE age = 25", [SCHEMA, OTHER]).passed
    assert verify(NAMES, NAMES, [SCHEMA, OTHER]).passed


def test_a_file_is_read_and_never_changed(tmp_path):
    path = tmp_path / "toy.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA)
    before = path.read_bytes()
    verifier = SqlVerifier(SqlVerifier.Config())
    problem = Problem("p", "?", "checks/sql", {"answer": NAMES, "database": str(path)}, "toy")
    verifier.check(problem)
    assert verifier.verify(problem, Completion.from_text(NAMES)).passed
    for text in ("DELETE FROM people", "SELECT name FROM people", "DROP TABLE people"):
        assert not verifier.verify(problem, Completion.from_text(text)).passed
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["toy.sqlite"]


@pytest.mark.parametrize(("spec", "said"), table(__file__, "refused"))
def test_check_refuses_what_cannot_be_judged(spec, said):
    with pytest.raises(DataError) as caught:
        SqlVerifier(SqlVerifier.Config()).check(Problem("p7", "?", "checks/sql", spec, "toy"))
    assert said in str(caught.value)
    assert "p7" in str(caught.value)


def test_references_without_rows_may_be_allowed():
    reference = NAMES + " AND 0"
    assert verify(reference, reference, allow_empty=True).passed
    assert not verify(reference, NAMES, allow_empty=True).passed
