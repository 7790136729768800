"""Patterns of credentials: keys of services, passwords in URLs, private keys."""

from __future__ import annotations

import re

_AN, _HEX, _WORD = "[A-Za-z0-9]", "[0-9a-fA-F]", r"[\w-]"

SERVICES = {
    "hf_": rf"{_AN}{{16,}}", "api_org_": rf"{_AN}{{30,}}", "sk-": rf"{_WORD}{{16,}}",
    "wandb_v": r"\d_\w{20,}", "gsk_": rf"{_AN}{{40,}}", "xai-": rf"{_AN}{{60,}}",
    "pplx-": rf"{_AN}{{40,}}", "nvapi-": rf"{_WORD}{{40,}}", "r8_": rf"{_AN}{{30,}}",
    "tvly-": rf"{_WORD}{{24,}}", "fw_": rf"{_AN}{{22,}}", "tgp_v1_": rf"{_WORD}{{40,}}",
    "pcsk_": r"\w{40,}", "lsv2_pt_": r"\w{32,}", "rpa_": r"[A-Z0-9]{40,}",
    "ABSK": r"[A-Za-z0-9+/]{100,}", "AIza": rf"{_WORD}{{35}}", "GOCSPX-": rf"{_WORD}{{24,}}",
    "ya29.": rf"{_WORD}{{30,}}", "AKIA": "[A-Z0-9]{16}", "ASIA": "[A-Z0-9]{16}",
    "LTAI": rf"{_AN}{{20}}", "dapi": rf"{_HEX}{{32}}", "doo_v1_": rf"{_HEX}{{64}}",
    "dop_v1_": rf"{_HEX}{{64}}", "dor_v1_": rf"{_HEX}{{64}}", "hvb.": rf"{_WORD}{{24,}}",
    "hvs.": rf"{_WORD}{{24,}}", "fm2_": r"[\w+/]{100,}", "sha256~": rf"{_WORD}{{43}}",
    "pscale_tkn_": r"[\w=.-]{32,}", "pscale_pw_": r"[\w=.-]{32,}", "ghp_": rf"{_AN}{{20,}}",
    "gho_": rf"{_AN}{{20,}}", "ghs_": rf"{_AN}{{20,}}", "ghu_": rf"{_AN}{{20,}}",
    "ghr_": rf"{_AN}{{20,}}", "github_pat_": r"\w{20,}", "glpat-": rf"{_WORD}{{20,}}",
    "gldt-": rf"{_WORD}{{20,}}", "glft-": rf"{_WORD}{{20,}}", "glrt-": rf"{_WORD}{{20,}}",
    "glptt-": rf"{_HEX}{{40}}", "npm_": rf"{_AN}{{36}}", "pypi-AgEI": rf"{_WORD}{{16,}}",
    "rubygems_": r"[0-9a-f]{48}", "dckr_pat_": rf"{_WORD}{{24,}}",
    "ATATT3": r"[\w=-]{40,}", "SG.": r"[\w.-]{40,}",
    "glc_": r"[\w+/]{32,}", "glsa_": r"\w{32,}", "phc_": rf"{_AN}{{40,}}",
    "rk_live_": rf"{_AN}{{16,}}", "sk_live_": rf"{_AN}{{16,}}", "shpat_": rf"{_HEX}{{32}}",
    "shpca_": rf"{_HEX}{{32}}", "shppa_": rf"{_HEX}{{32}}", "shpss_": rf"{_HEX}{{32}}",
    "sntrys_": r"[\w+/=-]{32,}", "xapp-": r"\d-[A-Z0-9]+-\d+-[a-z0-9]+",
    "xoxa-": r"[A-Za-z0-9-]{10,}", "xoxb-": r"[A-Za-z0-9-]{10,}", "xoxe-": r"[A-Za-z0-9-]{40,}",
    "xoxp-": r"[A-Za-z0-9-]{10,}", "xoxr-": r"[A-Za-z0-9-]{10,}", "xoxs-": r"[A-Za-z0-9-]{10,}",
    "sq0csp-": rf"{_WORD}{{43}}", "AccountKey=": r"[\w+/=]{88}",
    "eyJ": rf"{_WORD}{{8,}}\.{_WORD}{{8,}}\.{_WORD}{{8,}}",
}  # fmt: skip
"""Patterns of the keys of services, mostly from gitleaks' rules (MIT)."""

SERVICE_KEY = re.compile(
    r"(?<!sha256=)\b(?:"
    + "|".join(re.escape(begin) + rest for begin, rest in SERVICES.items())
    + ")",
    re.ASCII,
)
_WITHOUT_BEGIN = re.compile(
    # age, Telegram, Discord, Mailchimp, Slack's and Discord's webhooks
    r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}"
    r"|\b\d{8,10}:AA[\w-]{33}|\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}|\b[0-9a-z]{32}-us\d{1,2}\b"
    r"|(?<=hooks\.slack\.com/services/)T\w+/B\w+/\w+|(?<=/api/webhooks/)\d+/[\w-]{20,}"
    r"|(?i:(?<=bearer )|(?<=basic ))(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}",
    re.ASCII,
)
# a password, or a token in the place of the user: long, with digits, as no login is
_URL_PASSWORD = re.compile(
    r"(?<=://)(?:[^\s/:@]*:[^\s/@]+|(?<!ssh://)(?=[A-Za-z_-]*\d)[\w-]{20,})(?=@)"
    r"|(?<=[?&]X-Amz-Signature=)[0-9a-f]{16,}"
)
# its head alone is something that programs look for; with a foot, or lines of a body, it is a key
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----BEGIN ).){0,20000}?-----END [A-Z0-9 ]*KEY(?: BLOCK)?-----"
    # the lines may be those of a diff, a quotation or a string of a program, or joined by spaces
    r"|(?:(?:\\r)?(?:\r?\n|\\n)[\s>#*|-]*+[\w/+=]{16,}+| (?=[A-Za-z/+]*\d)[\w/+=]{16,}+)++)",
    re.DOTALL,
)

FORMATS = (_PRIVATE_KEY, _URL_PASSWORD, SERVICE_KEY, _WITHOUT_BEGIN)
