"""How every command ends: one table, shown in `docs/cli.md`.

The writer's own errors bring their codes along (`writer.errors`); these are the commands'.
"""

from __future__ import annotations

from writer import errors
from writer.errors import WriterError


class NotFound(WriterError):
    """What was asked for does not exist: a run, a revision, a rejection, a data folder."""

    exit_code = 3


class Refused(WriterError):
    """The writer refused the command."""

    exit_code = 4


class Unsettled(WriterError):
    """What was sent was not settled in time."""

    exit_code = 5


class DemoFailed(WriterError):
    """The demo's numbers do not add up, or a run does not read back as it was sent."""

    exit_code = 6


class ExtraMissing(WriterError):
    """The command needs packages of the extra `daemon`."""

    exit_code = 7


class Unsound(WriterError):
    """`verify` found a rule broken, or a file that is not what its archive says."""

    exit_code = 8


class ServerFailed(WriterError):
    """The embedded Redis server could not be started, reached or stopped."""

    exit_code = 12


OK = 0
LINES_SKIPPED = 1
CHECK_NO_DAEMON = 30
CHECK_PARTITION_WAITS = 31
CHECK_QUARANTINE = 32
CHECK_REDIS_AWAY = 33
CHECK_REDIS_FULL = 34
CHECK_REDIS_LOSES = 35
INTERRUPTED = 130
PIPE_CLOSED = 141

MEANINGS: dict[int, str] = {
    OK: "done",
    LINES_SKIPPED: "`send` skipped lines that are no commands, or something failed that has no "
    "code of its own",
    errors.Usage.exit_code: "the command line, a setting or a file can not be used as given",
    NotFound.exit_code: "a run, revision, rejection or data folder does not exist",
    Refused.exit_code: "the writer refused a command (`send` says so with `--strict` only)",
    Unsettled.exit_code: "what was sent is not settled yet; it is not lost",
    DemoFailed.exit_code: "`demo`: the numbers do not add up, or a run does not read back",
    ExtraMissing.exit_code: "packages are missing: `pip install 'statewriter[daemon]'`",
    Unsound.exit_code: "`verify`: a rule is broken, or a run is not what the archive says",
    errors.StoreUnavailable.exit_code: "SQLite can not be used right now",
    errors.RedisUnavailable.exit_code: "Redis can not be used right now",
    ServerFailed.exit_code: "the embedded Redis server does not start, answer or stop",
    errors.Stop.exit_code: "the daemon can not go on",
    errors.Fenced.exit_code: "another writer has taken the partition",
    errors.PartitionTaken.exit_code: "another writer owns the partition: the second daemon",
    errors.FileCorrupt.exit_code: "a partition file is damaged, or is none",
    errors.FileTooNew.exit_code: "a partition file was written by a newer statewriter",
    errors.FileBehind.exit_code: "a partition file is an older copy than Redis has seen settled",
    errors.Misconfigured.exit_code: "settings and data contradict each other",
    errors.Defect.exit_code: "the daemon met a defect of its own: nothing is lost, report it",
    errors.FileMoved.exit_code: "a partition file was moved, deleted or replaced while a daemon "
    "wrote it",
    CHECK_NO_DAEMON: "`status --check`: no daemon runs",
    CHECK_PARTITION_WAITS: "`status --check`: a partition is not being written",
    CHECK_QUARANTINE: "`status --check`: a run is quarantined",
    CHECK_REDIS_AWAY: "`status --check`: Redis can not be reached from here",
    CHECK_REDIS_FULL: "`status --check`: Redis is full, and refuses what hosts send",
    CHECK_REDIS_LOSES: "`status --check`: Redis loses accepted commands by its settings",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "the reader of the output went away (a pipe to `head`)",
}
