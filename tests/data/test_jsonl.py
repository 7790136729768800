import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.api import DataError, Message
from rlvr_core.data.jsonl import JsonLines
from rlvr_core.data.rows import parse_rows, read_rows

ROWS = [{"question": "2+2?", "answer": "4"}, {"question": "3+3?", "answer": "6"}]


def written(folder, content, name="toy.jsonl"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def load(path, **options):
    options = {"verifier": "core/exact", "prompt": "question"} | options
    return list(JsonLines(JsonLines.Config(path=str(path), **options)).load())


def complaint(path, **options):
    with pytest.raises(DataError) as caught:
        load(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "numbers"),
    [
        (lines(ROWS), [1, 2]),
        ("\n" + lines(ROWS[:1]) + "  \n\n" + lines(ROWS[1:]).rstrip(), [2, 5]),
        (lines(ROWS).replace("\n", "\r\n"), [1, 2]),
        ("\ufeff" + lines(ROWS), [1, 2]),
        (json.dumps(ROWS), [1, 2]),
        ("\n\n " + json.dumps(ROWS, indent=2) + "\n", [1, 2]),
    ],
)
def test_lines_and_arrays_plain_and_gzipped(tmp_path, content, numbers):
    plain = written(tmp_path, content)
    packed = written(tmp_path, gzip.compress(content.encode()), "no_ending")
    assert list(read_rows(plain)) == list(zip(numbers, ROWS, strict=True))
    assert list(read_rows(packed)) == list(zip(numbers, ROWS, strict=True))


@pytest.mark.parametrize(
    ("content", "place", "says"),
    [
        ('{"a": 1}\n{"a": \n', "toy.jsonl:2:6", "not JSON"),
        ('{"a": 1}\n7\n', "toy.jsonl:2", "a number"),
        ('{"a": 1}\n"x"\n', "toy.jsonl:2", "text"),
        ('{"a": 1}\n[{"a": 2}, {"a": 3}]\n', "toy.jsonl:2", "an array"),
        ('[{"a": 1}, null]', "toy.jsonl, row 2", "null"),
        ('[{"a": 1},\n {"a": }]', "toy.jsonl:2:8", "not JSON"),
        ('{"a": NaN}\n', "toy.jsonl:1", "NaN"),
        ('{"a": -Infinity}\n', "toy.jsonl:1", "Infinity"),
        ('{"a": 1e999}\n', "toy.jsonl:1", "1e999"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "toy.jsonl:2", "UTF-8"),
        ("[" * 100_000, "toy.jsonl:1", "not JSON"),
    ],
)
def test_bad_lines_are_named(tmp_path, content, place, says):
    with pytest.raises(DataError) as caught:
        list(read_rows(written(tmp_path, content)))
    assert place in str(caught.value)
    assert says in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(DataError, match="cannot read data") as caught:
            list(read_rows(path))
        assert str(path) in str(caught.value)


def test_t43_a_gzip_file_cut_short_is_an_error(tmp_path):
    whole = gzip.compress(lines(ROWS * 1000).encode())
    for content in (whole[:-5], whole[: len(whole) // 2], whole[:30] + b"\0" * 50):
        with pytest.raises(DataError, match=r"damaged|not JSON|UTF-8"):
            list(read_rows(written(tmp_path, content)))


def test_t43_an_empty_file_is_an_error(tmp_path):
    assert "there are no rows" in complaint(written(tmp_path, "\n"))
    assert "there are no rows" in complaint(written(tmp_path, "[]"))


def test_t45_mixed_columns_and_huge_integers_are_kept(tmp_path):
    digits = "9" * 10_000
    path = written(
        tmp_path,
        '{"question": "a", "answer": null, "tests": [null, "x", [1]]}\n'
        f'{{"question": "b", "answer": "4", "tests": {digits}}}\n'
        '{"question": "c", "answer": 12345678901234567890, "tests": {}}\n',
    )
    first, second, third = load(path)
    assert first.spec == {"question": "a", "answer": None, "tests": [None, "x", [1]]}
    assert second.spec["tests"] == digits
    assert third.spec["answer"] == 12345678901234567890
    json.dumps([dict(problem.spec) for problem in (first, second, third)])


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), values, max_size=4), min_size=1, max_size=4))
def test_rows_come_back_as_they_were_written(rows):
    encoded = [(json.dumps(row) + "\n").encode() for row in rows]
    assert [row for _, row in parse_rows(encoded, "x")] == rows
    unescaped = json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if b"\xed" not in unescaped:
        assert [row for _, row in parse_rows([unescaped], "x")] == rows


def test_a_problem_is_made_of_the_fields(tmp_path):
    row = {"uid": "q-17", "q": "2+2?", "answer": "4", "level": 3, "subject": "sums"}
    (problem,) = load(
        written(tmp_path, lines([row])),
        prompt=None,
        template="Q: {q} ({level})\nA:",
        id="uid",
        spec={"gold": "answer"},
        tags=["level", "subject"],
        stop=["\n\n"],
        name="sums",
    )
    assert problem.id == "q-17"
    assert problem.prompt == "Q: 2+2? (3)\nA:"
    assert problem.spec == {"gold": "4"}
    assert problem.tags == {"level": 3, "subject": "sums"}
    assert (problem.verifier, problem.dataset, problem.stop) == ("core/exact", "sums", ("\n\n",))


def test_braces_that_hold_no_name_stay(tmp_path):
    path = written(tmp_path, lines([{"q": "{answer}", "answer": "4"}]))
    template = r"{q} Put it in \boxed{} or \frac{1}{2} or {{answer}}."
    (problem,) = load(path, prompt=None, template=template)
    assert problem.prompt == r"{answer} Put it in \boxed{} or \frac{1}{2} or {answer}."


def test_a_template_whose_braces_are_all_doubled_is_refused(tmp_path):
    path = written(tmp_path, lines(ROWS))
    with pytest.raises(ValueError, match="'template' has no placeholder"):
        load(path, prompt=None, template="Q: {{question}}")


def test_the_whole_row_is_the_spec_by_default_and_a_list_chooses(tmp_path):
    path = written(tmp_path, lines(ROWS))
    assert load(path)[0].spec == ROWS[0]
    assert load(path, spec=["answer"])[0].spec == {"answer": "4"}


def test_chats_are_messages(tmp_path):
    turns = [{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]
    (problem,) = load(written(tmp_path, lines([{"question": turns}])))
    assert problem.prompt == (Message("system", ""), Message("user", "hi"))
    bad = [{"role": "robot", "content": "hi"}]
    assert "messages with a role" in complaint(written(tmp_path, lines([{"question": bad}])))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"prompt": "questoin"}, "questoin"),
        ({"prompt": None, "template": "{q}"}, "q"),
        ({"id": "uid"}, "uid"),
        ({"spec": ["gold"]}, "gold"),
        ({"tags": ["level"]}, "level"),
    ],
)
def test_a_missing_field_is_named_with_line_and_the_fields_there_are(tmp_path, options, field):
    message = complaint(written(tmp_path, lines(ROWS)), **options)
    assert f"no field '{field}'" in message
    assert "toy.jsonl:1" in message
    assert "question, answer" in message


@pytest.mark.parametrize("value", [None, True, 4.5, "", " ", ["a"]])
def test_a_field_that_is_no_id_is_refused(tmp_path, value):
    row = {"question": "?", "uid": value}
    assert "must be an id" in complaint(written(tmp_path, lines([row])), id="uid")


def test_the_prompt_must_be_said_once():
    for options in ({}, {"prompt": "q", "template": "{q}"}):
        with pytest.raises(ValueError, match="give one of"):
            JsonLines.Config(path="x", verifier="v", **options)


def test_t42_ids_without_a_field_are_of_the_content_alone(tmp_path):
    forward = load(written(tmp_path, lines(ROWS)))
    backward = load(written(tmp_path, lines(ROWS[::-1])))
    assert [p.id for p in forward] == [p.id for p in backward][::-1]
    assert load(written(tmp_path, lines(ROWS)), limit=1)[0].id == forward[0].id
    swapped = {"answer": "4", "question": "2+2?"}
    assert load(written(tmp_path, lines([swapped])))[0].id == forward[0].id
    reworded = load(written(tmp_path, lines(ROWS)), prompt=None, template="Q: {question}")
    assert reworded[0].id == forward[0].id
    assert forward[0].id.startswith("toy_")
    assert len(forward[0].id) == len("toy_") + 12


def test_t42_equal_rows_are_told_apart(tmp_path):
    first, second, third = load(written(tmp_path, lines([ROWS[0], ROWS[1], ROWS[0]])))
    assert third.id == f"{first.id}-2"
    assert second.id not in (first.id, third.id)


def test_t42_numbers_get_the_name_of_the_data_set(tmp_path):
    rows = [{"question": "?", "id": 60}, {"question": "?", "id": "aime_61"}]
    path = written(tmp_path, lines(rows), "aime24.jsonl")
    assert [p.id for p in load(path, id="id")] == ["aime24_60", "aime_61"]


def test_limit_and_the_name_from_the_file(tmp_path):
    path = written(tmp_path, gzip.compress(lines(ROWS).encode()), "my.data.jsonl.gz")
    (problem,) = load(path, limit=1)
    assert problem.dataset == "my"


def test_a_key_met_twice_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 1, "b": {"c": 1, "c": 2}}\n')
    with pytest.raises(DataError, match="the key 'c' is there twice in one object") as caught:
        list(read_rows(path))
    assert caught.value.complaints[0].where == f"{path}:2"
