"""Transport ``tcp``: weights on machines that share no folder with the sender."""

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from machines import Machine, Network, ip  # type: ignore[import-not-found]

from rlvr_core.api import MachineError, RlvrError, RunError, TensorMeta
from rlvr_core.builtin.vllm import tcp_wire as wire
from rlvr_core.builtin.vllm.tcp import Tcp
from rlvr_core.builtin.vllm.tcp_fetch import Fetch
from rlvr_core.builtin.vllm.tcp_relay import Relay

PATIENCE = 120
MEGABYTE = 2**20


def weights(seed, megabytes=8):
    """Weights of so many MiB in four tensors, the last of one element."""
    draws = torch.Generator().manual_seed(seed)
    n = megabytes * MEGABYTE // 4 // 3
    made = {f"layer.{i}": torch.randn(n, generator=draws) for i in range(3)}
    return made | {"scale": torch.tensor(float(seed))}


class Outgoing:
    def __init__(self, tensors):
        self._tensors = tensors
        self.tensors = [TensorMeta(n, one.dtype, tuple(one.shape)) for n, one in tensors.items()]

    def __iter__(self):
        return iter(self._tensors.items())


class Link:
    receivers, members = 1, ("a",)

    def __init__(self, *remote_hosts):
        self.remote_hosts = remote_hosts
        self.messages = []

    def deliver(self, message):
        self.messages.append(message)


def send(transport, seed, *remote_hosts, megabytes=8):
    link = Link(*remote_hosts)
    transport.send(Outgoing(weights(seed, megabytes)), link)
    (message,) = link.messages
    return message


def elsewhere(message, place=None):
    """The message as it would be on another machine; served at another place if one is given."""
    changed = message | {"boot": "another start of another machine"}
    return changed if place is None else changed | {"host": place[0], "port": place[1]}


def received(transport, message):
    """The seed of the weights that came, which are whole and of one version."""
    got = {}
    transport.receive(message, lambda pairs: got.update((n, t.clone()) for n, t in pairs), 0)
    seed = int(got["scale"])
    size = sum(one.numel() for one in got.values()) * 4 // MEGABYTE
    expected = weights(seed, size + (size % 4 == 3))
    assert got.keys() == expected.keys()
    for name, one in expected.items():
        assert torch.equal(got[name], one), name
    return seed


# -- on machines of their own ----------------------------------------------------------------------


def sender(pipe, remote_hosts, megabytes=8):
    """Send the weights of each seed that comes through the pipe; answer with the message."""
    transport = Tcp(Tcp.Config())
    with contextlib.suppress(EOFError):
        while (seed := pipe.recv()) is not None:
            pipe.send(send(transport, seed, *remote_hosts, megabytes=megabytes))
    transport.close()


def receiver(pipe, options=None):
    """Receive what each message brings; answer with the seed, or the error."""
    transport = Tcp(Tcp.Config(**(options or {})))
    with contextlib.suppress(EOFError):
        while (message := pipe.recv()) is not None:
            try:
                pipe.send(received(transport, message))
            except RlvrError as error:
                pipe.send(error)
    transport.close()


def answer(pipe):
    assert pipe.poll(PATIENCE), "no answer"
    return pipe.recv()


def end(process, pipe):
    pipe.send(None)
    process.join(PATIENCE)
    assert process.exitcode == 0


def asked(pipes, message):
    for pipe in pipes:
        pipe.send(message)
    return [answer(pipe) for pipe in pipes]


@pytest.fixture
def make_machine(tmp_path):
    made = []

    def make(*words, **options):
        made.append(Machine(tmp_path / f"machine-{len(made)}", *words, **options))
        return made[-1]

    yield make
    for one in made:
        one.remove()


def test_each_machine_fetches_once_however_many_receivers_it_has(make_machine):
    with Network(2) as network:
        here, there = (make_machine(network, index) for index in range(2))
        trainer, order = here.start(sender, [network.address(1)])
        near = [here.start(receiver) for _ in range(2)]
        far = [there.start(receiver) for _ in range(3)]
        for seed in (1, 2, 3):
            before = network.sent(0)
            message = asked([order], seed)[0]
            assert message["host"] == "10.213.78.1"
            assert asked([pipe for _, pipe in near], message) == [seed] * 2
            assert network.sent(0) - before < MEGABYTE  # mapped, not sent
            assert asked([pipe for _, pipe in far], message) == [seed] * 3
            sent = (network.sent(0) - before) / (8 * MEGABYTE)
            assert 1 < sent < 1.2
            assert sum(name.endswith(".safetensors") for name in there.left()) == 1
        far[0][1].send(message | {"number": 2})
        refusal = answer(far[0][1])
        assert "newer ones have taken their place" in str(refusal)
        for one in (*near, *far, (trainer, order)):
            end(*one)
        assert there.left() == here.left() == []


def test_a_container_on_the_same_machine_with_memory_of_its_own_fetches(make_machine):
    outside, inside = make_machine(), make_machine()
    trainer, order = outside.start(sender, [])
    contained, pipe = inside.start(receiver)
    assert asked([pipe], asked([order], 4)[0]) == [4]
    assert [one for one in inside.left() if one.endswith(".safetensors")]
    end(contained, pipe)
    end(trainer, order)
    assert inside.left() == outside.left() == []


def test_a_machine_with_ipv6_alone(make_machine):
    with Network(2, ipv6=True) as network:
        here, there = (make_machine(network, index) for index in range(2))
        trainer, order = here.start(sender, [network.address(1)])
        far, pipe = there.start(receiver)
        message = asked([order], 5)[0]
        assert message["host"] == "fd78::1"
        assert asked([pipe], message) == [5]
        end(far, pipe)
        end(trainer, order)


@pytest.mark.parametrize(("memory", "disk", "where"), [("1m", "64m", "tmp"), ("1m", "1m", None)])
def test_where_shared_memory_is_small_the_temporary_folder_is_taken(
    memory, disk, where, make_machine
):
    here, there = make_machine(), make_machine(memory=memory, disk=disk)
    trainer, order = here.start(sender, [])
    far, pipe = there.start(receiver)
    (found,) = asked([pipe], asked([order], 6)[0])
    if where is None:
        assert isinstance(found, MachineError)
        assert "no room for a copy of the weights, 0.01 GiB" in str(found)
    else:
        assert found == 6
        assert next(one for one in there.left() if one.endswith(".safetensors")).startswith(where)
    end(far, pipe)
    end(trainer, order)
    assert there.left() == []


def test_a_receiver_killed_amid_a_transfer_is_followed_by_one_that_waited(make_machine):
    with Network(2) as network:
        here, there = (make_machine(network, index) for index in range(2))
        trainer, order = here.start(sender, [network.address(1)], 24)
        first, second = there.start(receiver), there.start(receiver)
        message = asked([order], 7)[0]
        network.limit(1, "80mbit")  # 24 MiB take 2.5 s
        first[1].send(message)
        until = time.monotonic() + PATIENCE
        while not (partial(there) > MEGABYTE) and time.monotonic() < until:
            time.sleep(0.01)
        second[1].send(message)
        os.kill(first[0].pid, signal.SIGKILL)
        assert answer(second[1]) == 7
        second[0].kill()  # nobody is left to remove anything
        second[0].join()
        assert there.left()
        third = there.start(receiver)
        assert asked([third[1]], asked([order], 8)[0]) == [8]
        end(*third)
        end(trainer, order)
        assert there.left() == []


def partial(machine):
    """Bytes of weights on a machine."""
    found = 0
    for name in machine.left():
        with contextlib.suppress(FileNotFoundError):
            found += (machine.folder / name).stat().st_blocks * 512
    return found


def test_a_sender_killed_amid_a_transfer_is_an_error_in_time_and_nothing_is_left(make_machine):
    with Network(2) as network:
        here, there = (make_machine(network, index) for index in range(2))
        trainer, order = here.start(sender, [network.address(1)], 24)
        far, pipe = there.start(receiver, {"timeout": 2.0})
        message = asked([order], 7)[0]
        network.limit(1, "80mbit")
        pipe.send(message)
        until = time.monotonic() + PATIENCE
        while not (partial(there) > MEGABYTE) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(trainer.pid, signal.SIGKILL)
        found = answer(pipe)
        assert isinstance(found, RunError)
        assert "nothing for 2 s" in str(found)
        assert "Connection refused" in str(found)
        end(far, pipe)
        assert there.left() == []


def test_a_lost_machine_is_noticed_and_a_slow_one_is_waited_for(make_machine):
    with Network(2) as network:
        here, there = (make_machine(network, index) for index in range(2))
        trainer, order = here.start(sender, [network.address(1)])
        far, pipe = there.start(receiver, {"timeout": 2.0})
        network.limit(1, "16mbit")  # 8 MiB take 4 s, twice the timeout
        assert asked([pipe], asked([order], 1)[0]) == [1]
        pipe.send(asked([order], 2)[0])
        time.sleep(0.5)
        ip("-n", network.hub, "link", "set", "p1", "down")
        found = answer(pipe)
        assert isinstance(found, RunError)
        assert "nothing for 2 s" in str(found)
        end(far, pipe)
        assert there.left() == []
        end(trainer, order)


@pytest.mark.slow
def test_eight_machines_fetch_at_once_and_pass_the_weights_on(make_machine):
    with Network(9) as network:
        machines = [make_machine(network, index) for index in range(9)]
        trainer, order = machines[0].start(sender, [network.address(1)])
        far = [one.start(receiver) for one in machines[1:]]
        for index in range(9):
            network.limit(index, "80mbit")  # 8 MiB take 0.84 s
        pipes = [pipe for _, pipe in far]
        for seed in (1, 2):
            before, began = network.sent(0), time.monotonic()
            assert asked(pipes, asked([order], seed)[0]) == [seed] * 8
            seconds = time.monotonic() - began
            copies = (network.sent(0) - before) / (8 * MEGABYTE)
            print(f"{seconds:.2f} s, {copies:.2f} copies by the sender")
            assert copies < 5  # of eight
        # a machine that serves is lost in the middle: who fetches from it goes to the sender
        message = asked([order], 3)[0]
        far[0][1].send(message)
        assert answer(far[0][1]) == 3
        for pipe in pipes[1:]:
            pipe.send(message)
        far[0][0].kill()
        assert [answer(pipe) for pipe in pipes[1:]] == [3] * 7
        for one in far[1:]:
            end(*one)
        end(trainer, order)
        assert all(one.left() == [] for one in machines[2:])


# -- a bad way -------------------------------------------------------------------------------------


class Proxy:
    """Passes bytes between a client and a server, as a function of what comes from the server.

    Args:
        port: Of the server.
        change: Given a chunk, returns what is passed on; after less than it the connection is cut.
    """

    def __init__(self, port, change):
        self._port, self._change = port, change
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = self._listening.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for one, other, change in (
                    (client, server, lambda chunk: chunk),
                    (server, client, self._change),
                ):
                    threading.Thread(
                        target=self._pass, args=(one, other, change), daemon=True
                    ).start()

    def _pass(self, one, other, change):
        with contextlib.suppress(OSError):
            whole = True
            while whole and (chunk := one.recv(65536)):
                changed = change(chunk)
                other.sendall(changed)
                whole = len(changed) >= len(chunk)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def ends(tmp_path):
    """The sending end, and one that receives as on another machine, in a folder of its own."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    sending = Tcp(Tcp.Config(folder=str(tmp_path / "here")))
    receiving = Tcp(Tcp.Config(folder=str(tmp_path / "there"), timeout=3.0))
    yield sending, receiving, tmp_path / "there"
    receiving.close()
    sending.close()
    assert not list((tmp_path / "there").iterdir())
    assert not list((tmp_path / "here").iterdir())


def through(ends, change):
    sending, receiving, _ = ends
    message = send(sending, 9)
    proxy = Proxy(message["port"], change)
    try:
        return received(receiving, elsewhere(message, proxy.place))
    finally:
        proxy.close()


@pytest.mark.parametrize("trial", range(3))
def test_connections_cut_at_random_bytes_go_on_where_they_ended(trial, ends):
    draws, state = random.Random(trial), threading.Lock()
    cuts = sorted(draws.randrange(8 * MEGABYTE) for _ in range(6))
    passed = [0]

    def cut(chunk):
        with state:
            before, passed[0] = passed[0], passed[0] + len(chunk)
            if cuts and cuts[0] < passed[0]:
                return chunk[: max(0, cuts.pop(0) - before)]
            return chunk

    assert through(ends, cut) == 9
    assert not cuts
    assert passed[0] < (8 + 6 * 5) * MEGABYTE  # a cut loses a block of four, not the transfer


def test_a_bit_that_flips_on_the_way_is_noticed_and_the_block_fetched_again(ends):
    flips, state = [3], threading.Lock()

    def flip(chunk):
        with state:
            if flips[0] == 0 or len(chunk) < 1000:
                return chunk
            flips[0] -= 1
        changed = bytearray(chunk)
        changed[len(chunk) // 2] ^= 16
        return bytes(changed)

    assert through(ends, flip) == 9
    assert flips[0] == 0


def test_a_way_that_changes_everything_is_given_up(ends):
    with pytest.raises(RunError, match="another checksum than was sent, 21 times"):
        through(
            ends, lambda chunk: chunk[:-1] + bytes([chunk[-1] ^ 1]) if len(chunk) > 99 else chunk
        )


def test_a_sender_that_stops_in_the_middle_is_given_up_in_time(ends):
    hold = threading.Event()

    def stop(chunk):
        if len(chunk) > 1000:
            hold.wait(PATIENCE)
        return chunk

    began = time.monotonic()
    try:
        with pytest.raises(RunError, match="nothing for 3 s"):
            through(ends, stop)
    finally:
        hold.set()
    assert time.monotonic() - began < 60


def test_a_wrong_key_and_another_server_are_refused(ends):
    sending, receiving, _ = ends
    message = elsewhere(send(sending, 9))
    with pytest.raises(RunError, match="the key is refused"):
        received(receiving, message | {"key": "00" * 32})
    other = Proxy(message["port"], lambda chunk: b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)
    with pytest.raises(RunError, match="what answers there is no sender of weights"):
        received(receiving, elsewhere(message, other.place))
    other.close()
    assert received(receiving, message) == 9


def test_garbage_at_the_port_gets_nothing_and_harms_nothing(ends):
    sending, receiving, _ = ends
    message = elsewhere(send(sending, 9))
    place = (message["host"], message["port"])
    draws = random.Random(1)
    for n in (0, 1, 39, 40, 41, 5000):
        with socket.create_connection(place, timeout=10) as client:
            found = b""
            with contextlib.suppress(OSError):  # it may close before it has read everything
                client.sendall(draws.randbytes(n))
                client.shutdown(socket.SHUT_WR)
                while chunk := client.recv(65536):
                    found += chunk
        assert len(found) <= len(wire.MAGIC) + wire.NONCE_BYTES + 1
    # who knows the key cannot ask for more than what is there
    key, number = bytes.fromhex(message["key"]), message["number"]
    for request in ((7, 0, 10), (0, 0, 2**32 - 1), (0, 2**60, 10)):
        with wire.connect(wire.Place(*place), key, number) as client:
            client.sendall(wire.REQUEST.pack(*request))
            client.shutdown(socket.SHUT_WR)
            found = b""
            while chunk := client.recv(65536):
                found += chunk
        assert len(found) <= wire.ANSWER.size
    assert received(receiving, message) == 9


def test_who_cannot_fetch_from_another_machine_goes_to_the_sender_and_stays_there(ends):
    sending, _, there = ends
    message = send(sending, 9)
    key, number = bytes.fromhex(message["key"]), message["number"]
    sender_place = wire.Place(message["host"], message["port"])
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = wire.Place(*closed.getsockname())
    files = [(there / str(i), one["size"]) for i, one in enumerate(message["files"])]
    transfer = Fetch(nobody, sender_place, key, number, files, 2, 3.0)
    transfer.run()
    assert transfer.fell_back
    for (copy, _), one in zip(files, message["files"], strict=True):
        assert copy.read_bytes() == Path(one["path"]).read_bytes()
    first, *others = (Relay(sender_place, key) for _ in range(4))
    try:
        assert first.source(number) == sender_place
        dropped = threading.Event()
        first.serve(number, [copy for copy, _ in files], dropped.set, source_failed=True)
        until = time.monotonic() + PATIENCE
        while len(sources := {one.source(number) for one in others}) < 2:
            assert time.monotonic() < until  # the sender hears of it a moment later
        (relayed,) = sources - {sender_place}
        for copy, _ in files:
            copy.unlink()
        again = Fetch(relayed, nobody, key, number, files, 2, 3.0)
        with pytest.raises(RunError):  # what it serves is gone, and nobody else is there
            again.run()
        assert first.source(number) == sender_place  # it does not ask any more, nor serve
        with pytest.raises(OSError, match="refused"):
            wire.connect(relayed, key, number)
        assert not dropped.is_set()
    finally:
        for one in (first, *others):
            one.close()
        for copy, _ in files:
            copy.unlink(missing_ok=True)


# -- versions --------------------------------------------------------------------------------------


def test_an_old_message_is_refused_and_versions_never_mix(ends):
    sending, receiving, there = ends
    old = send(sending, 1)
    assert received(receiving, old) == received(receiving, elsewhere(old)) == 1
    new = send(sending, 2)
    late = Tcp(Tcp.Config(folder=str(there.parent / "here"), timeout=3.0))
    with pytest.raises(RunError, match="newer ones have taken their place"):
        received(late, old)  # its files are no longer there, so it would fetch them
    late.close()
    assert received(receiving, elsewhere(new)) == 2
    assert received(receiving, elsewhere(new)) == 2  # once more, as lasting says
    with pytest.raises(RunError, match="newer ones have taken their place"):
        received(receiving, elsewhere(old))


def test_a_receiver_that_outlives_the_sender_keeps_no_weights(ends):
    sending, receiving, there = ends
    assert received(receiving, elsewhere(send(sending, 1))) == 1
    assert list(there.rglob("*.safetensors"))
    sending.close()
    until = time.monotonic() + PATIENCE
    while list(there.rglob("*.safetensors")):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_transfer_that_is_overtaken_is_refused(ends):
    sending, _, there = ends
    old = send(sending, 1)
    overtaken = threading.Event()

    def overtake(chunk):
        if len(chunk) > 1000 and not overtaken.is_set():
            overtaken.set()
            newer.append(send(sending, 2))
        return chunk

    newer = []
    proxy = Proxy(old["port"], overtake)
    receiving = Tcp(Tcp.Config(folder=str(there), timeout=3.0, connections=1))
    with pytest.raises(RunError, match="newer ones have taken their place"):
        received(receiving, elsewhere(old, proxy.place))
    proxy.close()
    assert received(receiving, elsewhere(newer[0])) == 2
    receiving.close()


def test_many_receivers_of_a_machine_at_once(ends):
    sending, _, there = ends
    message, found = elsewhere(send(sending, 3)), []

    def work():
        end = Tcp(Tcp.Config(folder=str(there)))
        found.append(received(end, message))
        end.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE)
    assert found == [3] * 8
