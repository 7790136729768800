"""Secrets as people write them, planted in ten kinds of file, and ordinary files: what is found?

    python benchmarks/secret_campaign.py --set first
    python benchmarks/secret_campaign.py --set second      # and third, fourth, fifth
    python benchmarks/secret_campaign.py --decoys
    python benchmarks/secret_campaign.py --ordinary 3000

Each form was written down before anybody looked whether the search finds it: the first 60 all at
once, the 30 of the second set before the first set's misses were mended; so the 60 and 30 of
the third and fourth set and the 60 of the fifth, which are in ``secret_forms.json``, with 60 files
that look suspicious and hold no secret, by the author of the fifth set (``--decoys``). The secrets
are drawn at random by a
seed, so that no file of this repository holds one. ``--ordinary`` searches this repository's files
and a sample of the installed packages, counts both apart, and prints each alarm, to be judged by
reading it; of this repository only tests and benchmarks may raise one, which plant secrets.
"""

from __future__ import annotations

import argparse
import base64
import functools
import itertools
import json
import random
import re
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rlvr_core.builtin.jobs.secrets import secrets_in

ROOT = Path(__file__).parents[1]
TEXTS = {".py", ".pyi", ".sh", ".yaml", ".yml", ".toml", ".json", ".ipynb", ".cfg", ".ini", ".md"}
TEXTS |= {".txt", ".rst", ".jsonl", ".env", ".js", ".html", ".c", ".h", ".xml", ""}


class Draw:
    """Parts of secrets, drawn by a seed.

    Args:
        seed: Of the drawing.
    """

    def __init__(self, seed: object) -> None:
        self._random = random.Random(str(seed))

    def of(self, letters: str, count: int) -> str:
        """Draw a word of some letters."""
        return "".join(self._random.choice(letters) for _ in range(count))

    def an(self, count: int) -> str:
        """Draw letters and digits."""
        return self.of(string.ascii_letters + string.digits, count)

    def up(self, count: int) -> str:
        """Draw capitals and digits."""
        return self.of(string.ascii_uppercase + string.digits, count)

    def hex(self, count: int) -> str:
        """Draw hexadecimal digits."""
        return self.of("0123456789abcdef", count)

    def b64(self, count: int) -> str:
        """Draw bytes in base64."""
        return base64.b64encode(self._random.randbytes(count)).decode()

    def jwt(self) -> str:
        """Draw a signed JSON web token."""
        parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": self.an(8), "iat": 1700000000})
        coded = [
            base64.urlsafe_b64encode(json.dumps(p).encode()).decode().strip("=") for p in parts
        ]
        return ".".join([*coded, self.an(43)])

    def pem(self, kind: str = "RSA PRIVATE KEY") -> str:
        """Draw a private key's file."""
        body = self.b64(480)
        lines = [body[i : i + 64] for i in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"])

    def digits(self, count: int) -> str:
        """Draw digits."""
        return self.of(string.digits, count)

    def urlsafe(self, count: int) -> str:
        """Draw the letters of base64 in addresses."""
        return self.of(string.ascii_letters + string.digits + "-_", count)

    def b64letters(self, count: int) -> str:
        """Draw the letters of base64."""
        return self.of(string.ascii_letters + string.digits + "+/", count)

    def pair(self) -> str:
        """Draw a name and a password in base64."""
        return base64.b64encode(f"ada:{self.password()}".encode()).decode()

    def password(self) -> str:
        """Draw what a person makes up: words, digits and a sign."""
        words = ("Tiger", "copper", "Walnut", "river", "Magnet", "cobalt", "Pigeon", "lantern")
        first, second = self._random.sample(words, 2)
        return f"{first}{self.of(string.digits, 2)}{second}{self.of('!#%*+', 1)}"


Form = tuple[str, Callable[[Draw], str]]


def notebook(*cells: str, outputs: str = "") -> str:
    """Return a notebook with cells of code, the last with an output."""
    made = [
        {
            "cell_type": "code",
            "execution_count": n,
            "metadata": {},
            "outputs": [],
            "source": cell.splitlines(keepends=True),
        }
        for n, cell in enumerate(cells)
    ]
    if outputs:
        said = {"output_type": "stream", "name": "stdout", "text": outputs.splitlines(True)}
        made[-1]["outputs"] = [said]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def split_in_two(name: str, text: str) -> str:
    """Return Python that puts a secret together from two pieces."""
    half = len(text) // 2
    return f'{name} = (\n    "{text[:half]}"\n    "{text[half:]}"\n)\n'


FIRST: dict[str, Form] = {
    # Python
    "environ set": ("a.py", lambda d: f'import os\nos.environ["HF_TOKEN"] = "hf_{d.an(34)}"\n'),
    "environ setdefault": (
        "a.py",
        lambda d: f"import os\nos.environ.setdefault('WANDB_API_KEY', '{d.hex(40)}')\n",
    ),
    "login call": ("a.py", lambda d: f'import wandb\nwandb.login(key="{d.hex(40)}")\n'),
    "positional login": (
        "a.py",
        lambda d: f'from huggingface_hub import login\nlogin("hf_{d.an(34)}")\n',
    ),
    "client argument": (
        "a.py",
        lambda d: f'client = OpenAI(base_url="https://x.org/v1", api_key="sk-proj-{d.an(48)}")\n',
    ),
    "default argument": (
        "a.py",
        lambda d: f'def ask(q: str, api_key: str = "{d.an(32)}"):\n    ...\n',
    ),
    "boto session": (
        "a.py",
        lambda d: (
            "import boto3\ns = boto3.Session(\n"
            f'    aws_access_key_id="AKIA{d.up(16)}",\n    aws_secret_access_key="{d.b64(30)}")\n'
        ),
    ),
    "header dict": (
        "a.py",
        lambda d: f'headers = {{"Authorization": "Bearer {d.an(40)}", "Accept": "*/*"}}\n',
    ),
    "basic auth header": (
        "a.py",
        lambda d: (
            "H = {'Authorization': 'Basic "
            + base64.b64encode(f"ada:{d.password()}".encode()).decode()
            + "'}\n"
        ),
    ),
    "tuple auth": (
        "a.py",
        lambda d: f'r = requests.get(url, auth=("ada", "{d.password()}"), timeout=10)\n',
    ),
    "split string": ("a.py", lambda d: split_in_two("github_token", f"ghp_{d.an(36)}")),
    "comment": ("a.py", lambda d: f"x = 1  # old key was sk-ant-api03-{d.an(93)}AA\n"),
    "f-string url": (
        "a.py",
        lambda d: f'engine = create_engine(f"postgresql://ada:{d.password()}@db.corp/{{name}}")\n',
    ),
    "annotated": ("a.py", lambda d: f'DB_PASSWORD: Final[str] = "{d.password()}"\n'),
    "walrus and argparse default": (
        "a.py",
        lambda d: f'parser.add_argument("--api-key", default="{d.an(40)}", help="key")\n',
    ),
    "pem in triple quotes": ("a.py", lambda d: f'KEY = """\n{d.pem()}\n"""\n'),
    # shell
    "export": ("a.sh", lambda d: f"#!/bin/sh\nexport WANDB_API_KEY={d.hex(40)}\npython train.py\n"),
    "prefix assignment": ("a.sh", lambda d: f"OPENAI_API_KEY=sk-{d.an(48)} python run.py --n 4\n"),
    "curl bearer": (
        "a.sh",
        lambda d: f'curl -H "Authorization: Bearer {d.an(32)}" https://api.corp.net/v1/x\n',
    ),
    "curl user": (
        "a.sh",
        lambda d: f"curl -u ada:{d.password()} -O https://files.corp.net/a.tgz\n",
    ),
    "git clone url": (
        "a.sh",
        lambda d: f"git clone https://x-access-token:ghs_{d.an(36)}@github.com/corp/repo.git\n",
    ),
    "cli option": ("a.sh", lambda d: f"huggingface-cli login --token hf_{d.an(34)}\n"),
    "mysql option": ("a.sh", lambda d: f"mysqldump --user=ada --password={d.password()} db > x\n"),
    "sshpass": ("a.sh", lambda d: f"sshpass -p '{d.password()}' ssh ada@node1 hostname\n"),
    "heredoc": (
        "a.sh",
        lambda d: (
            f"cat > ~/.aws/credentials <<EOF\n[default]\naws_access_key_id = AKIA{d.up(16)}\n"
            f"aws_secret_access_key = {d.b64(30)}\nEOF\n"
        ),
    ),
    "docker login": (
        "a.sh",
        lambda d: f"echo {d.an(24)} | docker login -u ada --password-stdin registry.corp.net\n",
    ),
    # YAML
    "yaml plain": ("a.yaml", lambda d: f"logging:\n  wandb:\n    api_key: {d.hex(40)}\n"),
    "yaml quoted password": (
        "a.yaml",
        lambda d: f"db:\n  user: ada\n  password: '{d.password()}'\n",
    ),
    "yaml name and value": (
        "a.yaml",
        lambda d: f"env:\n  - name: HF_TOKEN\n    value: hf_{d.an(34)}\n",
    ),
    "k8s secret data": (
        "a.yaml",
        lambda d: (
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  password: "
            + base64.b64encode(d.password().encode()).decode()
            + "\n"
        ),
    ),
    "yaml block key": (
        "a.yaml",
        lambda d: (
            "ssh:\n  private_key: |\n"
            + "".join(f"    {line}\n" for line in d.pem("OPENSSH PRIVATE KEY").splitlines())
        ),
    ),
    "yaml flow": ("a.yaml", lambda d: f"judge: {{url: http://h/v1, token: {d.an(40)}}}\n"),
    "yaml url": (
        "a.yaml",
        lambda d: f"broker: amqp://ada:{d.an(20)}@mq.corp.net:5672/vhost\n",
    ),
    # TOML
    "toml token": (
        "a.toml",
        lambda d: f'[tool.publish]\ntoken = "pypi-AgEIcHlwaS5vcmc{d.an(150)}"\n',
    ),
    "toml secret": ("a.toml", lambda d: f'[app]\nclient_secret = "{d.an(40)}"\n'),
    "toml inline": (
        "a.toml",
        lambda d: f'remote = {{ user = "ada", passwd = "{d.password()}" }}\n',
    ),
    "toml index url": (
        "a.toml",
        lambda d: f'[[tool.uv.index]]\nurl = "https://ada:{d.an(22)}@pypi.corp.net/simple"\n',
    ),
    # JSON
    "gcp service account": (
        "a.json",
        lambda d: json.dumps(
            {
                "type": "service_account",
                "private_key_id": d.hex(40),
                "private_key": d.pem("PRIVATE KEY") + "\n",
                "client_email": "x@y.iam.gserviceaccount.com",
            },
            indent=2,
        ),
    ),
    "google api key": ("a.json", lambda d: json.dumps({"maps": {"key": f"AIza{d.an(35)}"}})),
    "docker config": (
        "a.json",
        lambda d: json.dumps(
            {
                "auths": {
                    "registry.corp.net": {
                        "auth": base64.b64encode(f"ada:{d.an(24)}".encode()).decode()
                    }
                }
            },
            indent=2,
        ),
    ),
    "json camel case": (
        "a.json",
        lambda d: json.dumps({"apiKey": d.an(32), "model": "m"}, indent=2),
    ),
    "jwt in json": ("a.json", lambda d: json.dumps({"session": d.jwt()})),
    "slack webhook": (
        "a.json",
        lambda d: json.dumps(
            {"hook": f"https://hooks.slack.com/services/T{d.up(8)}/B{d.up(10)}/{d.an(24)}"}
        ),
    ),
    # notebooks
    "cell environ": (
        "a.ipynb",
        lambda d: notebook("import torch", f'%env WANDB_API_KEY={d.hex(40)}\nprint("hi")'),
    ),
    "cell string": (
        "a.ipynb",
        lambda d: notebook(f'import openai\nopenai.api_key = "sk-{d.an(20)}T3BlbkFJ{d.an(20)}"'),
    ),
    "cell shell": ("a.ipynb", lambda d: notebook(f"!huggingface-cli login --token hf_{d.an(34)}")),
    "cell output": (
        "a.ipynb",
        lambda d: notebook("!env", outputs=f"HOME=/root\nAWS_SECRET_ACCESS_KEY={d.b64(30)}\n"),
    ),
    "cell password": (
        "a.ipynb",
        lambda d: notebook(f"db.connect(user='ada', password='{d.password()}')"),
    ),
    # Dockerfile
    "docker ENV": ("Dockerfile", lambda d: f"FROM debian:12\nENV HF_TOKEN=hf_{d.an(34)}\n"),
    "docker ENV old": ("Dockerfile", lambda d: f"FROM debian:12\nENV API_TOKEN {d.an(32)}\n"),
    "docker ARG": ("Dockerfile", lambda d: f"FROM debian:12\nARG GITLAB_TOKEN=glpat-{d.an(20)}\n"),
    "docker RUN pip": (
        "Dockerfile",
        lambda d: (
            "FROM debian:12\nRUN pip install --extra-index-url "
            f"https://ada:{d.an(20)}@pypi.corp.net/simple pkg\n"
        ),
    ),
    # ini, env, netrc
    "ini password": ("a.ini", lambda d: f"[server]\nhost = h\npassword = {d.password()}\n"),
    "pypirc": ("a.ini", lambda d: f"[pypi]\nusername = __token__\npassword = pypi-{d.an(60)}\n"),
    "ini colon": ("a.ini", lambda d: f"[mail]\nsmtp_pass: {d.an(16)}\n"),
    "env file": (".env", lambda d: f"DEBUG=1\nSTRIPE_SECRET_KEY=sk_live_{d.an(24)}\n"),
    "env quoted": (".env", lambda d: f'REDIS_PASSWORD="{d.password()}"\n'),
    "env url": (".env", lambda d: f"DATABASE_URL=mysql://root:{d.an(14)}@10.0.0.3:3306/app\n"),
    "netrc": (".netrc", lambda d: f"machine api.wandb.ai\n  login user\n  password {d.hex(40)}\n"),
    "netrc in a line": (
        ".netrc",
        lambda d: f"machine github.com login ada password {d.password()}\n",
    ),
}
"""Sixty forms in ten kinds of file."""

SECOND: dict[str, Form] = {
    "concatenated": (
        "b.py",
        lambda d: f'token = "xoxb-{d.of(string.digits, 12)}-" + "{d.an(24)}"\n',
    ),
    "dict item": ("b.py", lambda d: f"config['wandb']['api_key'] = '{d.hex(40)}'\n"),
    "dataclass": ("b.py", lambda d: f'@dataclass\nclass C:\n    secret: str = "{d.an(36)}"\n'),
    "bytes": ("b.py", lambda d: f'SECRET_KEY = b"{d.an(50)}"\n'),
    "getenv default": ("b.py", lambda d: f'key = os.getenv("MISTRAL_API_KEY", "{d.an(32)}")\n'),
    "set_token": ("b.py", lambda d: f'HfFolder.save_token("hf_{d.an(34)}")\n'),
    "putenv": ("b.py", lambda d: f'os.putenv("GROQ_API_KEY", "gsk_{d.an(52)}")\n'),
    "keyword dict": ("b.py", lambda d: f'cfg = dict(model="m", hf_token="hf_{d.an(34)}")\n'),
    "docstring": ("b.py", lambda d: f'"""Use it so.\n\n    export GH_TOKEN=gho_{d.an(36)}\n"""\n'),
    "compared": ("b.py", lambda d: f'if password == "{d.password()}":\n    grant()\n'),
    "fish": ("b.sh", lambda d: f"set -x REPLICATE_API_TOKEN r8_{d.an(37)}\n"),
    "read into env": ("b.sh", lambda d: f"env HF_TOKEN='hf_{d.an(34)}' torchrun train.py\n"),
    "sbatch export": (
        "b.sh",
        lambda d: f"#SBATCH --export=ALL,WANDB_API_KEY={d.hex(40)}\nsrun x\n",
    ),
    "docker -e": ("b.sh", lambda d: f"docker run -e NGC_API_KEY={d.an(84)} image\n"),
    "wget header": ("b.sh", lambda d: f'wget --header="X-Api-Key: {d.an(32)}" https://h/x\n'),
    "expanded default": ("b.sh", lambda d: f': "${{API_SECRET:={d.an(40)}}}"\n'),
    "yaml anchor": ("b.yaml", lambda d: f"x: &k\n  access_token: &t {d.an(36)}\ny: *k\n"),
    "yaml env mapping": ("b.yaml", lambda d: f"env:\n  AZURE_OPENAI_KEY: {d.hex(32)}\n"),
    "compose list": ("b.yaml", lambda d: f"environment:\n  - POSTGRES_PASSWORD={d.password()}\n"),
    "yaml folded": ("b.yaml", lambda d: f"auth:\n  secret_key: >-\n    {d.an(44)}\n"),
    "toml credentials": ("b.toml", lambda d: f"[api.credentials]\nkey = '{d.an(48)}'\n"),
    "toml multi": ("b.toml", lambda d: f'secret = """\n{d.b64(40)}\n"""\n'),
    "json list": (
        "b.json",
        lambda d: json.dumps({"env": [{"name": "API_KEY", "value": d.an(40)}]}, indent=1),
    ),
    "azure storage": (
        "b.json",
        lambda d: json.dumps(
            {"c": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={d.b64(64)}"}
        ),
    ),
    "json of json": ("b.json", lambda d: json.dumps({"body": json.dumps({"password": d.an(20)})})),
    "notebook markdown": (
        "b.ipynb",
        lambda d: notebook("x = 1").replace('"x = 1"', json.dumps(f"my key: sk-or-v1-{d.hex(64)}")),
    ),
    "notebook getpass": ("b.ipynb", lambda d: notebook(f"api_key = '{d.an(39)}' #@param")),
    "docker label run": (
        "Dockerfile",
        lambda d: f'FROM x\nRUN echo "machine h login a password {d.an(24)}" > /root/.netrc\n',
    ),
    "ini connection": ("b.ini", lambda d: f"[odbc]\ndsn = Server=h;Uid=ada;Pwd={d.password()};\n"),
    "env multi": (".env", lambda d: f'PRIVATE_KEY="{d.pem("EC PRIVATE KEY")}"\n'),
}
"""Thirty more."""


def later(name: str) -> dict[str, Form]:
    """Return a set of ``secret_forms.json``: texts in which «an 34» stands for 34 drawn letters."""
    rows = json.loads(Path(__file__).with_name("secret_forms.json").read_text())[name]
    return {row["file"]: (row["file"], functools.partial(filled, row["text"])) for row in rows}


def filled(text: str, draw: Draw) -> str:
    """Return a text with what is drawn in its places."""

    def drawn(match: re.Match[str]) -> str:
        method = getattr(draw, match["kind"])
        return str(method(int(match["count"])) if match["count"] else method())

    return re.sub(r"«(?P<kind>\w+)(?: (?P<count>\d+))?»", drawn, text)


SETS = {"first": FIRST, "second": SECOND}
SETS |= {name: later(name) for name in ("third", "fourth", "fifth")}
DECOYS = later("fifth, ordinary")


def missed(forms: dict[str, Form], seed: int) -> list[str]:
    """Return the forms that the search does not find."""
    lost = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (file, form) in forms.items():
            path = Path(folder) / file
            path.write_text(form(Draw(f"{seed} {name}")))
            if not list(secrets_in(path, file)):
                lost.append(name)
    return lost


def own_files() -> list[Path]:
    """Return this repository's files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def installed_files(count: int, seed: int) -> list[Path]:
    """Return a sample of the installed packages' texts."""
    sites = [Path(name) for name in sys.path if name.endswith("site-packages")]
    theirs = [
        path
        for path in sorted(path for site in sites for path in site.rglob("*"))
        if path.suffix in TEXTS and path.is_file() and path.stat().st_size < 1 << 20
    ]
    random.Random(seed).shuffle(theirs)
    return list(itertools.islice(theirs, count))


def alarmed(files: list[Path]) -> list[Path]:
    """Return the files in which the search finds a secret, and print each alarm."""
    found = []
    for path in files:
        complaints = list(secrets_in(path, str(path)))
        for complaint in complaints:
            print(f"alarm: {complaint}")
        found += [path] if complaints else []
    return found


def main() -> int:
    """Print what is not found, or each alarm; the exit code is 1 if there is any."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--draws", type=int, default=3, help="secrets drawn for each form")
    parser.add_argument("--decoys", action="store_true")
    parser.add_argument("--ordinary", type=int, default=0, help="files of installed packages")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wrong = 0
    if given.set:
        forms = SETS[given.set]
        lost: dict[str, int] = {}
        for draw in range(given.draws):
            for name in missed(forms, given.seed + draw):
                lost[name] = lost.get(name, 0) + 1
        for name, times in lost.items():
            print(f"missed: {name} ({forms[name][0]}), {times} of {given.draws} times")
        kinds = len({Path(file).suffix or file for file, _ in forms.values()})
        found = len(forms) - len(lost)
        print(f"{found} of {len(forms)} forms always found, in {kinds} kinds of file")
        wrong += len(lost)
    if given.decoys:
        alarming = sorted(DECOYS.keys() - set(missed(DECOYS, given.seed)))
        print(f"{len(alarming)} of {len(DECOYS)} decoys raise an alarm", *alarming)
        wrong += len(alarming)
    if given.ordinary:
        files = installed_files(given.ordinary, given.seed)
        alarms = alarmed(files)
        print(f"{len(alarms)} of {len(files)} ordinary files raise an alarm")
        wrong += len(alarms)
        files = own_files()
        alarms = alarmed(files)
        planted = [p for p in alarms if {"tests", "benchmarks"} & set(p.relative_to(ROOT).parts)]
        print(
            f"{len(alarms)} of {len(files)} files of this repository raise an alarm, "
            f"{len(planted)} of them tests and benchmarks, which plant secrets"
        )
        wrong += len(alarms) - len(planted)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
