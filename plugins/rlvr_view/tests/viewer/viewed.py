"""A viewer without a browser, what its pages show, and hostile text to show there."""

import re
import threading

from starlette.testclient import TestClient

from rlvr_core.api import Completion, Group, Judged, Problem, Verdict
from rlvr_core.record.recorder import Recorder
from rlvr_view.viewer.app import application
from rlvr_view.viewer.index import Cache
from rlvr_view.viewer.indexing import building, update
from rlvr_view.viewer.runs import Runs

OWNED = "window.owned=1"
HOSTILE = (
    f"<script>{OWNED}</script></pre></textarea></title><img src=x onerror={OWNED}>"
    f'" onclick="{OWNED}'
    f"' autofocus onfocus='{OWNED}<a href='javascript:{OWNED}'>click</a><!-- ]]>&lt;{{{{ 7*7 }}}}"
    "\x00\x1b[2J\x1b]8;;http://evil\x07\u202eright to left\u2066\u2028 مرحبا \ud800 \U000e0041"
)
ADDRESS = "http://127.0.0.1:6806"


class Viewed:
    """A viewer of the runs under a folder, asked as a browser asks it."""

    def __init__(self, root, cache):
        self.cache = Cache(cache)
        self.client = TestClient(
            application(Runs(root), self.cache), base_url=ADDRESS, raise_server_exceptions=False
        )

    def read(self, folder):
        """Read all rollouts of a run; the address of its pages."""
        file, alone = self.cache.file(folder.path), False
        while not alone:
            with building(file) as alone:
                if alone:
                    update(file, folder.traces / "rollouts.jsonl", threading.Event())
        return f"/runs/{folder.name}"

    def get(self, address, status=200, **headers):
        answer = self.client.get(address, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text


def groups(page):
    return int(re.search(r"([\d,]+) groups", page.partition('id="table"')[2])[1].replace(",", ""))


def keys(page):
    return re.findall(r'/groups/([\w.-]+)[?"]', page)


def draw(folder, step, draw_index, problem, texts, rewards, prompt="2+2=", **parts):
    """Record one group of single answers."""
    members = tuple(
        Judged(
            Completion((1,), (2,), (-0.1,), (True,), text, "stop", **parts),
            {"exact": Verdict(reward, passed=reward > 0, detail=f"said {text}")},
            reward,
            reward > 0,
        )
        for text, reward in zip(texts, rewards, strict=True)
    )
    group = Group(Problem(problem, prompt, "exact", {}, "sums"), members, step)
    fates = ["trained"] * len(texts)
    with Recorder(folder) as recorder:
        recorder.rollout(step, step, group, prompt, fates, [0.5] * len(texts), draw_index)
