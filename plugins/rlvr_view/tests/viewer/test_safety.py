"""What a model wrote is text, others' requests are refused, nothing outside is served."""

import json
from html.parser import HTMLParser

import pytest

from plugins.rlvr_view.tests.reports.made_runs import make_run
from plugins.rlvr_view.tests.viewer.viewed import HOSTILE, draw, groups, keys
from tests.support.tables import table

SHOWN = r"\x00\x1b[2J\x1b]8;;http://evil\x07\u202eright to left\u2066\u2028 مرحبا \ud800 \ue0041"
TAGS = {
    *("html", "head", "meta", "title", "link", "script", "body", "a", "header", "div", "p", "h1"),
    *("h2", "h3", "button", "nav", "span", "main", "footer", "code", "form", "label", "input"),
    *("select", "option", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "pre"),
    *("dl", "dt", "dd", "details", "summary", "fieldset", "legend", "section", "meter", "ins"),
    *("del", "strong", "br", "progress", "noscript", "figure", "figcaption", "article"),
    *("ol", "li"),
}


class Seen(HTMLParser):
    """What a browser makes of a page: its elements, what they would run, and its text."""

    def __init__(self):
        super().__init__()
        self.tags, self.runs, self.said = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        names = dict(attrs)
        self.runs += [(tag, name) for name in names if name.startswith("on") or name == "style"]
        if tag in ("style", "iframe", "base", "object") or (tag == "script" and not names["src"]):
            self.runs.append(tag)
        for name in ("href", "src", "action"):
            if name in names and not names[name].startswith(("/", "#", "?", "data:,")):
                self.runs.append((tag, names[name]))

    def handle_data(self, data):
        self.said.append(data)


def seen(page):
    parser = Seen()
    parser.feed(page)
    parser.close()
    return parser


@pytest.fixture
def hostile(runs):
    folder = make_run(runs, "hostile", text=HOSTILE, dataset=HOSTILE)
    draw(folder, 8, 16, HOSTILE, [HOSTILE, HOSTILE + "!"], [0.0, 1.0], prompt=HOSTILE)
    draw(folder, 9, 17, HOSTILE, [HOSTILE + "?"], [1.0], prompt=HOSTILE)
    return folder


def test_what_a_model_wrote_is_text_on_every_page(hostile, viewed):
    at = viewed.read(hostile)
    problem = viewed.client.get(f"{at}/groups/8.16")
    link = next(
        part for part in problem.text.split('href="') if part.startswith(f"{at}/problem?id=")
    ).partition('"')[0]
    pages = {
        "list": viewed.get(f"{at}/rollouts"),
        "group": problem.text,
        "problem": viewed.get(link.replace("&amp;", "&")),
        "report": json.loads(viewed.get(f"{at}/report"))["body"],
        "run": viewed.get(at),
        "fault": viewed.get(f"{at}/rollouts?sort={HOSTILE.encode('utf-8', 'ignore').hex()}", 400),
    }
    for name, page in pages.items():
        found = seen(page)
        assert found.tags <= TAGS, name
        assert found.runs == [], name
        assert not {"\x00", "\x1b", "\u202e", "\u2028", "\u2066"} & set(page), name
    said = "".join(seen(pages["group"]).said)
    assert said.count(HOSTILE.partition("\x00")[0]) >= 4
    assert SHOWN in said
    assert "<del>?" not in pages["problem"]


def test_hostile_text_can_be_looked_for_and_is_exported_whole(hostile, viewed):
    at = viewed.read(hostile)
    asked = viewed.client.get(f"{at}/rollouts", params={"text": "<script>", "sort": "oldest"})
    assert groups(asked.text) == 18
    assert keys(asked.text)[-1] == "9.17"
    assert seen(asked.text).runs == []
    line = viewed.get(f"{at}/export?step_from=9").splitlines()[0]
    assert json.loads(line)["completions"][0]["text"] == HOSTILE + "?"
    answers = viewed.get(f"{at}/export?step_from=9&kind=sft")
    assert json.loads(answers)["answer"] == HOSTILE + "?"


def test_every_answer_has_a_policy_without_inline_scripts_or_styles(runs, viewed):
    at = viewed.read(make_run(runs))
    page = viewed.get(at)
    files = [part.partition('"')[0] for part in page.split('"/static/')[1:]]
    assert len(files) == 5
    for address in ("/", at, f"{at}/report", f"{at}/export", "/nothing", f"/static/{files[0]}"):
        headers = viewed.client.get(address).headers
        policy = dict(
            one.strip().split(" ", 1) for one in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert viewed.client.get("/").headers["cache-control"] == "no-store"


REFUSED = table(__file__, "refused")


def test_requests_of_other_sites_are_refused(runs, viewed):
    at = viewed.read(make_run(runs))
    for method, headers in REFUSED:
        answer = viewed.client.request(method, at, headers=headers)
        assert answer.status_code == 403, headers
        assert answer.text.startswith("refused: ")
        assert "content-security-policy" in answer.headers
    # a link from elsewhere may be followed, and another name of this machine is its own
    viewed.get(at, **{"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    viewed.get(at, host="localhost:6806", origin="http://localhost:6806")


def test_nothing_outside_of_the_root_is_served(runs, viewed, tmp_path):
    outside = make_run(tmp_path / "elsewhere", "secret")
    (runs / "link").symlink_to(outside.path)
    inside, linked = make_run(runs), make_run(runs, "linked", now=1)
    rollouts = linked.traces / "rollouts.jsonl"
    rollouts.unlink()
    rollouts.symlink_to(outside.traces / "rollouts.jsonl")
    (runs / "last").symlink_to(inside.path)
    for name in ("link", linked.name):
        for page in ("", "/rollouts", "/report", "/state", "/export"):
            told = viewed.get(f"/runs/{name}{page}", status=403)
            assert "four" not in told
    page = viewed.get("/")
    assert page.count("outside of runs") == 2
    assert f'href="/runs/{linked.name}"' not in page
    viewed.get("/runs/last")
    for name in ("..", ".", "%2e%2e", "..%2felsewhere", f"..%2F..%2F{tmp_path.name}", "x%00y"):
        viewed.get(f"/runs/{name}/rollouts", status=404)
    for name in ("../viewer.py", "..%2fapp.py", "app.py"):
        viewed.get(f"/static/x/{name}", status=404)


def test_a_link_that_appears_later_is_refused_too(runs, viewed, tmp_path):
    run = make_run(runs)
    at = viewed.read(run)
    viewed.get(f"{at}/groups/1.2")
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    run.manifest.rename(tmp_path / "kept.json")
    run.manifest.symlink_to(secret)
    assert "is a link" in viewed.get(f"{at}/groups/1.2", status=403)


def test_a_name_that_no_folder_can_have_is_no_run(viewed):
    assert "there is no run" in viewed.get(f"/runs/{'a' * 3000}", status=404)
