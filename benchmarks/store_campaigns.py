"""Two writers of one run in a store that fails, told as stories: is anything lost, who owns it?

    python benchmarks/store_campaigns.py --campaigns 30 --seed 100
    python benchmarks/store_campaigns.py --campaigns 30 --seed 100 --files

A campaign runs processes with the mirror, the download and the ownership of ``rlvr`` on a small
run's folder that grows. Between them and moto's S3 server stand proxies (``faulty_server.py``) that
spoil a quarter of all requests and kill a writer (SIGKILL) at one of them; it is started again in
its folder. The writers' clocks are minutes apart (S3 refuses more). Five stories take turns: the
job has ended; it lives on while its place is taken over; nobody asked to take over; the job wants
its place back; a second attempt of one job starts while the first still runs. ``--files`` has a
folder in the place of S3, and faults by ``owners.SpoiltStore``.

The checker then reads the store by itself and compares bytes: each writer's folder with a place,
each line of any stream and each checkpoint with what a writer has written down beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulty_server import FaultyServer, Ledger
from owners import NAME, SpoiltStore, _files

from rlvr_core.api import ConfigError, DataError, MachineError, Store
from rlvr_core.builtin.jobs import mirror as mirror_module
from rlvr_core.builtin.jobs.fetch import Fetch
from rlvr_core.builtin.jobs.folder_store import FolderStore
from rlvr_core.builtin.jobs.known import hidden
from rlvr_core.builtin.jobs.mirror import Mirror
from rlvr_core.builtin.jobs.ownership import OWNER
from rlvr_core.record.checkpoints import CheckpointStore, verify

STORIES = ("ended", "alive", "unasked", "back", "attempts")
PLACE = f"runs/{NAME}"
REFUSED = 2


@dataclass(frozen=True)
class Task:
    """What a process has to do; it is started again with the same after a kill.

    Attributes:
        act: ``write`` or ``fetch``.
        who: Name of the writer.
        folder: Its run's folder.
        where: URL of its proxy, or the folder that is the store.
        campaign: Folder of the bucket.
        steps: Up to which step it writes.
        pause: Step before which it waits until ``go`` exists; 0 for none.
        request: Asks to take the place over.
        holder: Name of the job.
        clock: Seconds by which its clock is wrong.
        seed: Of the faults of a folder.
        dies_at: Request of a folder's at which it is killed.
    """

    act: str
    who: str
    folder: Path
    where: str
    campaign: str
    steps: int = 0
    pause: int = 0
    request: str | None = None
    holder: str = ""
    clock: float = 0.0
    seed: int = 0
    dies_at: int = 0

    @property
    def root(self) -> Path:
        """Where things are written down, beside the folder."""
        return self.folder.parent


def opener(task: Task) -> Callable[[str], Store]:
    """Return what opens the places of a task's store."""
    if not task.where.startswith("http"):
        noted = task.root.parent / "noted"

        def spoilt(place: str) -> Store:
            there = FolderStore(Path(task.where) / place)
            return SpoiltStore(there, 0.25, task.seed, task.dies_at, noted / Path(place).name)

        return spoilt
    os.environ |= {
        "AWS_ENDPOINT_URL": task.where,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-only",
        "AWS_DEFAULT_REGION": "us-east-1",
        "RLVR_AWS_TIMEOUT": "2",
    }
    from rlvr_sagemaker import store as s3
    from rlvr_sagemaker.place import Place

    s3.PART = 5 << 20  # the least that S3 takes
    return lambda place: s3.S3Store(Place("bench", f"{task.campaign}/{place}"))


def work(task: Task) -> None:
    """Do a task in a process of its own; its exit code says how that went."""
    code, real = 0, time.time
    time.time = lambda: real() + task.clock
    try:
        {"write": write, "fetch": fetch}[task.act](task, opener(task))
    except (ConfigError, DataError) as error:
        (task.root / f"refused-{task.who}").write_text(str(error))
        code = REFUSED
    except BaseException as error:
        (task.root / f"failed-{task.who}-{os.getpid()}").write_text(repr(error))
        code = 1
    os._exit(code)


def fetch(task: Task, open_store: Callable[[str], Store]) -> None:
    """Download the run as ``rlvr jobs fetch`` does."""
    for _ in range(20):
        with contextlib.suppress(MachineError):
            return Fetch(open_store(PLACE), task.folder, "last", at_once=2, place=PLACE).run()
    raise MachineError("it never got through")


def write(task: Task, open_store: Callable[[str], Store]) -> None:
    """Write a run's folder, step after step, going on where it is; mirrored all the while."""
    mirror_module._LONGEST_WAIT = 0.2
    os.environ["RLVR_OWNER"] = task.holder
    folder, who = task.folder, task.who
    fresh = not (folder / "run.json").exists()
    (folder / "traces").mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"outcome": "running", "by": who}))
    mirror = Mirror(
        open_store(PLACE),
        folder,
        keep=2,
        every=0.02,
        place=PLACE,
        request=task.request,
        open_store=open_store,
    )
    mirror.start(fresh=fresh and not (folder / ".store.json").exists())
    lines = folder / "metrics.jsonl"
    done = len(lines.read_text().splitlines()) if lines.exists() else 0
    checkpoints = CheckpointStore(folder / "checkpoints", 2)
    for step in range(done, task.steps):
        if task.pause and task.pause == step:
            (task.root / f"waits-{who}").touch()
            until = time.monotonic() + 120
            while not (task.root / f"go-{who}").exists() and time.monotonic() < until:
                mirror.changed()
                time.sleep(0.05)
        text = json.dumps({"step": step, "by": who, "salt": random.random()}) + "\n"
        for path in (task.root / f"journal-{who}.jsonl", lines, folder / "traces" / "a.jsonl"):
            with path.open("a") as file:
                file.write(text)
        # a kill may have come between the two: what is only in the journal was never the run's
        with (task.root / f"made-{who}.jsonl").open("a") as file:
            file.write(text)
        if step % 3 == 2:

            def fill(path: Path, step: int = step) -> None:
                (path / "model.bin").write_bytes(model(who, step))

            checkpoints.write(step + 1, fill, best=step % 2 == 0)
        mirror.changed(checkpoint=step % 3 == 2)
        time.sleep(0.03)
    (folder / "run.json").write_text(json.dumps({"outcome": "finished", "by": who}))
    mirror.close(60.0)
    if mirror.behind:
        raise MachineError(f"the store lacks {mirror.behind}")


def model(who: str, step: int) -> bytes:
    """Return the content of a checkpoint; one of eight is sent in parts."""
    return f"{who}{step} ".encode() * (2_000_000 if step % 8 == 5 else 500)


@dataclass
class Campaign:
    """One story.

    Attributes:
        seed: Of everything.
        root: Folder of everything.
        port: The S3 server's; 0 for a folder.
        faults: What was found wrong.
        ledger: What the server has executed.
        remnants: Files of checkpoints without a seal, which no reader takes for one: a request
            that was delivered again after its sender had deleted the file and ended.
    """

    seed: int
    root: Path
    port: int
    faults: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    remnants: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.story = STORIES[self.seed % len(STORIES)]
        self.proxies: dict[str, FaultyServer] = {}
        self.killed = Counter[str]()
        (self.root / "noted").mkdir(parents=True)

    def task(self, act: str, who: str, **how: Any) -> Task:
        """Return a task of a writer, by its own proxy and clock."""
        where = str(self.root / "there")
        if self.port and who not in self.proxies:
            seed = self.random.randrange(1 << 30)
            self.proxies[who] = FaultyServer(self.port, who, seed, self.ledger)
        if self.port:
            where = self.proxies[who].url
        return Task(
            act,
            who,
            self.root / who / NAME,
            where,
            f"c{self.seed}",
            clock=self.random.choice((-600.0, 0.0, 600.0)),
            seed=self.random.randrange(1 << 30),
            **how,
        )

    def start(self, task: Task, kills: int | None = None) -> Callable[[], int]:
        """Start a process; the result waits for its end, and starts it again after each kill."""
        task.root.mkdir(exist_ok=True)
        left = self.random.choice((0, 1, 1, 2)) if kills is None else kills
        draw = random.Random(task.seed)
        context = multiprocessing.get_context("forkserver")

        def begin(kill: bool) -> Any:
            at = draw.randint(1, 150 if task.act == "write" else 30) if kill else 0
            proxy = self.proxies.get(task.who)
            one = Task(
                **{**vars_of(task), "dies_at": 0 if proxy else at, "seed": draw.randrange(1 << 30)}
            )
            process = context.Process(target=work, args=(one,))
            if proxy:
                proxy.victim = 0
            process.start()
            if proxy and kill:
                proxy.dies_at, proxy.victim = proxy._count + at, process.pid or 0
            return process

        process = begin(left > 0)

        def end() -> int:
            nonlocal process, left
            while True:
                process.join(240)
                if process.is_alive():
                    process.kill()
                    self.faults.append(f"{task.who} did not end")
                    return 1
                if process.exitcode != -signal.SIGKILL:
                    return int(process.exitcode or 0)
                if task.where[:4] != "http":
                    self.ledger.kills += 1
                left -= 1
                self.killed[task.who] += 1
                process = begin(left > 0)

        # at once: who waits for a killed writer's progress must not wait for its end
        watcher = ThreadPoolExecutor(1)
        code = watcher.submit(end)
        watcher.shutdown(wait=False)
        return code.result

    def tell(self) -> None:
        """Tell the story, and check everything."""
        getattr(self, f"tell_{self.story}")()
        for proxy in self.proxies.values():
            proxy.close()
        self.check_tokens()
        self.check_objects()

    def expect(self, code: int, wanted: int, who: str) -> None:
        """Note a process that did not end as it should."""
        if code != wanted:
            words = [p.read_text()[:300] for p in self.root.glob("*/*ed-*")]
            self.faults.append(f"{who} ended with {code}, not {wanted}: {words}")

    def until(self, path: Path) -> None:
        """Wait for a file."""
        limit = time.monotonic() + 240
        while not path.exists() and time.monotonic() < limit:
            time.sleep(0.05)

    def begin_waiting(self, holder: str = "") -> Callable[[], int]:
        """Start the job, and wait until it waits at step 8 with everything sent."""
        end = self.start(self.task("write", "job", steps=14, pause=8, holder=holder))
        self.until(self.root / "job" / "waits-job")
        for _ in range(100):  # the download is the job's whole run
            code = self.start(self.task("fetch", "home"))()
            ours = self.root / "job" / NAME / "metrics.jsonl"
            theirs = self.root / "home" / NAME / "metrics.jsonl"
            if code == 0 and theirs.exists() and theirs.read_bytes() == ours.read_bytes():
                break
            time.sleep(0.2)
        else:
            self.faults.append("the download never was the job's run")
        return end

    def go(self) -> None:
        """Let the job go on."""
        (self.root / "job" / "go-job").touch()

    def tell_ended(self) -> None:
        """The job ends, home takes over; a second download must not destroy home's progress."""
        self.expect(self.start(self.task("write", "job", steps=8))(), 0, "the job")
        self.expect(self.start(self.task("fetch", "home"))(), 0, "the download")
        task = self.task("write", "home", steps=16, request=f"please-{self.seed}")
        self.expect(self.start(task)(), 0, "home")
        before = (task.folder / "metrics.jsonl").read_bytes()
        self.start(self.task("fetch", "home"))()
        if (task.folder / "metrics.jsonl").read_bytes() != before:
            self.faults.append("progress at home did not survive a download")
        self.check_same("home")

    def tell_alive(self) -> None:
        """Home takes the place over while the job lives; both go on at once."""
        end = self.begin_waiting()
        task = self.task("write", "home", steps=16, request=f"please-{self.seed}")
        home = self.start(task)
        time.sleep(self.random.uniform(0, 6))
        self.go()
        job, code = end(), home()
        if code == REFUSED:  # the job went on before home had its place: home lacks its lines
            self.check_same("job")
            return
        self.expect(code, 0, "home")
        self.check_same("home")
        if job == REFUSED and self.killed["job"]:
            return  # it was killed, and told at its next start: its folder has everything
        self.expect(job, 0, "the job")
        self.check_same("job")

    def tell_unasked(self) -> None:
        """Home does not ask, and is refused while the job lives."""
        end = self.begin_waiting()
        self.expect(
            self.start(self.task("write", "home", steps=16), 0)(), REFUSED, "home, unasked,"
        )
        self.go()
        self.expect(end(), 0, "the job")
        self.check_same("job")

    def tell_back(self) -> None:
        """Home takes over; the job, which lacks home's progress, is refused though it asks."""
        self.tell_ended()
        task = self.task("write", "job", steps=20, request=f"back-{self.seed}")
        self.expect(self.start(task, 0)(), REFUSED, "the job, which lacks what is there,")
        self.expect(self.start(self.task("fetch", "third"))(), 0, "the third's download")
        task = self.task("write", "third", steps=24, request=f"third-{self.seed}")
        self.expect(self.start(task)(), 0, "the third")
        self.check_same("third")

    def tell_attempts(self) -> None:
        """A second attempt of one job starts while the first still lives; no one has to ask."""
        end = self.begin_waiting("the-job")
        home = self.start(self.task("write", "home", steps=16, holder="the-job"))
        self.until(self.root / "home" / "journal-home.jsonl")
        self.go()
        self.expect(end(), 0, "the first attempt")
        self.expect(home(), 0, "the second attempt")
        self.check_same("job")
        self.check_same("home")

    # -- what is in the store ---------------------------------------------------------------------

    def objects(self) -> dict[str, dict[str, bytes]]:
        """Return all objects, by place and key, read without the code that is tested."""
        found: dict[str, dict[str, bytes]] = {}
        if not self.port:
            runs = self.root / "there" / "runs"
            for path in (p for p in runs.rglob("*") if p.is_file() and p.name != ".store.lock"):
                place, _, key = path.relative_to(runs).as_posix().partition("/")
                found.setdefault(place, {})[key] = path.read_bytes()
            return found
        s3 = bare_client(self.port)
        for page in s3.get_paginator("list_objects_v2").paginate(
            Bucket="bench", Prefix=f"c{self.seed}/runs/"
        ):
            for one in page.get("Contents", ()):
                place, _, key = one["Key"].split("/", 2)[2].partition("/")
                found.setdefault(place, {})[key] = self.read(s3, one["Key"])
        return found

    def read(self, s3: Any, key: str) -> bytes:
        """Read an object, again where it was replaced meanwhile.

        moto's server answers with the head of one version and the body of the next when a late
        duplicate of a request replaces the object while it is read, which S3 never does.
        """
        from botocore.exceptions import FlexibleChecksumError

        for _ in range(5):
            with contextlib.suppress(FlexibleChecksumError):
                return bytes(s3.get_object(Bucket="bench", Key=key)["Body"].read())
            time.sleep(0.5)
        self.faults.append(f"{key} is not what its checksum says")
        return b""

    def check_same(self, who: str) -> None:
        """Some place must be exactly a writer's folder."""
        wanted, closest = dict(_files(self.root / who / NAME)), None
        for there in self.objects().values():
            seen = {key: body for key, body in there.items() if not hidden(key)}
            wrong = [k for k in wanted.keys() | seen.keys() if wanted.get(k) != seen.get(k)]
            left = [k for k in wrong if k not in wanted and unsealed(k, seen)]
            self.remnants += len(left)
            wrong = [k for k in wrong if k not in left]
            closest = wrong if closest is None or len(wrong) < len(closest) else closest
        if closest is None or closest:
            self.faults.append(f"no place is {who}'s folder; the closest differs in {closest}")

    def check_tokens(self) -> None:
        """Of each place: fencing tokens never fall, and each is of one owner alone."""
        claims: dict[str, list[tuple[int, str]]] = {}
        for place, fence, nonce, _ in self.ledger.owners:
            claims.setdefault(place, []).append((fence, nonce))
        for noted in (self.root / "noted").iterdir():
            lines = map(json.loads, noted.read_text().splitlines())
            claims[noted.name] = [(one["fence"], one["nonce"]) for one in lines]
        for place, made in claims.items():
            of: dict[int, str] = {}
            for fence, nonce in made:
                if of.setdefault(fence, nonce) != nonce:
                    self.faults.append(f"{place}: two owners under token {fence}")
            if [fence for fence, _ in made] != sorted(fence for fence, _ in made):
                self.faults.append(f"{place}: tokens went back: {[f for f, _ in made]}")

    def check_objects(self) -> None:
        """Each object must be whole, of a writer, and each line that was written must be there."""
        written = self.lines_of("journal")
        places, streams = self.objects(), set[bytes]()
        for place, there in places.items():
            if OWNER not in there:
                self.faults.append(f"{place} has no owner")
            for key, body in there.items():
                if key.endswith(".jsonl") or ".jsonl-" in key:
                    lines = body.splitlines(keepends=True)
                    streams.update(lines)
                    if foreign := [line for line in lines if line not in written]:
                        self.faults.append(f"{place}/{key}: nobody wrote {foreign[0]!r}")
                    if len(set(lines)) != len(lines):
                        self.faults.append(f"{place}/{key}: a line is there twice")
            self.check_checkpoints(place, there)
        refused = {path.name.removeprefix("refused-") for path in self.root.glob("*/refused-*")}
        for line in self.lines_of("made"):
            if line not in streams and json.loads(line)["by"] not in refused:
                self.faults.append(f"lost: {line!r}")

    def lines_of(self, kind: str) -> set[bytes]:
        """Return what writers have noted: what they meant to write, or what they had written."""
        return {
            line
            for journal in self.root.glob(f"*/{kind}-*.jsonl")
            for line in journal.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        }

    def check_checkpoints(self, place: str, there: Mapping[str, bytes]) -> None:
        """Each sealed checkpoint must verify, and hold what a writer gave it."""
        for key in (k for k in there if k.endswith("/COMPLETE") and not hidden(k)):
            name = key.split("/")[1]
            copy = self.root / "copy" / name
            shutil.rmtree(copy, ignore_errors=True)
            for one in (k for k in there if k.startswith(f"checkpoints/{name}/")):
                (copy / one.split("/", 2)[2]).parent.mkdir(parents=True, exist_ok=True)
                (copy / one.split("/", 2)[2]).write_bytes(there[one])
            step = int(name.removeprefix("step")) - 1
            right = (copy / "model.bin").read_bytes() if (copy / "model.bin").exists() else b""
            if (fault := verify(copy)) is not None:
                self.faults.append(f"{place}/{name}: {fault}")
            elif right not in [model(who, step) for who in ("job", "home", "third")]:
                self.faults.append(f"{place}/{name}: not what anybody wrote")


def unsealed(key: str, there: Mapping[str, bytes]) -> bool:
    """Whether a key is in the folder of a checkpoint that has no seal."""
    top, _, rest = key.partition("/")
    name, slash, _ = rest.partition("/")
    return top == "checkpoints" and bool(slash) and f"{top}/{name}/COMPLETE" not in there


def vars_of(task: Task) -> dict[str, Any]:
    """Return a task's attributes."""
    return {name: getattr(task, name) for name in Task.__dataclass_fields__}


def bare_client(port: int) -> Any:
    """Return a client that asks the server itself."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="test",
        aws_secret_access_key="test-only",
        region_name="us-east-1",
    )


def told(seed: int, port: int, keep: bool) -> Campaign:
    """Tell a story in a folder of its own."""
    root = Path(tempfile.mkdtemp(prefix=f"campaign-{seed}-"))
    campaign = Campaign(seed, root, port)
    begun = time.monotonic()
    campaign.tell()
    sys.stdout.write(
        f"campaign {seed} ({campaign.story}), {campaign.ledger.kills} kills, "
        f"{time.monotonic() - begun:.0f} s: {'; '.join(campaign.faults) or 'everything right'}\n"
    )
    sys.stdout.flush()
    if not (campaign.faults and keep):
        shutil.rmtree(root, ignore_errors=True)
    return campaign


def main() -> int:
    """Tell the stories; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--campaigns", type=int, default=30)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--files", action="store_true", help="a folder in the place of S3")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep the folders of what went wrong")
    given = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["rlvr_sagemaker.store", "boto3", "botocore.parsers", "tenacity"]
    )
    port, server = 0, None
    if not given.files:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(port=0, verbose=False)
        server.start()
        port = server.get_host_and_port()[1]
        bare_client(port).create_bucket(Bucket="bench")
    seeds = range(given.seed, given.seed + given.campaigns)
    with ThreadPoolExecutor(given.at_once) as pool:
        campaigns = list(pool.map(lambda seed: told(seed, port, given.keep), seeds))
    if server is not None:
        server.stop()
    faults = sum((one.ledger.faults for one in campaigns), Counter[str]())
    wrong = sum(bool(one.faults) for one in campaigns)
    late = [line for one in campaigns for line in one.ledger.late]
    sys.stdout.write(
        f"{len(campaigns)} campaigns, {sum(one.ledger.kills for one in campaigns)} kills, "
        f"{faults.total() - faults['passed']} of {faults.total()} requests spoilt, "
        f"{len(late)} changes of a place by who had lost it, "
        f"{sum(one.remnants for one in campaigns)} remnants without a seal; "
        f"{len(campaigns) - wrong} with every object right and one owner at any time\n"
    )
    for line in late[:20]:
        sys.stdout.write(f"late: {line}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
