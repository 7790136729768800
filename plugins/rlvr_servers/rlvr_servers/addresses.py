"""By which address other machines reach this one."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Sequence

_LOOPBACK = "127.0.0.1"


def local_address(hosts: Sequence[str]) -> str:
    """The address that packets to the first reachable one of these hosts leave from, IPv4 or IPv6.

    Hosts of this machine's loopback count for nothing; without any other it is 127.0.0.1.
    """
    for host in hosts:
        with contextlib.suppress(OSError):
            for family, kind, protocol, _, place in socket.getaddrinfo(
                host, 9, type=socket.SOCK_DGRAM
            ):
                if (candidate := _source(family, kind, protocol, place)) is not None:
                    return candidate
    return _LOOPBACK


def _source(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> str | None:
    with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as way:
        way.connect(place)  # sends nothing
        candidate = str(way.getsockname()[0])
        if not ipaddress.ip_address(candidate).is_loopback:
            return candidate
    return None


def family_of(address: str) -> socket.AddressFamily:
    """The family of sockets of an address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def meeting_place(hosts: Sequence[str]) -> tuple[str, int]:
    """An address of this machine that all these hosts reach, and a free port there (T31)."""
    address = local_address(hosts)
    with socket.socket(family_of(address)) as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])
