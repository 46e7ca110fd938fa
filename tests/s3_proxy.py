"""A proxy in front of a real S3 server that breaks what a network, a full disk or a careless look-alike breaks."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

from seaweed_server import KEY, REGION, SECRET

Harm = Literal[
    "none",
    "deny",  # answer 403
    "busy",  # answer 503
    "lose answer",  # have it done, and drop the connection instead of answering
    "drop",  # drop the connection, and have nothing done
    "cut request",  # pass half of the body on and drop both connections
    "cut answer",  # send half of the body back and drop the connection
    "wait",  # answer after `delay_s`
    "keep half",  # have half of the body stored as if it were all
    "strip",  # pass it on without its conditions, as a server would that ignores them
]
CONDITIONS = ("if-match", "if-none-match")


@dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def conditional(self) -> bool:
        """Whether it is a conditional write."""
        return any(name.lower() in CONDITIONS for name in self.headers)


@dataclass
class Proxy:
    """What a test sets and looks at."""

    url: str = ""
    harm: Callable[[Seen], Harm] = lambda seen: "none"
    delay_s: float = 0.0
    seen: list[Seen] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def once(self, harm: Harm, wanted: Callable[[Seen], bool]) -> None:
        """Do harm to the first request that is wanted, and to no other."""
        left = [harm]

        def choose(seen: Seen) -> Harm:
            with self.lock:
                return left.pop() if left and wanted(seen) else "none"

        self.harm = choose

    def always(self, harm: Harm, wanted: Callable[[Seen], bool] = lambda seen: True) -> None:
        """Do harm to every request that is wanted."""
        self.harm = lambda seen: harm if wanted(seen) else "none"


@contextlib.contextmanager
def running_proxy(upstream: str) -> Iterator[Proxy]:
    """A proxy in front of `upstream`, ended afterwards."""
    proxy = Proxy()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy, urlsplit(upstream).netloc))
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(proxy: Proxy, upstream: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            seen = Seen(self.command, self.path, headers, body)
            with proxy.lock:
                proxy.seen.append(seen)
            harm = proxy.harm(seen)
            if harm == "wait":
                time.sleep(proxy.delay_s)
            if harm in ("deny", "busy"):
                code, name = (403, "AccessDenied") if harm == "deny" else (503, "SlowDown")
                said = f"<Error><Code>{name}</Code><Message>as the test wants it</Message></Error>".encode()
                self._answer(code, {"Content-Type": "application/xml", "Content-Length": str(len(said))}, said)
            elif harm == "drop":
                self.close_connection = True
            elif harm == "cut request":
                self._cut(seen)
            else:
                self._pass_on(_changed(seen, harm, upstream), harm)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

        def _pass_on(self, seen: Seen, harm: Harm) -> None:
            connection = http.client.HTTPConnection(upstream, timeout=60)
            try:
                connection.request(seen.method, seen.path, seen.body, seen.headers)
                answer = connection.getresponse()
                data = answer.read()
            except OSError:
                self.close_connection = True
                return
            finally:
                connection.close()
            if harm == "lose answer":
                self.close_connection = True
                return
            self._answer(answer.status, dict(answer.getheaders()), data, half=harm == "cut answer")

        def _answer(self, status: int, headers: dict[str, str], data: bytes, half: bool = False) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = next((value for name, value in headers.items() if name.lower() == "content-length"), len(data))
            self.send_header("Content-Length", str(length))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(data[: len(data) // 2] if half else data)
            self.close_connection = self.close_connection or half

        def _cut(self, seen: Seen) -> None:
            connection = http.client.HTTPConnection(upstream, timeout=60)
            connection.putrequest(seen.method, seen.path, skip_host=True, skip_accept_encoding=True)
            for name, value in seen.headers.items():
                connection.putheader(name, value)
            connection.endheaders(seen.body[: len(seen.body) // 2])
            connection.close()
            self.close_connection = True

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    return Handler


def _changed(seen: Seen, harm: Harm, upstream: str) -> Seen:
    """The request as the server gets it, signed anew where it is another one."""
    if harm not in ("strip", "keep half"):
        return seen
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    dropped = {*CONDITIONS} if harm == "strip" else {"content-md5"}
    dropped |= {"authorization", "x-amz-date", "x-amz-content-sha256", "host", "content-length"}
    kept = {name: value for name, value in seen.headers.items() if name.lower() not in dropped}
    body = seen.body[: len(seen.body) // 2] if harm == "keep half" else seen.body
    request = AWSRequest(seen.method, f"http://{upstream}{seen.path}", headers=kept, data=body)
    S3SigV4Auth(Credentials(KEY, SECRET), "s3", REGION).add_auth(request)
    return Seen(seen.method, seen.path, dict(request.headers.items()), body)
