"""Connections to brokers, and the clients that send requests over them. From the socket up:

- ``channels``: a plaintext byte stream, and the interface of the network (``TransportLayer``)
- ``tls``: a byte stream inside TLS (``SslTransportLayer``)
- ``transport``: all channels of a client, and the look-up of host names (``Selector``)
- ``node_connection``: the states of the connection to one node, and its outages in the log
- ``client``: requests that do not block (``NetworkClient``)
- ``blocking``, ``admin``: requests that block (``KafkaAdminClient``)
- ``coordinators``: the coordinators of transactions

Java's name is in parentheses. ``protocol/connection.py`` has the bytes of one connection, and SASL.
"""
