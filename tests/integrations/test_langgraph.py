"""The LangGraph saver: LangGraph's own suite, and a graph beside the SQLite saver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from operator import add
from typing import Annotated, Any, TypedDict

import pytest

from producers import Producer
from tests.support.servers import RealServer
from writer.store.reader import StateReader

pytest.importorskip("langgraph.checkpoint.conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from producers.integrations.langgraph import KIND, StatewriterSaver


class State(TypedDict):
    words: Annotated[list[str], add]
    count: int
    odd: Any


def graph(saver: Any) -> Any:
    """Two nodes, a loop, a pause for a person, values that are no JSON."""

    def write(state: State) -> dict[str, Any]:
        return {"words": [f"w{state['count']}"], "count": state["count"] + 1, "odd": (1, b"\0\xff")}

    def ask(_: State) -> dict[str, Any]:
        return {"words": [interrupt("go on?")]}

    builder: Any = StateGraph(State)
    builder.add_node("write", write)
    builder.add_node("ask", ask)
    builder.add_edge(START, "write")
    builder.add_conditional_edges("write", lambda state: "write" if state["count"] < 3 else "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


THREAD: Any = {"configurable": {"thread_id": "Ticket 4711/ä"}}


def play(saver: Any) -> list[Any]:
    """Each answer that a host gets, call by call."""
    app = graph(saver)
    told: list[Any] = [app.invoke({"words": [], "count": 0}, THREAD)["words"]]
    told.append(app.get_state(THREAD).next)
    told.append([task.interrupts[0].value for task in app.get_state(THREAD).tasks])
    told.append(app.invoke(Command(resume="yes"), THREAD)["words"])
    history = list(app.get_state_history(THREAD))
    told.append([(state.values, state.next, state.metadata["step"]) for state in history])
    # Back to an earlier checkpoint, and on from there along another branch.
    early = history[3]
    told.append(app.invoke(None, early.config).get("words"))
    app.update_state(THREAD, {"words": ["by hand"]})
    told.append(app.get_state(THREAD).values)
    told.append(len(list(saver.list(THREAD))))
    loops = list(saver.list(THREAD, filter={"source": "loop"}, limit=2))
    told.append([each.metadata for each in loops])
    before = history[1].config
    told.append([each.checkpoint["channel_values"] for each in saver.list(THREAD, before=before)])
    told.append([each.pending_writes and each.pending_writes[0][1:] for each in saver.list(THREAD)])
    saver.delete_thread(THREAD["configurable"]["thread_id"])
    told.append(app.get_state(THREAD).values)
    told.append(app.invoke({"words": ["anew"], "count": 2}, THREAD)["words"])
    return told


def test_it_passes_langgraphs_own_suite(redis_server: RealServer, reader: StateReader) -> None:
    @checkpointer_test(name="statewriter")
    async def factory() -> AsyncIterator[StatewriterSaver]:
        with Producer(redis_server.url) as producer:
            yield StatewriterSaver(producer, reader)

    report = asyncio.run(validate(factory))
    assert report.passed_all(), report.to_dict()


def without_ids(told: list[Any]) -> list[Any]:
    """Interrupts carry ids that depend on random checkpoint ids."""
    return [str(each).split("id=")[0] if "Interrupt" in str(each) else each for each in told]


def test_a_graph_gets_the_same_answers_as_from_the_sqlite_saver(
    producer: Producer, reader: StateReader
) -> None:
    with SqliteSaver.from_conn_string(":memory:") as sqlite_saver:
        expected = play(sqlite_saver)
    told = play(StatewriterSaver(producer, reader))
    for ours, theirs in zip(told, expected, strict=True):
        assert without_ids([ours]) == without_ids([theirs])


def test_async_calls_answer_as_the_others_do(producer: Producer, reader: StateReader) -> None:
    async def host() -> Any:
        app = graph(StatewriterSaver(producer, reader))
        await app.ainvoke({"words": [], "count": 0}, THREAD)
        await app.ainvoke(Command(resume="yes"), THREAD)
        return [state.values async for state in app.aget_state_history(THREAD)]

    history = asyncio.run(host())
    assert history == [
        state.values
        for state in graph(StatewriterSaver(producer, reader)).get_state_history(THREAD)
    ]
    assert history[0]["words"] == ["w0", "w1", "w2", "yes"]


def test_another_process_goes_on_where_the_first_one_paused(
    redis_server: RealServer, reader: StateReader
) -> None:
    with Producer(redis_server.url) as first:
        graph(StatewriterSaver(first, reader)).invoke({"words": [], "count": 0}, THREAD)
    with Producer(redis_server.url) as second:
        app = graph(StatewriterSaver(second, reader))
        assert app.get_state(THREAD).next == ("ask",)
        assert app.invoke(Command(resume="yes"), THREAD)["words"][-1] == "yes"
    (run,) = reader.list_runs(workflow=KIND).runs
    assert run["title"] == "Ticket 4711/ä"
    assert reader.rejections().rejections == []


def test_what_did_not_change_is_not_sent_again(producer: Producer, reader: StateReader) -> None:
    class Big(TypedDict):
        big: str
        count: int

    builder = StateGraph(Big)
    builder.add_node("step", lambda state: {"count": state["count"] + 1})
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["count"] < 20 else END)
    app = builder.compile(checkpointer=StatewriterSaver(producer, reader))
    config: Any = {"configurable": {"thread_id": "t"}}
    assert app.invoke({"big": "x" * 100_000, "count": 0}, config)["count"] == 20
    assert app.get_state(config).values["count"] == 20
    (run,) = reader.list_runs(workflow=KIND).runs
    stored = reader.transcript(run["run_id"], limit=1_000)
    # The input's own write, and the channel's only value.
    assert sum(str(entry["entry"]).count("x" * 100_000) for entry in stored) <= 3


def test_a_value_larger_than_an_entry_travels_in_parts(
    producer: Producer, reader: StateReader
) -> None:
    saver = StatewriterSaver(producer, reader)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    big = "x" * 9_000_000
    checkpoint: Any = {
        "v": 1,
        "id": "1",
        "ts": "",
        "channel_values": {"big": big},
        "channel_versions": {"big": "1"},
        "versions_seen": {},
        "updated_channels": None,
    }
    saved = saver.put(config, checkpoint, {}, {"big": "1"})
    found = saver.get_tuple(saved)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"big": big}
