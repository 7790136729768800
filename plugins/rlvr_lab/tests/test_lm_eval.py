"""Tasks of lm-evaluation-harness through our engines; the harness's own HF model is the oracle."""

import contextlib
import io
import json
import shutil
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from plugins.rlvr_lab.tests.lm_eval_tasks import write_tasks
from rlvr_core.api import ConfigError, MachineError
from rlvr_lab.lm_eval import ask as lm_eval_ask
from rlvr_lab.lm_eval.task import LmEval

pytest.importorskip("lm_eval")

LAX = "--allow-truncation"
TASKS = ["toy_gen", "toy_group", "toy_last", "toy_whole"]
CHAT = "{% for m in messages %}<{{m.role}}>{{m.content}}{% if not loop.last or m.role == 'user' %}"
CHAT += ";{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture(scope="session")
def tasks(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("harness"))


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory, model_dir):
    """The random model with a chat template and a beginning-of-sequence token that is put first."""
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(model_dir, folder)
    (folder / "chat_template.jinja").write_text(CHAT)
    return folder


def oracle(model, tasks, names, **options):
    """What the harness finds with a model of its own: results, and answers by document."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    with contextlib.redirect_stderr(io.StringIO()):
        found = simple_evaluate(
            model="hf",
            model_args={"pretrained": str(model), "dtype": "float32"},
            tasks=names,
            task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
            device="cpu",
            batch_size=4,
            bootstrap_iters=0,
            **options,
        )
    answers = {
        f"{name}/{sample['doc_id']}": [one[0] for one in sample["resps"]]
        for name, samples in found["samples"].items()
        for sample in samples
    }
    return found["results"], answers


def config(tasks, names, **options):
    use = [
        {"use": "lm_eval", "with": {"task": n, "include_path": str(tasks)} | options} for n in names
    ]
    Path("eval.yaml").write_text(yaml.safe_dump({"tasks": use}))
    return ("--config", "eval.yaml")


def answers(folder):
    found = {}
    for path in sorted(folder.glob("*/completions.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            text = row["text"]
            if "_gen" in row["problem_id"]:
                for stop in ("Q:", "e", "1"):
                    text = text.split(stop)[0]
                found[row["problem_id"]] = [text]
            else:
                found[row["problem_id"]] = json.loads(text)
    return found


def flat(scores):
    return [
        number for one in scores for number in (one if isinstance(one, list | tuple) else [one])
    ]


def check_same(summary, results, ours, theirs):
    assert ours.keys() == theirs.keys()
    for id_, said in ours.items():
        if "_gen" in id_:
            assert said == theirs[id_], id_
        else:
            assert flat(said) == pytest.approx(flat(theirs[id_]), abs=1e-4), id_
    n = 0
    for name, one in summary["tasks"].items():
        task = name.partition(":")[2]
        for metric, found in one["task_metrics"].items():
            inner, _, key = metric.rpartition(": ")
            assert found["value"] == pytest.approx(results[inner or task][key], rel=1e-5), metric
            n += 1
    wanted = sum("," in key and "stderr" not in key for one in results.values() for key in one)
    assert n == wanted


def test_answers_and_metrics_are_those_of_the_harness(lab, model_dir, tasks):
    results, theirs = oracle(model_dir, tasks, TASKS)
    summary = lab.json("eval", model_dir, *config(tasks, TASKS), LAX, "--out", "out")
    check_same(summary, results, answers(lab.folder / "out"), theirs)
    found = summary["tasks"]["lab/lm_eval:toy_group"]
    assert set(found["strata"]["task"]) == {"toy_mc", "toy_letters"}
    assert found["task_metrics"]["acc,none"]["n"] == 16
    assert found["task_metrics"]["acc,none"]["method"] == "wilson"
    assert found["task_metrics"]["toy_mc: acc,none"]["n"] == 10
    assert found["metrics"]["accuracy"] == found["task_metrics"]["acc,none"]
    # what is no average over documents, and what has no pass or fail
    last = summary["tasks"]["lab/lm_eval:toy_last"]
    assert last["graders"]["lm_eval"]["statuses"] == {"ok": 10}
    whole = summary["tasks"]["lab/lm_eval:toy_whole"]
    assert whole["metrics"]["unscored"]["value"] == 1.0
    rows = Path("out/lab_lm_eval_toy_group/results.jsonl").read_text().splitlines()
    verdict = json.loads(rows[0])["verdicts"]["lm_eval"]
    assert verdict["parts"].keys() <= {"acc,none", "acc_norm,none"}
    assert verdict["extracted"].strip()


def test_chats_and_other_examples_are_those_of_the_harness(lab, chat_model, tasks):
    names, shots = ["toy_gen", "toy_mc"], {"num_fewshot": 1}
    results, theirs = oracle(
        chat_model,
        tasks,
        names,
        apply_chat_template=True,
        fewshot_as_multiturn=True,
        fewshot_random_seed=7,
        **shots,
    )
    options = config(tasks, names, chat=True, fewshot_seed=7, **shots)
    summary = lab.json("eval", chat_model, *options, LAX, "--out", "out")
    check_same(summary, results, answers(lab.folder / "out"), theirs)
    first = json.loads(Path("out/lab_lm_eval_toy_gen/completions.jsonl").read_text().split("\n")[0])
    assert first["prompt"].startswith("<user>Q: ")
    assert first["prompt"].endswith(";<assistant>")


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_gives_the_same(lab, model_dir, tasks):
    pytest.importorskip("vllm")
    results, theirs = oracle(model_dir, tasks, TASKS)
    options = (*config(tasks, TASKS), "--engine", "vllm", LAX)
    summary = lab.json("eval", model_dir, *options, "--out", "out")
    check_same(summary, results, answers(lab.folder / "out"), theirs)


def test_t72_answers_get_room_and_cut_ones_are_an_error(lab, model_dir, tmp_path):
    folder = write_tasks(tmp_path / "more")
    text = (folder / "gen.yaml").read_text()
    silent = text.replace(", max_gen_toks: 20", "")
    for name, content in {
        "toy_silent": silent,
        "gsm8k_toy": silent,
        "minerva_math_toy": silent,
        "ifeval_toy": text,
    }.items():
        (folder / f"{name}.yaml").write_text(content.replace("toy_gen", name))

    def budget(name, **options):
        given = LmEval.Config(task=name, include_path=str(folder), **options)
        return LmEval(given).sampling.max_tokens

    assert budget("toy_gen") == 20
    assert budget("toy_silent") == 1024
    assert budget("gsm8k_toy") == 1024
    assert budget("minerva_math_toy") == 2048
    assert budget("ifeval_toy") == 4096
    assert budget("ifeval_toy", max_tokens=64) == 64
    options = ("--task", "lm_eval", "--with", "task=toy_gen", "--with", f"include_path={folder}")
    done = lab.rlvr("eval", model_dir, *options, check=1)
    assert "of the answers were cut off at 20 tokens" in done.stderr


def test_t74_another_version_of_a_task_is_not_compared(lab, model_dir, tmp_path):
    folder = write_tasks(tmp_path / "mine")
    options = ("--task", "lm_eval", "--with", "task=toy_mc", "--with", f"include_path={folder}")
    lab.rlvr("eval", model_dir, *options, "--out", "a")
    spec = json.loads(Path("a/lab_lm_eval_toy_mc/spec.json").read_text())["spec"]
    assert spec["identity"]["lm_eval"] == metadata.version("lm_eval")
    assert spec["identity"]["tasks"]["toy_mc"]["version"] == "2.0"
    assert (spec["prompt"], spec["sampling"]) == (None, None)
    lab.rlvr("compare", "a", "a")
    text = (folder / "mc.yaml").read_text()
    (folder / "mc.yaml").write_text(text.replace("version: 2.0", "version: 2.1"))
    lab.rlvr("eval", model_dir, *options, "--out", "b")
    refused = lab.rlvr("compare", "a", "b", check=2)
    assert 'identity.tasks.toy_mc.version: "2.0" and "2.1"' in refused.stderr
    # so is another reference answer, which changes no prompt
    rows = (folder / "test.jsonl").read_text().splitlines()
    row = json.loads(rows[0])
    row["gold"] = (row["gold"] + 1) % 4
    (folder / "test.jsonl").write_text("\n".join([json.dumps(row), *rows[1:]]) + "\n")
    lab.rlvr("eval", model_dir, *options, "--out", "c")
    assert "problems.sha256" in lab.rlvr("compare", "b", "c", check=2).stderr


def test_t76_interrupted_and_run_again_it_ends_with_exactly_the_documents(
    lab, model_dir, tasks, monkeypatch
):
    options = ("eval", model_dir, *config(tasks, ["toy_group"]))
    lab.rlvr(*options, "--out", "whole")
    monkeypatch.setattr(lm_eval_ask, "WINDOW", 3)
    real, calls = lm_eval_ask._score, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(lm_eval_ask, "_score", interrupted)
    lab.rlvr(*options, "--out", "out", check=130)
    results = Path("out/lab_lm_eval_toy_group/results.jsonl")
    assert len(results.read_text().splitlines()) == 6
    again = lab.rlvr(*options, "--out", "out")
    assert "going on: 6 of 16" in again.stderr
    for name in ("results.jsonl", "problems.jsonl", "spec.json"):
        one, other = (Path(f, "lab_lm_eval_toy_group", name) for f in ("out", "whole"))
        assert one.read_text() == other.read_text(), name
    # rows of other lengths beside it move a log-likelihood by some rounding
    one, other = answers(lab.folder / "out"), answers(lab.folder / "whole")
    assert list(one) == list(other)
    for id_, scores in one.items():
        assert flat(scores) == pytest.approx(flat(other[id_]), abs=1e-4)
    third = lab.rlvr(*options, "--out", "out")
    assert "loading" not in third.stderr


def test_t82_a_task_that_runs_the_models_code_is_refused(tmp_path):
    folder = write_tasks(tmp_path / "code")
    with (folder / "gen.yaml").open("a") as file:
        file.write("unsafe_code: true\n")
    with pytest.raises(ConfigError, match="without a sandbox"):
        LmEval(LmEval.Config(task="toy_gen", include_path=str(folder))).problems()


def test_t84_generation_arguments_become_ours_or_are_refused(tmp_path):
    def sampling(arguments):
        folder = write_tasks(tmp_path / str(abs(hash(arguments))))
        text = (folder / "gen.yaml").read_text()
        old = '{until: ["Q:", "e", "1"], do_sample: false, max_gen_toks: 20}'
        (folder / "gen.yaml").write_text(text.replace(old, arguments))
        return LmEval(LmEval.Config(task="toy_gen", include_path=str(folder))).sampling

    # every name the harness's backends use for the cap; temperature without sampling is greedy
    for name in ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"):
        found = sampling(f"{{until: x, {name}: 33, do_sample: false, temperature: 0.7}}")
        assert (found.max_tokens, found.temperature) == (33, 0.0)
    found = sampling("{until: x, do_sample: true, temperature: 0.7, top_p: 0.9, num_beams: 1}")
    assert (found.temperature, found.top_p, found.top_k) == (0.7, 0.9, 0)
    with pytest.raises(ConfigError, match="generates with repetition_penalty, which no engine"):
        sampling("{until: x, repetition_penalty: 1.2}")
    with pytest.raises(ConfigError, match="generates with num_beams"):
        sampling("{until: x, num_beams: 4}")


def test_repeated_answers_are_drawn_apart_and_by_the_seed(lab, model_dir, tmp_path):
    folder = write_tasks(tmp_path / "often")
    text = (folder / "gen.yaml").read_text().replace("do_sample: false", "temperature: 1.0")
    (folder / "gen.yaml").write_text(f"{text}repeats: 3\n")
    options = ("--task", "lm_eval", "--with", "task=toy_gen", "--with", f"include_path={folder}")

    def texts(out, seed):
        lab.rlvr("eval", model_dir, *options, LAX, "--seed", seed, "--limit", 4, "--out", out)
        lines = Path(out, "lab_lm_eval_toy_gen/completions.jsonl").read_text().splitlines()
        return [json.loads(line)["text"] for line in lines]

    one = texts("a", 0)
    assert len(one) == len(set(one)) == 12
    assert texts("b", 0) == one
    assert not set(texts("c", 1)) & set(one)


def test_refusals_say_what_to_do(lab, model_dir, tasks, monkeypatch):
    options = ("--task", "lm_eval", "--with", f"include_path={tasks}", "--out", "o")
    scripted = '{use: scripted, with: {answers: {"": [x]}}}'
    refused = lab.rlvr(
        "eval", model_dir, *options, "--with", "task=toy_mc", "--set", f"engine={scripted}", check=2
    )
    assert "ScriptedEngine only generates" in refused.stderr
    refused = lab.rlvr("passk", model_dir, *options, "--with", "task=toy_mc", "--n", 2, check=2)
    assert "rlvr passk cannot do" in refused.stderr
    task = {"use": "lm_eval", "with": {"task": "toy_mc", "include_path": str(tasks)}}
    lab.write_run_config(model_dir, eval={"every": 1, "tasks": [task]})
    refused = lab.rlvr("run", "config.yaml", "--display", "none", check=2)
    assert "evaluate the run's checkpoints with rlvr watch" in refused.stderr

    mc = ("--with", "task=toy_mc")
    refused = lab.rlvr(
        "eval", model_dir, *options, *mc, "--with", "metric=f1", "--out", "p", check=2
    )
    assert "has no metric 'f1'" in refused.stderr
    assert "it has: acc,none, acc_norm,none" in refused.stderr
    long = (*options, "--with", "task=toy_mc", "--with", "num_fewshot=6")
    monkeypatch.setattr("rlvr_core.eval.session.max_positions", lambda *_: 60)
    refused = lab.rlvr("eval", model_dir, *long, "--out", "q", check=2)
    assert "the model attends to 60" in refused.stderr
    assert "lower num_fewshot" in refused.stderr

    def gone(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", gone)
    with pytest.raises(MachineError, match=r"pip install 'rlvr-core\[lm-eval\]'"):
        LmEval(LmEval.Config(task="toy_mc", include_path=str(tasks))).problems()
