"""A local server that breaks off, for downloads."""

import contextlib
import http.server
import threading
from typing import Any, Iterator, List, Optional


class Server(http.server.ThreadingHTTPServer):
    """Serves a content at any path; `breaks` lists after how many bytes the next replies break off."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.breaks: List[int] = []
        self.ranges: List[Optional[str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/folder/data.tgz"

    @classmethod
    @contextlib.contextmanager
    def running(cls, content: bytes) -> "Iterator[Server]":
        with cls(content) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        start = int(wanted[len("bytes=") : -1]) if wanted else 0
        if start >= len(self.server.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(self.server.content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.breaks.pop(0)] if self.server.breaks else body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
