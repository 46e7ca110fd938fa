"""A small OpenAI-compatible server for the tests: real HTTP, scripted answers and scripted failures."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class OneByOne:
    """A judge of the tests that grades one item at a time with `one`."""

    batch = 1

    def judge(self, items):
        return [self.one(item) for item in items]


class JudgeServer:
    """Answers `/v1/chat/completions` through `answer(text of the item) -> (category, reason)`; records what it saw."""

    def __init__(self, answer):
        self.answer, self.seen, self.failures = answer, [], []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    server.seen.append({"body": body, "key": self.headers.get("Authorization")})
                    failure = server.failures.pop(0) if server.failures else None
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                try:
                    self.reply(body, failure)
                finally:
                    with server.lock:
                        server.at_once -= 1

            def reply(self, body, failure):
                if callable(failure):
                    return failure(self)
                category, reason = server.answer(body["messages"][-1]["content"])
                content = json.dumps({"reason": reason, "category": category})
                return self.send(200, completion(content) if failure is None else failure)

            def send(self, status, value, **headers):
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                for name, one in headers.items():
                    self.send_header(name.replace("_", "-"), one)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                """Keep the tests' output clean."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.http.shutdown()
        self.http.server_close()


def completion(content, finish="stop", usage=(100, 20)):
    body = {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish}]}
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return body


def status(code, **headers):
    return lambda handler: handler.send(code, {"error": "scripted"}, **headers)


def hang(seconds):
    return lambda handler: time.sleep(seconds)


def cut(handler):
    """Promise more bytes than are sent."""
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
    handler.close_connection = True
