from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_core.api import Complaint, ConfigError, config_class
from rlvr_core.config.keys import component_keys, run_keys
from rlvr_core.config.layers import escape, expand
from rlvr_core.config.load import LoadedConfig, load_config
from rlvr_core.config.other_names import OTHER_NAMES
from rlvr_core.plugins.host import load_host

BASE = """\
model: {path: models/tiny}
data:
  sources: [toy/sums]
  prompt: {system: Be brief., prefix: "Answer:"}
loss: {use: grpo, with: {beta: 0.1, clip_low: 0.2}}
train:
  steps: 100
"""


def faults(path, *overrides):
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return caught.value.complaints


def outcome(path, *overrides):
    """The complaints, or the one configuration; any other exception is a failure."""
    try:
        loaded = load_config(path, overrides)
    except ConfigError as error:
        return error.complaints
    assert isinstance(loaded, LoadedConfig)
    return (loaded,)


def only(path, *overrides):
    (complaint,) = faults(path, *overrides)
    return complaint


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "what", "where"),
    [
        (b"", "the file is empty", "bad.yaml:1"),
        (b"# a\n# b\n", "nothing but comments", "bad.yaml:1"),
        (b"\n- a\n- b\n", "must be a mapping of sections (model:, data:, train:)", "bad.yaml:2"),
        (b"just text", "not 'just text'", "bad.yaml:1"),
        (b"a: 1\nb: \xff\n", "not UTF-8: byte 0xff", "bad.yaml:2"),
        ("a: é\n".encode("utf-16"), "not UTF-8", "bad.yaml:1"),
    ],
)
def test_an_unusable_file_is_named_with_its_line(write, content, what, where):
    write("", "bad.yaml")
    Path("bad.yaml").write_bytes(content)
    complaint = only("bad.yaml")
    assert what in complaint.what
    assert complaint.where == where


def test_a_missing_file_suggests_the_one_beside_it(write):
    write(BASE, "conf/run.yaml")
    complaint = only("conf/rum.yaml")
    assert complaint.what == "there is no file 'conf/rum.yaml'"
    assert complaint.remedy == ("did you mean: conf/run.yaml?",)


def test_a_folder_is_not_a_file(write):
    write(BASE, "conf/run.yaml")
    assert "is a folder" in only("conf").what


def test_a_byte_order_mark_is_no_part_of_the_first_key(write):
    write("", "run.yaml")
    Path("run.yaml").write_bytes(b"\xef\xbb\xbf" + BASE.encode())
    assert load_config("run.yaml").config.train.steps == 100


# -- extends --------------------------------------------------------------------------------------


def test_extends_merges_mappings_and_replaces_lists(write):
    write(BASE, "shared/base.yaml")
    write(
        "extends: base.yaml\nsampling: {n: 4, stop: [a, b]}\ntrain: {lr: 1e-5}\n", "shared/mid.yaml"
    )
    write("extends: shared/mid.yaml\nsampling: {stop: [c]}\ntrain: {lr: 2e-5}\n")
    config = load_config("run.yaml").config
    assert (config.sampling.n, config.sampling.stop) == (4, ["c"])
    assert (config.train.steps, config.train.lr) == (100, 2e-5)


@pytest.mark.parametrize(
    ("loss", "use", "options"),
    [
        ("{use: dapo}", "dapo", {}),
        ("{use: dapo, with: {beta: 0}}", "dapo", {"beta": 0}),
        ("dapo", "dapo", {}),
        ("{with: {beta: 0}}", "grpo", {"beta": 0, "clip_low": 0.2}),
        ("{use: grpo, with: {beta: 0}}", "grpo", {"beta": 0, "clip_low": 0.2}),
        ("grpo", "grpo", {"beta": 0.1, "clip_low": 0.2}),
        ("core/grpo", "core/grpo", {"beta": 0.1, "clip_low": 0.2}),
        ("other/grpo", "other/grpo", {"beta": 0.1, "clip_low": 0.2}),
    ],
)
def test_a_changed_component_drops_inherited_options(write, loss, use, options):
    write(BASE, "base.yaml")
    write(f"extends: base.yaml\nloss: {loss}\n")
    found = load_config("run.yaml").config.loss
    assert (found.use, found.with_) == (use, options)


def test_two_full_names_with_one_leaf_are_two_components(write):
    write(BASE.replace("use: grpo", "use: core/grpo"), "base.yaml")
    write("extends: base.yaml\nloss: other/grpo\n")
    assert load_config("run.yaml").config.loss.with_ == {}


def test_options_of_a_base_given_by_bare_name(write):
    write(BASE.replace("{use: grpo, with: {beta: 0.1, clip_low: 0.2}}", "dapo"), "base.yaml")
    write("extends: base.yaml\nloss: {with: {beta: 3}}\n")
    found = load_config("run.yaml").config.loss
    assert (found.use, found.with_) == ("dapo", {"beta": 3})


def test_options_without_a_name_belong_to_the_default_component(write):
    write(BASE.replace("use: grpo, ", ""))
    found = load_config("run.yaml", ["sampler.with.refill=3"]).config
    assert (found.loss.use, found.loss.with_["beta"]) == ("grpo", 0.1)
    assert (found.sampler.use, found.sampler.with_) == ("shuffle", {"refill": 3})


def test_a_circle_of_extends_names_the_chain(write):
    write("extends: b.yaml\n", "a.yaml")
    write("extends: ./c.yaml\n", "b.yaml")
    write("\nextends: a.yaml\n", "c.yaml")
    complaint = only("a.yaml")
    assert complaint.what == "extends goes round in a circle: a.yaml -> b.yaml -> c.yaml -> a.yaml"
    assert complaint.where == "c.yaml:2 (extends)"


def test_a_long_chain_of_extends_is_followed(write):
    write(BASE, "f0.yaml")
    for number in range(1, 300):
        Path(f"f{number}.yaml").write_text(f"extends: f{number - 1}.yaml\n")
    assert load_config("f299.yaml").config.train.steps == 100


def test_a_missing_base_points_at_extends(write):
    write("run: {name: a}\nextends: gone.yaml\n")
    complaint = only("run.yaml")
    assert complaint.what == "there is no file 'gone.yaml'"
    assert complaint.where == "run.yaml:2 (extends)"


@pytest.mark.parametrize("value", ["3", "[a, b]", '"\\0"', "''", "null"])
def test_extends_takes_one_path(write, value):
    write(f"extends: {value}\n")
    assert only("run.yaml").what.startswith("extends must be the path of a YAML file, not ")


def test_faults_name_the_file_they_are_in(write):
    write(BASE.replace("steps: 100", "steps: ten"), "base.yaml")
    write("extends: base.yaml\nsampling: {m: 4}\n")
    assert [(c.what, c.where) for c in faults("run.yaml")] == [
        ("train.steps must be a whole number above 0, not 'ten'", "base.yaml:7 (train.steps)"),
        ("unknown key 'm' in sampling", "run.yaml:2 (sampling.m)"),
    ]


def test_t50_empty_text_and_null_are_told_apart_through_extends_and_set(write):
    write(BASE, "base.yaml")
    write('extends: base.yaml\ndata: {prompt: {system: "", prefix: null}}\n')
    prompt = load_config("run.yaml").config.data.prompt
    assert (prompt.system, prompt.prefix) == ("", None)
    prompt = load_config(
        "run.yaml", ["data.prompt.system=", 'data.prompt.prefix=""']
    ).config.data.prompt
    assert (prompt.system, prompt.prefix) == (None, "")
    prompt = load_config("base.yaml").config.data.prompt
    assert (prompt.system, prompt.prefix) == ("Be brief.", "Answer:")


# -- --set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "read", "value"),
    [
        ("train.lr=1e-6", lambda c: c.train.lr, 1e-6),
        ("run.name=a=b", lambda c: c.run.name, None),
        ("data.sources.0.weight=2", lambda c: c.data.sources[0].weight, 2.0),
        ("data.sources.0.with.split=test", lambda c: c.data.sources[0].with_, {"split": "test"}),
        ("data.sources=[x, {use: y}]", lambda c: [s.use for s in c.data.sources], ["x", "y"]),
        ("sampling.stop=['</s>']", lambda c: c.sampling.stop, ["</s>"]),
        ("loss.with.clip.low=1", lambda c: c.loss.with_["clip"], {"low": 1}),
        ("loss=dapo", lambda c: (c.loss.use, c.loss.with_), ("dapo", {})),
        ("loss.use=dapo", lambda c: (c.loss.use, c.loss.with_), ("dapo", {})),
        ("loss.use=grpo", lambda c: len(c.loss.with_), 2),
        ("guards=[{use: parity, off: true}]", lambda c: c.guards[0].off, True),
        ("train.max_grad_norm=", lambda c: c.train.max_grad_norm, None),
        ("meta.notes='a: b # c'", lambda c: c.meta.notes, "a: b # c"),
    ],
)
def test_set_replaces_one_value(write, option, read, value):
    write(BASE)
    if value is None and "name" in option:
        assert "must be text of letters, digits" in only("run.yaml", option).what
    else:
        assert read(load_config("run.yaml", [option]).config) == value


def test_the_last_of_two_options_counts(write):
    write(BASE)
    assert load_config("run.yaml", ["train.lr=1", "train.lr=2"]).config.train.lr == 2


def test_options_of_a_component_survive_its_change_in_either_order(write):
    write(BASE)
    options = ["loss.with.beta=7", "loss.use=dapo"]
    for order in (options, options[::-1]):
        found = load_config("run.yaml", order).config.loss
        assert (found.use, found.with_) == ("dapo", {"beta": 7})


@pytest.mark.parametrize(
    "option", ["", "train.lr", "=3", "train..lr=3", ".lr=1", "a b=1", "train.=1"]
)
def test_bad_syntax_shows_an_example(write, option):
    write(BASE)
    complaint = only("run.yaml", option)
    assert complaint.what == f"--set takes key=value, not {option!r}"
    assert complaint.remedy == ("for example: --set train.lr=1e-6",)


@pytest.mark.parametrize("name", ["zero2", "zero3", "deepspeed"])
def test_who_asks_for_deepspeed_hears_of_fsdp(write, name):
    write(BASE)
    found = only("run.yaml", f"train.parallel={name}")
    assert found.what == f"train.parallel must be one of 'ddp', 'fsdp', not '{name}'"
    (remedy,) = found.remedy
    assert remedy.startswith("write fsdp: it shards weights, gradients and optimizer state")


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("data.sources.1.weight=2", "data.sources has no entry '1'; entries: 0 to 0"),
        ("data.sources.-1=x", "data.sources has no entry '-1'; entries: 0 to 0"),
        ("data.sources.x=1", "data.sources has no entry 'x'; entries: 0 to 0"),
        ("train.steps.x=1", "train.steps is 100, not a mapping: 'x' cannot be set in it"),
        ("extends=a.yaml", "'extends' belongs in a file: it is read before any option"),
        ("train.lr=[1", "bad YAML"),
        ("train.lr=*x", "bad YAML: found undefined alias 'x'"),
        ("train.lrr.x=1", "unknown key 'lrr' in train"),
        ("rewards.0.weight=2", "rewards must be a list of at least 1"),
        ("a" + ".a" * 5000 + "=1", "a key of more than 64 steps"),
    ],
)
def test_an_option_that_does_not_fit_is_named_as_it_was_typed(write, option, what):
    write(BASE)
    complaint = only("run.yaml", option)
    assert complaint.what.startswith(what)
    assert complaint.where.startswith(f"--set {option}"[:80])


def test_all_bad_options_are_told_at_once(write):
    write(BASE)
    found = faults("run.yaml", "train", "data.sources.9=x", "run.name=${env:RLVR_TEST_UNSET}")
    assert len(found) == 3


# -- environment variables ------------------------------------------------------------------------


def test_variables_are_put_into_text(write, monkeypatch):
    monkeypatch.setenv("RLVR_TEST_DIR", "/data")
    monkeypatch.setenv("RLVR_TEST_N", "16")
    write(
        BASE.replace("models/tiny", '"${env:RLVR_TEST_DIR}/m/${env:RLVR_TEST_UNSET:-small}"')
        + "sampling: {n: '${env:RLVR_TEST_N}'}\n"
        + "run:\n  identity: ${env:RLVR_TEST_UNSET:-no}\n"
        + "meta: {version: '${env:RLVR_TEST_N}', notes: 'costs $${env:X} or $5'}\n"
    )
    config = load_config("run.yaml", ["train.lr=${env:RLVR_TEST_UNSET:-1e-6}"]).config
    assert config.model.path == "/data/m/small"
    assert (config.sampling.n, config.meta.version) == (16, "16")
    assert config.train.lr == 1e-6
    assert config.run.identity is False
    assert config.meta.notes == "costs ${env:X} or $5"


def test_the_default_also_serves_an_empty_variable_as_in_a_shell(write, monkeypatch):
    monkeypatch.setenv("RLVR_TEST_EMPTY", "")
    write(BASE + "meta: {notes: '${env:RLVR_TEST_EMPTY:-x}', version: '${env:RLVR_TEST_EMPTY}'}\n")
    meta = load_config("run.yaml").config.meta
    assert (meta.notes, meta.version) == ("x", "")


def test_an_unset_variable_is_named_with_its_place(write):
    write(BASE + "meta:\n  notes: ${env:RLVR_TEST_UNSET}\n")
    complaint = only("run.yaml")
    assert complaint.what == "the environment variable RLVR_TEST_UNSET is not set"
    assert complaint.where == "run.yaml:9 (meta.notes)"


def test_a_variable_that_is_overridden_need_not_be_set(write):
    write(BASE.replace("models/tiny", "'${env:RLVR_TEST_UNSET}'"), "base.yaml")
    write("extends: base.yaml\nmodel: {path: here}\n")
    assert load_config("run.yaml").config.model.path == "here"
    assert load_config("base.yaml", ["model.path=there"]).config.model.path == "there"


@pytest.mark.parametrize(
    "text", ["${HOME}", "${env:}", "${env:A B}", "${ENV:A}", "a ${", "${env:A"]
)
def test_other_dollar_braces_are_never_passed_on_silently(write, text):
    write(BASE)
    complaint = only("run.yaml", f"meta.notes='{text}'")
    assert "is not understood" in complaint.what
    assert "for the characters themselves write $${" in complaint.remedy


def test_a_value_is_not_expanded_twice(write, monkeypatch):
    monkeypatch.setenv("RLVR_TEST_A", "${env:RLVR_TEST_B}")
    write(BASE)
    notes = load_config("run.yaml", ["meta.notes=${env:RLVR_TEST_A}"]).config.meta.notes
    assert notes == "${env:RLVR_TEST_B}"


@given(st.text("$ {}env:X-a"))
def test_what_is_escaped_expands_to_itself(text):
    faults = []
    assert expand(escape(text), "", faults) == (text, [])
    assert not faults


def test_a_secret_is_never_shown(write, monkeypatch):
    monkeypatch.setenv("RLVR_TEST_API_KEY", "sk-verysecret")
    write(BASE.replace("steps: 100", "steps: ${env:RLVR_TEST_API_KEY}"))
    complaint = only("run.yaml")
    assert "sk-verysecret" not in str(complaint)
    assert (
        complaint.what
        == "train.steps must be a whole number above 0, not '${env:RLVR_TEST_API_KEY}'"
    )


# -- the model ------------------------------------------------------------------------------------


def test_t48_unknown_keys_are_errors_with_a_suggestion(write):
    write(
        BASE
        + "trian: {steps: 3}\nsampling: {temprature: 1, lr: 2, steps: 3}\n"
        + "rewards: [{use: a, tolerance: 1}]\nengine: {use: vllm, wiht: {}}\n"
    )
    assert [(c.what, c.where, c.remedy) for c in faults("run.yaml")] == [
        ("unknown key 'trian'", "run.yaml:8 (trian)", ("did you mean: train, track?",)),
        (
            "unknown key 'temprature' in sampling",
            "run.yaml:9 (sampling.temprature)",
            ("did you mean: temperature?",),
        ),
        (
            "unknown key 'lr' in sampling",
            "run.yaml:9 (sampling.lr)",
            ("it belongs elsewhere: train.lr",),
        ),
        (
            "unknown key 'steps' in sampling",
            "run.yaml:9 (sampling.steps)",
            ("did you mean: stop?", "it belongs elsewhere: train.steps"),
        ),
        (
            "unknown key 'tolerance' in rewards.0",
            "run.yaml:10 (rewards.0.tolerance)",
            ("options of a component go under 'with': {use: ..., with: {tolerance: ...}}",),
        ),
        ("unknown key 'wiht' in engine", "run.yaml:11 (engine.wiht)", ("did you mean: with?",)),
    ]


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("train.steps=ten", "train.steps must be a whole number above 0, not 'ten'"),
        ("train.steps=", "train.steps must be a whole number above 0, not null"),
        ("train.lr=.inf", "train.lr must be a finite number, not .inf"),
        ("train.compile=maybe", "train.compile must be true or false, not 'maybe'"),
        ("train.max_grad_norm=x", "train.max_grad_norm must be a number above 0 or null, not 'x'"),
        (
            "model.dtype=f32",
            "model.dtype must be one of 'float32', 'bfloat16', 'float16', not 'f32'",
        ),
        ("meta.version=1.10", "meta.version must be text or null, not 1.10"),
        ("guards=[{use: parity, of: true}]", "unknown key 'of' in guards.0"),
        ("guards=", "guards must be a list, each a component"),
        ("sampling.stop=x", "sampling.stop must be a list, each text that is not empty, not 'x'"),
        ("sampling.stop=['']", "sampling.stop.0 must be text that is not empty, not ''"),
        ("track=[3]", "track.0 must be a component: NAME or {use: NAME, with: {...}}, not 3"),
        ("loss=3", "loss must be a component: NAME or {use: NAME, with: {...}} or a list of those"),
        ("rewards=[{with: {}}]", "rewards.0.use is missing"),
        ("loss.with=3", "loss.with must be a mapping, not 3"),
        ("train.warmup_steps=100", "train: warmup_steps (100) must be below steps (100)"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words_and_once(write, option, what):
    write(BASE)
    assert only("run.yaml", option).what.startswith(what)


def test_missing_keys_name_their_section(write):
    write("model: {}\n\ndata:\n  max_overlong_share: 0.1\n")
    assert [(c.what, c.where) for c in faults("run.yaml")] == [
        ("model.path is missing", "run.yaml:1 (model.path)"),
        ("train is missing", "run.yaml:1 (train)"),
        ("data.sources is missing", "run.yaml:3 (data.sources)"),
    ]


def test_meta_and_text_are_carried(write):
    write(BASE + "meta: {version: '2', based_on: gsm8k-1, notes: longer}\n")
    loaded = load_config("run.yaml")
    assert loaded.config.meta.model_dump() == {
        "version": "2",
        "based_on": "gsm8k-1",
        "notes": "longer",
    }
    assert loaded.text == Path("run.yaml").read_text()
    assert loaded.where(("train", "steps")) == "run.yaml:7 (train.steps)"
    assert loaded.where(("sampling", "n")) == "run.yaml:1 (sampling.n)"


# -- anything at all ------------------------------------------------------------------------------

WORDS = "train data sources 0 use with loss . = : { } [ ] - 1e-6 ${env:HOME} ${ *a &a << extends"
PIECES = st.sampled_from([*WORDS.split(" "), "'", '"', "#", "!", " ", "\n", "  "])
ANYTHING = st.text() | st.lists(PIECES, max_size=25).map("".join)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ANYTHING)
def test_any_text_is_a_configuration_or_a_config_error(write, text):
    write(BASE)
    Path("any.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with_base = "extends: run.yaml\n" + text
    Path("more.yaml").write_bytes(with_base.encode("utf-8", "surrogatepass"))
    for name in ("any.yaml", "more.yaml"):
        assert outcome(name)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ANYTHING,
    st.sampled_from(["", "train.lr=", "loss=", "data.sources.0=", "rewards=", "guards.0="]),
)
def test_any_option_is_a_configuration_or_a_config_error(write, text, start):
    write(BASE)
    assert outcome("run.yaml", start + text)


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["", "a", "1e-6"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["use", "with", "steps", "lr", "parity", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(
        st.sampled_from(
            ["train", "loss", "data", "rewards", "guards", "eval", "sampling", "track"]
        ),
        JSONISH,
    )
)
def test_every_fault_of_a_wrong_document_has_a_place(write, data):
    write(BASE, "base.yaml")
    Path("run.yaml").write_text(yaml.safe_dump({"extends": "base.yaml", **data}))
    for complaint in outcome("run.yaml"):
        if isinstance(complaint, Complaint):
            assert complaint.where.startswith(("run.yaml:", "base.yaml:"))
            assert "pydantic" not in complaint.what
            assert "\n" not in complaint.what


@pytest.mark.parametrize("name", sorted(OTHER_NAMES))
def test_a_name_from_elsewhere_leads_to_a_key_that_exists(name):
    registry = load_host().registry
    places = {
        "loss": ("loss",),
        "optimizer": ("train", "optimizer"),
        "schedule": ("train", "lr_schedule"),
    }
    options = {
        key.path
        for kind, place in places.items()
        for entry in registry.of(kind)
        for key in component_keys(config_class(entry.load()), place)
    }
    known = {key.path.replace("[]", "") for key in run_keys()}
    assert OTHER_NAMES[name] in known | options
