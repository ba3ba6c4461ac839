"""Lines as OpenTelemetry's metrics and traces, and sending them: OTLP over HTTP.

What imports the package opentelemetry, 250 ms, is imported by ``exporting`` alone, and that by the
thread that sends.
"""
