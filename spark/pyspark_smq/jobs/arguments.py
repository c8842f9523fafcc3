"""The arguments that all jobs have: which topic, and how to reach it."""

from __future__ import annotations

import argparse

from pyspark_smq.options import Connection


def add_topic(parser: argparse.ArgumentParser, option: str = "--topic", purpose: str = "") -> None:
    """Adds a topic's argument, such as ``--topic``."""
    parser.add_argument(option, required=True, help=f"{purpose}{': ' if purpose else ''}name, or namespace/name")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Adds how leader and filer are reached. Credentials come from the ``AWS_`` variables, as those of a client."""
    parser.add_argument("--leader", help="host:port[,host:port...] (default: SMQ_LEADER)")
    parser.add_argument("--via", help="a broker's relay, for a program outside the cluster (default: SMQ_VIA)")
    parser.add_argument("--ca-file", help="the roots of a secure release, in PEM (default: SMQ_CA_FILE)")
    parser.add_argument("--token-file", help="the file with this program's token (default: SMQ_TOKEN_FILE)")
    parser.add_argument("--cert-file", help="a client certificate in place of the token (default: SMQ_CERT_FILE)")
    parser.add_argument("--key-file", help="the private key of the certificate (default: SMQ_KEY_FILE)")
    parser.add_argument("--filer", help="s3://bucket/prefix; a job that only reads needs no leader then")
    parser.add_argument("--filer-endpoint", help="the S3 endpoint")
    parser.add_argument("--filer-region", help="the S3 region")
    parser.add_argument("--namespace", default="default", help="of a topic given by its name alone (%(default)s)")


def connection_to(topic: str, given: argparse.Namespace) -> Connection:
    """What the arguments of :func:`add_connection` say."""
    return Connection(
        topic,
        leader=given.leader,
        via=given.via,
        ca_file=given.ca_file,
        token_file=given.token_file,
        cert_file=given.cert_file,
        key_file=given.key_file,
        namespace=given.namespace,
        filer=given.filer,
        filer_endpoint=given.filer_endpoint,
        filer_region=given.filer_region,
    )
