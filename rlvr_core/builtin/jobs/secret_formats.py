"""Secrets that are known by their format alone: keys of services, in addresses, private keys.

``FORMATS`` are enough by themselves; what ``known_formats`` finds, with detect-secrets' patterns,
has to look drawn at random besides.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from rlvr_core.builtin.jobs.secret_services import SERVICE_KEY, service_keys

# a password, or a token in the place of the user: long, with digits, as no login is
_URL_PASSWORD = re.compile(
    r"(?<=://)(?:[^\s/:@]*:[^\s/@]+|(?<!ssh://)(?=[A-Za-z_-]*\d)[\w-]{20,})(?=@)"
    r"|(?<=[?&]X-Amz-Signature=)[0-9a-f]{16,}"
)
# its head alone is something that programs look for; with a body, or a foot, it is a key. No part
# may be read twice for each way to split it: the text may be a model's
_MARK = r"(?:[-+](?![-+]))?(?:[ \t]*+(?:[>#|*;%]|//(?![\w/+=])))*+"  # of a diff, mail or comment
_GAP = rf"(?:\\[nr]|\s)(?:(?<=[nr\n]){_MARK})?+"
_KEY_HEADER = rf"(?:{_GAP})++(?://)?+[-+]?[A-Z][\w-]{{0,20}}: "
_KEY_LINES = rf"(?:(?:{_GAP}|[-+](?![-+]))*+[\w/+=]{{16,}}+)++"
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----BEGIN ).){0,20000}?-----END [A-Z0-9 ]*KEY(?: BLOCK)?-----"
    # its foot is far off, or not there: some headers, and lines until one is too short for a key's
    rf"|(?:{_KEY_HEADER}[^\n\\]{{1,100}}+){{0,4}}+{_KEY_LINES}"
    # or, in one line, headers that end where the key begins
    rf"|(?:{_KEY_HEADER}[^\n\\](?:(?![\w/+=]{{16}})[^\n\\]){{0,99}}+){{0,4}}+{_KEY_LINES})",
    re.S,
)

FORMATS = (_PRIVATE_KEY, _URL_PASSWORD, SERVICE_KEY)


def known_formats(text: str) -> Iterator[tuple[int, int]]:
    """Yield offset and length of what has the format of a known service's credential."""
    yield from service_keys(text)
    for hints, pattern, valid in _formats():
        if not hints or any(hint in text for hint in hints):
            for match in pattern.finditer(text):
                if valid is None or valid(match.group()):
                    yield match.start(), len(match.group())


@functools.cache
def _formats() -> tuple[tuple[tuple[str, ...], re.Pattern[str], Any], ...]:
    """Return the patterns of detect-secrets, each with texts of which it contains one."""
    from detect_secrets.plugins import (
        artifactory,
        aws,
        azure_storage_key,
        discord,
        gitlab_token,
        jwt,
        mailchimp,
        npm,
        openai,
        pypi_token,
        sendgrid,
        slack,
        square_oauth,
        stripe,
        telegram_token,
        twilio,
    )

    kinds: tuple[tuple[Any, tuple[str, ...]], ...] = (
        (artifactory.ArtifactoryDetector, ("AKC", "AP")),
        (aws.AWSKeyDetector, ("A3T", "ABIA", "ACCA", "AKIA", "ASIA", "aws", "AWS")),
        (azure_storage_key.AzureStorageKeyDetector, ("AccountKey=",)),
        (discord.DiscordBotTokenDetector, ("discord", "DISCORD", "Discord")),
        (gitlab_token.GitLabTokenDetector, ("gl", "GR1348941")),
        (jwt.JwtTokenDetector, ("eyJ",)),
        (mailchimp.MailchimpDetector, ("-us",)),
        (npm.NpmDetector, (":_authToken=",)),
        (openai.OpenAIDetector, ("T3BlbkFJ",)),
        (pypi_token.PypiTokenDetector, ("pypi-",)),
        (sendgrid.SendGridDetector, ("SG.",)),
        (slack.SlackDetector, ("xox", "hooks.slack.com")),
        (square_oauth.SquareOAuthDetector, ("sq0csp-",)),
        (stripe.StripeDetector, ("k_live_",)),
        (telegram_token.TelegramBotTokenDetector, (":AA",)),
        (twilio.TwilioKeyDetector, ("twilio", "TWILIO", "Twilio")),
    )
    found = []
    for cls, hints in kinds:
        valid = cls.is_formally_valid if cls is jwt.JwtTokenDetector else None
        found += [(hints, pattern, valid) for pattern in cls.denylist]
    return tuple(found)
