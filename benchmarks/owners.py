"""Two writers of one run in one store, under faults and kills: is anything lost, and who owns it?

    python benchmarks/owners.py --campaigns 30
    python benchmarks/owners.py --campaigns 6 --s3

A campaign is a story of processes, forked, each with its own run folder: a *job* mirrors a run to
a store; someone fetches the run *home* meanwhile, goes on with it there and takes the place over;
the job goes on too. A quarter of all requests of both are spoilt: refused before they act, acted
on and their answer lost, sent twice, or sent again a while later, when their sender has long gone
on. Either writer may be killed (SIGKILL) at any of its requests, and is started again in its
folder. Clocks are hours apart. In half of the campaigns nobody asks to take over, and home must be
refused.

At the end each writer's folder must be, byte for byte, a place of the store (its own, or the one it
went on in after it was taken over), what was made at home must have survived a second download, and
no two writers may have owned a place under one fencing token. With ``--s3`` the store is S3 (moto's
server) by the plugin's client; else a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, MachineError, RlvrError, Store
from rlvr_core.builtin.jobs import mirror as mirror_module
from rlvr_core.builtin.jobs.fetch import Fetch
from rlvr_core.builtin.jobs.folder_store import FolderStore
from rlvr_core.builtin.jobs.known import hidden
from rlvr_core.builtin.jobs.mirror import Mirror
from rlvr_core.builtin.jobs.ownership import OWNER, Claim
from rlvr_core.record.checkpoints import CheckpointStore, verify

NAME = "demo-20250101-000000-abcdef"
STEPS = 12
FAULTS = ("before", "after", "twice", "later")


class SpoiltStore:
    """A store whose requests go wrong now and then, and whose caller dies at one of them.

    Args:
        store: The store.
        rate: Share of requests that are spoilt.
        seed: Of the faults.
        dies_at: Number of the request at which this process is killed; 0 for never.
        noted: Where the owner objects that were written are noted.
    """

    def __init__(self, store: Store, rate: float, seed: int, dies_at: int, noted: Path) -> None:
        self._store, self._rate, self._dies_at, self._noted = store, rate, dies_at, noted
        self._random = random.Random(seed)
        self._count = 0

    def list(self, prefix: str = "") -> Any:
        """See ``Store.list``."""
        return self._do(lambda: self._store.list(prefix))

    def folders(self) -> Any:
        """See ``Store.folders``."""
        return self._do(self._store.folders)

    def get(self, key: str, path: Path, told: Any = None) -> None:
        """See ``Store.get``."""
        self._do(lambda: self._store.get(key, path, told))

    def put(self, path: Path, key: str, size: int | None = None, expect: str | None = None) -> str:
        """See ``Store.put``; like S3's, it looks up an answer that was lost."""
        aside = Path(tempfile.mkdtemp()) / "sent"  # a late duplicate sends what was sent
        aside.write_bytes(path.read_bytes()[:size])
        sent = aside.read_bytes()

        def act() -> str:
            try:
                tag = self._store.put(aside, key, None, expect)
            except MachineError:
                there = self._store.list(key).get(key)
                back = aside.with_name("back")
                if there is None or expect is None:
                    raise
                with contextlib.suppress(FileNotFoundError):
                    self._store.get(key, back)
                    if back.read_bytes() == sent:
                        return there.tag
                raise
            if key == OWNER:
                line = {**json.loads(sent), "process": os.getpid()}
                with self._noted.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            return tag

        return str(self._do(act))

    def delete(self, keys: Any) -> None:
        """See ``Store.delete``."""
        self._do(lambda: self._store.delete(keys))

    def _do(self, act: Callable[[], Any]) -> Any:
        last: MachineError | None = None
        for _ in range(3):  # as a client tries again by itself
            self._count += 1
            dies = self._count == self._dies_at
            if dies and self._random.random() < 0.5:
                os.kill(os.getpid(), signal.SIGKILL)
            fault = self._random.choice(FAULTS) if self._random.random() < self._rate else ""
            if fault == "before":
                last = MachineError("spoilt before it acted")
                continue
            found = act()
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "after":
                last = MachineError("its answer was lost")
                continue
            if fault == "twice":
                with contextlib.suppress(RlvrError, OSError):
                    act()
            if fault == "later":
                timer = threading.Timer(self._random.uniform(0.01, 0.3), _quietly(act))
                timer.daemon = True
                timer.start()
            return found
        assert last is not None
        raise last


def _quietly(act: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        with contextlib.suppress(Exception):
            act()

    return run


class Story:
    """One campaign.

    Args:
        root: Folder of everything.
        seed: Of everything.
        open_store: Opens a place of the store by its name.
    """

    def __init__(self, root: Path, seed: int, open_store: Callable[[str], Store]) -> None:
        self.root, self.seed = root, seed
        self.random = random.Random(seed)
        self.open_store = open_store
        self.places = root / "noted"
        self.places.mkdir(parents=True)
        self.kills = 0
        self.faults: list[str] = []

    def store(self, place: str, dies_at: int, seed: int) -> SpoiltStore:
        """Open a place, spoilt."""
        noted = self.places / place.rpartition("/")[2]
        return SpoiltStore(self.open_store(place), 0.25, seed, dies_at, noted)

    def process(self, act: Callable[[int], None]) -> int:
        """Run in a process of its own, killed at a random request, and then again until it ends."""
        dies_at = self.random.choice((0, 0, *(self.random.randint(1, 120) for _ in range(3))))
        for attempt in range(4):
            child = os.fork()
            if child == 0:
                code = 0
                try:
                    time.time = _shifted(self.random.choice((-7200, 0, 86400)))  # type: ignore
                    act(dies_at if attempt == 0 else 0)
                except ConfigError as error:
                    (self.root / f"refused-{os.getpid()}").write_text(str(error))
                    code = 2
                except BaseException as error:
                    (self.root / f"failed-{os.getpid()}").write_text(repr(error))
                    code = 1
                os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code != -signal.SIGKILL:
                return code
            self.kills += 1
        return code

    def write(self, folder: Path, who: str, steps: int, dies_at: int, **how: Any) -> None:
        """A run: lines and checkpoints, mirrored all the while; goes on where it was."""
        fresh = not (folder / "run.json").exists()
        (folder / "traces").mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps({"outcome": "running", "by": who}))
        lines = folder / "metrics.jsonl"
        done = len(lines.read_text().splitlines()) if lines.exists() else 0
        place = f"runs/{NAME}"
        mirror = Mirror(
            self.store(place, dies_at, self.random.randrange(1 << 30)),
            folder,
            keep=2,
            every=0.01,
            place=place,
            open_store=lambda uri: self.store(uri, 0, self.random.randrange(1 << 30)),
            **how,
        )
        mirror.start(fresh=fresh and not (folder / ".store.json").exists())
        checkpoints = CheckpointStore(folder / "checkpoints", 2)
        for step in range(done, done + steps):
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "by": who, "salt": random.random()}) + "\n")
            with (folder / "traces" / "rollouts.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "by": who, "text": "x" * 500}) + "\n")
            if step % 3 == 2:

                def fill(path: Path, step: int = step) -> None:
                    (path / "model.bin").write_text(f"{who}{step}" * 200)

                checkpoints.write(step + 1, fill, best=step % 2 == 0)
            mirror.changed(checkpoint=step % 3 == 2)
            time.sleep(0.03)
        (folder / "run.json").write_text(json.dumps({"outcome": "finished", "by": who}))
        mirror.close(20.0)
        if mirror.behind:
            raise MachineError(f"the store lacks {mirror.behind}")

    def tell(self) -> None:
        """The story itself."""
        job, home = self.root / "job" / NAME, self.root / "home" / NAME
        ask = self.seed % 2 == 0
        lives = self.random.random() < 0.5  # the job goes on while home takes its place over
        self._expect(self.process(lambda n: self.write(job, "job", STEPS, n)), 0, "the job")

        def fetch(dies_at: int) -> None:
            place = f"runs/{NAME}"
            for _ in range(20):
                with contextlib.suppress(MachineError):
                    store = self.store(place, dies_at, self.random.randrange(1 << 30))
                    return Fetch(store, home, "last", at_once=2, place=place).run()
            raise MachineError("it never got through")

        self._expect(self.process(fetch), 0, "the download")
        before = (job / "metrics.jsonl").read_bytes()
        if (home / "metrics.jsonl").read_bytes() != before:
            self.faults.append("the download is not the job's run")
        if lives:
            other = os.fork()
            if other == 0:
                code = 0
                try:
                    self.write(job, "job", STEPS, 0)
                except BaseException as error:
                    (self.root / f"failed-{os.getpid()}").write_text(repr(error))
                    code = 1
                os._exit(code)
        request = f"please-{self.seed}" if ask else None
        code = self.process(lambda n: self.write(home, "home", STEPS, n, request=request))
        if lives:
            alive = os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])
            self._expect(alive, 0, "the job that went on")
        if not ask:
            self._expect(code, 2, "home, who did not ask,")
        elif code not in ((0, 2) if lives else (0,)):  # refused if the store has more by now
            self._expect(code, 0, "home")
        local = (home / "metrics.jsonl").read_bytes()
        if code == 0:
            # a second download must not destroy what was made at home
            self.process(fetch)
        if (home / "metrics.jsonl").read_bytes() != local:
            self.faults.append("progress at home did not survive a download")
        self._same("job", job, lives or not ask or code != 0)
        if code == 0:
            self._same("home", home, True)
        self._owners()

    def _expect(self, code: int, wanted: int, who: str) -> None:
        if code != wanted:
            words = [path.read_text()[:300] for path in self.root.glob("*ed-*")]
            self.faults.append(f"{who} ended with {code}, not {wanted}: {words[-1:]}")

    def _same(self, who: str, folder: Path, alone: bool) -> None:
        """Some place of the store must be exactly this folder."""
        if not alone:
            return
        wanted = dict(_files(folder))
        closest: list[str] | None = None
        for name in self.open_store("runs").folders():
            if not name.startswith(NAME):
                continue
            store, there = self.open_store(f"runs/{name}"), {}
            for key in store.list():
                if not hidden(key):
                    store.get(key, self.root / "back")
                    there[key] = (self.root / "back").read_bytes()
            wrong = sorted(k for k in wanted.keys() | there.keys() if wanted.get(k) != there.get(k))
            closest = wrong if closest is None or len(wrong) < len(closest) else closest
        if closest is None or closest:
            self.faults.append(f"no place is {who}'s folder; the closest differs in {closest}")

    def _owners(self) -> None:
        """Of each place: fencing tokens that grow, each of one process and nonce alone."""
        for noted in self.places.iterdir():
            claims = [json.loads(line) for line in noted.read_text().splitlines()]
            of: dict[int, str] = {}
            for claim in claims:
                if of.setdefault(claim["fence"], claim["nonce"]) != claim["nonce"]:
                    self.faults.append(f"{noted.name}: two owners under token {claim['fence']}")
            tokens = [claim["fence"] for claim in claims]
            if tokens != sorted(tokens):
                self.faults.append(f"{noted.name}: tokens went back: {tokens}")
            store = self.open_store(f"runs/{noted.name}")
            store.get(OWNER, self.root / "owner")
            if Claim.read((self.root / "owner").read_bytes()).fence != max(tokens):
                self.faults.append(f"{noted.name}: the owner object is not the last owner's")


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """What the store should have of a folder."""
    kept = [p for p in (folder / "checkpoints").glob("step*") if verify(p) is None]
    for path in sorted(folder.rglob("*")):
        key = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield key, (path.readlink().name + "\n").encode()
            continue
        whole = not key.startswith("checkpoints/") or any(one in path.parents for one in kept)
        if path.is_file() and not hidden(key) and whole:
            yield key, path.read_bytes()


def _shifted(seconds: float) -> Callable[[], float]:
    real = time.time
    return lambda: real() + seconds


@contextlib.contextmanager
def s3() -> Iterator[Callable[[str], Store]]:
    """Places in a bucket of moto's server."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.get_host_and_port()[1]}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-only",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    boto3.client("s3").create_bucket(Bucket="bench")
    from rlvr_sagemaker.aws import client
    from rlvr_sagemaker.place import Place
    from rlvr_sagemaker.store import S3Store

    client.cache_clear()
    yield lambda place: S3Store(Place("bench", f"{os.environ['CAMPAIGN']}/{place}"))
    server.stop()


def main() -> int:
    """Tell the stories; the exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--campaigns", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--s3", action="store_true")
    given = parser.parse_args()
    mirror_module._LONGEST_WAIT = 0.05
    wrong, kills = 0, 0
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(s3()) if given.s3 else None
        for seed in range(given.seed, given.seed + given.campaigns):
            os.environ["CAMPAIGN"] = f"c{seed}"
            root = Path(tempfile.mkdtemp(prefix="owners-"))

            def of_folders(place: str, there: Path = root / "there") -> Store:
                return FolderStore(there / place)

            story = Story(root, seed, shared or of_folders)
            story.tell()
            kills += story.kills
            wrong += bool(story.faults)
            sys.stdout.write(f"campaign {seed}: {'; '.join(story.faults) or 'everything right'}\n")
            sys.stdout.flush()
            if not story.faults:
                shutil.rmtree(root, ignore_errors=True)
    sys.stdout.write(
        f"{given.campaigns} campaigns, {kills} kills, "
        f"{given.campaigns - wrong} with every object right and one owner at any time\n"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
