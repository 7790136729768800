"""``rlvr chat``: a conversation with a model in the terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from rlvr_core.toolkit import print_line, quiet_libraries

if TYPE_CHECKING:
    from rlvr_view.chat.conversation import Conversation

COMMANDS = "/reset forgets the conversation, /quit leaves; Ctrl-C stops an answer, twice leaves"


@click.command()
@click.argument("model", metavar="RUN|MODEL")
@click.option(
    "--checkpoint",
    type=click.IntRange(0),
    metavar="STEP",
    help="Step of the run's checkpoint [default: the newest].",
)
@click.option("--system", metavar="TEXT", help="System message in place of the run's own.")
@click.option("--prompt", metavar="TEXT", help="Answer this, print the answer, and stop.")
@click.option(
    "--runs-dir", default="runs", show_default=True, metavar="DIR", help="Where runs are."
)
def chat(
    model: str, checkpoint: int | None, system: str | None, prompt: str | None, runs_dir: str
) -> int:
    """Talk with a model; a run's checkpoint uses the run's prompt settings and sampling.

    RUN is 'last', a run's name or its folder; MODEL is a model's folder, a hub id or tiny:TASK. A
    text on standard input that is no terminal is answered like --prompt.

    Example: rlvr chat last --prompt "12+34="
    """
    from rlvr_core.api import ConfigError
    from rlvr_view.chat.conversation import Conversation
    from rlvr_view.chat.loading import load

    interactive = prompt is None and sys.stdin is not None and sys.stdin.isatty()
    if prompt is None and not interactive:
        prompt = _piped()
    if prompt is not None and not prompt.strip():
        raise ConfigError(
            "there is nothing to answer: the prompt is empty",
            where="standard input or --prompt",
            remedy='for example: rlvr chat last --prompt "12+34="',
        )
    quiet_libraries()
    talker = load(model, checkpoint, system, runs_dir)
    conversation = Conversation(talker)
    if prompt is not None:
        note = conversation.say(prompt, _emit)
        print_line()
        if note:
            print_line(f"[{note}]", stderr=True)
        return 0
    for line in [*talker.describe(), COMMANDS]:
        print_line(line, stderr=True)
    return _talk(conversation)


def _talk(conversation: Conversation) -> int:
    """Answer line by line until the user leaves; returns the exit code."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # editing and history for input()
    interrupted = False
    while True:
        try:
            text = input("> ")
            command, interrupted = text.strip(), False
            if command == "/quit":
                return 0
            if command == "/reset":
                conversation.reset()
                print_line("[nothing was said]", stderr=True)
            elif command.startswith("/"):
                print_line(f"[there is no {command.split()[0]}: {COMMANDS}]", stderr=True)
            elif command:
                interrupted = _answer(conversation, text)
        except EOFError:
            print_line()
            return 0
        except KeyboardInterrupt:
            print_line()
            if interrupted:
                return 130
            interrupted = True
            print_line("[Ctrl-C once more leaves]", stderr=True)


def _answer(conversation: Conversation, text: str) -> bool:
    """Print the answer to a message; returns whether it was interrupted."""
    from rlvr_core.api import DataError
    from rlvr_view.chat.conversation import FULL, STOPPED

    try:
        note = conversation.say(text, _emit)
    except KeyboardInterrupt:
        print_line(f"\n[{STOPPED}; Ctrl-C once more leaves]")
        return True
    except DataError as error:
        print_line(f"[{error}]", stderr=True)
        return False
    print_line()
    if note:
        print_line(f"[{note}{'; /reset starts anew' if note.startswith(FULL) else ''}]")
    return False


def _piped() -> str:
    """Read all of standard input.

    Raises:
        ConfigError: If it is not UTF-8.
    """
    from rlvr_core.api import ConfigError

    if sys.stdin is None:
        return ""
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"standard input is not UTF-8: {error.reason} at byte {error.start}",
            where="standard input",
            remedy="convert it: iconv -t utf-8",
        ) from error


def _emit(text: str) -> None:
    click.echo(text, nl=False)
    sys.stdout.flush()
