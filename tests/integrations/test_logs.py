"""Log lines as events of a transcript, and the trace that commands carry."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis
import structlog

from producers import Producer
from producers.integrations.logs import RunHandler, structlog_processor
from tests.producers.reading import messages
from tests.support.wait import poll
from writer.store.reader import StateReader


def logged(reader: StateReader, run: str, wanted: int) -> list[dict[str, Any]]:
    """The payloads of the run's log lines."""
    poll(lambda: len(reader.session_events(run)) == wanted)
    return [each["event"]["payload"] for each in reader.session_events(run)]


def test_records_of_logging_become_events(producer: Producer, reader: StateReader) -> None:
    run = producer.create_run("w", run_id="r")
    logger = logging.getLogger("tests.host")
    logger.setLevel(logging.INFO)
    # Who else reads it, like the test's own report, may stumble over half a character.
    logger.propagate = False
    with run.session("logs") as session:
        handler = RunHandler(session)
        logger.addHandler(handler)
        logging.getLogger("statewriter").addHandler(handler)
        try:
            logger.info("step %d of %s", 1, "\ud83d")
            logger.debug("not at this level")
            logging.getLogger("statewriter.producer").warning("would come back for ever")
            try:
                raise RuntimeError("broken")  # noqa: TRY301
            except RuntimeError:
                logger.exception("it failed")
        finally:
            logger.removeHandler(handler)
            logging.getLogger("statewriter").removeHandler(handler)
    first, second = logged(reader, "r", 2)
    assert (first["level"], first["logger"], first["message"]) == (
        "INFO",
        "tests.host",
        "step 1 of ?",
    )
    assert "RuntimeError: broken" in second["exception"]


def test_a_processor_for_structlog_passes_on_what_it_told(
    producer: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w", run_id="r")
    with run.session("logs") as session, structlog.testing.capture_logs() as captured:
        process = structlog_processor(session)
        told = process(None, "info", {"event": "node_started", "node": "plan", "odd": {1}})
        assert told == {"event": "node_started", "node": "plan", "odd": {1}}
    assert captured == []
    (payload,) = logged(reader, "r", 1)
    assert payload == {"level": "INFO", "event": "node_started", "node": "plan", "odd": "{1}"}


def test_commands_carry_the_trace_of_the_current_span(
    producer: Producer, redis_client: redis.Redis
) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    tracer = sdk.TracerProvider().get_tracer("t")
    redis_client.hset("sw:meta", "partitions", 2)
    with tracer.start_as_current_span("turn") as span:
        producer.run("r").resume()
    producer.run("r").resume()
    producer.flush(60)
    inside, outside = messages(redis_client, "r")
    context = span.get_span_context()
    assert (
        inside.trace
        == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    )
    assert outside.trace is None
