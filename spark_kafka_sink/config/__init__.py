"""All options, as tables with default, check and documentation, and the code that parses them.

- ``config_def``: the form of a table and of its rows
- ``sink_keys``: the table of the sink's own options; ``formats`` and ``registry`` add rows to it
- ``producer_config``: the table of ``kafka.*``, parsed into ``ProducerConfig``
- ``security_keys``: the table of ``kafka.security.protocol``, ``kafka.ssl.*`` and ``kafka.sasl.*``
- ``security_config``: these security options, parsed
- ``sink_options``: all options of a write, parsed into ``SinkOptions``; unknown and removed names
"""
