"""Conversations with a real model of random weights, greedy where text is compared."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rlvr_core.api import ConfigError, SamplingParams
from rlvr_core.record.text import printable
from rlvr_core.testing.random_model import save_random_model
from rlvr_view.chat.conversation import CAPPED, FULL, Conversation, _Seen
from rlvr_view.chat.loading import load

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with room for 128 tokens, whose chat template closes a turn with its end token."""
    folder = save_random_model(tmp_path_factory.mktemp("chat"), max_position_embeddings=128)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def talker(model):
    return replace(load(str(model), None, None, "runs"), params=GREEDY)


def encoded(folder, text):
    return AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]


def greedy(folder, ids, tokens=8):
    """What transformers' own loop writes after some tokens."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    end = model.config.eos_token_id
    own = GenerationConfig(do_sample=False, max_new_tokens=tokens, eos_token_id=end, pad_token_id=0)
    return model.generate(torch.tensor([ids]), generation_config=own)[0, len(ids) :].tolist()


def test_answers_are_those_of_transformers_in_every_turn(talker, model):
    conversation, said = Conversation(talker), []
    assert conversation.say("hi", said.append) == CAPPED
    prompt = encoded(model, "[user]hi<eos>[assistant]")
    first = greedy(model, prompt)
    assert list(conversation._reply) == first
    assert len(said) == 8  # token by token
    conversation.say("more", said.append)
    # the first answer was cut off: the template closes its turn
    whole = [*prompt, *first, *encoded(model, "<eos>[user]more<eos>[assistant]")]
    assert list(conversation._ids) == whole
    assert list(conversation._reply) == greedy(model, whole)
    conversation.reset()
    conversation.say("hi", said.append)
    assert list(conversation._reply) == first


def test_a_system_message_is_given_to_the_model(model):
    talker = replace(load(str(model), None, "be brief", "runs"), params=GREEDY)
    conversation = Conversation(talker)
    conversation.say("hi", lambda _: None)
    assert talker.tokenizer.decode(conversation._ids) == (
        "[system]be brief<eos>[user]hi<eos>[assistant]"
    )


def test_a_model_of_raw_text_has_no_turns(tmp_path):
    folder = save_random_model(tmp_path)
    talker = replace(load(str(folder), None, None, "runs"), params=GREEDY)
    conversation = Conversation(talker)
    for text in ("12+34=", "5+6="):
        conversation.say(text, lambda _: None)
        assert talker.tokenizer.decode(conversation._ids) == text


def test_an_interrupt_keeps_what_was_said(talker, model):
    conversation, count = Conversation(talker), 0

    def emit(_text):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conversation.say("hi", emit)
    whole = greedy(model, encoded(model, "[user]hi<eos>[assistant]"))
    assert 3 <= len(conversation._reply) < 8
    assert list(conversation._reply) == whole[: len(conversation._reply)]
    conversation.say("on", lambda _: None)
    assert len(conversation._reply) == 8


def test_a_full_context_says_so(talker):
    talker = replace(talker, params=replace(GREEDY, max_tokens=500))
    conversation = Conversation(talker)
    assert conversation.say("hi", lambda _: None) == FULL
    assert len(conversation._ids) + len(conversation._reply) == 128
    note = conversation.say("more", lambda _: None)
    assert note.startswith(FULL)
    conversation.reset()
    assert conversation.say("x" * 200, lambda _: None).startswith(FULL)


def test_what_a_model_writes_reaches_the_terminal_as_text(talker):
    hostile = "\x1b[2J\x1b]0;title\x07 caf\u00e9 \u202e\x9b31m\r"
    ids, said = talker.tokenizer(hostile, add_special_tokens=False)["input_ids"], []
    seen = _Seen(talker, said.append)
    seen.look(None, (), {"input_ids": torch.tensor([[1, 2]])})  # the prompt
    for token in ids[:-1]:
        seen.look(None, (), {"input_ids": torch.tensor([[token]])})
    seen.finish(ids)
    shown = "".join(said)
    assert shown == "\\x1b[2J\\x1b]0;title\\x07 caf\u00e9 \\u202e\\x9b31m\\r"
    assert all(piece == "" or "\ufffd" not in piece for piece in said)


def test_what_cannot_be_talked_with(tmp_path):
    with pytest.raises(ConfigError, match="another machine"):
        load("openai:gpt", None, None, "runs")
    with pytest.raises(ConfigError, match="there is no run"):
        load("last", None, None, str(tmp_path))


RUN = Path(__file__).with_name("run.yaml.part").read_text()
HALF = "def half(text, answer):\n    return float(ord(text[:1] or 'a') % 2)\n"


@pytest.mark.slow
def test_a_lora_run_answers_with_its_adapter_and_its_own_settings(lab):
    rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(4)]
    (lab.folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (lab.folder / "half.py").write_text(HALF)
    (lab.folder / "config.yaml").write_text(RUN.format(model=lab.model))
    lab.rlvr("run", "config.yaml", "--display", "none")
    (run,) = lab.runs()
    checkpoint = run / "checkpoints/step000002"
    assert (checkpoint / "adapter_config.json").is_file()
    # greedy from here on, so that answers can be compared
    resolved = yaml.safe_load((run / "resolved.yaml").read_text())
    resolved["sampling"]["top_k"] = 1
    (run / "resolved.yaml").write_text(yaml.safe_dump(resolved))
    done = lab.rlvr("chat", "last", "--prompt", "Say a.")
    lab.rlvr("export", str(checkpoint), "merged", "--merge")
    prompt = encoded(lab.model, "Now: \n\nSay a.")
    ids = greedy(lab.folder / "merged", prompt, tokens=6)
    assert ids != greedy(lab.model, prompt, tokens=6)  # the adapter changes the answer
    wanted = AutoTokenizer.from_pretrained(lab.model).decode(ids, skip_special_tokens=True)
    assert done.stdout == printable(wanted) + "\n"
    assert done.stderr == f"[{CAPPED}]\n"
    assert (
        "no complete checkpoint of step 7"
        in lab.rlvr("chat", "last", "--checkpoint", "7", "--prompt", "a", check=2).stderr
    )
    assert "the prompt is empty" in lab.rlvr("chat", "last", check=2).stderr


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, words, folder):
        self.out, inner = pty.openpty()
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=os.environ
            | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "LANG": "C", "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(inner)
        self.seen = ""

    def until(self, pattern):
        """Read until the text since the last call has this pattern; returns that text."""
        self.seen, end = "", time.monotonic() + 90
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, self.seen
            if select.select([self.out], [], [], 1)[0]:
                self.seen += os.read(self.out, 65536).decode(errors="replace")
        return self.seen

    def type(self, text):
        os.write(self.out, text.encode())

    def interrupt(self):
        """Ctrl-C when it waits for a line: a signal just before that is noticed only after it."""
        calm, end = 0, time.monotonic() + 90
        while calm < 10:
            stats = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
            states = {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}
            calm = 0 if states & {"R", "D"} else calm + 1
            assert time.monotonic() < end, "it does not come to rest"
            time.sleep(0.05)
        self.process.send_signal(signal.SIGINT)


def test_a_conversation_on_a_terminal(model, tmp_path):
    one = Terminal([sys.executable, "-m", "rlvr_core.cli.main", "chat", str(model)], tmp_path)
    told = one.until("> $")
    assert "128 tokens of context" in told
    assert "rendered as the chat template" in told
    one.type("hi\n")
    assert "\x1b" not in one.until(r"(?s)hi\r\n.*\n> $").replace("\x1b[?2004", "")
    one.type("/nothing\n")
    assert "there is no /nothing" in one.until(r"(?s)leaves\].*> $")
    one.type("/reset\n")
    one.until(r"nothing was said\]\s+> $")
    one.interrupt()
    one.until(r"once more leaves\]\s+> $")
    one.interrupt()
    assert one.process.wait(60) == 130
    os.close(one.out)
