"""One trace a run, for OpenTelemetry: made from the record, so it is whole whatever died on the way.

app.observe(Tracing(BatchSpanProcessor(OTLPSpanExporter())))
"""

from milepost.adapters.opentelemetry.tracing import Tracing

__all__ = ["Tracing"]
