"""Traces of spans to trajectories: what the readers of OpenTelemetry, OpenInference, Langfuse and LangSmith share.

A reader turns what its format calls a span, observation or run into a `Span` (`model.py`), with its messages in the
shape of OpenAI chat (`chat.py`). Spans are joined by trace (`joining.py`), the histories that model calls repeat are
put together into chains (`chains.py`), and a trace becomes one trajectory (`assembly.py`).
"""
