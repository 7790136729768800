"""Whether the machines of a run would compute the same: code, configuration, libraries."""

from __future__ import annotations

import hashlib
import json
import socket

from rlvr_core.api import MachineError
from rlvr_core.config.resolve import Resolved
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.manifest import versions
from rlvr_core.record.provenance.code import package_hash


def check_agreement(resolved: Resolved, ranks: Ranks) -> None:
    """Compare all processes with process 0, before the model is loaded. A collective.

    Raises:
        MachineError: If one has other code, libraries or values of the configuration.
    """
    config = resolved.dump()
    config["run"] = {**config["run"], "dir": None}  # each machine may have its own
    here = {f"version of {name}": text for name, text in versions({}).items()}
    packages = {record.module.partition(".")[0] for record in resolved.host.records}
    here |= {f"files of {name}": package_hash(name) for name in packages}
    here |= {f"value of {key}": _digest(value) for key, value in config.items()}
    everywhere = ranks.gather((socket.gethostname(), here))
    main, first = everywhere[0]
    for machine, other in everywhere:
        unlike = sorted(key for key in first | other if first.get(key) != other.get(key))
        if unlike:
            raise MachineError(
                f"machine {machine} differs from {main}: {', '.join(unlike[:4])}",
                where="the machines of the run",
                remedy="start the same installation with the same config on all of them",
            )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
