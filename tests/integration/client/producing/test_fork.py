"""Processes: a program that uses a client may start others by fork(), and may end without close."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import smq
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration

PROGRAM = """
import subprocess, sys, smq

with smq.connect(sys.argv[1]) as client:
    client.admin().brokers()
    # With preexec_fn Python uses fork(), not vfork().
    codes = [subprocess.run(["true"], preexec_fn=lambda: None).returncode for _ in range(200)]
    print(sorted(set(codes)), "alive" in {broker.state for broker in client.admin().brokers()})
"""


@pytest.mark.slow
def test_programs_that_are_started_by_fork_run(cluster: LocalCluster, client: smq.Client) -> None:
    assert client.admin().brokers(), "there is somebody to connect to"
    ran = subprocess.run([sys.executable, "-c", PROGRAM, cluster.address], capture_output=True, text=True)
    assert ran.stdout == "[0] True\n", ran.stderr[-3000:]


FORKS = """
import os, sys, smq

def report(what, call):
    try:
        print(what, "returned", call())
    except BaseException as error:
        print(what, type(error).__name__, f"process {os.getppid()}" in str(error))

with smq.connect(sys.argv[1]) as client:
    admin = client.admin()
    producer, consumer = client.producer(sys.argv[2], linger=3600), client.consumer(sys.argv[2])
    delivery = producer.send(b"before the fork")
    if os.fork() == 0:
        report("send", lambda: producer.send(b"in the fork"))
        report("flush", lambda: producer.flush())
        report("result", delivery.result)
        report("poll", lambda: consumer.poll(60))
        report("client", lambda: client.producer(sys.argv[2]))
        report("admin", lambda: admin.brokers())
        producer.close(), consumer.close(), client.close()
        report("connect", lambda: smq.connect(sys.argv[1]))
        sys.exit(7)
    print("exit code", os.waitstatus_to_exitcode(os.wait()[1]))
    producer.flush()
    print("result", delivery.result().offset)
"""


def test_what_a_fork_does_with_its_parents_client_is_an_error(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    ran = run(FORKS, cluster, topic)
    assert ran.stdout.splitlines() == [
        *(f"{it} InvalidRequest True" for it in ("send", "flush", "result", "poll", "client", "admin", "connect")),
        "exit code 7",
        "result 0",
    ], ran.stderr[-3000:]
    with client.consumer(topic) as consumer:
        assert messages(consumer, 1) == [b"before the fork"]


WITHOUT_CLOSE = """
import sys, smq

producer = smq.connect(sys.argv[1]).producer(sys.argv[2], linger=30)
for number in range(5):
    producer.send(b"%d" % number)
"""

IN_A_WORKER = """
import multiprocessing, sys, smq

def work():
    global producer  # lives until the end of the process
    producer = smq.connect(sys.argv[1]).producer(sys.argv[2], linger=30)
    for number in range(5):
        producer.send(b"%d" % number)

worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
"""


IN_A_THREAD = """
import sys, threading, smq

producer = smq.connect(sys.argv[1]).producer(sys.argv[2], linger=30)

def work():
    threading.main_thread().join()
    for number in range(5):
        producer.send(b"%d" % number)

threading.Thread(target=work).start()
"""

WITHOUT_NEW_THREADS = (
    WITHOUT_CLOSE
    + """
import atexit, threading

def start(thread):
    raise RuntimeError("as Python 3.12 does in functions of atexit")

atexit.register(setattr, threading.Thread, "start", start)
"""
)

PROGRAMS = {
    "a program": WITHOUT_CLOSE,
    "a program that starts no threads at its end": WITHOUT_NEW_THREADS,
    "a thread that goes on after the main one": IN_A_THREAD,
    "a process of multiprocessing": IN_A_WORKER,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_what_ends_without_close_has_delivered_everything(
    cluster: LocalCluster, client: smq.Client, topic: str, program: str
) -> None:
    cluster.create(topic)
    ran = run(program, cluster, topic)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "were not delivered" not in ran.stderr  # a slow delivery is announced
    with client.consumer(topic) as consumer:
        assert messages(consumer, 5) == [b"%d" % number for number in range(5)]


@pytest.mark.slow
def test_a_program_that_ends_without_close_says_what_is_lost(own_cluster: LocalCluster) -> None:
    own_cluster.create("t")
    program = WITHOUT_CLOSE.replace("linger=30", "linger=30, timeout=3") + (
        "\nimport os, signal\nfor pid in map(int, sys.argv[3:]):\n    os.kill(pid, signal.SIGSTOP)\n"
    )
    brokers = own_cluster.pids().values()
    try:
        ran = run(program, own_cluster, "t", *map(str, brokers))
    finally:
        for pid in brokers:
            os.kill(pid, signal.SIGCONT)
    assert "5 messages to default/t were not delivered" in ran.stderr


def run(program: str, cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, cluster.address, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_GUARD)


def messages(consumer: smq.Consumer, count: int) -> list[bytes]:
    return [v for batch in read_back(consumer, count) for v in batch.table.column("value").to_pylist()]
