"""checks/sql: right and wrong queries, written before the verifier; attacks, order, limits."""

import sqlite3
import time

import pytest

from rlvr_checks.structured.sql import SqlVerifier
from rlvr_core.api import Completion, DataError, Problem
from rlvr_devkit.conformance.as_tests import conformance

SCHEMA = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER, pay REAL);
INSERT INTO people VALUES
  (1, 'Ada', 'London', 36, 10.5), (2, 'Bob', 'Oslo', 25, 20.0), (3, 'Cy', 'Oslo', 25, NULL),
  (4, 'Dee', 'Paris', 41, 7.25), (5, 'Eve', NULL, 36, 20.0);
CREATE TABLE pets (owner INTEGER, kind TEXT);
INSERT INTO pets VALUES (1, 'cat'), (1, 'dog'), (2, 'cat'), (4, 'owl');
"""
OTHER = SCHEMA.replace("'Oslo', 25, 20.0", "'Rome', 25, 20.0")
NAMES = "SELECT name FROM people WHERE city = 'Oslo'"
AGES = "SELECT name, age FROM people ORDER BY age"
TOP = "SELECT name FROM people ORDER BY age DESC, name LIMIT 3"
COUNTS = "SELECT city, COUNT(*) AS n FROM people GROUP BY city ORDER BY n DESC"
HIDDEN = "SELECT name FROM people ORDER BY age"
MEAN = "SELECT AVG(pay) FROM people"
HOW_MANY = "SELECT COUNT(*) FROM people"
JOIN = "SELECT p.name, q.kind FROM people p JOIN pets q ON q.owner = p.id"
CITIES = "SELECT DISTINCT city FROM people WHERE city IS NOT NULL ORDER BY city"


def fence(query, word="sql"):
    return f"```{word}\n{query}\n```"


RIGHT = [
    (NAMES, f"The query is `{NAMES}`."),
    (NAMES, f"SQL: {NAMES}"),
    (NAMES, f"**Answer:** {NAMES}"),
    (NAMES, f"{NAMES};\n\nThis gives the names."),
    (NAMES, f"**Query**\n\n{NAMES}\n\n**Why**\n\nIt works."),
    (NAMES, NAMES.replace(" WHERE", "\n\nWHERE")),
    (NAMES, fence(NAMES, "postgresql")),
    (HOW_MANY, "SELECT (0.1 + 0.2) * 10 * COUNT(*) / 3 FROM people"),  # 5.000000000000001
    (NAMES, NAMES),
    (NAMES, NAMES + ";"),
    (NAMES, fence(NAMES)),
    (NAMES, fence(NAMES, "")),
    (NAMES, fence(NAMES, "SQL")),
    (NAMES, fence(NAMES, "sqlite")),
    (NAMES, f"We need this:\n\n{fence(NAMES)}\n\nIt reads one table."),
    (NAMES, f"{fence('SELECT 1')}\nNo, rather\n{fence(NAMES)}"),
    (NAMES, f"<answer>{NAMES}</answer>"),
    (NAMES, f"<answer>\n{fence(NAMES)}\n</answer>"),
    (NAMES, f"<think>{fence('SELECT 1')}</think>\n{NAMES}"),
    (NAMES, f"The query is\n{NAMES}"),
    (NAMES, NAMES.lower().replace("'oslo'", "'Oslo'")),
    (NAMES, NAMES.replace(" ", "\n  ")),
    (NAMES, f"-- people of Oslo\n{NAMES} -- done"),
    (NAMES, f"/* a */ {NAMES}"),
    (NAMES, NAMES + " ORDER BY id DESC"),
    (NAMES, "SELECT p.name AS who FROM people AS p WHERE p.city LIKE 'oslo'"),
    (NAMES, "WITH o AS (SELECT * FROM people WHERE city = 'Oslo') SELECT name FROM o"),
    (NAMES, "SELECT name FROM (SELECT name, city FROM people) WHERE city = 'Oslo'"),
    (NAMES, "SELECT name FROM people WHERE city='Oslo' UNION ALL SELECT name FROM people WHERE 0"),
    (NAMES, "SELECT \"name\" FROM [people] WHERE `city` = 'Oslo'"),
    (NAMES, "SELECT name FROM people WHERE city IN ('Oslo', 'Bergen')"),
    (NAMES, "SELECT name FROM people WHERE city = 'Oslo' AND ';' = ';'"),
    (AGES, AGES),
    (AGES, "SELECT name, age FROM people ORDER BY age, name"),
    (AGES, "SELECT name, age FROM people ORDER BY age, name DESC"),
    (AGES, "SELECT name, age * 1.0 FROM people ORDER BY 2"),
    (TOP, TOP),
    (TOP, "SELECT name FROM people ORDER BY -age, name ASC LIMIT 3 OFFSET 0"),
    (COUNTS, COUNTS),
    (COUNTS, "SELECT city, COUNT(id) FROM people GROUP BY 1 ORDER BY 2 DESC, 1"),
    (COUNTS, "SELECT city, COUNT(id) FROM people GROUP BY 1 ORDER BY 2 DESC, 1 DESC"),
    (HIDDEN, "SELECT name FROM people ORDER BY age, name DESC"),
    (HIDDEN, "SELECT name FROM people ORDER BY age, id"),
    (MEAN, "SELECT SUM(pay) / COUNT(pay) FROM people"),
    (MEAN, "SELECT TOTAL(pay) / 4 FROM people"),
    (HOW_MANY, "SELECT COUNT(id) FROM people"),
    (HOW_MANY, "SELECT SUM(1) AS n FROM people"),
    (HOW_MANY, "SELECT COUNT(*) * 1.0 FROM people"),
    (JOIN, "SELECT name, kind FROM pets, people WHERE owner = id"),
    (JOIN, "SELECT name, kind FROM pets INNER JOIN people ON owner = id ORDER BY kind"),
    (CITIES, "SELECT city FROM people WHERE city NOT NULL GROUP BY city ORDER BY city"),
    (CITIES, CITIES),
]
WRONG = [  # and what the verdict says
    (NAMES, f"{NAMES};\n\nDROP TABLE people", "2 statements"),
    (NAMES, f"{NAMES}\n\nSELECT 1", "near"),
    (HOW_MANY, "SELECT COUNT(*) + 0.000001 FROM people", "other rows"),
    (NAMES, "", "no SQL"),
    (NAMES, "I do not know.", "no SELECT"),
    (NAMES, "SELECT", ""),
    (NAMES, f"({NAMES})", "syntax error"),
    (NAMES, "SELEC name FROM people", ""),
    (NAMES, "SELECT name FROM people", "5 rows, not 2"),
    (NAMES, "SELECT name FROM people WHERE city = 'Paris'", "1 rows, not 2"),
    (NAMES, "SELECT name FROM people WHERE age = 36", "other rows"),
    (NAMES, "SELECT id FROM people WHERE city = 'Oslo'", "other rows"),
    (NAMES, "SELECT name, city FROM people WHERE city = 'Oslo'", "2 columns, not 1"),
    (NAMES, "SELECT name FROM person", "no such table"),
    (NAMES, "SELECT nam FROM people", "no such column"),
    (NAMES, "SELECT DISTINCT city FROM people WHERE city = 'Oslo'", "1 rows"),
    (NAMES, "SELECT 'Bob' UNION SELECT 'Cy'", "reads no table"),
    (NAMES, "VALUES ('Bob'), ('Cy')", ""),
    (NAMES, f"{NAMES}; {NAMES}", "2 statements"),
    (NAMES, f"DROP TABLE people; {NAMES}", "2 statements"),
    (NAMES, f"{NAMES}; DROP TABLE people", "2 statements"),
    (NAMES, "DROP TABLE people", "no SELECT"),
    (NAMES, "DELETE FROM people WHERE city <> 'Oslo' RETURNING name", "no SELECT"),
    (NAMES, "INSERT INTO people (name) VALUES ('x') RETURNING name", "no SELECT"),
    (NAMES, "UPDATE people SET city = 'Oslo' RETURNING name", "no SELECT"),
    (NAMES, "CREATE TABLE x AS SELECT name FROM people", "no SELECT"),
    (NAMES, "CREATE TEMP VIEW people AS SELECT 1", "no SELECT"),
    (NAMES, "PRAGMA table_info(people)", "no SELECT"),
    (NAMES, "ATTACH DATABASE '/etc/passwd' AS x", "no SELECT"),
    (NAMES, "VACUUM INTO 'copy.db'", "no SELECT"),
    (NAMES, "EXPLAIN SELECT name FROM people", ""),
    (NAMES, "BEGIN", "no SELECT"),
    (NAMES, "SELECT name FROM pragma_table_info('people')", "SQLite"),
    (NAMES, "SELECT load_extension('x') FROM people", "SQLite"),
    (NAMES, "SELECT readfile('/etc/passwd') FROM people", "SQLite"),
    (NAMES, "SELECT writefile('x', 'y') FROM people", "SQLite"),
    (NAMES, "SELECT name FROM people WHERE random() > 0", "SQLite"),
    (NAMES, "SELECT name FROM people ORDER BY random() LIMIT 2", "SQLite"),
    (NAMES, "SELECT date('now') FROM people LIMIT 2", "not the same at each call"),
    (NAMES, f"{NAMES} This gives the names.", ""),
    (NAMES, f"<answer>{NAMES}</answer><answer>SELECT id FROM people</answer>", "5 rows"),
    (NAMES, f"{fence(NAMES)}\n{fence('SELECT id FROM people')}", "5 rows"),
    (NAMES, f"<think>{NAMES}</think>", "no SQL"),
    (NAMES, fence(NAMES, "python"), ""),
    (NAMES, NAMES + " UNION ALL " + NAMES, "4 rows, not 2"),
    (NAMES, "SELECT UPPER(name) FROM people WHERE city = 'Oslo'", "other rows"),
    (NAMES, "SELECT name || ' ' FROM people WHERE city = 'Oslo'", "other rows"),
    (NAMES, "SELECT NULL FROM people LIMIT 2", "other rows"),
    (AGES, "SELECT name, age FROM people ORDER BY age DESC", "another order"),
    (AGES, "SELECT name, age FROM people ORDER BY name DESC", "another order"),
    (AGES, "SELECT age, name FROM people ORDER BY age", "other rows"),
    (AGES, "SELECT name, CAST(age AS TEXT) FROM people ORDER BY age", "other rows"),
    (TOP, "SELECT name FROM people ORDER BY age DESC, name DESC LIMIT 3", "another order"),
    (TOP, "SELECT name FROM people ORDER BY age LIMIT 3", "other rows"),
    (TOP, "SELECT name FROM people ORDER BY age DESC, name LIMIT 2", "2 rows, not 3"),
    (COUNTS, "SELECT city, COUNT(*) FROM people GROUP BY city ORDER BY 2", "another order"),
    (COUNTS, "SELECT city, COUNT(city) FROM people GROUP BY city ORDER BY 2 DESC", "other rows"),
    (HIDDEN, "SELECT name FROM people ORDER BY name DESC", "another order"),
    (HIDDEN, "SELECT name FROM people ORDER BY age DESC", "another order"),
    (MEAN, "SELECT SUM(pay) / COUNT(*) FROM people", "other rows"),
    (MEAN, "SELECT ROUND(AVG(pay), 2) FROM people WHERE id < 3", "other rows"),
    (MEAN, "SELECT CAST(AVG(pay) AS TEXT) FROM people", "other rows"),
    (HOW_MANY, "SELECT 5", "reads no table"),
    (HOW_MANY, "SELECT '5' FROM people LIMIT 1", "other rows"),
    (HOW_MANY, "SELECT COUNT(city) FROM people", "other rows"),
    (JOIN, "SELECT name, kind FROM pets, people", "20 rows, not 4"),
    (JOIN, "SELECT name, kind FROM people LEFT JOIN pets ON owner = id", "6 rows, not 4"),
    (CITIES, "SELECT city FROM people WHERE city NOT NULL ORDER BY city", "4 rows, not 3"),
    (CITIES, "SELECT DISTINCT city FROM people WHERE city NOT NULL ORDER BY city DESC", "order"),
    (
        NAMES,
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
        "SELECT COUNT(*) FROM r, people",
        "processor time",
    ),
    (
        NAMES,
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
        "SELECT n FROM r LIMIT 20000",
        "more than 10,000 rows",
    ),
    (NAMES, "SELECT hex(zeroblob(900000000)) FROM people", "SQLite"),
    (NAMES, "SELECT printf('%.*c', 900000000, 'x') FROM people", "SQLite"),
    (NAMES, "SELECT format('%-900000000s', name) FROM people", "SQLite"),
    (
        NAMES,
        "WITH RECURSIVE r(s) AS (SELECT 'xxxxxxxxxx' UNION ALL SELECT s || s FROM r) "
        "SELECT COUNT(*) FROM r, people",
        "SQLite",
    ),
    (NAMES, "SELECT " + "(" * 5000 + "1" + ")" * 5000 + " FROM people", ""),
    (NAMES, "SELECT name FROM people" + " JOIN people" * 100, ""),
    (NAMES, NAMES + " " * 30_000 + "--", ""),
]
RIGHT += [
    (NAMES, f"```SQL\r\n{NAMES}\r\n```\r\n"),
    (NAMES, NAMES.replace("name", "printf('%s', name)", 1)),
    (HOW_MANY, "SELECT printf('%d', COUNT(*)) + 0 FROM people"),
]
SPEC = {"schema": SCHEMA}
CASES = [{"spec": SPEC | {"answer": a}, "response": t, "passed": True} for a, t in RIGHT]
CASES += [{"spec": SPEC | {"answer": a}, "response": t, "passed": False} for a, t, _ in WRONG]

test_sql_keeps_its_promises = conformance(SqlVerifier, cases=CASES, config={"seconds": 0.5})


def verify(answer, text, schema=SCHEMA, **options):
    verifier = SqlVerifier(SqlVerifier.Config(**options))
    problem = Problem("p", "?", "checks/sql", {"answer": answer, "schema": schema}, "toy")
    verifier.check(problem)
    return verifier.verify(problem, Completion.from_text(text))


@pytest.mark.parametrize(("answer", "text"), RIGHT, ids=lambda value: ascii(value)[:60])
def test_right(answer, text):
    verdict = verify(answer, text)
    assert verdict.passed, verdict


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


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "needs a SELECT in field 'answer'"),
        ({"answer": NAMES}, "needs SQL in field 'schema'"),
        ({"answer": "DROP TABLE people", "schema": SCHEMA}, "no SELECT"),
        ({"answer": "SELECT x FROM people", "schema": SCHEMA}, "no such column"),
        ({"answer": NAMES, "schema": "CREATE TABEL x"}, "syntax error"),
        ({"answer": NAMES + " AND 0", "schema": SCHEMA}, "gives no rows"),
        ({"answer": NAMES, "schema": [1]}, "needs SQL"),
    ],
)
def test_check_refuses_what_cannot_be_judged(spec, said):
    with pytest.raises(DataError) as caught:
        SqlVerifier(SqlVerifier.Config()).check(Problem("p7", "?", "checks/sql", spec, "toy"))
    assert said in str(caught.value)
    assert "p7" in str(caught.value)


def test_references_without_rows_may_be_allowed():
    reference = NAMES + " AND 0"
    assert verify(reference, reference, allow_empty=True).passed
    assert not verify(reference, NAMES, allow_empty=True).passed
