"""What Redis may lose by its settings: one plain sentence each, said at the start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.operations.site import Site
from tests.support.servers import KINDS, Kind, real_server
from writer import embedded
from writer.streams.link import connect
from writer.streams.risks import risks

DEPLOY = Path(__file__).parents[2] / "deploy"

Settings = Mapping[str, str]


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"appendonly": "yes", "appendfsync": "always"}, []),
        ({"appendonly": "yes", "appendfsync": "everysec"}, [("appendfsync", False)]),
        ({"appendonly": "yes", "appendfsync": "no"}, [("appendfsync", True)]),
        ({"appendonly": "no"}, [("appendonly", True)]),
        (
            {"appendonly": "no", "maxmemory-policy": "allkeys-lru"},
            [("appendonly", True), ("maxmemory-policy", True)],
        ),
        (
            {"appendonly": "yes", "maxmemory-policy": "volatile-ttl"},
            [("maxmemory-policy", True), ("appendfsync", False)],
        ),
    ],
)
def test_each_risk_is_found(
    kind: Kind, settings: Settings, expected: list[tuple[str, bool]]
) -> None:
    with real_server(kind, settings) as server, connect(server.url) as client:
        found = risks(client)
    assert [(risk.setting, risk.severe) for risk in found] == expected
    for risk in found:
        assert risk.value is not None
        assert risk.value in risk.sentence
        assert risk.sentence.count(". ") == 0


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_what_may_not_be_asked_is_said(kind: Kind) -> None:
    with real_server(kind, {"appendonly": "no"}) as server:
        with server.client() as admin:
            admin.execute_command(
                "ACL", "SETUSER", "w", "on", ">pw", "~*", "+@all", "-config", "-info"
            )
            admin.execute_command("ACL", "SETUSER", "v", "on", ">pw", "~*", "+@all", "-config")
        with connect(server.url.replace("unix://", "unix://w:pw@")) as client:
            found = risks(client)
            assert [risk.setting for risk in found] == [
                "appendonly",
                "appendfsync",
                "maxmemory-policy",
            ]
            assert all("could not be checked" in risk.sentence for risk in found)
        # INFO tells two of the three.
        with connect(server.url.replace("unix://", "unix://v:pw@")) as client:
            assert [(risk.setting, risk.value) for risk in risks(client)] == [("appendonly", "no")]


def test_a_daemon_says_it_once_at_its_start(running: Site) -> None:
    running.done("run-1", "run.create")
    (told,) = running.log.of("redis_risk")
    assert told["warning"] is True
    assert (told["setting"], told["value"]) == ("appendonly", "no")
    (shown,) = running.cli("status", "--json").ok().json()["redis"]["risks"]
    assert shown["sentence"] == told["risk"]
    assert f"risk: {told['risk']}" in running.cli("status").ok().out


@pytest.mark.server
def test_the_embedded_server_only_chooses_speed(tmp_path: Path) -> None:
    with embedded.start(tmp_path / "data") as server, connect(server.url) as client:
        assert [(risk.setting, risk.severe) for risk in risks(client)] == [("appendfsync", False)]


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_that_we_ship_only_chooses_speed(kind: Kind) -> None:
    assert "\nappendonly yes\n" in (DEPLOY / "redis.conf").read_text()
    # The tests' own settings say no, and win over what is included.
    settings = {"include": str(DEPLOY / "redis.conf"), "port": "0", "appendonly": "yes"}
    with real_server(kind, settings) as server, connect(server.url) as client:
        assert [(risk.setting, risk.severe) for risk in risks(client)] == [("appendfsync", False)]
