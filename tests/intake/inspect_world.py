"""Small Inspect logs, written as Inspect writes them."""

import io
import json
import struct
import zipfile
import zlib

import pyarrow as pa

DOG = "a" * 120
START = {
    "version": 2,
    "eval": {
        "run_id": "run1", "created": "2026-01-02T03:04:05+00:00", "task": "bugs", "task_id": "t1", "task_version": 0,
        "solver": "react", "model": "openai/gpt-x", "dataset": {"name": "d", "samples": 2, "sample_ids": ["a", "b"]},
        "config": {"epochs": 1},
    },
    "plan": {"name": "plan", "steps": [{"solver": "react", "params": {}}], "config": {"seed": 7}},
}  # fmt: skip
HEADER = {**START, "status": "success", "results": {"scores": []}, "stats": {}}


def answer(name, text="", calls=None, **more):
    made = {"id": name, "role": "assistant", "source": "generate", "model": "openai/gpt-x", "content": text, **more}
    return {**made, "tool_calls": calls} if calls else made


def call(name, function="bash", **arguments):
    return {"id": name, "function": function, "arguments": arguments, "type": "function"}


def model_event(message, seen, number):
    usage = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13 + 4, "input_tokens_cache_read": 4}
    return {
        "event": "model", "timestamp": f"2026-01-02T03:04:0{number}+00:00", "model": "openai/gpt-x", "input": seen,
        "tools": [{"name": "bash", "description": "attachment://tool", "parameters": {"type": "object"}}],
        "output": {"model": "gpt-x", "choices": [{"message": message, "stop_reason": "stop"}], "usage": usage},
        "call": {"request": {}, "response": {}},
    }  # fmt: skip


def sample(name="a", epoch=1, **fields):
    """One sample: a question, two parallel calls answered the other way round, a last answer."""
    asked = {"id": "m0", "role": "user", "source": "input", "content": "attachment://dog"}
    calls = [call("c1", cmd="ls"), call("c2", cmd="pwd")]
    acted = answer("m1", [{"type": "reasoning", "reasoning": "look", "signature": "sig"}], calls)
    results = [
        {"id": "m2", "role": "tool", "tool_call_id": "c2", "function": "bash", "content": "/"},
        {"id": "m3", "role": "tool", "tool_call_id": "c1", "function": "bash", "content": "attachment://gone",
         "error": {"type": "timeout", "message": "slow"}},
    ]  # fmt: skip
    last = answer("m4", "done")
    body = {
        "id": name, "epoch": epoch, "uuid": f"u-{name}-{epoch}", "input": "attachment://dog", "target": ["x", "y"],
        "messages": [asked, acted, *results, last],
        "output": {"model": "gpt-x", "choices": [{"message": last, "stop_reason": "stop"}], "completion": "done"},
        "scores": {"match": {"value": "C", "answer": "done"}}, "metadata": {"level": 1}, "total_time": 2.5,
        "events": [
            {"event": "sample_init", "timestamp": "2026-01-02T03:04:00+00:00"},
            model_event(acted, [asked], 1),
            {"event": "approval", "timestamp": "2026-01-02T03:04:02+00:00", "approver": "human", "decision": "approve",
             "call": calls[0], "message": ""},
            {"event": "tool", "id": "c1"},
            model_event(last, [asked, acted, *results], 3),
        ],
        "attachments": {"dog": DOG, "tool": "Run a command."},
    }  # fmt: skip
    return {**body, **fields}


def entries(*samples, finished=True):
    """The files of an archive, in the order in which Inspect writes them."""
    made = {"_journal/start.json": START}
    made |= {f"samples/{item['id']}_epoch_{item['epoch']}.json": item for item in samples}
    summaries = [{key: item[key] for key in ("id", "epoch", "input", "target")} for item in samples]
    made["_journal/summaries/1.json"] = summaries
    return {**made, "summaries.json": summaries, "header.json": HEADER} if finished else made


def archive(files, method=zipfile.ZIP_DEFLATED):
    """Return a zip archive of JSON values, or of bytes as they are."""
    packed = {name: value if isinstance(value, bytes) else json.dumps(value).encode() for name, value in files.items()}
    if method == 93:
        return zstd_archive(packed)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression=method) as opened:
        for name, content in packed.items():
            opened.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), content, compress_type=method)
    return buffer.getvalue()


def zstd_archive(files, method=93):
    """Return a zip archive with Zstandard entries, which `zipfile` cannot write before Python 3.14."""
    body, directory = b"", b""
    for name, content in files.items():
        packed = pa.compress(content, codec="zstd", asbytes=True)
        head = struct.pack(
            "<5H3I2H", 20, 0, method, 0, 33, zlib.crc32(content), len(packed), len(content), len(name), 0
        )
        tail = struct.pack("<3H2I", 0, 0, 0, 0, len(body))
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + head + tail + name.encode()
        body += b"PK\x03\x04" + head + name.encode() + packed
    end = struct.pack("<4H2IH", 0, 0, len(files), len(files), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def chunked(item):
    """Return the files of a sample in the chunked shape."""
    prefix = f"samples/{item['id']}_epoch_{item['epoch']}"
    held = list(item["attachments"])
    text = json.dumps({key: item[key] for key in ("messages", "events", "input")})
    for at, name in enumerate(held):
        text = text.replace(f"attachment://{name}", f"attachment://{at}")
    parts = json.loads(text)
    left = ("messages", "events", "attachments", "metadata")
    shell = {key: value for key, value in item.items() if key not in left} | {"input": parts["input"]}
    messages = [parts["messages"][-1], *parts["messages"][:-1]]
    return {
        f"{prefix}/sample.json": {**shell, "message_refs": [[1, len(messages)], [0, 1]]},
        f"{prefix}/metadata.json": item["metadata"],
        f"{prefix}/messages/0.json": messages[:2],
        f"{prefix}/messages/2.json": messages[2:],
        f"{prefix}/events/0.json": parts["events"],
        f"{prefix}/events/stats.json": {},
        f"{prefix}/attachments/0.json": list(item["attachments"].values()),
    }
