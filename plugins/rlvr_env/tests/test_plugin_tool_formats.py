"""A tool format of somebody's plugin: listed, found by name, and used where environments run."""

FORMAT = """
    import re
    from rlvr_core.api import ToolCall

    class Brackets:
        name, stop, role = "brackets", ("]]",), "tool"

        def parse(self, text, *, repair=False):
            found = re.findall(r"\\[\\[(.*?) (.*?)\\]\\]", text)
            return [ToolCall(name, {"of": value}) for name, value in found]

        def render(self, call):
            return f"[[{call.name} {call.arguments['of']}]]"

        def describe(self, tools):
            return "write [[TOOL VALUE]]"

    class Halfway:
        name = "halfway"
"""

WORLD = """
    from typing import Annotated
    from rlvr_core.api import ComponentConfig, Done, Message, Names, Observation, Verdict
    from rlvr_core.plugins.tool_formats import tool_format

    class World:
        class Config(ComponentConfig):
            format: Annotated[str, Names("tool_format")] = "brackets"
            '''How calls are written.'''

        def __init__(self, config):
            self.format = tool_format(config.format)

        def start(self, problem, seed):
            return []

        def step(self, state, reply):
            calls = self.format.parse(reply.text)
            if not calls:
                return Done(Verdict(float(len(state)), passed=True))
            state += calls
            return Observation((Message(self.format.role, calls[0].arguments["of"]),))
"""

PLUGIN = """
    from rlvr_core.api import hookimpl

    @hookimpl
    def register_tool_formats(registrar):
        registrar.add("brackets", "acme_toys.format:Brackets", summary="Calls in brackets.")
        registrar.add("halfway", "acme_toys.format:Halfway", summary="Lacks everything.")

    @hookimpl
    def register_environments(registrar):
        registrar.add("world", "acme_toys.world:World", summary="Echoes.")
"""

PLAY = """
import base64, pickle
from rlvr_core.api import Problem, Reply
from rlvr_env.environments.pool import EnvironmentPool
from rlvr_env.environments.worker import Call
from rlvr_core.workers.process import ComponentSpec

pool = EnvironmentPool({"w": ComponentSpec("acme_toys.world:World", {})}, workers=1, timeout=60.0)
problem = pickle.dumps(Problem("p", "", "", {}, "toys"))
state = base64.b85decode(pool.submit(Call("start", "w", problem, 0)).result(60)["state"])
step = Call("step", "w", state, Reply("so [[count red cats]]", 0, 3))
print(pool.submit(step).result(60)["messages"])
pool.close()
"""


def installed(site):
    site.plugin("toys", PLUGIN)
    site.module("acme_toys/format.py", FORMAT)
    site.module("acme_toys/world.py", WORLD)
    return site


def test_a_format_of_a_plugin_is_listed_and_read_in_a_worker(site):
    installed(site)
    listed = site.run("list", "tool_formats")
    assert listed.code == 0, listed
    for name in ("toys/brackets", "env/hermes", "env/llama", "env/python"):
        assert name in listed.out
    played = site.python("-c", PLAY)
    assert played.out.strip() == "[['tool', 'red cats']]", played


def test_an_option_that_names_no_format_is_a_config_error_with_its_line(site):
    installed(site)
    site.module(
        "run.yaml",
        """
        model: {path: model}
        data: {sources: [{use: env/lookup}]}
        environment:
          use: toys/world
          with:
            format: brakets
        """,
    )
    checked = site.run("config", "check", str(site.folder / "run.yaml"))
    assert checked.code == 2, checked
    assert "unknown tool format 'brakets'" in checked.err + checked.out
    assert "run.yaml:7" in checked.err + checked.out
    assert "did you mean: toys/brackets" in checked.err + checked.out


def test_a_class_that_is_no_tool_format_is_its_plugins_error(site):
    installed(site)
    failed = site.python(
        "-c", "from rlvr_core.plugins.tool_formats import tool_format; tool_format('halfway')"
    )
    assert "acme_toys.format:Halfway is no tool format" in failed.err
    assert "report it to the author of toys" in failed.err
