"""The trace that a command belongs to, if the host uses OpenTelemetry."""

from __future__ import annotations

import sys


def traceparent() -> str | None:
    """W3C traceparent of the current span; None without one, or if nobody imported OpenTelemetry.

    It is looked up and not imported: a host that does not trace pays nothing.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
