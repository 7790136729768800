"""Sixty ways in which secrets get into files, and ten kinds of file that they get into.

Values are drawn anew for each seed: none stands in this repository.
"""

import base64
import html
import json
import random
import string

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
B64 = ALNUM + "+/"


class Draw:
    """Random values; each has letters and digits, as real ones do."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def of(self, alphabet, size):
        while True:
            text = "".join(self._random.choices(alphabet, k=size))
            if any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
                return text

    def a(self, size=32):
        return self.of(ALNUM, size)

    def h(self, size=32):
        return self.of(HEX, size)

    def b(self, size=40):
        return self.of(B64, size)

    def password(self):
        return self.of(ALNUM + "!#%^*", 14)


def _jwt(d):
    def part(data):
        return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

    head = part({"alg": "HS256", "typ": "JWT"})
    return f"{head}.{part({'sub': d.a(12), 'iat': 1})}.{d.of(URLSAFE, 43)}"


def _pem(d):
    lines = "\n".join(d.b(64) for _ in range(4))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----"


def _encoded_account(d):
    account = {"type": "service_account", "private_key": _pem(d)}
    return base64.b64encode(json.dumps(account).encode()).decode()


FORMS = {
    # assignments to names that say so, in many syntaxes
    "environ item": lambda d: f'os.environ["WANDB_API_KEY"] = "{d.h(40)}"',
    "environ setdefault": lambda d: f"os.environ.setdefault('HF_TOKEN', '{d.a()}')",
    "environ update": lambda d: f'os.environ.update({{"SERVICE_TOKEN": "{d.a()}"}})',
    "putenv": lambda d: f'os.putenv("API_KEY", "{d.a()}")',
    "monkeypatch": lambda d: f'monkeypatch.setenv("DB_PASSWORD", "{d.password()}")',
    "keyword argument": lambda d: f'wandb.login(key="{d.h(40)}")',
    "token argument": lambda d: f'login(token="{d.a()}", add_to_git_credential=True)',
    "api key argument": lambda d: f"client = OpenAI(api_key='{d.a()}')",
    "annotated": lambda d: f'api_token: str = "{d.a()}"',
    "default of getenv": lambda d: f'key = os.getenv("SECRET_KEY", "{d.a()}")',
    "attribute": lambda d: f'openai.api_key = "{d.a(48)}"',
    "subscript single": lambda d: f"config['password'] = '{d.password()}'",
    "dictionary": lambda d: f'{{"client_secret": "{d.a()}"}}',
    "header dictionary": lambda d: f'headers = {{"X-API-Key": "{d.a()}"}}',
    "walrus go": lambda d: f'apiKey := "{d.a()}"',
    "arrow ruby": lambda d: f":secret_key => '{d.a()}'",
    "php define": lambda d: f"define('AUTH_KEY', '{d.a(64)}');",
    "java setter": lambda d: f'credentials.setPassword("{d.password()}");',
    "java constant": lambda d: f'private static final String API_SECRET = "{d.a()}";',
    "javascript const": lambda d: f"const authToken = `{d.a()}`;",
    "javascript process": lambda d: f"process.env.STRIPE_SECRET = '{d.a()}'",
    "terraform": lambda d: f'secret_key = "{d.b()}"',
    "make": lambda d: f"API_TOKEN ?= {d.a()}",
    "docker ENV": lambda d: f"ENV API_TOKEN {d.a()}",
    "docker ARG": lambda d: f"ARG NPM_TOKEN={d.a()}",
    "xml element": lambda d: f"<password>{d.password()}</password>",
    "xml attribute": lambda d: f'<add key="ApiKey" value="{d.a()}" />',
    "properties": lambda d: f"spring.datasource.password={d.password()}",
    "yaml pair": lambda d: f"hf_token: {d.a()}",
    "yaml env entry": lambda d: f"- name: WANDB_API_KEY\n  value: {d.h(40)}",
    "netrc line": lambda d: f"machine api.wandb.ai login user password {d.h(40)}",
    "npmrc": lambda d: f"//registry.npmjs.org/:_authToken={d.a(36)}",
    # commands
    "prefix of a command": lambda d: f"HF_TOKEN={d.a()} python train.py",
    "export": lambda d: f"export WANDB_API_KEY={d.h(40)}",
    "setenv csh": lambda d: f"setenv MY_SECRET {d.a()}",
    "long option": lambda d: f"huggingface-cli login --token {d.a()}",
    "long option equals": lambda d: f"tool --api-key={d.a()}",
    "mysql": lambda d: f"mysql --user=root --password={d.password()}",
    "curl user": lambda d: f"curl -u admin:{d.a(16)} https://api.example.com/v1",
    "sshpass": lambda d: f"sshpass -p '{d.a(14)}' ssh user@host",
    "docker login": lambda d: f"docker login -u me --password {d.a(20)} registry.example.com",
    "powershell": lambda d: f'$env:API_KEY = "{d.a()}"',
    "curl bearer": lambda d: f'curl -H "Authorization: Bearer {d.a(40)}" https://api.example.com',
    # headers and URLs
    "bearer": lambda d: f"Authorization: Bearer {d.of(URLSAFE, 40)}",
    "token header": lambda d: f"Authorization: token {d.h(40)}",
    "basic": lambda d: "Authorization: Basic "
    + base64.b64encode(f"user:{d.a(16)}".encode()).decode(),
    "url with password": lambda d: f"postgres://admin:{d.a(16)}@db.example.com:5432/app",
    "url with token": lambda d: f"https://api.example.com/data?access_token={d.a()}",
    "git url": lambda d: f"git clone https://oauth2:{d.a(20)}@git.example.com/a/b.git",
    # kinds that are known by their look
    "aws id": lambda d: "AKIA" + d.of(string.ascii_uppercase + "234567", 16),
    "aws secret": lambda d: f"aws_secret_access_key = {d.b()}",
    "github": lambda d: "ghp_" + d.a(36),
    "hugging face": lambda d: "hf_" + d.a(34),
    "openai": lambda d: "sk-proj-" + d.of(URLSAFE, 60),
    "slack hook": lambda d: "https://hooks.slack.com/services/T0{}/B0{}/{}".format(
        d.of(string.ascii_uppercase + "23456789", 8), d.of(string.ascii_uppercase + "23456789", 8),
        d.a(24)),
    "stripe": lambda d: "sk_live_" + d.a(24),
    "sendgrid": lambda d: f"SG.{d.of(ALNUM, 22)}.{d.of(ALNUM, 43)}",
    "azure storage": lambda d: f"AccountName=x;AccountKey={d.b(86)}==;EndpointSuffix=core.net",
    "jwt": _jwt,
    "private key": _pem,
}  # fmt: skip


def _notebook(text):
    cell = {"cell_type": "code", "source": [f"{line}\n" for line in text.split("\n")]}
    return json.dumps({"cells": [cell | {"metadata": {}, "outputs": []}], "nbformat": 4}, indent=1)


def _indented(text, by):
    return "\n".join(by + line for line in text.split("\n"))


KINDS = {
    "train.py": lambda text: f"import os\n\n{text}\nprint('done')\n",
    "explore.ipynb": _notebook,
    "job.yaml": lambda text: f"steps: 3\nrun: |\n{_indented(text, '  ')}\nseed: 1\n",
    "notes.json": lambda text: json.dumps({"steps": 3, "note": text}),
    "conf.toml": lambda text: f"steps = 3\nsetup = '''\n{text}\n'''\n",
    "setup.sh": lambda text: f"#!/bin/sh\nset -e\n{text}\n",
    "README.md": lambda text: f"# How to\n\n```\n{text}\n```\n",
    "job.log": lambda text: f"2026-01-02 03:04:05 INFO start\n2026-01-02 03:04:06 INFO {text}\n",
    "page.html": lambda text: f"<html><pre>\n{html.escape(text)}\n</pre></html>\n",
    "main.tf": lambda text: f"locals {{\n  script = <<EOT\n{text}\nEOT\n}}\n",
}
"""A kind of file as what makes its text from that of a form."""
