"""Access control: only a browser on this machine, from a page of this server."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("127.0.0.1", "localhost")
"""Allowed host names: any other may be a site's whose DNS points here (DNS rebinding)."""
SAFE = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Fence:
    """Refuses requests for other hosts and from other sites, and adds security headers.

    Args:
        app: The application that answers allowed requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", [])}
                message["headers"] = [
                    *message.get("headers", []),
                    *(
                        (name.encode(), value.encode())
                        for name, value in {**HEADERS, "cache-control": "no-store"}.items()
                        if name.encode() not in names
                    ),
                ]
            await send(message)

        if fault := refused(scope["method"], _headers(scope)):
            await PlainTextResponse(f"refused: {fault}\n", 403)(scope, receive, sent)
            return
        await self._app(scope, receive, sent)


def refused(method: str, headers: MutableMapping[str, str]) -> str:
    """Return why a request is refused; empty if it is allowed.

    Args:
        method: HTTP method of the request.
        headers: Headers of the request, with lower-case names.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if _name(host) not in NAMES:
        return "its Host is not this machine; open the address that rlvr view printed"
    if origin is not None and origin != f"http://{host}":
        return "it is from a page of another site"
    if method not in SAFE:
        return "the viewer changes nothing"
    site = headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none") or headers.get("sec-fetch-mode") == "navigate":
        return ""
    return "it is from a page of another site"


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _headers(scope: MutableMapping[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        # join repeated headers: otherwise the one checked need not be the one that is used
        headers[name] = text if name not in headers else f"{headers[name]}, {text}"
    return headers
