"""Why a message was refused: one code, one sentence. The codes are stored, so they never change."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A reason code; `sentence` says what it means to the person who reads a rejection."""

    sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Reason:
        """A code is a text, with its sentence beside it."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    # the envelope
    FIELD_MISSING = "field_missing", "A field that the contract requires is missing."
    FIELD_UNKNOWN = "field_unknown", "A field that the contract does not know is present."
    FIELD_INVALID = "field_invalid", "A field has the wrong type, form or range."
    VERSION_INVALID = "version_invalid", "`v` is not a whole number from 1 to 999."
    KIND_UNKNOWN = "kind_unknown", "This contract version has no such kind of command."
    RUN_ID_INVALID = "run_id_invalid", "The stream's run id does not match the pattern of run ids."
    PARTITION_WRONG = "partition_wrong", "The run belongs to another partition than its stream."
    BODY_NOT_JSON = "body_not_json", "The body is not JSON, or not a JSON object."
    BODY_NOT_UTF8 = "body_not_utf8", "The body is not UTF-8."
    BODY_TOO_LARGE = "body_too_large", "The body is larger than 16 MiB."
    BODY_TOO_DEEP = "body_too_deep", "The body nests deeper than 128 levels."
    NUMBER_NOT_EXACT = "number_not_exact", "A number can not be kept exactly (64-bit range, NaN)."
    TEXT_NOT_EXACT = "text_not_exact", "A text holds half of a surrogate pair: it is not Unicode."
    ENTRY_TOO_LARGE = "entry_too_large", "The transcript entry is larger than 4 MiB."
    EVENT_TOO_LARGE = "event_too_large", "The session event is larger than 1 MiB."
    UPDATE_TOO_LARGE = "update_too_large", "The update's data is larger than 64 KiB."
    # sequences
    SEQUENCE_JUMP = "sequence_jump", "The sequence is more than 2^32 past the producer's last."
    SEQUENCE_REUSED = "sequence_reused", "The sequence was used before, for another command."
    SUPERSEDED = "superseded", "It came late: its producer has since changed the same thing."
    # the run
    RUN_UNKNOWN = "run_unknown", "No run of this id was created in this stream before."
    RUN_DELETED = "run_deleted", "The run was deleted; its id is never used again."
    RUN_CONFLICT = "run_conflict", "The run exists with another content than this create names."
    RUN_TERMINAL = "run_terminal", "The run has finished; only a reset leads out of it."
    RUN_NOT_RUNNING = "run_not_running", "The run is in a status that this command can not leave."
    RUN_NOT_TERMINAL = "run_not_terminal", "The run has not finished: there is nothing to reset."
    DEFINITION_INVALID = "definition_invalid", "The definition has no canonical JSON (RFC 8785)."
    DEFINITION_CONFLICT = "definition_conflict", "The run was reserved with another definition."
    STATE_INVALID = "state_invalid", "The state document breaks a rule of the run's dialect."
    REVISION_CONFLICT = "revision_conflict", "The run is at another revision than the expected one."
    BASE_CHANGED = "base_changed", "The state is not the one that this patch was made for."
    STATE_TOO_LARGE = "state_too_large", "The patched state would be larger than 16 MiB."
    UPDATES_FULL = "updates_full", "The run has 1,024 current updates; this would be one more."
    UPDATE_INVALID = "update_invalid", "The update's data breaks a rule of its type."
    ATTEMPT_FINISHED = (
        "attempt_finished",
        "The attempt has finished; a late update never reopens it.",
    )
    # leases
    LEASE_MISSING = "lease_missing", "It needs the lease and brings none, or the run has none."
    LEASE_HELD = "lease_held", "Another owner's lease is still live."
    LEASE_OWNER_CHANGED = "lease_owner_changed", "The lease belongs to another owner."
    LEASE_TOKEN_CHANGED = "lease_token_changed", "The lease was claimed again, with another token."
    LEASE_GENERATION_CHANGED = (
        "lease_generation_changed",
        "The lease has moved to another generation.",
    )
    # sessions
    SEGMENT_UNKNOWN = "segment_unknown", "Nothing is bound under this capture key."
    SEGMENT_CONFLICT = "segment_conflict", "The segment is bound to another session."
    BINDING_INVALID = "binding_invalid", "The binding document does not match its run or session."
    NOT_BINDER = "not_binder", "Only the segment's binder or the run's holder may append."
    CAPTURE_TERMINAL = "capture_terminal", "The capture has ended and takes no more."
    CAPTURE_COUNTS = "capture_counts", "The capture's counts are not what is stored."
    CAPTURE_FAILURE = "capture_failure", "A failed capture needs a failure, any other has none."
    ENTRY_CONFLICT = "entry_conflict", "An entry of this id is stored with another content."
    EVENT_CONFLICT = "event_conflict", "An event of this seq is stored with another content."
    EVENT_SEQ_GAP = "event_seq_gap", "The events do not follow on the last stored one."
    # effects
    EFFECT_UNKNOWN = "effect_unknown", "The run has no such effect and occurrence."
    EFFECT_CONFLICT = "effect_conflict", "The effect was settled before, with another outcome."
    # operator acts
    SKIPPED = "skipped", "An operator skipped the message to free its quarantined run."
