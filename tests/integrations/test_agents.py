"""The OpenAI Agents SDK: its runner with our session and trace processor, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from producers import Producer
from tests.support.servers import RealServer
from tests.support.wait import poll
from writer.store.reader import StateReader

pytest.importorskip("agents")

from agents import Agent, Runner, set_trace_processors
from agents.items import ModelResponse
from agents.memory import Session, SQLiteSession
from agents.models.interface import Model
from agents.tracing import custom_span, trace
from agents.usage import Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from producers.integrations.agents import (
    TRACE_KIND,
    StatewriterSession,
    StatewriterTraceProcessor,
)


class Echo(Model):
    """Says how many items it was given."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        count = 1 if isinstance(input, str) else len(input)
        text = ResponseOutputText(text=f"{count} items", type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="m", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


ITEMS: list[Any] = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "ä \0 😀"},
    {"role": "user", "content": "bye"},
]


async def play(session: Any) -> list[Any]:
    """Each answer of a session, call by call."""
    told: list[Any] = [await session.get_items(), await session.pop_item()]
    await session.add_items(ITEMS)
    told += [await session.get_items(), await session.get_items(2), await session.get_items(0)]
    told += [await session.pop_item(), await session.get_items()]
    await session.add_items([])
    await session.clear_session()
    told.append(await session.get_items())
    await session.add_items(ITEMS[:1])
    told.append(await session.get_items(10))
    return told


def test_a_session_answers_as_the_sdks_own_does(producer: Producer, reader: StateReader) -> None:
    session = StatewriterSession("chat 1", producer, reader)
    assert isinstance(session, Session)
    assert asyncio.run(play(session)) == asyncio.run(play(SQLiteSession("chat 1")))


def test_a_conversation_goes_on_in_another_process(
    redis_server: RealServer, reader: StateReader
) -> None:
    agent = Agent(name="echo", model=Echo())

    async def ask() -> str:
        with Producer(redis_server.url) as producer:
            session = StatewriterSession("chat", producer, reader)
            return str((await Runner.run(agent, "hello", session=session)).final_output)

    assert [asyncio.run(ask()) for _ in range(3)] == ["1 items", "3 items", "5 items"]


def test_a_trace_is_a_run_and_its_spans_are_events(producer: Producer, reader: StateReader) -> None:
    set_trace_processors([StatewriterTraceProcessor(producer)])
    try:
        with trace("triage"):
            asyncio.run(Runner.run(Agent(name="echo", model=Echo()), "hello"))
            with custom_span("own", data={"what": object()}):
                pass
    finally:
        set_trace_processors([])
    producer.flush(60)
    poll(lambda: [r["status"] for r in reader.list_runs(workflow=TRACE_KIND).runs] == ["completed"])
    (run,) = reader.list_runs(workflow=TRACE_KIND).runs
    assert run["title"] == "triage"
    events = [each["event"] for each in reader.session_events(run["run_id"])]
    started = [e["messageId"] for e in events if e["type"] == "span_started"]
    ended = [e["messageId"] for e in events if e["type"] == "span_ended"]
    assert sorted(started) == sorted(ended)
    assert {e["payload"]["span_data"]["type"] for e in events} >= {"agent", "custom"}
    assert reader.rejections().rejections == []
