"""Options: rules across them, what is a secret, and their form for Java's client."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JAVA_CLIENT = ("unit/test_security_document.py",)
_KEYS = ("unit/test_security_options.py",)
_PROPERTIES = ("unit/test_properties.py::test_texts",)
_REDACTION = ("unit/test_security_document.py",)
_REFERENCES = ("unit/security/test_credentials.py",)
_RULES = ("unit/test_security_options.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "config/security_config.py",
        "values = {name.lower(): value for",
        "values = {name: value for",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        '        *(_REGISTRY + key for key in SECRET_KEYS if key.startswith("ssl.")),\n',
        "",
        _REDACTION,
    ),
    Mutant(
        "config/config_providers.py",
        "if name in (ENV, FILE, DIR) and name not in builtin",
        "if False",
        _REFERENCES,
    ),
    Mutant("config/config_def.py", "                is_continued = False\n", "", _PROPERTIES),
    Mutant("config/config_def.py", '"utf-16-le", "replace"', '"utf-16-le"', _PROPERTIES),
    Mutant(
        "config/security_config.py",
        " and mechanism == OAUTHBEARER:",
        ":",
        _RULES,
    ),
    Mutant(
        "config/security_config.py",
        'for side in ("login", "client")]',
        'for side in ("login",)]',
        _RULES,
    ),
    Mutant(
        "config/security_config.py",
        'for side in ("login", "client")]',
        'for side in ("client",)]',
        _RULES,
    ),
    Mutant(
        "config/security_config.py",
        "client_handler in (IAM_CLIENT_HANDLER, IAM_LOGIN_HANDLER)",
        "client_handler == IAM_CLIENT_HANDLER",
        _RULES,
    ),
    Mutant(
        "config/security_config.py",
        "    if name in _URLS:\n",
        "    if True:\n",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        '        "metrics.otlp.headers",\n        f"{_REG',
        '        f"{_REG',
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        'f"{_REGISTRY}basic.auth.user.info",',
        "",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        'f"{_REGISTRY}bearer.auth.token",',
        "",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        'f"{_REGISTRY}bearer.auth.client.secret",',
        "",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "(?:key|token|secret",
        "(?:key|secret",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "(?:key|token|secret",
        "(?:key|token",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "|pass|auth|",
        "|auth|",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "|pass|auth|",
        "|pass|",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "|auth|sig|",
        "|auth|",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "|sig|credential)",
        "|sig)",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "|passphrase)\\s*=",
        ")\\s*=",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "passphrase)\\s*=\\s*",
        "passphrase)=",
        _REDACTION,
    ),
    Mutant(
        "config/security_config.py",
        "        if name.startswith(KAFKA_PREFIX)\n",
        "",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_config.py",
        "if user is None or password is None or module is None:",
        "if user is None or module is None:",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_config.py",
        "if user is None or password is None or module is None:",
        "if password is None or module is None:",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_config.py",
        "if user is None or password is None or module is None:",
        "if user is None or password is None:",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_config.py",
        ' and f"ssl.{store}.type" not in originals:',
        ":",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_config.py",
        '".crt", ',
        "",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_config.py",
        '".cer", ',
        "",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_config.py",
        ', ".key")',
        ")",
        _JAVA_CLIENT,
    ),
    Mutant(
        "config/security_keys.py",
        "return None if module and name else",
        "return None if module else",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "return None if module and name else",
        "return None if name else",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "if text.upper() == _HORTONWORKS:",
        "if text == _HORTONWORKS:",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "if not _SUITE.fullmatch(name):",
        "if not _SUITE.match(name):",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "(TLS|SSL)_[A-Z",
        "TLS_[A-Z",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "if names and not {TLS_1_2, TLS_1_3} & set(names):",
        "if not {TLS_1_2, TLS_1_3} & set(names):",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "not {TLS_1_2, TLS_1_3} & set(names)",
        "TLS_1_2 not in names",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "not {TLS_1_2, TLS_1_3} & set(names)",
        "TLS_1_3 not in names",
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        '"TLSv1", "SSLv3", "SSLv2Hello")',
        '"TLSv1")',
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        '"" if text.lower() == "none"',
        '"" if text == "none"',
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        '"https://", "http://", "file:")',
        '"https://", "file:")',
        _KEYS,
    ),
    Mutant(
        "config/security_keys.py",
        "        hides_value=True,  # a URL",
        "        # a URL",
        _KEYS,
    ),
)
