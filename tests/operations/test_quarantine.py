"""`quarantine` and `lease break`: an operator frees a run, and every act is on record."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.operations.site import Site, auth, claim
from tests.support.console import TOP, environment
from tests.support.wait import poll
from writer.cli.exits import NotFound, Refused, Unsettled
from writer.errors import FileBehind, FileTooNew
from writer.streams.control import ask

NEWER = {b"v": b"2"}
UPGRADED = (
    "from producers.contract import limits\n"
    "limits.CONTRACT_VERSION = 2\n"
    "from writer.cli import main\n"
    "main()\n"
)
"""The program as it will be once it knows contract version 2."""


def daemon_of_the_future(site: Site) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", UPGRADED, "daemon", "--data", site.data, "--redis", site.server.url],
        cwd=TOP,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def held(site: Site, run: str = "run-1") -> str:
    """A run that waits at a message of a newer version, with one behind it."""
    site.send(run, "run.create")
    waits_at = site.send(run, "run.annotate", {"title": "from the future"}, raw=NEWER)
    site.send(run, "run.annotate", {"title": "behind it"})
    poll(lambda: site.rows("SELECT * FROM quarantines"), message="the quarantine")
    return waits_at


def test_a_newer_version_stops_its_run_and_no_other(running: Site) -> None:
    waits_at = held(running)
    running.send("run-2", "run.create", {"title": "other"})
    poll(lambda: "run-2" in running.digest(), message="the other run")

    (listed,) = running.cli("quarantine", "list", "--json").ok().lines()
    assert (listed["run_id"], listed["message_id"]) == ("run-1", waits_at)
    assert listed["version"] == 2
    assert "run-1" in running.cli("quarantine", "list").ok().out
    shown = running.cli("quarantine", "show", "run-1", "--json").ok().json()
    assert shown["fields"]["v"] == "2"
    assert "goes on by itself" in running.cli("quarantine", "show", "run-1").ok().out
    assert running.run("run-1")["title"] is None


def test_skip_refuses_the_message_and_goes_on(running: Site) -> None:
    waits_at = held(running)
    done = running.cli("quarantine", "skip", "run-1").ok()
    assert waits_at in done.out
    poll(lambda: running.run("run-1")["title"] == "behind it", message="the run to go on")
    (refused,) = running.rejections()
    assert (refused["message_id"], refused["reason"]) == (waits_at, "skipped")
    (act,) = running.rows("SELECT * FROM acts")
    assert (act["act"], act["outcome"], act["message_id"]) == ("skip", "done", waits_at)
    assert "@" in act["operator"]
    assert running.cli("verify").ok().out.count("equal to its archive") == 1


def test_resume_tries_the_message_again(running: Site) -> None:
    """This version still does not know it, so the run waits again, and nothing is lost."""
    waits_at = held(running)
    running.cli("quarantine", "resume", "run-1").ok()
    again = poll(
        lambda: running.rows("SELECT message_id FROM quarantines"), message="to wait again"
    )
    assert again == [{"message_id": waits_at}]
    assert running.rejections() == []


def test_the_upgrade_goes_on_by_itself_in_order(running: Site) -> None:
    held(running)
    running.stop()
    upgraded = daemon_of_the_future(running)
    try:
        poll(lambda: running.run("run-1")["title"] == "behind it", message="the run to go on")
        titles = running.rows("SELECT type, revision FROM events ORDER BY event_seq")
        assert [row["revision"] for row in titles] == [1, 2, 3]
        assert running.rows("SELECT * FROM quarantines") == []
        assert running.rejections() == []
        (act,) = running.rows("SELECT act, operator FROM acts")
        assert act == {"act": "resume", "operator": "upgrade"}
    finally:
        upgraded.send_signal(signal.SIGTERM)
        assert upgraded.wait(60) == 0


def test_an_archive_of_a_newer_version_is_refused(running: Site) -> None:
    """Its messages were settled by a newer statewriter; an older one must not go on behind them."""
    held(running)
    running.stop()
    upgraded = daemon_of_the_future(running)
    try:
        poll(lambda: running.run("run-1")["title"] == "behind it", message="the run to go on")
    finally:
        upgraded.send_signal(signal.SIGTERM)
        assert upgraded.wait(60) == 0
    for path in running.data.glob("p00.sqlite*"):
        path.unlink()
    running.start()
    with pytest.raises(FileTooNew, match="contract version 2"):
        running.stop()


def test_a_run_that_does_not_wait_can_not_be_freed(running: Site) -> None:
    running.done("run-1", "run.create")
    for command in ("show", "resume", "skip"):
        assert running.cli("quarantine", command, "run-1").code == NotFound.exit_code
    assert "no run is quarantined" in running.cli("quarantine", "list").ok().err
    assert running.cli("quarantine", "list", "--json").ok().out == ""


def test_without_a_daemon_an_act_waits_for_one(site: Site) -> None:
    site.start()
    waits_at = held(site)
    site.stop()
    told = site.cli("quarantine", "skip", "run-1", "--json").ok().json()
    assert (told["outcome"], told["message_id"]) == ("sent", waits_at)
    site.start()
    poll(lambda: site.run("run-1")["title"] == "behind it", message="the run to go on")


def test_an_act_that_is_not_carried_out_in_time_says_so(running: Site) -> None:
    held(running)
    # Meanwhile the daemon can write nothing.
    blocking = apsw.Connection(str(running.data / "p00.sqlite"))
    blocking.set_busy_timeout(60_000)
    blocking.execute("BEGIN IMMEDIATE")
    told = running.cli("quarantine", "skip", "run-1", "--timeout", "0")
    blocking.execute("ROLLBACK")
    blocking.close()
    assert told.code == Unsettled.exit_code
    assert "not lost" in told.err
    poll(lambda: running.run("run-1")["title"] == "behind it", message="the run to go on")


def test_no_data_folder_is_said(site: Site) -> None:
    for command in (("quarantine", "list"), ("quarantine", "skip", "x"), ("lease", "break", "x")):
        assert site.cli(*command).code == NotFound.exit_code


def test_break_frees_a_run_for_another_host(running: Site) -> None:
    running.done("run-1", "run.create")
    running.done("run-1", "lease.claim", claim("host-1"))
    running.done("run-1", "lease.claim", claim("host-2"), producer="q")
    assert [row["reason"] for row in running.rejections()] == ["lease_held"]

    assert "is free" in running.cli("lease", "break", "run-1").ok().out
    running.done("run-1", "lease.claim", claim("host-2"), producer="q")
    running.done("run-1", "run.snapshot", {"state": {"by": 1}}, auth=auth("host-1"))
    assert running.run("run-1")["lease"]["owner_id"] == "host-2"
    assert running.rejections()[-1]["reason"] == "lease_owner_changed"
    running.cli("verify").ok()


def test_break_of_a_free_run_is_refused(running: Site) -> None:
    running.done("run-1", "run.create")
    told = running.cli("lease", "break", "run-1")
    assert told.code == Refused.exit_code
    assert "no lease in force" in told.err
    assert running.cli("lease", "break", "run-9").code == NotFound.exit_code


def test_break_after_the_stream_has_gone_is_replayed(running: Site) -> None:
    """The stream of an ended run is removed; its cursor stands at the start of the next one."""
    running.done("run-1", "run.create")
    running.done("run-1", "lease.claim", claim())
    running.done("run-1", "run.snapshot", {"state": {"status": "completed"}}, auth=auth())
    poll(lambda: running.run("run-1")["cursor"]["message_id"] == "0-0", message="the stream to go")
    running.cli("lease", "break", "run-1").ok()
    assert running.run("run-1")["lease"]["released_at"] is not None
    running.cli("verify").ok()

    running.done("run-1", "run.annotate", {"title": "after it"})
    running.cli("verify").ok()


def test_acts_keep_their_digest_over_a_restored_folder(running: Site, tmp_path: Path) -> None:
    held(running)
    running.cli("quarantine", "skip", "run-1").ok()
    poll(lambda: running.run("run-1")["title"] == "behind it", message="the run to go on")
    running.cli("replay", "--into", tmp_path / "new", "--archive-only").ok()
    assert running.digest(tmp_path / "new") == running.digest()
    told = "SELECT control_id, act, run_id, message_id, operator, outcome FROM acts"
    assert running.rows(told, data=tmp_path / "new") == running.rows(told)


def holds(site: Site) -> None:
    """A message waits for an upgrade, and nothing else happens."""
    site.send("held", "run.create", raw=NEWER)
    poll(lambda: site.rows("SELECT * FROM quarantines"), message="the quarantine")
    site.forget()


def refuses_an_act(site: Site) -> None:
    """An act finds its run elsewhere, and is recorded as refused."""
    ask(site.client, site.keys, 0, "skip", "held", (1, "1-1"), "someone@here")
    poll(lambda: site.rows("SELECT * FROM acts WHERE outcome = 'refused'"), message="the act")


def carries_out_an_act(site: Site) -> None:
    """The message that waits is tried again, and waits again."""
    holds(site)
    site.cli("quarantine", "resume", "held").ok()
    poll(lambda: site.rows("SELECT * FROM acts WHERE outcome = 'done'"), message="the act")


def settles(site: Site) -> None:
    """A message is settled."""
    site.done("run-0", "run.create")


@pytest.mark.parametrize("begins", [holds, refuses_an_act])
@pytest.mark.parametrize("copied", [True, False])
def test_an_archive_lacks_nothing_where_nothing_was_settled_before_it(
    site: Site, tmp_path: Path, begins: Callable[[Site], None], copied: bool
) -> None:
    """Commits that no archive holds were made first: an older file, or a new one in its place, is
    caught up with all the same.
    """
    site.start()
    begins(site)
    site.stop()
    site.start()
    site.cli("backup", tmp_path / "copy").ok()
    site.done("run-1", "run.create")
    site.done("run-1", "run.annotate", {"title": "settled later"})
    live = site.digest()
    site.stop()
    if copied:
        site.cli("restore", tmp_path / "copy", "--force").ok()
    else:
        for path in site.data.glob("p00.sqlite*"):
            path.unlink()
    site.start()
    poll(lambda: site.digest() == live, message="what was settled to be there")
    site.cli("verify").ok()


@pytest.mark.parametrize("begins", [settles, carries_out_an_act])
def test_an_archive_lacks_what_was_done_before_it(
    site: Site, begins: Callable[[Site], None]
) -> None:
    site.start(archive=False)
    begins(site)
    site.stop()
    site.start()
    site.done("run-1", "run.create")
    site.stop()
    for path in site.data.glob("p00.sqlite*"):
        path.unlink()
    site.start()
    with pytest.raises(FileBehind):
        site.stop()
