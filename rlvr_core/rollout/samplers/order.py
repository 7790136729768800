"""Order files: problem ids, one per line, as ``rlvr passk --curriculum`` writes them.

An id that is not in the data is an error that names it and similar ids: otherwise a curriculum
could silently lose a third of its problems.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from rlvr_core.api import Complaint, DataError
from rlvr_core.data.rows import read_rows
from rlvr_core.data.uri import local_path

SHOWN = 5
"""Number of faulty ids reported individually; the others are only counted."""


def read_order(uri: str, known: Collection[str], left_out: Iterable[str] = ()) -> list[str]:
    """Return the ids of an order file, in its order.

    Args:
        uri: A path, or a URI that a plugin opens.
        known: Ids in the data.
        left_out: Ids dropped from the data for their length; they are skipped in the file.

    Returns:
        The ids of ``known`` that the file names, each once.

    Raises:
        DataError: If the file cannot be read, names no problem, names one twice, or names one that
            is not in the data; reports all faults at once.
        PluginError: If no installed plugin opens such URIs.
    """
    path = local_path(uri)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(
            f"cannot read the order file: {error.strerror or error}", where=str(path)
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"the order file is no UTF-8 text: {error.reason} at byte {error.start}",
            where=str(path),
            remedy="an order file holds one problem id a line",
        ) from error
    lines: dict[str, int] = {}
    twice = []
    for number, line in enumerate(text.split("\n"), 1):
        id_ = line.removesuffix("\r")
        if not id_.strip():
            continue
        if id_ in lines:
            what = f"problem '{id_}' is there twice, first in line {lines[id_]}"
            twice.append(Complaint(what, f"{path}:{number}"))
        lines.setdefault(id_, number)
    gone = frozenset(left_out)
    check_ids({id_: f"{path}:{number}" for id_, number in lines.items()}, known, gone, twice)
    order = [id_ for id_ in lines if id_ not in gone]
    if not order:
        raise DataError("the order file names no problem of the data", where=str(path))
    return order


def read_pass_rates(
    uri: str, known: Collection[str], left_out: Iterable[str] = ()
) -> dict[str, float]:
    """Return the pass rate by id, from a ``difficulty.jsonl`` of ``rlvr passk``.

    Args:
        uri: A path, or a URI that a plugin opens.
        known: Ids in the data.
        left_out: Ids dropped from the data for their length.

    Returns:
        The pass rates of problems in ``known``, without those that have no verdict.

    Raises:
        DataError: As for ``read_order``, or if a row has no id or an invalid pass rate.
        PluginError: If no installed plugin opens such URIs.
    """
    path = local_path(uri)
    rates: dict[str, float] = {}
    places: dict[str, str] = {}
    faults = []
    for number, row in read_rows(path):
        id_, rate, where = row.get("id"), row.get("pass_rate"), f"{path}:{number}"
        good = isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate <= 1
        if not isinstance(id_, str) or "pass_rate" not in row or not (good or rate is None):
            faults.append(Complaint("a row has an id, and a pass_rate from 0 to 1 or null", where))
            continue
        if id_ in places:
            faults.append(Complaint(f"problem '{id_}' is there twice", where))
        places[id_] = where
        if rate is not None:
            rates[id_] = float(rate)
    gone = frozenset(left_out)
    check_ids(places, known, gone, faults)
    return {id_: rate for id_, rate in rates.items() if id_ not in gone}


def check_ids(
    places: dict[str, str],
    known: Collection[str],
    left_out: Collection[str],
    faults: Sequence[Complaint] = (),
) -> None:
    """Refuse ids that are not in the data.

    Args:
        places: Where each id is written.
        known: Ids in the data.
        left_out: Ids dropped from the data for their length.
        faults: Other faults, to be reported together with these.

    Raises:
        DataError: If there is any fault.
    """
    odd = [id_ for id_ in places if id_ not in known and id_ not in left_out]
    shown = [*faults[:SHOWN]]
    if len(faults) > SHOWN:
        shown.append(Complaint(f"and {len(faults) - SHOWN} more faults like these"))
    for id_ in odd[:SHOWN]:
        near = difflib.get_close_matches(id_, known, n=3, cutoff=0.5)
        names = f"the nearest are {', '.join(near)}" if near else "nothing is called like it"
        shown.append(Complaint(f"no problem has the id '{id_}'; {names}", places[id_]))
    if odd:
        share = f"{len(odd)} of {len(places)} ids are not in the data, which have {len(known)}"
        remedy = (
            "take the file from the data this run trains on, or correct data.sources",
            "of one that a plugin or a filter renamed, write it again: rlvr passk --curriculum",
        )
        shown.append(Complaint(share, places[odd[0]].rpartition(":")[0], remedy))
    if shown:
        raise DataError.collect(shown)
