"""Security: second checks, keys of what is kept, forgetting, and limits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ASSERTIONS = ("unit/security/test_token_endpoint.py",)
_AWS = ("unit/security/test_kerberos_and_aws.py",)
_CREDENTIALS = ("unit/security/test_credentials.py",)
_GUARDS = ("unit/security/test_credentials.py",)
_GSSAPI = ("unit/security/test_kerberos_and_aws.py",)
_ITERATIONS = ("unit/security/test_key_formats.py",)
_JAAS = ("unit/security/test_credentials.py",)
_JKS = ("unit/security/test_key_formats.py",)
_LOCATIONS = ("unit/security/test_credentials.py",)
_LOGINS = ("unit/security/test_credentials.py",)
_PEM = ("unit/security/test_key_formats.py",)
_TLS_ERRORS = ("unit/security/test_tls.py",)
_PKCS12 = ("unit/security/test_key_formats.py",)
_REFERENCES = ("unit/security/test_credentials.py",)
_REFRESH = ("unit/security/test_tokens.py",)
_SASL = ("unit/security/test_sasl.py", "unit/security/test_tokens.py")
_STORES = ("unit/security/test_stores.py",)
_SUITES = ("unit/security/test_tls.py",)
_TLS = ("unit/security/test_tls.py", "unit/test_tls_channel.py")
_TLS_REFERENCES = ("unit/security/test_tls.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "security/oauth_tokens.py",
        "            if self._use() is None:\n                self._obtain",
        "            if True:\n                self._obtain",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "max(timeout_ms - (self._clock.now_ms() - start_ms), 1)",
        "timeout_ms",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "if self._is_closed or next_ms is None:",
        "if next_ms is None:",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "self._token, self._last_error = token, None",
        "self._token = token",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "if not self._has_thread or self._is_closed:",
        "if not self._has_thread:",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "if self._thread is None or not self._thread.is_alive():",
        "if self._thread is None:",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "                self._schedule.on_failed(self._note_request())\n",
        "                self._note_request()\n",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "return max(self._clock.timestamp_ms(), timestamp_ms + self._clock.now_ms() - monotonic_ms)",
        "return self._clock.timestamp_ms()",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "return max(self._clock.timestamp_ms(), timestamp_ms + self._clock.now_ms() - monotonic_ms)",
        "return timestamp_ms + self._clock.now_ms() - monotonic_ms",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "        self._last_request = (self._clock.timestamp_ms(), self._clock.now_ms())\n        return",
        "        return",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "        self._failed_at_ms = None\n        self._is_used = False\n",
        "        self._is_used = False\n",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "        self._failed_at_ms = None\n        self._is_used = False\n",
        "        self._failed_at_ms = None\n",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "was_used, self._is_used = self._is_used, False",
        "was_used = self._is_used",
        _REFRESH,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "attempt(start_ms + timeout_ms - timer.clock.now_ms())",
        "attempt(timeout_ms)",
        (
            "unit/security/test_token_endpoint.py",
            "unit/security/test_tokens.py",
        ),
    ),
    Mutant(
        "security/references.py",
        "if len(data) > MAX_FILE_BYTES or not text.strip():",
        "if not text.strip():",
        _GUARDS,
    ),
    Mutant(
        "security/oauth.py",
        "        if config not in self._tls:\n",
        "        if not self._tls:\n            config = config\n        if True:\n",
        _GUARDS,
    ),
    Mutant(
        "security/oauth_tokens.py",
        "isinstance(value, bool) or ",
        "",
        (
            "unit/security/test_tokens.py",
            "unit/security/test_token_endpoint.py",
        ),
    ),
    Mutant(
        "security/oauth_tokens.py",
        " or len(set(stripped)) < len(stripped)",
        "",
        (
            "unit/security/test_tokens.py",
            "unit/security/test_token_endpoint.py",
        ),
    ),
    Mutant(
        "security/oauth_tokens.py",
        "if not isinstance(key.curve, ec.SECP256R1):",
        "if False:",
        _ASSERTIONS,
    ),
    Mutant(
        "security/oauth.py",
        "prefix=EXTENSION_PREFIX",
        'prefix=""',
        (
            "unit/security/test_tokens.py",
            "unit/security/test_credentials.py",
        ),
    ),
    Mutant("security/oauth.py", "        self._keeper.close()\n", "", _GUARDS),
    Mutant(
        "security/security.py",
        "        os.register_at_fork(after_in_child=self.forget)\n",
        "",
        _LOGINS,
    ),
    Mutant(
        "security/security.py",
        "return self._created[key]",
        "return next(iter(self._created.values()))",
        _LOGINS,
    ),
    Mutant(
        "security/security.py",
        "            if key not in self._created:\n",
        "            if True:\n",
        _LOGINS,
    ),
    Mutant(
        "security/security.py",
        "        self._lock = threading.Lock()\n",
        '        self._lock = getattr(self, "_lock", threading.Lock())\n',
        _LOGINS,
    ),
    Mutant(
        "security/security.py",
        "with suppress(CredentialsUnavailableError):",
        "with suppress(Exception):",
        _LOGINS,
    ),
    Mutant(
        "security/credentials.py",
        "            check_module(entry, config.mechanism)\n            return",
        "            return",
        _CREDENTIALS,
    ),
    Mutant(
        "security/credentials.py",
        "        check_module(entry, config.mechanism)\n        wanted",
        "        wanted",
        _GUARDS,
    ),
    Mutant(
        "security/credentials.py",
        "        _check_present(options, _JAAS_OPTIONS if has_jaas else _PLAIN_OPTIONS)\n    is_token",
        "    is_token",
        _CREDENTIALS,
    ),
    Mutant("security/credentials.py", "if chr(code) not in text)", ")", _GUARDS),
    Mutant("security/references.py", "if Path(name).name != name:", "if False:", _REFERENCES),
    Mutant("security/credentials.py", "    if len(entries) > 1:\n", "    if False:\n", _JAAS),
    Mutant(
        "security/aws.py",
        "keeper = self._keepers.get(region)",
        "keeper = next(iter(self._keepers.values()), None)",
        _AWS,
    ),
    Mutant("security/aws.py", "                self._keepers[region] = keeper\n", "", _AWS),
    Mutant("security/aws.py", "            keeper.close()\n", "            pass\n", _AWS),
    Mutant("security/aws.py", "        self._timer.close()\n", "", _AWS),
    Mutant("security/aws.py", "is_last=tries >= _MAX_ATTEMPTS", "is_last=False", _AWS),
    Mutant("security/kerberos.py", "owner == user and ", "", _GSSAPI),
    Mutant("security/kerberos.py", "since_ms > oldest_ms and ", "", _GSSAPI),
    Mutant("security/kerberos.py", " and are_valid(credentials)", "", _GSSAPI),
    Mutant("security/kerberos.py", "        if thread.is_alive():", "        if False:", _GSSAPI),
    Mutant(
        "security/kerberos.py",
        "            if user not in self._tickets:\n",
        "            if not self._tickets:\n",
        _GSSAPI,
    ),
    Mutant(
        "security/kerberos.py",
        'ccache": f"{self._cache}-{os.getpid()}"',
        'ccache": self._cache',
        _GSSAPI,
    ),
    Mutant(
        "security/kerberos.py",
        "if len(offer) != len(_ANSWER) or not offer[0] & _NO_LAYER:",
        "if not offer[0] & _NO_LAYER:",
        _GSSAPI,
    ),
    Mutant(
        "security/kerberos.py",
        "if len(offer) != len(_ANSWER) or not offer[0] & _NO_LAYER:",
        "if len(offer) != len(_ANSWER):",
        _GSSAPI,
    ),
    Mutant(
        "security/kerberos.py",
        "if self._state is _State.ANSWERED and not challenge:",
        "if self._state is _State.ANSWERED:",
        _GSSAPI,
    ),
    Mutant("security/kerberos.py", "if credentials.lifetime == 0:", "if False:", _GSSAPI),
    Mutant("security/mechanisms.py", " or key == RESERVED", "", _SASL),
    Mutant(
        "security/mechanisms.py",
        "            self._state = _OAuthBearerState.REFUSED\n",
        "",
        _SASL,
    ),
    Mutant(
        "security/mechanisms.py",
        "NUL in username or NUL in password.reveal()",
        "NUL in username",
        _SASL,
    ),
    Mutant(
        "security/mechanisms.py",
        "        if self._is_complete:\n            raise unexpected_challenge(self.mechanism)\n",
        "",
        _SASL,
    ),
    Mutant(
        "security/mechanisms.py",
        "not nonce.startswith(self._nonce) or nonce == self._nonce",
        "not nonce.startswith(self._nonce)",
        _SASL,
    ),
    Mutant(
        "security/mechanisms.py",
        "not nonce.startswith(self._nonce) or nonce == self._nonce",
        "nonce == self._nonce",
        _SASL,
    ),
    Mutant("security/mechanisms.py", "            self._state = _ScramState.COMPLETE\n", "", _SASL),
    Mutant("security/tls.py", "        context.options |= ssl.OP_NO_RENEGOTIATION\n", "", _TLS),
    Mutant("security/tls.py", "            context.verify_flags |= _PARTIAL_CHAIN\n", "", _TLS),
    Mutant(
        "security/tls.py",
        '                self._last_warning = ""\n',
        "                pass\n",
        _TLS_REFERENCES,
    ),
    Mutant(
        "base/machine.py",
        "found.st_mtime_ns, found.st_size, found.st_ino",
        "found.st_mtime_ns, found.st_size, 0",
        _TLS_REFERENCES,
    ),
    Mutant(
        "base/machine.py",
        "found.st_mtime_ns, found.st_size, found.st_ino",
        "found.st_mtime_ns, 0, found.st_ino",
        _TLS_REFERENCES,
    ),
    Mutant(
        "base/machine.py",
        "found.st_mtime_ns, found.st_size, found.st_ino",
        "0, found.st_size, found.st_ino",
        _TLS_REFERENCES,
    ),
    Mutant(
        "security/tls.py",
        "    _load(scratch, material.chain, stores.description(store, options))\n",
        "",
        _TLS_REFERENCES,
    ),
    Mutant(
        "security/key_formats.py",
        'password.encode("utf-16-be", "surrogatepass")',
        'password.encode("utf-16-be")',
        _JKS,
    ),
    Mutant("security/key_formats.py", '.decode("utf-8", "replace")', '.decode("utf-8")', _JKS),
    Mutant(
        "security/key_formats.py",
        "if password is not None and not hmac",
        "if password and not hmac",
        _JKS,
    ),
    Mutant(
        "security/key_formats.py",
        "len(salted) < 2 * _DIGEST_BYTES",
        "len(salted) < _DIGEST_BYTES",
        _JKS,
    ),
    Mutant(
        "security/key_formats.py", "    if algorithm != _SUN_KEY_PROTECTOR:", "    if False:", _JKS
    ),
    Mutant("security/key_formats.py", "for key in keys if key.chain]", "for key in keys]", _JKS),
    Mutant(
        "security/key_formats.py",
        "    if element.tag != INTEGER:\n        raise",
        "    if False:\n        raise",
        _ITERATIONS,
    ),
    Mutant(
        "security/key_formats.py",
        "    data = _join_constructed_strings(data, _MOST_LEVELS)\n",
        "",
        _ITERATIONS,
    ),
    Mutant("security/key_formats.py", " + data[at:]", "", _ITERATIONS),
    Mutant(
        "security/key_formats.py",
        "if tag == OCTET_STRING or tag & _CONSTRUCTED:",
        "if tag & _CONSTRUCTED:",
        _ITERATIONS,
    ),
    Mutant(
        "security/key_formats.py",
        "for element in elements(data) if levels else ():",
        "for element in elements(data):",
        _ITERATIONS,
    ),
    Mutant(
        "security/key_formats.py",
        "    if not levels or not element.tag",
        "    if not element.tag",
        _ITERATIONS,
    ),
    Mutant(
        "security/key_formats.py",
        "and tag & _CONSTRUCTED and levels:",
        "and tag & _CONSTRUCTED:",
        _ITERATIONS,
    ),
    Mutant("security/key_formats.py", '.lstrip(b"\\0")[:16]', "[:16]", _ITERATIONS),
    Mutant("security/key_formats.py", '.lstrip(b"\\0")[:16]', '.lstrip(b"\\0")', _ITERATIONS),
    Mutant(
        "security/key_formats.py",
        "except (ValueError, StopIteration):",
        "except ValueError:",
        ("unit/test_secured_client.py::test_when_a_certificate_expires",),
    ),
    Mutant("security/pkcs12.py", "    check_iterations(data)\n", "", _ITERATIONS),
    Mutant(
        "security/pkcs12.py",
        "            check_iteration_count(integer(number))",
        "            pass",
        # That one alone: the others would compute for minutes.
        (f"{_ITERATIONS[0]}::test_what_is_not_asn_1[0]",),
    ),
    Mutant(
        "security/key_formats.py",
        "    check_iterations(key.data)\n    is_enc",
        "    is_enc",
        _ITERATIONS,
    ),
    Mutant(
        "security/key_formats.py",
        "            if _label(marker) != _label(begin):\n                raise _cut(begin)\n",
        "",
        _PEM,
    ),
    Mutant("security/key_formats.py", ", validate=True)", ")", _PEM),
    Mutant("security/key_formats.py", "{0,80}?", "*?", _PEM),
    Mutant("security/key_formats.py", '_HEADER_LINE.sub("", body)', "body", _PEM),
    Mutant(
        "security/key_formats.py", "    data: bytes = field(repr=False)", "    data: bytes", _PEM
    ),
    Mutant("security/stores.py", "file.read(_MOST_BYTES + 1)", "file.read(_MOST_BYTES)", _STORES),
    Mutant(
        "security/stores.py",
        "password if key_password is None else key_password",
        "password",
        _STORES,
    ),
    Mutant("security/stores.py", '"utf-8", "replace")', '"utf-8")', _STORES),
    Mutant(
        "security/stores.py",
        "    if store.key is not None and store.certificates is not None:",
        "    if False:",
        _STORES,
    ),
    Mutant("security/stores.py", "    if count > 1:\n", "    if True:\n", _STORES),
    Mutant("security/stores.py", "    if count > 1:\n", "    if count > 2:\n", _STORES),
    Mutant("security/stores.py", "if key.is_encrypted and", "if", _STORES),
    Mutant("security/stores.py", "if key.is_encrypted and", "if False and", _STORES),
    Mutant("security/stores.py", "(said == PEM) != (kind == PEM)", "said != kind", _STORES),
    Mutant("security/stores.py", "except StorePasswordError", "except KeyError", _STORES),
    Mutant(
        "security/stores.py", "options.certificates if store.location is None else", "", _STORES
    ),
    Mutant(
        "security/stores.py",
        "return None if store.certificates is None else options.certificates",
        "return options.certificates",
        _STORES,
    ),
    Mutant(
        "security/stores.py",
        "    if store.location is not None:\n        return options.location\n",
        "",
        _STORES,
    ),
    Mutant(
        "security/stores.py",
        "with _naming_option(options.certificates, options):\n            chain",
        "with _naming_option(options.key, options):\n            chain",
        _STORES,
    ),
    Mutant(
        "security/stores.py",
        "with _naming_option(options.key, options):\n            return",
        "with _naming_option(options.certificates, options):\n            return",
        _STORES,
    ),
    Mutant("security/tls.py", " or name in _TLS_1_3_BY_HAND", "", _SUITES),
    Mutant(
        "security/tls.py",
        "suites.tls_1_3 if TLS_1_3 in allowed else ()",
        "suites.tls_1_3",
        _SUITES,
    ),
    Mutant(
        "security/tls.py",
        "if TLS_1_3 in allowed and not can_choose and",
        "if not can_choose and",
        _SUITES,
    ),
    Mutant("security/tls.py", ' and hasattr(context, "set_ciphersuites")', "", _SUITES),
    Mutant("security/tls.py", " and os.path.isdir(_OWN_DESCRIPTORS)", "", _STORES),
    Mutant("security/tls.py", "            file.flush()\n", "", _STORES),
    Mutant(
        "security/stores.py",
        '    _warn_of_several_keys(pkcs12.key_count(data), "the first in the file", options)\n',
        "",
        ("unit/security/test_stores.py",),
    ),
    Mutant("security/references.py", "        if root:\n", "        if True:\n", _LOCATIONS),
    Mutant("security/references.py", "if path.is_absolute():", "if False:", _LOCATIONS),
    Mutant(
        "security/references.py",
        "        if reference is None:\n            return match[0]\n",
        "",
        _REFERENCES,
    ),
    Mutant(
        "security/pkcs12.py",
        '    except ValueError:\n        return "which cannot be read"',
        '    except KeyError:\n        return "which cannot be read"',
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "    if password is None:\n        return _unencrypted_certificates(data)\n",
        '    password = password or ""\n',
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "    if store.cert is None:\n        return tuple",
        "    if False:\n        return tuple",
        _PKCS12,
    ),
    Mutant("security/pkcs12.py", "if name is None or name ==", "if name ==", _PKCS12),
    Mutant(
        "security/pkcs12.py",
        "if name is None or name == found.certificate.subject.rfc4514_string().encode():",
        "if name is None:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "if certificate not in chain or count != 1:",
        "if certificate not in chain:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "if certificate not in chain or count != 1:",
        "if True:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "if store.key is None or store.cert is None:",
        "if store.key is None:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "if key_password is not None and key_password != password:",
        "if key_password != password:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "if key_password is not None and key_password != password:",
        "if False:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "    except StoreError:\n        return 1 ",
        "    except KeyError:\n        return 1 ",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "return max(1, sum(kind in _KEY_BAGS for kind in kinds))",
        "return sum(kind in _KEY_BAGS for kind in kinds)",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "except (ValueError, TypeError, UnsupportedAlgorithm):",
        "except (ValueError, UnsupportedAlgorithm):",
        _PKCS12,
    ),
    Mutant("security/pkcs12.py", "        if above is None:\n            break\n", "", _PKCS12),
    Mutant(
        "security/pkcs12.py", "while chain[-1].issuer != chain[-1].subject:", "while True:", _PKCS12
    ),
    Mutant(
        "security/pkcs12.py",
        "if not certificates and any(kind == _ENCRYPTED_DATA for kind, _ in parts):",
        "if False:",
        _PKCS12,
    ),
    Mutant("security/pkcs12.py", "if not certificates and any(", "if any(", _PKCS12),
    Mutant(
        "security/pkcs12.py",
        "    if any(bag.kind in _KEY_BAGS for bag in bags):\n",
        "    if False:\n",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "    if any(bag.kind in _KEY_BAGS for bag in bags):\n",
        "    if True:\n",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "if not pfx or pfx[0].tag != INTEGER:",
        "if not pfx:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "if not pfx or pfx[0].tag != INTEGER:",
        "if pfx[0].tag != INTEGER:",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        '    if len(pfx) < 2:\n        raise DamagedStoreError("it is cut")\n',
        "",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "    if kind != _DATA:\n        raise",
        "    if False:\n        raise",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        "list(elements(element.content)) if element.tag == SEQUENCE else []",
        "list(elements(element.content))",
        _PKCS12,
    ),
    Mutant(
        "security/pkcs12.py",
        '    if kinds != [OBJECT_IDENTIFIER, EXPLICIT_0]:\n        raise DamagedStoreError("it is not a PKCS12 store, or it was altered")\n',
        "",
        _PKCS12,
    ),
    Mutant("security/pkcs12.py", "bag.kind == _CERTIFICATE_BAG]", "True]", _PKCS12),
    Mutant("security/pkcs12.py", "bag.attributes & _MARKS]", "True]", _PKCS12),
    Mutant(
        "security/tls.py",
        "    if found is _CLIENT_CERTIFICATE_REFUSED and own is None:\n        found = _CLIENT_CERTIFICATE_MISSING\n",
        "",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        '    if found is None:\n        return coded(f"{who}: {words}", _OTHER)\n',
        "",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "redacted(host), _reason_of(error)\n",
        "host, _reason_of(error)\n",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "else redacted(_words_of(error))",
        "else _words_of(error)",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "(ssl.SSLEOFError, ConnectionResetError, BrokenPipeError, ssl.SSLZeroReturnError)",
        "(ssl.SSLEOFError, BrokenPipeError, ssl.SSLZeroReturnError)",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "(ssl.SSLEOFError, ConnectionResetError, BrokenPipeError, ssl.SSLZeroReturnError)",
        "(ssl.SSLEOFError, ConnectionResetError, ssl.SSLZeroReturnError)",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "(ssl.SSLEOFError, ConnectionResetError, BrokenPipeError, ssl.SSLZeroReturnError)",
        "(ssl.SSLEOFError, ConnectionResetError, BrokenPipeError)",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        'paths.cafile or paths.capath or "it has none"',
        "paths.cafile or paths.capath",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        'paths.cafile or paths.capath or "it has none"',
        'paths.cafile or "it has none"',
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "error.strerror or type(error).__name__",
        "error.strerror",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        '("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")',
        '("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED")',
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        '_describe_own_certificate(own) if "{own}" in found.cause else ""',
        "_describe_own_certificate(own)",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        '_describe_own_certificate(own) if "{own}" in found.cause else ""',
        '""',
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "    if isinstance(error, ssl.SSLCertVerificationError):\n        return _REF",
        "    if False:\n        return _REF",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "(ssl.SSLEOFError, ConnectionReset",
        "(ConnectionReset",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        'getattr(error, "reason", None) or ""',
        "error.reason",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "    if context.truststore is not None:\n",
        "    if False:\n",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        '    if certificate is None:\n        return "none"\n',
        "",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        'error.verify_message.rstrip(".")',
        "error.verify_message",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "context.keystore or f",
        "f",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "    elif material.is_encrypted:",
        "    elif True:",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "    elif material.is_encrypted:",
        "    elif False:",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        '("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK")',
        '("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL")',
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "is _CLIENT_CERTIFICATE_REFUSED and own is None",
        "is _CLIENT_CERTIFICATE_REFUSED",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/tls.py",
        "found is _CLIENT_CERTIFICATE_REFUSED and own is None",
        "own is None",
        _TLS_ERRORS,
    ),
    Mutant(
        "security/pkcs12.py",
        "        list(_parts(data))  # raises",
        "        # raises",
        (*_PKCS12, *_STORES),
    ),
)
