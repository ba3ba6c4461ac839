"""Options: rules across them, what is a secret, and their form for Java's client."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OPTIONS = ("unit/test_options.py",)
_PROPERTIES = ("unit/test_properties.py::test_texts",)
_REFERENCES = ("unit/security/test_credentials.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "config/security_config.py",
        "values = {name.lower(): value for",
        "values = {name: value for",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        '        *(_REGISTRY + key for key in SECRET_KEYS if key.startswith("ssl.")),\n',
        "",
        _OPTIONS,
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
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        'for side in ("login", "client")]',
        'for side in ("login",)]',
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        'for side in ("login", "client")]',
        'for side in ("client",)]',
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "client_handler in (IAM_CLIENT_HANDLER, IAM_LOGIN_HANDLER)",
        "client_handler == IAM_CLIENT_HANDLER",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "    if name in _URLS:\n",
        "    if True:\n",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        '        "metrics.otlp.headers",\n        f"{_REG',
        '        f"{_REG',
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        'f"{_REGISTRY}basic.auth.user.info",',
        "",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        'f"{_REGISTRY}bearer.auth.token",',
        "",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        'f"{_REGISTRY}bearer.auth.client.secret",',
        "",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "(?:key|token|secret",
        "(?:key|secret",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "(?:key|token|secret",
        "(?:key|token",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "|pass|auth|",
        "|auth|",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "|pass|auth|",
        "|pass|",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "|auth|sig|",
        "|auth|",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "|sig|credential)",
        "|sig)",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "|passphrase)\\s*=",
        ")\\s*=",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "passphrase)\\s*=\\s*",
        "passphrase)=",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "        if name.startswith(KAFKA_PREFIX)\n",
        "",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "if user is None or password is None or module is None:",
        "if user is None or module is None:",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "if user is None or password is None or module is None:",
        "if password is None or module is None:",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        "if user is None or password is None or module is None:",
        "if user is None or password is None:",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        ' and f"ssl.{store}.type" not in originals:',
        ":",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        '".crt", ',
        "",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        '".cer", ',
        "",
        _OPTIONS,
    ),
    Mutant(
        "config/security_config.py",
        ', ".key")',
        ")",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "return None if module and name else",
        "return None if module else",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "return None if module and name else",
        "return None if name else",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "if text.upper() == _HORTONWORKS:",
        "if text == _HORTONWORKS:",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "if not _SUITE.fullmatch(name):",
        "if not _SUITE.match(name):",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "(TLS|SSL)_[A-Z",
        "TLS_[A-Z",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "if names and not {TLS_1_2, TLS_1_3} & set(names):",
        "if not {TLS_1_2, TLS_1_3} & set(names):",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "not {TLS_1_2, TLS_1_3} & set(names)",
        "TLS_1_2 not in names",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "not {TLS_1_2, TLS_1_3} & set(names)",
        "TLS_1_3 not in names",
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        '"TLSv1", "SSLv3", "SSLv2Hello")',
        '"TLSv1")',
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        '"" if text.lower() == "none"',
        '"" if text == "none"',
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        '"https://", "http://", "file:")',
        '"https://", "file:")',
        _OPTIONS,
    ),
    Mutant(
        "config/security_keys.py",
        "        hides_value=True,  # a URL",
        "        # a URL",
        _OPTIONS,
    ),
)
