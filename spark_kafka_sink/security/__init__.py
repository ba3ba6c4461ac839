"""TLS and SASL: stores of certificates and keys, mechanisms, and the sources of credentials.

- ``security``: TLS and login of one configuration; chooses the login of a mechanism
- ``mechanisms``: the conversations of PLAIN, SCRAM and OAUTHBEARER
- ``kerberos``, ``aws``: the conversations and logins of GSSAPI and AWS_MSK_IAM
- ``credentials``: ``sasl.jaas.config``, names and passwords, the login of PLAIN and SCRAM
- ``references``: references to secrets, such as ``${env:NAME}``
- ``oauth``, ``oauth_endpoint``, ``oauth_tokens``: the login with tokens
- ``tls``: the ``SSLContext``, and the texts of TLS errors
- ``stores``, ``key_formats``, ``pkcs12``: files with certificates and keys
"""
