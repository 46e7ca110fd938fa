"""Every value of a sample is in what the readers make of it, but for what they count or document as dropped."""

from itertools import pairwise

import pytest
from log_samples import SAMPLES, logs, plain

from ratchet.intake.jsontext import decode_sound

FORMATS = ("swe_agent", "mini_swe_agent", "openhands", "tau_bench", "tau2_bench")
FILES = [(format, path.name) for format in FORMATS for path in sorted((SAMPLES / format).iterdir())]
WORDS = {"role", "type", "action"}
"""Fields whose value is said by the form that a message takes: who speaks, that a call is one of a function."""
DROPPED = {("trajectory", "query"), ("response", "choices"), ("tool_call_metadata", "model_response")}
SET_ASIDE = {"rate limit", "Traceback", "acme__half-14", "Timeout after 300 seconds", "sim-c", "ev-2", "in_progress"}
"""Values of the samples that stand only in what is rejected, or in a report that a later one replaces."""


def leaves(value, path=()):
    """Every scalar with the names that lead to it; strings that hold JSON are opened."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        opened = decode_sound(value)
        value = value if opened is None else opened
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    elif isinstance(value, list):
        for child in value:
            yield from leaves(child, path)
    elif value is not None and not isinstance(value, bool):
        yield path, str(value)


def dropped(path):
    return any(pair in DROPPED for pair in pairwise(path))


@pytest.mark.parametrize(("format", "name"), FILES)
def test_nothing_is_lost_silently(format, name):
    kept = {text for _, log in logs(format, name) for _, text in leaves(log.model_dump(mode="json"))}
    whole = "\n".join(kept)
    lost = {
        (path, text)
        for path, text in leaves(plain(format, name))
        if path[-1] not in WORDS
        and not dropped(path)
        and text not in SET_ASIDE
        and text not in kept
        and text not in whole
    }
    assert lost == set()
