"""The fixtures that plugin authors are given."""

from __future__ import annotations

import socket

import pytest


def test_no_network_lets_this_machine_through_and_no_other(no_network):
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    with pytest.raises(pytest.fail.Exception, match=r"192\.0\.2\.1:80"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)


def test_a_plugin_that_is_installed_for_a_test_is_found(lab, installed_plugin):
    source = "from rlvr_core.api import hookimpl\n\n@hookimpl\ndef run_finished(): ...\n"
    lab.site = installed_plugin("toy", {"rlvr_toy.py": source})
    done = lab.rlvr("plugins", "check", "toy")
    assert "1 kept, 0 broken, 0 unchecked" in done.stdout


def test_a_misspelt_hook_is_a_broken_promise(lab, installed_plugin):
    source = "from rlvr_core.api import hookimpl\n\n@hookimpl\ndef run_finnished(): ...\n"
    lab.site = installed_plugin("toy", {"rlvr_toy.py": source})
    done = lab.rlvr("plugins", "check", "toy", check=3)
    assert "0 kept, 1 broken, 0 unchecked" in done.stdout
    assert "run_finished" in done.stdout  # what was meant


def test_what_is_not_there_is_named(lab):
    missing = lab.rlvr("plugins", "check", "coer", check=3)
    assert "did you mean: core, code?" in missing.stderr
    empty = lab.rlvr("plugins", "check", "./nothing", check=2)
    assert "there is no plugin in the folder" in empty.stderr
    odd = lab.rlvr("plugins", "check", "core/nothing", check=3)
    assert "plugin 'core' registers no 'core/nothing'" in odd.stderr


def test_checks_keep_off_the_hub_whatever_was_imported_before(monkeypatch):
    from huggingface_hub import constants

    from rlvr_core.testing.offline import without_hub

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with without_hub():
        assert constants.is_offline_mode()
    assert not constants.is_offline_mode()
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with without_hub():
        assert not constants.is_offline_mode()
