"""OpenLineage events, held against the published JSON schemas, and a backend that takes them."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

HAS_LINEAGE = "false" if find_spec("openlineage") is None else "true"
"""For the option, in tests that prove something else too."""
_SCHEMAS = [
    json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parent / "unit" / "data" / "openlineage").glob("*.json")
]
_REGISTRY = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in _SCHEMAS)
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"


def _validate(value, schema):
    checker = Draft202012Validator.FORMAT_CHECKER
    validator = Draft202012Validator({"$ref": schema}, registry=_REGISTRY, format_checker=checker)
    validator.validate(value)


def _facets(value):
    """Yield all facets in a part of an event."""
    if isinstance(value, dict):
        if "_schemaURL" in value:
            yield value
        for part in value.values():
            yield from _facets(part)
    elif isinstance(value, list):
        for part in value:
            yield from _facets(part)


def check_event(event):
    """Return the event. Raises ValidationError if it, or a facet, is not as its schema says."""
    _validate({"schemaURL": _EVENT, **event}, _EVENT)
    facets = list(_facets(event))
    assert facets
    for facet in facets:
        _validate(facet, facet["_schemaURL"])
    return event


def outputs_of(event):
    """Return rows and bytes by topic; None for a topic without statistics."""
    found = {}
    for output in event["outputs"]:
        facet = output.get("outputFacets", {}).get("outputStatistics")
        found[output["name"]] = None if facet is None else (facet["rowCount"], facet["size"])
    return found


def kinds(events):
    return [event["eventType"] for event in events]


def events_in(path):
    """Return the events that the client's file transport has written, checked, as they occurred."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return sorted(map(check_event, map(json.loads, lines)), key=lambda event: event["eventTime"])


def to_file(path):
    """Return the client's variables for its file transport."""
    return {
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(path),
        "OPENLINEAGE__TRANSPORT__APPEND": "true",
    }


class Backend:
    """events: received, checked; keys: their Authorization; status: of answers, None: no answer"""

    def __init__(self, status=201):
        self.events = []
        self.keys = []
        self.asked = threading.Event()
        self.let_go = threading.Event()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                backend.asked.set()
                if status is None:
                    backend.let_go.wait()
                    return
                backend.keys.append(self.headers["Authorization"])
                if status < 300:
                    backend.events.append(check_event(json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def backend(status=201):
    running = Backend(status)
    try:
        yield running
    finally:
        running.close()
