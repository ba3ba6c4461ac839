"""A receiver of OTLP over HTTP, which reads what it gets by OpenTelemetry's own messages."""

import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.patience import PATIENCE_S

_MESSAGES = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}


class Receiver:
    """metrics, traces: requests, in the order of their arrival; headers: of all of them

    statuses: what the next requests are answered with, then always 200
    answers: to give in their place, by path
    """

    def __init__(self, port=0):
        self.metrics = []
        self.traces = []
        self.headers = []
        self.statuses = []
        self.answers = {}
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                status, answer = receiver.take(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                if 300 <= status < 400:
                    self.send_header("Location", receiver.endpoint)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def take(self, path, headers, body):
        request, response = _MESSAGES[path]
        with self._changed:
            self.headers.append(headers)
            status = self.statuses.pop(0) if self.statuses else 200
            if status == 200:
                of = self.metrics if path.endswith("metrics") else self.traces
                of.append(request.FromString(body))
            self._changed.notify_all()
        answer = self.answers.get(path) or response()
        return status, answer.SerializeToString()

    def wait_for(self, requests):
        """Until so many requests have come, of whatever kind and outcome."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.headers) >= requests, PATIENCE_S)
        assert arrived, f"{len(self.headers)} requests"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # --- what came ---------------------------------------------------------------------------------

    @property
    def spans(self):
        """All of them, batch after batch."""
        found = []
        for request in self.traces:
            for of_resource in request.resource_spans:
                resource = attributes_of(of_resource.resource)
                for of_scope in of_resource.scope_spans:
                    found += [Span(span, resource) for span in of_scope.spans]
        return found

    def points(self, name):
        """All points of one metric, batch after batch."""
        return [
            point
            for request in self.metrics
            for metric in metrics_in(request)
            if metric.name == name
            for point in getattr(metric, metric.WhichOneof("data")).data_points
        ]


class Span:
    """One span. start, end: nanoseconds since 1970."""

    def __init__(self, span, resource):
        self.name = span.name
        self.start = span.start_time_unix_nano
        self.end = span.end_time_unix_nano
        self.attributes = attributes_of(span)
        self.resource = resource
        self.id = span.span_id
        self.trace_id = span.trace_id
        self.parent = span.parent_span_id
        self.message = span


@contextmanager
def receiver():
    """One that listens."""
    made = Receiver()
    try:
        yield made
    finally:
        made.close()


def metrics_in(request):
    """All metrics of one request."""
    return [
        metric
        for of_resource in request.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
    ]


def attributes_of(message):
    """Of a resource, span, point or event."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in message.attributes}
