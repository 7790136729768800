import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_core.api import ConfigError, PluginError, RlvrError
from rlvr_core.config.dialect import write as to_yaml
from rlvr_core.config.load import load_config
from rlvr_core.config.model import ComponentRef, RunConfig
from rlvr_core.config.resolve import build, parse_options, resolve, resolve_file
from rlvr_core.config.tree import COMPONENTS
from rlvr_core.config.words import follow, schema_at, schema_of
from rlvr_core.plugins.discovery import FIRST_PARTY


def faults(host, path, *overrides, error=ConfigError):
    with pytest.raises(RlvrError) as caught:
        resolve_file(path, overrides, host)
    assert type(caught.value) is error
    return caught.value.complaints


def test_every_component_place_of_the_model_is_known():
    """Found the other way round: by walking the JSON schema for things with `use` and `with`."""
    schema = schema_of(RunConfig)
    found = set()

    def walk(loc):
        here = schema_at(schema, loc) or {}
        for branch in [here, *here.get("anyOf", ())]:
            properties = follow(branch, schema).get("properties", {})
            inner = set(properties)
            if {"use", "with"} <= inner:
                found.add(loc)
                inner -= {"use", "with"}
            for key in inner:
                walk((*loc, key))
            if isinstance(branch.get("items"), dict):
                walk((*loc, "*"))

    walk(())
    assert found == set(COMPONENTS)


def test_names_become_full_and_defaults_are_filled_in(host, run_file):
    resolved = resolve(load_config(run_file), host)
    config = resolved.config
    assert config.sampler == ComponentRef(use="toy/steady", **{"with": {"window": 4}})
    assert config.data.sources[0].with_["split"] == "test"
    assert config.data.sources[0].with_["levels"] == (1, 2)
    assert config.rewards[1].use == "toy/exactly"
    assert config.rewards[1].with_["tolerance"] == 0.0
    assert (config.engine.use, config.rewards[0].use) == ("auto", "auto")
    assert resolved.warnings == ()


def test_a_component_is_built_outside_a_run(host):
    options = parse_options(["split=test", "numbers.low=3", "levels=[7]"])
    ref = ComponentRef.model_validate({"use": "sums", "with": options})
    part = build(host, "dataset", ref)
    assert (part.config.split, part.config.numbers.low, part.config.levels) == ("test", 3, (7,))


def test_a_component_outside_a_run_says_where_its_options_came_from(host):
    ref = ComponentRef.model_validate({"use": "sums", "with": {"splitt": 1, "levels": "x"}})
    with pytest.raises(ConfigError) as caught:
        build(host, "dataset", ref, "--with")
    assert [(c.what, c.where, c.remedy) for c in caught.value.complaints] == [
        (
            "option 'levels' of dataset 'toy/sums' must be a list, each a whole number, not 'x'",
            "--with",
            ("write it as a list: ['x']",),
        ),
        ("unknown option 'splitt' of dataset 'toy/sums'", "--with", ("did you mean: split?",)),
    ]


@pytest.mark.parametrize("option", ["split", "=x", "a=[1", "a=1 # b"])
def test_bad_with_options_are_config_errors(option):
    with pytest.raises(ConfigError, match=r"--with takes key=value|bad YAML|reads as a comment"):
        parse_options([option])


def test_faults_of_the_file_and_of_every_component_come_together(host, write):
    write("""\
        model: {path: m}
        data:
          sources:
            - {use: toy/sum, with: {}}
            - use: toy/sums
              with:
                splitt: test
                levels: [one]
        sampler: {use: steady, with: {window: 0}}
        loss: {use: toy/relative}
        rewards: [{use: exactly, with: {mode: odd}}, {use: exactly, with: {tolerance: 2}}]
        eval: {tasks: [sums-tset]}
        train: {steps: 10, lrr: 1}
        """)
    found = {c.where: (c.what, c.remedy) for c in faults(host, "run.yaml")}
    assert list(found) == [
        "run.yaml:13 (train.lrr)",
        "run.yaml:4 (data.sources.0.use)",
        "run.yaml:7 (data.sources.1.with.splitt)",
        "run.yaml:8 (data.sources.1.with.levels.0)",
        "run.yaml:9 (sampler.with.window)",
        "run.yaml:11 (rewards.0.with.mode)",
        "run.yaml:11 (rewards.1.with)",
        "run.yaml:10 (loss.with.clip)",
        "run.yaml:12 (eval.tasks.0.use)",
    ]
    assert found["run.yaml:4 (data.sources.0.use)"][0] == "unknown dataset 'toy/sum'"
    assert "did you mean: toy/sums?" in found["run.yaml:4 (data.sources.0.use)"][1]
    whats = [what for what, _ in found.values()]
    assert whats[2:8] == [
        "unknown option 'splitt' of dataset 'toy/sums'",
        "option 'levels.0' of dataset 'toy/sums' must be a whole number, not 'one'",
        "option 'window' of sampler 'toy/steady' must be a whole number above 0, not 0",
        "option 'mode' of verifier 'toy/exactly' must be one of 'strict', 'loose' or a mapping, "
        "not 'odd'",
        "verifier 'toy/exactly': a tolerance above 1 is not strict",
        "option 'clip' of loss 'toy/relative' is missing",
    ]


@pytest.mark.parametrize(
    ("option", "what", "remedy"),
    [
        (
            "rewards=[gone/strict]",
            "unknown verifier 'gone/strict'",
            "pip install rlvr-gone",
        ),
        ("rewards=[toy/gone]", "verifier 'toy/gone' failed to load", "rlvr plugins show toy"),
        ("rewards=[toy/odd]", "rlvr_toy_parts.Odd.Config must be", "rlvr plugins show toy"),
    ],
)
def test_a_plugins_fault_decides_the_kind_of_error(
    host, run_file, monkeypatch, option, what, remedy
):
    monkeypatch.setitem(FIRST_PARTY, "gone", "rlvr-gone")
    found = faults(host, run_file, option, "train.lrr=1", error=PluginError)
    assert found[0].what == "unknown key 'lrr' in train"
    assert what in found[1].what
    assert any(remedy in line for line in found[1].remedy)


def test_auto_takes_no_options_and_is_no_loss(host, run_file):
    (complaint,) = faults(host, run_file, "engine.with.x=1")
    assert complaint.what == (
        "'auto' chooses the engine when the run starts, and has no options of its own"
    )
    (complaint,) = faults(host, run_file, "rewards=[{use: auto, with: {a: 1}}]")
    assert complaint.what.startswith("'auto' takes the verifier of each problem")
    (complaint,) = faults(host, run_file, "loss=auto")
    assert complaint.what == "unknown loss 'auto'"


BETA = "of optimizer 'core/adamw'"


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("train.optimizer.with={betas: [0.5]}", f"option 'betas.1' {BETA} is missing"),
        (
            "train.optimizer={use: adamw, with: {betas: [0.9, 1]}}",
            f"option 'betas.1' {BETA} must be a number of at least 0 and below 1, not 1",
        ),
        (
            "train.optimizer.with={betas: [0, 0, 0]}",
            f"option 'betas' {BETA} must be a list of 2 values, not a list of 3",
        ),
        (
            "train.lr_schedule={use: linear, with: {min_lr_ratio: 2}}",
            "option 'min_lr_ratio' of schedule 'core/linear' must be a number from 0 to 1, not 2",
        ),
        ("train.optimizer=adam", "unknown optimizer 'adam'"),
        ("track=[wandbb]", "unknown tracker 'wandbb'"),
    ],
)
def test_options_of_optimizers_schedules_and_trackers(host, run_file, option, what):
    (complaint,) = faults(host, run_file, option)
    assert complaint.what == what


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("train.lr_scheduler_type=cosine", "train.lr_schedule"),
        ("train.max_steps=3", "train.steps"),
        ("train.ppo_epochs=2", "train.num_iterations"),
    ],
)
def test_a_key_by_its_name_in_trl_or_verl_says_what_it_is_here(host, run_file, option, place):
    (complaint,) = faults(host, run_file, option)
    assert complaint.remedy == (f"it is {place} here",)


def test_t12_a_group_loss_needs_two_completions(host, run_file):
    options = ["loss={use: relative, with: {clip: 1}}", "sampling.n=1"]
    (complaint,) = faults(host, run_file, *options)
    assert complaint.what.startswith("sampling.n is 1, and core/group compares")
    assert complaint.where == "--set sampling.n=1 (sampling.n)"
    assert resolve_file(run_file, [options[0], "sampling.n=2"], host).config.sampling.n == 2
    assert resolve_file(run_file, ["sampling.n=1"], host).config.sampling.n == 1


@pytest.mark.parametrize("option", ["sampling.top_p=0.95", "sampling.top_k=20"])
def test_t8_a_drift_from_a_truncated_distribution_is_refused(host, run_file, option):
    loss = "loss={use: core/grpo, with: {off_policy_mask: 0.5}}"
    assert resolve_file(run_file, [loss], host)
    (complaint,) = faults(host, run_file, loss, option)
    name, _, value = option.partition("=")
    assert f"with {name} {value} these are of a truncated distribution" in complaint.what
    assert "off_policy_mask" in complaint.where
    assert complaint.remedy == (f"take off_policy_mask out, or {name}",)


@pytest.mark.parametrize("option", ["sampling.top_p=0.95", "sampling.top_k=20"])
def test_t8_truncated_sampling_is_warned_about(host, run_file, option):
    (warning,) = resolve_file(run_file, [option], host).warnings
    assert warning.startswith(f"{option.replace('=', ' is ')}: completions come from a truncated")
    assert f"--set {option}" in warning


@pytest.mark.parametrize("option", ["sampling.top_p=0.95", "sampling.top_k=20"])
@pytest.mark.parametrize(
    ("again", "told"),
    [
        (
            "train.max_staleness=1",
            "training on completions of older weights (train.max_staleness 1)",
        ),
        (
            "sampler={use: core/shuffle, with: {max_reads: 2}}",
            "training on completions of older weights (the sampler's max_reads 2)",
        ),
    ],
)
def test_t8_a_ratio_that_starts_at_a_truncated_distribution_is_refused(
    host, run_file, option, again, told
):
    (complaint,) = faults(host, run_file, option, again)
    assert complaint.what.startswith(told)
    assert complaint.what.endswith(f"and {option.replace('=', ' ')} truncates them")
    assert complaint.where.startswith(f"--set {option}")
    assert resolve_file(run_file, [again], host).warnings == ()


def test_rewards_of_one_verifier_have_names_of_their_own(host, run_file):
    option = "rewards=[auto, exactly, {use: toy/exactly, with: {strip: false}}, auto, toy/exactly]"
    resolved = resolve_file(run_file, [option], host)
    assert resolved.reward_names == (
        "auto",
        "toy/exactly",
        "toy/exactly#2",
        "auto#2",
        "toy/exactly#3",
    )


def test_the_dump_resolves_to_itself(host, run_file, write):
    overrides = [
        "data.sources.0.with={path: /data, note: 'costs $${env:X}', numbers: {low: 1}}",
        "meta={version: '1.10', notes: 'no'}",
        "data.prompt={system: '', prefix: null}",
        "rewards.1.with.mode={low: 3}",
        "eval.tasks=[sums-test]",
        "guards=[watch, {use: defaults, off: true}]",
    ]
    first = resolve_file(run_file, overrides, host)
    write(first.yaml(), "again.yaml")
    second = resolve_file("again.yaml", [], host)
    assert second.config == first.config
    assert second.dump() == first.dump()
    assert second.yaml() == first.yaml()
    prompt = {"chat_template": "auto", "system": "", "prefix": None, "template_options": {}}
    assert first.dump()["data"]["prompt"] == prompt
    assert first.dump()["meta"]["notes"] == "no"


def test_the_dump_holds_references_to_secrets_never_their_values(
    host, run_file, write, monkeypatch
):
    monkeypatch.setenv("RLVR_TEST_TOKEN", "hf_verysecret")
    monkeypatch.setenv("RLVR_TEST_MAX_TOKENS", "99")
    overrides = [
        "data.sources.0.with.token=${env:RLVR_TEST_TOKEN}",
        "sampling.max_tokens=${env:RLVR_TEST_MAX_TOKENS}",
    ]
    first = resolve_file(run_file, overrides, host)
    assert first.config.data.sources[0].with_["token"] == "hf_verysecret"
    assert "verysecret" not in first.yaml()
    assert first.dump()["data"]["sources"][0]["with"]["token"] == "${env:RLVR_TEST_TOKEN}"
    assert first.dump()["sampling"]["max_tokens"] == 99
    write(first.yaml(), "again.yaml")
    assert resolve_file("again.yaml", [], host).config == first.config


def test_a_secret_is_hidden_in_the_complaints_of_components(host, run_file, monkeypatch):
    monkeypatch.setenv("RLVR_TEST_TOKEN", "hf_verysecret")
    found = faults(host, run_file, "data.sources.0.with.split=${env:RLVR_TEST_TOKEN}")
    assert "verysecret" not in str(found)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\a\b\v\f\x1b"))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    note=TEXT,
    prefix=st.none()
    | TEXT
    | st.sampled_from(["1e-6", "no", "${", "$${", "$$${env:A}", "~", "null"]),
    lr=st.floats(min_value=1e-300, max_value=1e300),
    seed=st.integers(0, 2**63 - 1),
    levels=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    weight=st.none() | st.floats(1e-9, 1e9),
)
def test_any_resolved_configuration_resolves_to_itself(
    host, run_file, run_text, note, prefix, lr, seed, levels, weight
):
    document = load_config(run_file).draft.root.plain()
    document["run"] = {"seed": seed}
    document["train"]["lr"] = lr
    document["data"]["prompt"] = {"prefix": re.sub(r"\$\{", "$${", prefix) if prefix else prefix}
    note = note.replace("${", "$${")
    document["data"]["sources"][0] |= {"weight": weight, "with": {"note": note, "levels": levels}}
    Path("first.yaml").write_text(to_yaml(document), encoding="utf-8")
    first = resolve_file("first.yaml", [], host)
    Path("second.yaml").write_text(first.yaml(), encoding="utf-8")
    second = resolve_file("second.yaml", [], host)
    assert second.config == first.config
    assert second.yaml() == first.yaml()
    assert first.config.data.prompt.prefix == prefix


def with_loss(write, run_text, loss):
    return write(run_text.replace("loss: {use: toy/single}", f"loss: {loss}"))


def test_a_list_of_losses_is_resolved_term_by_term(host, write, run_text):
    loss = "[{use: single}, {use: sft, weight: 0.001, data: sums}]"
    resolved = resolve_file(with_loss(write, run_text, loss), [], host)
    assert {loc: ref.use for loc, ref in resolved.config.losses.items()} == {
        ("loss", 0): "toy/single",
        ("loss", 1): "core/sft",
    }
    assert resolved.config.loss[1].data == ComponentRef(
        use="toy/sums", **{"with": resolved.config.loss[1].data.with_}
    )
    write(resolved.yaml(), "again.yaml")
    assert resolve_file("again.yaml", [], host).dump() == resolved.dump()


@pytest.mark.parametrize(
    ("loss", "what", "where"),
    [
        ("[grpo, {use: grpoo}]", "unknown loss 'grpoo'", "loss.1"),
        ("[{use: grpo, weight: 0}]", "loss.0.weight must be a number above 0", "loss.0.weight"),
        ("{use: grpo, wieght: 1}", "unknown key 'wieght' in loss", "loss.wieght"),
        ("[]", "loss must be", "loss"),
        (
            "[grpo, dr_grpo]",
            "the losses differ in 'advantage' (core/grpo: group, core/dr_grpo: center)",
            "loss.1",
        ),
        ("[{use: grpo, data: sums}]", "core/grpo learns from completions", "loss.0.data"),
        ("[grpo, {use: sft, data: nums}]", "unknown dataset 'nums'", "loss.1.data"),
    ],
)
def test_wrong_terms_of_a_loss_are_told(host, write, run_text, loss, what, where):
    (complaint,) = faults(host, with_loss(write, run_text, loss))
    assert complaint.what.startswith(what)
    assert where in complaint.where


def test_a_loss_of_whole_rows_refuses_advantages_by_token(host, run_file):
    Path("by_token.py").write_text(
        "from rlvr_core.api import AdvantageTraits\n\n\n"
        "def by_token(step):\n    return [[0.0] for _ in step.reward_N]\n\n\n"
        "by_token.traits = AdvantageTraits(per_token=True)\n"
    )
    estimator = "advantage.use=./by_token.py:by_token"
    (complaint,) = faults(host, run_file, "loss=gspo", estimator)
    assert "gives one advantage a token, and core/gspo takes one" in complaint.what
    assert resolve_file(run_file, ["loss=grpo", estimator], host)


def test_more_mini_batches_than_prompts_are_refused(host, run_file):
    four = "train.prompts_per_step=4"
    (complaint,) = faults(host, run_file, four, "train.mini_batches=5")
    assert complaint.what.startswith("mini_batches is 5, and a step has 4 prompts")
    assert complaint.where == "--set train.mini_batches=5 (train.mini_batches)"
    assert "set it to 4 or less" in str(complaint.remedy)
    assert resolve_file(run_file, [four, "train.mini_batches=4"], host)


@pytest.mark.parametrize("others", ["", "core/grpo, "])
def test_more_mini_batches_than_given_answers_are_refused(host, run_file, others):
    """They would be as few as the answers, those of the completions too, without a word."""
    loss = f"loss=[{others}{{use: core/sft, with: {{rows_per_step: 3}}}}]"
    (complaint,) = faults(host, run_file, loss, "train.mini_batches=4")
    assert complaint.what.startswith("mini_batches is 4, and a step has 3 given answers")
    assert complaint.where == "--set train.mini_batches=4 (train.mini_batches)"
    assert "set it to 3 or less" in str(complaint.remedy)
    assert resolve_file(run_file, [loss, "train.mini_batches=3"], host)
