"""How the keys of services begin, and what follows: a key of one is known by its look alone.

The table is made of gitleaks' rules (https://github.com/gitleaks/gitleaks, MIT) for formats with a
beginning of their own, and of services for models and machines which it does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_AN, _HEX, _WORD = "[A-Za-z0-9]", "[0-9a-fA-F]", r"[\w-]"

_SERVICES = {
    # models, data and machines
    "hf_": rf"{_AN}{{16,}}", "api_org_": rf"{_AN}{{30,}}", "sk-": rf"{_WORD}{{16,}}",
    "wandb_v": r"\d_\w{20,}", "gsk_": rf"{_AN}{{40,}}", "xai-": rf"{_AN}{{60,}}",
    "pplx-": rf"{_AN}{{40,}}", "nvapi-": rf"{_WORD}{{40,}}", "r8_": rf"{_AN}{{30,}}",
    "tvly-": rf"{_WORD}{{24,}}", "fw_": rf"{_AN}{{22,}}", "tgp_v1_": rf"{_WORD}{{40,}}",
    "csk-": r"[a-z0-9]{40,}", "jina_": rf"{_AN}{{50,}}", "pcsk_": r"\w{40,}",
    "lsv2_pt_": r"\w{32,}", "lsv2_sk_": r"\w{32,}", "fc-": rf"{_HEX}{{32}}",
    "e2b_": rf"{_HEX}{{40}}", "rpa_": r"[A-Z0-9]{40,}", "KGAT_": rf"{_HEX}{{32}}",
    "ABSK": r"[A-Za-z0-9+/]{100,}", "AIza": rf"{_WORD}{{35}}", "GOCSPX-": rf"{_WORD}{{24,}}",
    "ya29.": rf"{_WORD}{{30,}}", "AKIA": "[A-Z0-9]{16}", "ASIA": "[A-Z0-9]{16}",
    "LTAI": rf"{_AN}{{20}}", "dapi": rf"{_HEX}{{32}}", "doo_v1_": rf"{_HEX}{{64}}",
    "dop_v1_": rf"{_HEX}{{64}}", "dor_v1_": rf"{_HEX}{{64}}", "hvb.": rf"{_WORD}{{24,}}",
    "hvs.": rf"{_WORD}{{24,}}", "HRKU-": rf"{_WORD}{{40,}}", "pul-": rf"{_HEX}{{40}}",
    "pnu_": rf"{_AN}{{36}}", "fo1_": rf"{_WORD}{{43}}", "fm1a_": r"[\w+/]{100,}",
    "fm1r_": r"[\w+/]{100,}", "fm2_": r"[\w+/]{100,}", "sha256~": rf"{_WORD}{{43}}",
    "pscale_tkn_": r"[\w=.-]{32,}", "pscale_pw_": r"[\w=.-]{32,}",
    "pscale_oauth_": r"[\w=.-]{32,}", "tskey-": rf"{_WORD}{{24,}}", "dp.pt.": rf"{_AN}{{40,}}",
    # code and packages
    "ghp_": rf"{_AN}{{20,}}", "gho_": rf"{_AN}{{20,}}", "ghs_": rf"{_AN}{{20,}}",
    "ghu_": rf"{_AN}{{20,}}", "ghr_": rf"{_AN}{{20,}}", "github_pat_": r"\w{20,}",
    "glpat-": rf"{_WORD}{{20,}}", "gldt-": rf"{_WORD}{{20,}}", "glft-": rf"{_WORD}{{20,}}",
    "glrt-": rf"{_WORD}{{20,}}", "glptt-": rf"{_HEX}{{40}}", "glimt-": rf"{_WORD}{{25,}}",
    "gloas-": rf"{_WORD}{{40,}}", "glsoat-": rf"{_WORD}{{20,}}", "glcbt-": rf"{_WORD}{{20,}}",
    "glagent-": rf"{_WORD}{{40,}}", "glffct-": rf"{_WORD}{{20,}}", "npm_": rf"{_AN}{{36}}",
    "pypi-AgEI": rf"{_WORD}{{16,}}", "rubygems_": r"[0-9a-f]{48}", "CLOJARS_": rf"{_AN}{{60}}",
    "dckr_pat_": rf"{_WORD}{{24,}}", "cmVmd": rf"{_AN}{{59}}", "sgp_": rf"{_AN}{{40,}}",
    # others
    "A3-": r"[A-Z0-9]{6}-[A-Z0-9-]{24,}", "AGE-SECRET-KEY-1": "[A-Z0-9]{50,}",
    "ATATT3": r"[\w=-]{40,}", "EZAK": rf"{_AN}{{54}}", "FLWSECK": r"[\w-]{32,}",
    "NRAK-": "[A-Z0-9]{24,}", "PMAK-": rf"{_HEX}{{24}}-{_HEX}{{34}}", "SG.": r"[\w.-]{40,}",
    "dt0c01.": rf"{_AN}{{24}}\.{_AN}{{60,}}", "figd_": rf"{_WORD}{{32,}}",
    "fio-u-": rf"{_WORD}{{60,}}", "glc_": r"[\w+/]{32,}", "glsa_": r"\w{32,}",
    "lin_api_": r"\w{32,}", "ntn_": rf"{_AN}{{40,}}", "ops_eyJ": r"[\w+/]{100,}",
    "p8e-": r"[a-z0-9]{32}", "phc_": rf"{_AN}{{40,}}", "phx_": rf"{_AN}{{40,}}",
    "rdme_": r"[a-z0-9]{70}", "rk_live_": rf"{_AN}{{16,}}", "sk_live_": rf"{_AN}{{16,}}",
    "shpat_": rf"{_HEX}{{32}}", "shpca_": rf"{_HEX}{{32}}", "shppa_": rf"{_HEX}{{32}}",
    "shpss_": rf"{_HEX}{{32}}", "shippo_live_": rf"{_HEX}{{40}}",
    "sntrys_": r"[\w+/=-]{32,}", "sntryu_": r"[\w+/=-]{32,}", "sq0atp-": rf"{_WORD}{{22,}}",
    "xapp-": r"\d-[A-Z0-9]+-\d+-[a-z0-9]+", "xkeysib-": rf"{_HEX}{{64}}-{_AN}{{16}}",
    "xoxa-": r"[A-Za-z0-9-]{10,}", "xoxb-": r"[A-Za-z0-9-]{10,}", "xoxe-": r"[A-Za-z0-9-]{40,}",
    "xoxp-": r"[A-Za-z0-9-]{10,}", "xoxr-": r"[A-Za-z0-9-]{10,}", "xoxs-": r"[A-Za-z0-9-]{10,}",
    "eyJ": rf"{_WORD}{{8,}}\.{_WORD}{{8,}}\.{_WORD}{{8,}}",
}  # fmt: skip

SERVICE_KEY = re.compile(
    r"(?<!sha256=)\b(?:"
    + "|".join(re.escape(begin) + rest for begin, rest in _SERVICES.items())
    + ")",
    re.ASCII,
)


def service_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each key of a service; looks only where one may begin."""
    for begin in _SERVICES:
        at = text.find(begin)
        while at >= 0:
            if match := SERVICE_KEY.match(text, at):
                yield at, len(match.group())
            at = text.find(begin, at + 1)
