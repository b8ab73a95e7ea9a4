"""`rejections`: a refused command is kept, sent again, or forgotten, and each is on record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.site import TOKEN, Site, auth, claim
from tests.support.wait import poll
from writer.cli.exits import NotFound, Refused
from writer.errors import Usage

TITLE = {"title": "kept"}


@pytest.fixture
def token() -> Iterator[list[str]]:
    """The options that name host-1's authority; its token is in the environment."""
    os.environ["HOST_TOKEN"] = TOKEN
    yield ["--owner-id", "host-1", "--token-env", "HOST_TOKEN"]
    del os.environ["HOST_TOKEN"]


def refused_early(site: Site, run: str = "run-1") -> str:
    """A command that came before its run; returns the rejection's id."""
    site.done(run, "run.annotate", TITLE)
    site.done(run, "run.create", producer="q")
    return str(site.rejections(run=run)[-1]["id"])


def test_a_redriven_command_applies(running: Site) -> None:
    rejection = refused_early(running)
    (told,) = running.cli("rejections", "redrive", rejection, "--json").ok().lines()
    message_id = running.rejections()[0]["message_id"]
    assert (told["outcome"], told["revision"]) == ("applied", 2)
    assert told["producer"] == f"redrive-{message_id}"
    assert running.run("run-1")["title"] == "kept"

    whole = running.cli("rejections", "show", rejection, "--json").ok().json()
    assert whole["redriven"]["outcome"] == "applied"
    assert whole["redriven"]["message_id"] == told["message_id"]
    assert [(act["act"], act["outcome"]) for act in whole["acts"]] == [("redrive", "done")]
    assert "@" in whole["acts"][0]["operator"]
    assert "applied, revision 2" in running.cli("rejections", rejection).ok().out
    running.cli("verify").ok()


def test_twice_is_once(running: Site) -> None:
    rejection = refused_early(running)
    running.cli("rejections", "redrive", rejection).ok()
    again = running.cli("rejections", "redrive", rejection, "--json").ok()
    assert (again.lines()[0]["outcome"], again.lines()[0]["was"]) == ("before", "applied")
    assert running.run("run-1")["revision"] == 2


def test_two_at_once_are_once_too(site: Site) -> None:
    """Nobody has settled the first when the second is sent: the sequence is what counts."""
    site.start()
    rejection = refused_early(site)
    site.stop()
    for _ in range(2):
        (told,) = site.cli("rejections", "redrive", rejection, "--json").ok().lines()
        assert told["outcome"] == "sent"
    site.start()
    poll(lambda: site.run("run-1")["cursor"]["duplicates"] == 1, message="the second to be settled")
    assert site.run("run-1")["revision"] == 2
    assert len(site.rows("SELECT * FROM acts WHERE act = 'redrive'")) == 2


def test_what_is_refused_again_is_the_one_to_redrive(running: Site) -> None:
    running.done("run-1", "run.annotate", TITLE)
    (first,) = running.rejections()
    told = running.cli("rejections", "redrive", first["id"], "--json")
    assert told.code == Refused.exit_code
    second = told.lines()[0]["as"]
    assert second != first["id"]
    whole = running.cli("rejections", "show", first["id"]).ok().out
    assert f"that is rejection {second}" in whole
    shown = running.cli("rejections", "show", second, "--json").ok().json()
    assert shown["redrive_of"] == first["id"]

    running.done("run-1", "run.create", producer="q")
    assert running.cli("rejections", "redrive", first["id"]).ok().out.count(second) == 1
    running.cli("rejections", "redrive", second).ok()
    assert running.run("run-1")["title"] == "kept"


def test_redrive_by_filter_keeps_the_order(running: Site) -> None:
    for title in ("first", "second", "third"):
        running.send("run-1", "run.annotate", {"title": title})
    running.send("run-2", "run.annotate", TITLE)
    running.settle()
    for run in ("run-1", "run-2"):
        running.done(run, "run.create", producer="q")

    told = running.cli(
        "rejections", "redrive", "--reason", "run_unknown", "--run", "run-1", "--json"
    )
    assert [each["outcome"] for each in told.ok().lines()] == ["applied"] * 3
    assert running.run("run-1")["title"] == "third"
    assert running.run("run-2")["title"] is None
    running.cli("rejections", "redrive", "--since", "1h").ok()
    assert running.run("run-2")["title"] == "kept"
    assert running.run("run-1")["revision"] == 4


def test_a_claimed_run_wants_authority(running: Site, token: list[str]) -> None:
    running.done("run-1", "run.snapshot", {"state": {"n": 1}}, auth=auth())
    running.done("run-1", "run.create", producer="q")
    running.done("run-1", "lease.claim", claim(), producer="q")
    (refused,) = running.rejections()
    assert TOKEN not in str(running.cli("rejections", "show", refused["id"], "--json").out)

    assert running.cli("rejections", "redrive", refused["id"]).code == Refused.exit_code
    newest = running.rejections()[-1]
    assert newest["reason"] == "lease_missing"
    running.cli("rejections", "redrive", newest["id"], *token).ok()
    with_state = running.rows("SELECT count(*) AS n FROM state_parts WHERE revision > 1")
    assert with_state[0]["n"]
    running.cli("verify").ok()


def test_what_can_not_be_decoded_can_not_be_redriven(running: Site) -> None:
    running.done("run-1", "run.create")
    running.done("run-1", "run.annotate", raw={b"body": b"{"})
    (refused,) = running.rejections()
    told = running.cli("rejections", "redrive", refused["id"], "--json")
    assert told.code == Refused.exit_code
    assert told.lines()[0]["outcome"] == "impossible"
    assert "body_not_json" in told.lines()[0]["detail"]
    assert running.rows("SELECT * FROM acts") == []


def test_a_field_that_nobody_knows_is_left_behind(running: Site) -> None:
    running.done("run-1", "run.create")
    running.done("run-1", "run.annotate", TITLE, raw={b"x-team": b"a"})
    (refused,) = running.rejections()
    assert refused["reason"] == "field_unknown"
    running.cli("rejections", "redrive", refused["id"]).ok()
    assert running.run("run-1")["title"] == "kept"


def test_what_was_too_large_to_keep_can_not_be_redriven(running: Site) -> None:
    running.done("run-1", "run.create")
    running.done("run-1", "run.annotate", raw={b"body": b"x" * (33 * 1024 * 1024)})
    (refused,) = running.rejections()
    told = running.cli("rejections", "redrive", refused["id"])
    assert told.code == Refused.exit_code
    assert "not kept: 33.0 MiB" in told.out
    assert "its head" in running.cli("rejections", "show", refused["id"]).ok().out


def test_drop_forgets_the_bytes_and_nothing_else(running: Site, tmp_path: Path) -> None:
    rejection = refused_early(running)
    before = running.digest()
    assert running.cli("rejections", "drop", rejection).code == Usage.exit_code
    running.cli("rejections", "drop", rejection, "--yes").ok()

    (row,) = running.rows("SELECT * FROM rejections")
    assert (row["fields"], row["head"]) == (None, None)
    assert row["dropped_at"] >= row["recorded_at"]
    assert (row["reason"], len(row["fields_sha256"])) == ("run_unknown", 32)
    assert running.digest() == before
    shown = running.cli("rejections", "show", rejection).ok().out
    assert "drop" in shown
    assert "asked for by" in shown
    told = running.cli("rejections", "redrive", rejection)
    assert told.code == Refused.exit_code
    assert "dropped" in told.out

    running.cli("verify").ok()
    running.cli("replay", "--into", tmp_path / "new").ok()
    (again,) = running.rows("SELECT * FROM rejections", data=tmp_path / "new")
    own = {"rejection_seq": 0, "run_key": 0}
    assert {**again, **own} == {**row, **own}


def test_a_drop_reaches_a_restored_file(running: Site, tmp_path: Path) -> None:
    rejection = refused_early(running)
    running.cli("backup", tmp_path / "copy").ok()
    running.cli("rejections", "drop", rejection, "--yes").ok()
    running.stop()
    running.cli("restore", tmp_path / "copy", "--force").ok()
    assert running.rows("SELECT fields FROM rejections")[0]["fields"] is not None
    running.start()
    (row,) = running.rows("SELECT * FROM rejections")
    assert row["fields"] is None
    assert row["dropped_at"] is not None


def test_dropping_twice_is_refused(running: Site) -> None:
    rejection = refused_early(running)
    running.cli("rejections", "drop", rejection, "--yes").ok()
    again = running.cli("rejections", "drop", rejection, "--yes")
    assert again.code == Refused.exit_code
    assert "dropped already" in again.out


@pytest.mark.parametrize("command", ["redrive", "drop"])
def test_which_ones_must_be_said(running: Site, command: str) -> None:
    running.done("run-1", "run.create")
    assert running.cli("rejections", command).code == Usage.exit_code
    assert running.cli("rejections", command, "0:1", "--run", "x").code == Usage.exit_code
    assert running.cli("rejections", command, "0:99").code == NotFound.exit_code
    assert running.cli("rejections", command, "--reason", "skipped").code == NotFound.exit_code


def test_the_list_is_what_stands_without_a_command(running: Site) -> None:
    rejection = refused_early(running)
    for arguments in ((), ("list",), ("--reason", "run_unknown")):
        listed = running.cli("rejections", *arguments, "--json").ok().json()
        assert [row["id"] for row in listed["rejections"]] == [rejection]
    for arguments in ((rejection,), ("show", rejection)):
        shown = running.cli("rejections", *arguments, "--json").ok().json()
        assert shown["fields"]["kind"] == "run.annotate"
        assert shown["redriven"] is None
    assert running.cli("rejections", "show", "0:99").code == NotFound.exit_code


def test_many_are_taken_in_turn(running: Site) -> None:
    """More than the daemon takes at once; each is asked for once, in order."""
    count = 230
    for number in range(count):
        running.send("run-1", "run.annotate", {"title": f"{number}"})
    running.settle()
    running.done("run-1", "run.create", producer="q")
    told = running.cli("rejections", "redrive", "--run", "run-1", "--json").ok().lines()
    assert [each["revision"] for each in told] == list(range(2, count + 2))
    dropped = running.cli("rejections", "drop", "--run", "run-1", "--yes", "--json").ok().lines()
    assert {each["outcome"] for each in dropped} == {"done"}
    (left,) = running.rows("SELECT count(*) AS n FROM rejections WHERE fields IS NOT NULL")
    assert left == {"n": 0}
    running.cli("verify").ok()
