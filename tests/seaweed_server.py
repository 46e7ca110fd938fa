"""A real S3 server (SeaweedFS) on free loopback ports with data of its own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

START_S = 60.0
KEY, SECRET, REGION = "ratchet-tests", "ratchet-tests-secret", "us-east-1"
READER_KEY, READER_SECRET = "ratchet-reader", "ratchet-reader-secret"
"""An identity that may read and list, and nothing else."""
BUCKET = "bucket"
GRPC = 10000
"""SeaweedFS listens for gRPC at each port plus this."""
OFF = (
    "s3.autoCreateBucket=false",
    "webdav=false",
    "admin.ui=false",
    "master.telemetry=false",
    "s3.port.iceberg=0",
    "s3.port.lance=0",
)


class Seaweed:
    """One server: `start`, `kill`, `start` again on the same data and ports."""

    def __init__(self, folder: Path) -> None:
        """Prepare a server on `folder`; it starts with `start`."""
        self.folder, self.log = folder, folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.ports = dict(zip(("s3", "filer", "master", "volume", "admin"), _free_ports(5), strict=True))
        self.url = f"http://127.0.0.1:{self.ports['s3']}"
        (folder / "data").mkdir(parents=True)
        reader = {"accessKey": READER_KEY, "secretKey": READER_SECRET}
        identities = [
            {"name": "all", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]},
            {"name": "reader", "credentials": [reader], "actions": ["Read", "List"]},
        ]
        (folder / "s3.json").write_text(json.dumps({"identities": identities}))

    def environment(self, url: str | None = None) -> dict[str, str]:
        """Variables by which a client finds the server, or `url` in front of it."""
        return {
            "AWS_ENDPOINT_URL_S3": url or self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
        }

    def fresh_place(self) -> str:
        """A place for a store that nothing else uses."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        binary = Path(sys.executable).with_name("weed")
        options = [f"-{name}.port={port}" for name, port in self.ports.items()] + [f"-{flag}" for flag in OFF]
        command = [str(binary), "-logtostderr", "mini", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1"]
        command += ["-ip.bind=127.0.0.1", f"-s3.config={self.folder / 's3.json'}", f"-bucket={BUCKET}", *options]
        command += [f"-s3.localSocket={self.folder / 's3.sock'}", f"-filer.localSocket={self.folder / 'filer.sock'}"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=kept, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                self.kill()
                raise RuntimeError(f"weed did not start:\n{said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server at once, as a power cut would."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _ready(self) -> bool:
        """The bucket is made after S3 answers: only the log says when."""
        return b"All enabled components are running" in self.log.read_bytes()


@contextlib.contextmanager
def running_seaweed(folder: Path) -> Iterator[Seaweed]:
    """A server that is started, and ended afterwards."""
    server = Seaweed(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, and whose gRPC ports are free too."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            if port + GRPC < 65536 and port not in found:
                other = held.enter_context(socket.socket())
                with contextlib.suppress(OSError):
                    other.bind(("127.0.0.1", port + GRPC))
                    found.append(port)
    return found
