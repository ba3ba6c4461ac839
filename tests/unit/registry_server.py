"""A schema registry in this process: what Confluent's REST API answers, and how it fails."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

Answer = tuple[int, Any]


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Registry:
    """subjects: schemas by subject, in the order of their versions; schemas: all, by id from 1

    fails: an answer for all requests instead, by status, and a JSON object or a text
    refuses: subjects whose next schema is incompatible; metadata: by id
    serialized: by the text of a .proto file, what format=serialized makes of it
    normalized: by the text of a schema, the one that is kept where ?normalize=true is asked
    """

    def __init__(self) -> None:
        self.subjects: dict[str, list[int]] = {}
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        self.fails: Answer | None = None
        self.refuses: set[str] = set()
        self.serialized: dict[str, str] = {}
        self.normalized: dict[str, str] = {}
        self.metadata: dict[int, dict[str, str]] = {}
        self.has_guids = True
        self.waits_for: threading.Event | None = None
        self.url = ""

    def add(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, asked: Asked) -> Answer:
        if self.fails is not None:
            return self.fails
        if "normalize=true" in asked.path and asked.body["schema"] in self.normalized:
            kept = {**asked.body, "schema": self.normalized[asked.body["schema"]]}
            asked = asked._replace(body=kept)
        status, content = self._found(asked)
        if "format=serialized" in asked.path and content.get("schema") in self.serialized:
            content = {**content, "schema": self.serialized[content["schema"]]}
        return status, content

    def _found(self, asked: Asked) -> Answer:
        parts = [unquote(part) for part in urlsplit(asked.path).path.strip("/").split("/")]
        if parts == ["subjects"]:
            return 200, [*self.subjects]
        if parts[0] == "compatibility":
            messages = ["reader type: STRING"] if parts[2] in self.refuses else []
            return 200, {"is_compatible": not messages, "messages": messages}
        if parts[0] == "schemas":
            number = int(parts[2])
            if number > len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self._told(number)
        subject, versions = parts[1], self.subjects.get(parts[1])
        if parts[-1] == "versions" and asked.method == "POST":
            if subject in self.refuses:
                return 409, {"error_code": 409, "message": "reader type: STRING not compatible"}
            return 200, self._told(self.add(subject, asked.body))
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if asked.method == "POST":
            if asked.body not in self.schemas:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            number = self.schemas.index(asked.body) + 1
            return 200, {**self._told(number), "version": versions.index(number) + 1}
        if parts[-1] == "metadata":
            pairs = parse_qsl(urlsplit(asked.path).query)
            wanted = {key: value for (_, key), (_, value) in zip(pairs[::2], pairs[1::2])}
            has = [n for n in versions if wanted.items() <= self.metadata.get(n, {}).items()]
            if not has:
                return 404, {"error_code": 40402, "message": "Version not found."}
            return 200, {**self._told(has[-1]), "version": versions.index(has[-1]) + 1}
        if parts[-1] != "latest" and int(parts[-1]) > len(versions):
            return 404, {"error_code": 40402, "message": "Version not found."}
        number = versions[-1] if parts[-1] == "latest" else versions[int(parts[-1]) - 1]
        return 200, {**self._told(number), "version": versions.index(number) + 1}

    def _told(self, number: int) -> dict[str, Any]:
        guid = {"guid": str(UUID(int=number))} if self.has_guids else {}
        return {"id": number, **self.schemas[number - 1], **guid}


@contextmanager
def serving(registry: Registry, context: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """``registry.url`` is its address. context: for https"""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(self.command, self.path, dict(self.headers), body)
            registry.asked.append(asked)
            if registry.waits_for is not None:
                registry.waits_for.wait()
            status, content = registry.answer(asked)
            is_text = isinstance(content, str)
            data = content.encode() if is_text else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if is_text else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    registry.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        if registry.waits_for is not None:
            registry.waits_for.set()
        server.shutdown()
        server.server_close()
        thread.join()
