"""`python -m kerneldyno.deploy.health HOST:PORT`: ask a service for its health, for probes that do not support TLS.

Exit status: 0 if it is SERVING; 1 if it is not or cannot be reached (standard error has the reason); 2 for options that
cannot be used. Health needs no token. For ports without TLS, Kubernetes' own gRPC probe is sufficient.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kerneldyno.rpc import channel, credentials, tls, unreachable
from kerneldyno.rpc.errors import AddressError, CredentialsError

_WHY_NOT = (
    "it is shutting down, or it is a scheduler that cannot write its journal (`kerneldyno top` says why), cannot reach its"
    " database, or is a standby (which --service readiness allows)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m kerneldyno.deploy.health", description="Ask a service for its health."
    )
    add = parser.add_argument
    add("address", metavar="HOST:PORT")
    add(
        "--service",
        default="",
        metavar="NAME",
        help="for example kerneldyno.v1.SchedulerService; of a scheduler also liveness and readiness "
        "(default: the whole server)",
    )
    add("--timeout", type=float, default=3.0, metavar="SECONDS", help="longest wait for the answer (%(default)g)")
    add("--tls-ca", metavar="FILE", help="CA of the service's certificate; turns on TLS")
    add("--tls-cert", metavar="FILE", help="client certificate, if the service asks for one; its own works")
    add("--tls-key", metavar="FILE", help="private key of the client certificate")
    add(
        "--tls-name",
        metavar="NAME",
        help="a name in the service's certificate, if HOST is not in it (for example 127.0.0.1)",
    )
    options = parser.parse_args(arguments)
    try:
        shown = credentials.choose(
            tls_ca=options.tls_ca or "", tls_cert=options.tls_cert or "", tls_key=options.tls_key or "", token=""
        )
        status = _check(options, shown)
    except (AddressError, CredentialsError) as error:
        print(f"kerneldyno-health: {error}", file=sys.stderr)
        return 2
    except grpc.RpcError as error:
        away = error.code() is grpc.StatusCode.UNAVAILABLE
        hint = f"; {unreachable.advice(error.details() or '', shown)}" if away else ""
        print(f"kerneldyno-health: {options.address}: {error.code().name}: {error.details()}{hint}", file=sys.stderr)
        return 1
    if status != health_pb2.HealthCheckResponse.SERVING:
        known = f": {_WHY_NOT}" if status == health_pb2.HealthCheckResponse.NOT_SERVING else ""
        print(f"kerneldyno-health: {options.address}: {_name(status)}{known}", file=sys.stderr)
        return 1
    return 0


def _check(options: argparse.Namespace, shown: credentials.Credentials) -> int:
    target = channel.target(options.address)
    extra = [("grpc.enable_http_proxy", 0)]
    if options.tls_name:
        extra.append(("grpc.ssl_target_name_override", options.tls_name))
    if shown.tls_ca is None:
        opened = grpc.insecure_channel(target, options=extra)
    else:
        opened = grpc.secure_channel(target, tls.channel_credentials(shown), options=extra)
    with opened:
        stub = health_pb2_grpc.HealthStub(opened)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=options.service), timeout=options.timeout)
    return int(answer.status)


def _name(status: int) -> str:
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


if __name__ == "__main__":
    sys.exit(main())
