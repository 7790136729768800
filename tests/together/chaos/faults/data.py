"""The data are wrong, and the preflight can see it."""

from __future__ import annotations

from tests.together.chaos.registry import BOTH, Rows, fault


@fault("preflight", of_data=True)
def one_reference_answer_for_all(rows: Rows) -> Rows:
    """Every problem has the same reference answer."""
    return [row | {"answer": "42"} for row in rows]


@fault("gold", "preflight", of_data=True)
def reference_answers_are_decimals(rows: Rows) -> Rows:
    """Answers are written as 46.0, as tables have them."""
    return [row | {"answer": f"{row['answer']}.0"} for row in rows]


@fault("gold", "preflight", of_data=True)
def some_reference_answers_are_missing(rows: Rows) -> Rows:
    """A tenth of the answers are empty, as after a failed join."""
    return [row | {"answer": "" if i % 10 == 0 else row["answer"]} for i, row in enumerate(rows)]


@fault("preflight", of_data=True, backends=BOTH)
def answer_in_the_prompt(rows: Rows) -> Rows:
    """The reference answer stands in the prompt."""
    return [row | {"question": f"[{row['answer']}] {row['question']}"} for row in rows]


@fault("preflight", of_data=True)
def twenty_problems_under_many_ids(rows: Rows) -> Rows:
    """89 ids, and 20 problems."""
    return [rows[i % 20] | {"id": row["id"]} for i, row in enumerate(rows)]


@fault("preflight", of_data=True)
def prompts_in_html(rows: Rows) -> Rows:
    """Prompts hold markup instead of text."""
    return [row | {"question": f"<p>After&nbsp;{row['question'][6:]}</p>"} for row in rows]


@fault("preflight", "completions", of_data=True)
def markers_of_a_chat_template(rows: Rows) -> Rows:
    """Prompts hold the markers of a chat template that the model has not."""
    return [row | {"question": f"<|im_start|>user\n{row['question']}<|im_end|>\n"} for row in rows]
