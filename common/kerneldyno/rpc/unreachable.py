"""Explain a failed connection and what to do about it: gRPC reports only the symptom ("Socket closed").

The rules match gRPC's own texts. A text that no rule matches gets the general advice: check that the service is
running.
"""

from __future__ import annotations

from kerneldyno.rpc.credentials import NONE, Credentials

#: Advice when a service answers UNIMPLEMENTED where a scheduler was expected.
NOT_A_SCHEDULER = (
    "what listens there is not a scheduler, or is older than this client: it may be an evaluator, or another program; "
    "give the address that the scheduler prints as grpc="
)
_NOT_RUNNING = "is the service running? `kerneldyno up` starts one, --local uses its own"
_GIVE_CA = "give the CA of its certificate (tls_ca, --tls-ca or KERNELDYNO_TLS_CA)"
_GIVE_CERT = "(tls_cert and tls_key, --tls-cert and --tls-key, or KERNELDYNO_TLS_CERT and KERNELDYNO_TLS_KEY)"

#: gRPC's words before the reason when no connection could be made. A call that is cut off later has the reason alone.
_NEVER_CONNECTED = "last error: "
_CLOSED = ("Socket closed", "Connection reset by peer", "Broken pipe")
#: Words of gRPC or OpenSSL, and the advice for each.
_RULES = (
    ("Connection refused", f"nothing listens there; {_NOT_RUNNING}"),
    (
        "Hostname Verification Check failed",
        "its certificate is for another host name; dial a name or address that the certificate has (subjectAltName)",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate has expired, or the CA that you gave did not sign it; give the CA that did "
        "(tls_ca, --tls-ca or KERNELDYNO_TLS_CA)",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "it does not use TLS, and you do; leave out the CA (tls_ca, --tls-ca and KERNELDYNO_TLS_CA)",
    ),
    (
        "Failed parsing HTTP/2",
        "what listens there is not a gRPC service; it may be the port of metrics or of a gateway: "
        "give the address that the scheduler prints as grpc=",
    ),
    ("lookup error", "the host name cannot be resolved here; check it"),
)


def advice(details: str, credentials: Credentials = NONE) -> str:
    """Return what is wrong and what to do.

    Args:
        details: details of the call's status, in gRPC's words.
        credentials: what the client sent to the service.
    """
    for words, text in _RULES:
        if words in details:
            return text
    if _NEVER_CONNECTED in details and any(words in details for words in _CLOSED):
        return _closed_at_once(credentials)
    return _NOT_RUNNING


def _closed_at_once(credentials: Credentials) -> str:
    if credentials.tls_ca is None:
        return f"it closes connections at once, as a service with TLS does to a client without; {_GIVE_CA}"
    if credentials.tls_cert is None:
        return (
            "it closes connections at once, as a service does that asks for a client certificate; "
            f"give yours {_GIVE_CERT}"
        )
    return (
        "it closes connections at once, as a service does that refuses the client's certificate; "
        f"give a valid one that its client CA signed {_GIVE_CERT}"
    )
