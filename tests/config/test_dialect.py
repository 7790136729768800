import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import ConfigError
from rlvr_core.config.dialect import MAX_CHARACTERS, read, read_option, write


def plain(text):
    node = read(text, "f.yaml")
    return None if node is None else node.plain()


def fault(text):
    with pytest.raises(ConfigError) as caught:
        read(text, "f.yaml")
    return caught.value


def places_of_faults(reader, text):
    try:
        reader(text, "f.yaml")
    except ConfigError as error:
        return [complaint.where for complaint in error.complaints]
    return []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("-.5", -0.5),
        (".inf", math.inf),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("FALSE", False),
        ("no", "no"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ('""', ""),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = plain(f"key: {text}")["key"]
    assert found == value
    assert type(found) is type(value)


def test_keys_are_text_whatever_they_look_like():
    assert plain("{on: 1, 3: 2, null: 3, 1e-6: 4}") == {"on": 1, "3": 2, "null": 3, "1e-6": 4}


def test_t48_duplicate_keys_name_both_lines_and_all_are_told():
    error = fault("loss: a\nb:\n  x: 1\n  y: 2\n  x: 3\nloss: c\n")
    assert [(c.what, c.where) for c in error.complaints] == [
        ("duplicate key 'x': first given at f.yaml:3", "f.yaml:5"),
        ("duplicate key 'loss': first given at f.yaml:1", "f.yaml:6"),
    ]


def test_a_quoted_key_is_the_same_key():
    assert "duplicate key '3'" in str(fault("{3: a, '3': b}"))


def test_merge_keys_yield_to_own_keys_wherever_they_stand():
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {z: 3, <<: [*a, *b]}\n"
    assert plain(text)["c"] == {"x": 1, "y": 1, "z": 3}


def test_aliases_do_not_share_nodes():
    root = read("a: &a {x: [1]}\nb: *a\n", "f.yaml")
    root.value["a"].value["x"].value.append(root.value["b"])
    assert root.value["b"].plain() == {"x": [1]}


@pytest.mark.parametrize(
    ("text", "what", "where", "remedy"),
    [
        ("a:\n\tb: 1\n", "tab", "f.yaml:2", "spaces"),
        ("a: 1\nb: c: d\n", "mapping values", "f.yaml:2", "quotes"),
        ("a: [1,\n 2\nb: 3\n", "flow sequence", "f.yaml:3", ""),
        ("a: 1\n---\nb: 2\n", "single document", "f.yaml:2", "second '---'"),
        ("a: *nope\n", "undefined alias", "f.yaml:1", "quotes"),
        ("a: 1\nx: {path: ${env:HOME}}\n", "flow mapping", "f.yaml:2", '"${env:NAME}"'),
        ("a: 1\nb: '\\boxed'\nc: \"\\boxed\"\n", "control character", "f.yaml:3", "single quotes"),
        ('a: "\\y"\n', "escape character", "f.yaml:1", "single quotes"),
        ('a: "\\ud83d"\n', "not valid Unicode", "f.yaml:1", ""),
        ("a: 1\nb: \x01\n", "U+0001", "f.yaml:2", ""),
        ("a: !!python/object/apply:os.system [ls]\n", "tag", "f.yaml:1", ""),
        ("a: !!int x\n", "no whole number", "f.yaml:1", ""),
        (f"a: {'9' * 5000}\n", "64 bits", "f.yaml:1", ""),
        ("? [a, b]\n: 1\n", "single word", "f.yaml:1", ""),
        ("<<: 3\n", "'<<' takes", "f.yaml:1", ""),
        ("a: &a [*a]\n", "nested more", "f.yaml:1", "itself"),
        ("a: 1\nb: " + "[" * 100 + "]" * 100, "nested more", "f.yaml:2", ""),
    ],
)
def test_bad_yaml_says_what_where_and_what_to_do(text, what, where, remedy):
    (complaint,) = fault(text).complaints
    assert what in complaint.what
    assert complaint.where == where
    assert remedy in " ".join(complaint.remedy)


def test_an_alias_bomb_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert "once every alias is followed" in str(fault("\n".join(lines)))


def test_a_chain_of_anchors_deeper_than_the_limit_is_refused():
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 2000)]
    assert "nested more than" in str(fault("\n".join(lines)))


def test_a_huge_file_is_refused():
    assert "is this the right file" in str(fault("# " + "x" * MAX_CHARACTERS))


@pytest.mark.parametrize("text", ["#5", "a #b", "1 # one"])
def test_an_option_is_never_cut_off_by_a_comment(text):
    with pytest.raises(ConfigError, match="reads as a comment"):
        read_option(text, "--set x=")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\a\b\v\f\x1b"))
    | st.sampled_from(
        [
            "\x85",
            "a\u2028b",
            "\ufeff",
            "\r",
            " a",
            "a ",
            "1e-6",
            "no",
            "010",
            "0o7",
            "2024-01-01",
            "<<",
            "~",
            "null",
            ".inf",
            "=",
            "",
        ]
    )
)
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc1.-_ ", max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(DATA)
def test_what_is_written_reads_back_equal(data):
    found = plain(write({"key": data}))
    assert found == {"key": data}
    assert repr(found) == repr({"key": data})  # 1, 1.0 and True are equal, and not the same


@settings(max_examples=300, deadline=None)
@given(st.text() | st.text("{}[]:,-&*!|>'\"%@`#? \n\tab1<.~$"))
def test_any_text_is_read_or_refused_with_a_place(text):
    for reader in (read, read_option):
        assert all(where.startswith("f.yaml") for where in places_of_faults(reader, text))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["scalar", "flow", "block"])), min_size=1)
)
def test_marks_count_lines_as_an_editor_does(entries):
    """Each entry is written after some blank lines; the oracle counts newlines as it writes."""
    text, lines, inner = "", [], []
    for number, (blank, shape) in enumerate(entries):
        text += "# note\n" * blank
        lines.append(text.count("\n") + 1)
        if shape == "scalar":
            text += f"k{number}: v\n"
            inner.append(None)
        elif shape == "flow":
            text += f"k{number}: {{a: 1,\n  b: 2}}\n"
            inner.append(lines[-1] + 1)
        else:
            text += f"k{number}:\n\n  a: 1\n  b:\n    - 2\n"
            inner.append(lines[-1] + 3)
    root = read(text, "f.yaml")
    for number, line in enumerate(lines):
        assert root.where((f"k{number}",)) == f"f.yaml:{line} (k{number})"
        if inner[number]:
            where = root.where((f"k{number}", "b"), True)
            assert where == f"f.yaml:{inner[number]} (k{number}.b)"
