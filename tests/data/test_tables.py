"""Tables as data: CSV, Parquet, folders of files and saved data sets."""

from __future__ import annotations

import datetime
import decimal
import gzip

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from rlvr_core.api import DataError
from rlvr_core.data.tables import Csv, Folder, Parquet

OPTIONS = {"verifier": "core/exact", "prompt": "question"}
TABLE = 'question,answer\n2+2?,4\n"a, ""b""\nc?",007\n\n3+3?,6\n'


def load(loader, path, **options):
    return list(loader(loader.Config(path=str(path), **(OPTIONS | options))).load())


def complaint(loader, path, **options):
    with pytest.raises(DataError) as caught:
        load(loader, path, **options)
    return str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_values_of_a_csv_are_text_as_it_stands(tmp_path, packed):
    path = tmp_path / ("toy.csv.gz" if packed else "toy.csv")
    content = ("\ufeff" + TABLE).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    problems = load(Csv, path)
    assert [p.prompt for p in problems] == ["2+2?", 'a, "b"\nc?', "3+3?"]
    assert [p.spec["answer"] for p in problems] == ["4", "007", "6"]
    assert [p.where for p in problems] == [
        f"{path}:2",
        f"{path}:3",
        f"{path}:6",
    ]  # of the first line of each
    assert {p.dataset for p in problems} == {"toy"}
    assert len(load(Csv, path, limit=2)) == 2


def test_other_delimiters(tmp_path):
    path = tmp_path / "toy.tsv"
    path.write_text("question\tanswer\n2,2?\t4\n")
    assert load(Csv, path, delimiter="\t")[0].spec == {"question": "2,2?", "answer": "4"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("question,answer\n2+2?,4\n3,4,5\n", ["toy.csv:3", "3 values, and the header 2 columns"]),
        ("question,question\n1,2\n", ["toy.csv:1", "'question' twice"]),
        ('question\n"open\n', ["toy.csv:2", "not CSV"]),
        ("ask\n2+2?\n", ["toy.csv:2", "no field 'question'", "fields there are: ask"]),
        ("question\n", ["no rows", "toy.csv"]),
        ("question;answer\n2;4\n", ["toy.csv:1", "separated by ';'", 'delimiter: ";"']),
        ("question\tanswer\n2\t4\n", ["toy.csv:1", "separated by '\\t'", 'delimiter: "\\t"']),
        (b"question\n\xff\n", ["not UTF-8", "toy.csv"]),
    ],
)
def test_a_bad_csv_is_told_by_its_line(tmp_path, content, says):
    path = tmp_path / "toy.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for text in says:
        assert text in complaint(Csv, path)


def parquet(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_rows_of_parquet_become_json(tmp_path):
    path = parquet(
        tmp_path / "toy.parquet",
        question=["a", "b"],
        level=[1, None],
        day=[datetime.date(2026, 1, 2), datetime.date(2026, 1, 3)],
        price=[decimal.Decimal("1.50"), decimal.Decimal("2.00")],
        parts=[[{"x": 1}], []],
    )
    first, second = load(Parquet, path)
    assert first.spec == {
        "question": "a",
        "level": 1,
        "day": "2026-01-02",
        "price": "1.50",
        "parts": [{"x": 1}],
    }
    assert second.spec["level"] is None
    assert second.where == f"{path}, row 2"


def test_a_bad_parquet_is_told_by_its_row(tmp_path):
    path = parquet(tmp_path / "toy.parquet", question=["a", "b"], x=[1.0, float("nan")])
    assert "field 'x' is nan" in complaint(Parquet, path)
    assert "row 2" in complaint(Parquet, path)
    path = parquet(tmp_path / "toy.parquet", question=["a"], x=[b"\x00"])
    assert "field 'x' holds bytes" in complaint(Parquet, path)
    path.write_bytes(b"no parquet")
    assert "cannot read data" in complaint(Parquet, path)
    assert "cannot read data" in complaint(Parquet, tmp_path / "none.parquet")


def test_files_of_a_folder_belong_to_the_split_in_their_name(tmp_path):
    (tmp_path / "extra.jsonl").write_text('{"question": "j"}\n')
    (tmp_path / "README.md").write_text("nothing")
    parquet(tmp_path / "data" / "train-00000-of-00001.parquet", question=["p"])
    parquet(tmp_path / "test" / "a.parquet", question=["t"])
    (tmp_path / "toy_val.csv").write_text("question\nv\n")

    def prompts(**options):
        return [p.prompt for p in load(Folder, tmp_path, **options)]

    assert prompts() == ["p", "j"]
    assert prompts(split="test") == ["t"]
    assert prompts(split="validation") == prompts(split="val") == ["v"]
    assert load(Folder, tmp_path, split="test")[0].dataset == f"{tmp_path.name}_test"
    said = complaint(Folder, tmp_path, split="secret")
    assert "no split 'secret'" in said
    assert "it has: train, test, validation" in said


def test_a_saved_data_set_is_a_folder_too(tmp_path):
    made = datasets.DatasetDict(
        {
            "train": datasets.Dataset.from_dict({"question": ["a", "b"]}),
            "test": datasets.Dataset.from_dict({"question": ["c"]}),
        }
    )
    made.save_to_disk(str(tmp_path / "saved"))
    assert [p.prompt for p in load(Folder, tmp_path / "saved")] == ["a", "b"]
    assert [p.prompt for p in load(Folder, tmp_path / "saved", split="test")] == ["c"]
    assert "it has: train, test" in complaint(Folder, tmp_path / "saved", split="dev")


def test_a_folder_without_data_is_told(tmp_path):
    assert "no data files" in complaint(Folder, tmp_path)
    assert "no such folder" in complaint(Folder, tmp_path / "none")
    (tmp_path / "a.csv").write_text("question\nx\n")
    assert "a file, not a folder" in complaint(Folder, tmp_path / "a.csv")
