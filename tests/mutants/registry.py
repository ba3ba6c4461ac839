"""A schema registry: what its answers may be, keys of the cache, limits, and who asks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_REGISTRY = ("unit/registry/test_schemas.py",)
_ANSWERS = ("unit/registry/test_client.py",)
_CHOICES = ("unit/registry/test_choices.py",)
_FAULTS = ("unit/registry/test_client.py",)
_GUARDS = ("unit/registry/test_client.py",)
_REFUSALS = ("unit/registry/test_options.py",)
_REMEMBERED = ("unit/registry/test_streams.py",)
_STREAMS = ("unit/registry/test_streams.py",)
_HTTP = ("unit/test_http.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant("registry/client.py", "type(value) is int and", "isinstance(value, int) and", _ANSWERS),
    Mutant("registry/client.py", "lowest <= value <= _MAX_ID", "lowest <= value", _ANSWERS),
    Mutant("registry/client.py", "_is_number(number, 0)", "_is_number(number, -1)", _ANSWERS),
    Mutant(
        "registry/client.py",
        "not _is_number(version, 1):\n        raise",
        "not _is_number(version, 0):\n        raise",
        _ANSWERS,
    ),
    Mutant(
        "registry/client.py",
        "isinstance(subject, str) and _is_number(version, 1)",
        "isinstance(subject, str) and _is_number(version, 0)",
        _ANSWERS,
    ),
    Mutant(
        "registry/client.py",
        "isinstance(name, str) and isinstance(subject",
        "isinstance(subject",
        _ANSWERS,
    ),
    Mutant("registry/client.py", "(ValueError, RecursionError)", "ValueError", _GUARDS),
    Mutant("registry/client.py", " or isinstance(code, bool):", ":", _GUARDS),
    Mutant(
        "registry/client.py",
        "        if config.has_url_credentials:\n",
        "        if False:\n",
        _REFUSALS,
    ),
    Mutant(
        "registry/client.py",
        "text=text, guid=found.guid, version=found.version)",
        "text=text, guid=found.guid)",
        _GUARDS,
    ),
    Mutant("registry/client.py", "_replace(id=schema_id)", "_replace()", _GUARDS),
    Mutant(
        "registry/client.py",
        "        if not isinstance(response, list):",
        "        if False:",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "timeout_ms = min(self._config.request_timeout_ms, left_ms)",
        "timeout_ms = self._config.request_timeout_ms",
        _FAULTS,
    ),
    Mutant(
        "registry/client.py",
        "                self._prepare_headers(number)\n                try:\n",
        "                try:\n                    self._prepare_headers(number)\n",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))",
        "False",
        _GUARDS,
    ),
    Mutant("registry/client.py", "        if not answer.is_whole:", "        if False:", _ANSWERS),
    Mutant("registry/client.py", "        if answer.status == 400:", "        if False:", _GUARDS),
    Mutant(
        "registry/client.py",
        "        except HTTPException as error:\n            self._check_clear_text(url, end_ms)\n",
        "        except HTTPException as error:\n",
        _GUARDS,
    ),
    Mutant("registry/client.py", 'url.scheme == "http" and speaks_tls', "speaks_tls", _GUARDS),
    Mutant("registry/client.py", 'HeaderCredential(f"Basic', 'Secret(f"Basic', _REFUSALS),
    Mutant("base/text.py", 'if scheme.lower() == "basic":', "if False:", _REFUSALS),
    Mutant(
        "registry/client.py",
        "or not host or parts.query or parts.fragment",
        "or not host or parts.fragment",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "or not host or parts.query or parts.fragment",
        "or not host or parts.query",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        '    address = f"{host}{parts.path}"',
        "    address = parts.path",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "return f\"/subjects/{quote(subject, safe='')}\"",
        'return f"/subjects/{subject}"',
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        'or response.get("is_compatible", True)',
        'or response.get("is_compatible", False)',
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "told = messages if isinstance(messages, list) else []",
        "told = messages",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "reasons = [redacted(message) for",
        "reasons = [str(message) for",
        _GUARDS,
    ),
    Mutant("registry/client.py", "                    self._first_url = number\n", "", _ANSWERS),
    Mutant(
        "registry/client.py",
        "text.isascii() and text.isprintable()",
        "text.isascii()",
        _REFUSALS,
    ),
    Mutant(
        "registry/client.py",
        "resolve(bearer.token.reveal(), option).strip()",
        "resolve(bearer.token.reveal(), option)",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "unquote(url.username)}:{unquote(url.password or '')}",
        "url.username}:{url.password or ''}",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "    if config.user_info is not None:\n        text",
        "    if config.user_info is not None and url.username is None:\n        text",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "{name: _header(text, given) for",
        "{name: Secret(text) for",
        _REFUSALS,
    ),
    Mutant(
        "registry/client.py",
        "RetryTimer(clock, pause), lambda _: tls, _resolved)",
        "RetryTimer(clock, pause), TlsContext, _resolved)",
        _GUARDS,
    ),
    Mutant("registry/client.py", "{408, 429, ", "{408, ", _GUARDS),
    Mutant(
        "registry/schemas.py",
        "UUID(schema.guid).bytes",
        "UUID(schema.guid).bytes_le",
        _REGISTRY,
    ),
    Mutant("registry/schemas.py", "if len(fetched) == _MAX_REFERENCES:", "if False:", _ANSWERS),
    Mutant(
        "registry/schemas.py", "[*reversed(schema.references)]", "[*schema.references]", _GUARDS
    ),
    Mutant(
        "registry/schemas.py",
        "pending += reversed(referenced.references)",
        "pending += referenced.references",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        " or (name in names and not is_json):",
        ":",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "(AttributeError, KeyError, RecursionError, TypeError)",
        "(AttributeError, KeyError, TypeError)",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "(AttributeError, KeyError, RecursionError, TypeError)",
        "(AttributeError, KeyError, RecursionError)",
        _GUARDS,
    ),
    Mutant(
        "formats/avro_schema.py",
        "namespace = before if dot else space if declared is None else declared",
        "namespace = before if dot else space if not declared else declared",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        '            for inside in ("items", "values"):\n                self.add(node.get(inside), space)',
        "            pass",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "PrivateFolderError, ValueError, LookupError, TypeError, RecursionError)",
        "PrivateFolderError, ValueError, LookupError, RecursionError)",
        _REMEMBERED,
    ),
    Mutant(
        "registry/schemas.py",
        "            part.replace(path)\n",
        "            path.write_text(part.read_text())\n",
        _REMEMBERED,
    ),
    Mutant(
        "registry/schemas.py",
        '"{self._identity}_{digest}.json"',
        '"{self._identity.partition(chr(45))[0]}_{digest}.json"',
        _REMEMBERED,
    ),
    Mutant("registry/schemas.py", " and process_identity(int(number)) != owner:", ":", _REMEMBERED),
    Mutant(
        "registry/schemas.py",
        "        except (OSError, PrivateFolderError) as error:\n            warn",
        "        except PrivateFolderError as error:\n            warn",
        _REMEMBERED,
    ),
    Mutant("registry/schemas.py", "read_owned_file(path)", "path.read_bytes()", _REMEMBERED),
    Mutant("registry/schemas.py", " or not isinstance(schema.text, str):", ":", _REMEMBERED),
    Mutant("registry/schemas.py", "not isinstance(schema.id, int) or", "", _REMEMBERED),
    Mutant("registry/schemas.py", '"surrogatepass"', '"strict"', _REMEMBERED),
    Mutant(
        "registry/schemas.py", "key = (config, request, query)", "key = (config, request)", _STREAMS
    ),
    Mutant(
        "registry/schemas.py", "key = (config, request, query)", "key = (request, query)", _STREAMS
    ),
    Mutant(
        "registry/schemas.py",
        "known = _answers.get(key) if is_stream else None",
        "known = _answers.get(key)",
        _STREAMS,
    ),
    Mutant(
        "registry/schemas.py",
        "answer is None or clock.now_ms() >= answer.ask_at_ms",
        "answer is None",
        _REGISTRY,
    ),
    Mutant(
        "registry/schemas.py",
        "known is None and is_stream and cache is not None",
        "known is None and cache is not None",
        _STREAMS,
    ),
    Mutant(
        "registry/schemas.py",
        "known is None and is_stream and cache is not None",
        "is_stream and cache is not None",
        _STREAMS,
    ),
    Mutant(
        "registry/schemas.py",
        "except KafkaSinkError as error:",
        "except RegistryUnavailableError as error:",
        _STREAMS,
    ),
    Mutant("registry/schemas.py", "max(_FAILURE_PAUSE_MS, min(", "max(0, min(", _STREAMS),
    Mutant(
        "registry/schemas.py",
        "return repr((urls, request, query))",
        "return repr((urls, request))",
        _STREAMS,
    ),
    Mutant(
        "registry/schemas.py",
        "return repr((urls, request, query))",
        "return repr((urls, request.subject(request.text), query))",
        _CHOICES,
    ),
    Mutant("registry/schemas.py", '.rpartition("@")[2] for url', ".strip() for url", _REMEMBERED),
    Mutant(
        "registry/schemas.py",
        "self.is_encoded and self.options.uses_latest_version",
        "self.options.uses_latest_version",
        _REGISTRY,
    ),
    Mutant(
        "registry/schemas.py",
        "        if file.name in configured and file.name in imported:",
        "        if False:",
        _CHOICES,
    ),
    Mutant(
        "registry/schemas.py",
        "    if version is None:\n        raise RegistryError(",
        "    if False:\n        raise RegistryError(",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "        if refusal.number not in NOT_FOUND:\n            raise\n        raise RegistryError(problem",
        "        raise RegistryError(problem",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        'client.by_id(schema_id, request.kind == "PROTOBUF")',
        "client.by_id(schema_id)",
        _REGISTRY,
    ),
    Mutant(
        "registry/schemas.py",
        '    except RegistryError:\n        version = "an earlier version"',
        '    except RegistryRefusedError:\n        version = "an earlier version"',
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "    if not isinstance(subject, str) or not subject:",
        "    if not isinstance(subject, str):",
        _CHOICES,
    ),
    Mutant(
        "registry/schemas.py",
        "if request.options.uses_latest_version or request.options.schema_id is not None:",
        "if request.options.uses_latest_version:",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "if request.options.uses_latest_version or request.options.schema_id is not None:",
        "if request.options.schema_id is not None:",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "(first.kind, first.text) != (request.kind, request.text)",
        "first.text != request.text",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "LoginConfig(connect_timeout_ms=timeout_ms, read_timeout_ms=timeout_ms)",
        "LoginConfig()",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "retrieval.fetch(config.timeout_ms)",
        "retrieval.fetch(10**9)",
        _GUARDS,
    ),
    Mutant(
        "registry/schemas.py",
        "return name, subject, version or found.version or 0",
        "return name, subject, found.version or version or 0",
        _GUARDS,
    ),
    Mutant(
        "registry/client.py",
        "                if left_ms <= 0:\n                    break\n",
        "",
        _GUARDS,
    ),
    Mutant("base/http.py", "if not url.hostname or port == 0:", "if not url.hostname:", _HTTP),
    Mutant("base/http.py", "if route.proxy is not None and context is None:", "if False:", _HTTP),
    Mutant(
        "base/http.py", "        headers.update(route.proxy.headers)\n", "        pass\n", _HTTP
    ),
    Mutant("base/http.py", "            connection.default_port = _PORTS[url.scheme]\n", "", _HTTP),
    Mutant(
        "base/http.py",
        "min(end_ms, clock.now_ms() + limits.connect_ms)",
        "clock.now_ms() + limits.connect_ms",
        _HTTP,
    ),
    Mutant("base/http.py", "min(end_ms, clock.now_ms() + limits.read_ms)", "end_ms", _HTTP),
    Mutant("base/http.py", "if not 200 <= status < 300:", "if False:", _HTTP),
    Mutant(
        "base/http.py",
        'f"[{route.host}]" if ":" in route.host else route.host',
        "route.host",
        _HTTP,
    ),
    Mutant("base/http.py", "if answer.length and is_whole:", "if False:", _HTTP),
    Mutant("base/http.py", "except IncompleteRead:", "except ZeroDivisionError:", _HTTP),
    Mutant("base/http.py", " or proxy_bypass(host)", "", _HTTP),
    Mutant("base/http.py", 'url.scheme != "http" or ', "", _HTTP),
    Mutant(
        "base/http.py",
        "    except BaseException:\n        sock.close()\n        raise",
        "    except ZeroDivisionError:\n        raise",
        _HTTP,
    ),
    Mutant(
        "base/http.py",
        'headers={"Host": target, **proxy.headers}',
        'headers={"Host": target}',
        _HTTP,
    ),
    Mutant("base/http.py", "unquote(url.username or '')}:", "url.username or ''}:", _HTTP),
    Mutant("base/http.py", "        if left_ms <= 0:\n            raise _no_time()\n", "", _HTTP),
    Mutant(
        "base/http.py",
        "                raise _tls_alert_or(_DeadlineSocket(sock, until), error) from None",
        "                raise",
        _HTTP,
    ),
    Mutant(
        "base/http.py",
        "    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):\n        return error\n",
        "",
        _HTTP,
    ),
    Mutant(
        "base/http.py",
        "    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):",
        "    except ssl.SSLEOFError:",
        _HTTP,
    ),
    Mutant(
        "base/http.py",
        "    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):",
        "    except ssl.SSLZeroReturnError:",
        _HTTP,
    ),
    Mutant("base/http.py", "    except ssl.SSLError as alert:\n        return alert\n", "", _HTTP),
    Mutant(
        "base/http.py",
        "    except OSError:\n        pass\n    return error",
        "    finally:\n        pass\n    return error",
        _HTTP,
    ),
    Mutant(
        "base/http.py",
        "            self._sock.settimeout(self._until.left_s())\n            view",
        "            view",
        _HTTP,
    ),
    Mutant(
        "base/http.py",
        "except (OSError, UnicodeError) as error:\n            found",
        "except OSError as error:\n            found",
        _HTTP,
    ),
    Mutant("base/http.py", "while len(body) <= most_bytes and", "while", _HTTP),
    Mutant("base/http.py", "bytes(body[:most_bytes])", "bytes(body)", _HTTP),
    Mutant("base/http.py", "is_whole = len(body) <= most_bytes", "is_whole = True", _HTTP),
    Mutant(
        "base/http.py",
        "is_whole = len(body) <= most_bytes",
        "is_whole = len(body) < most_bytes",
        _HTTP,
    ),
    Mutant("base/http.py", "until.left_s() / (len(found) - number)", "until.left_s()", _HTTP),
    Mutant(
        "base/http.py",
        "until.left_s() / (len(found) - number)",
        "until.left_s() / len(found)",
        _HTTP,
    ),
    Mutant(
        "base/http.py",
        "            sock.close()\n            problem = error",
        "            problem = error",
        _HTTP,
    ),
    Mutant(
        "registry/schemas.py",
        "request.location == HEADER and schema.guid is None and",
        "request.location == HEADER and",
        _REGISTRY,
    ),
    Mutant(
        "registry/schemas.py",
        "request.location == HEADER and schema.guid is None and",
        "schema.guid is None and",
        _REGISTRY,
    ),
)
