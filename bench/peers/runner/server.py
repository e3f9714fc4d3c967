"""A private PostgreSQL, or one that exists already."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

# The same for all. What makes a commit durable (fsync, synchronous_commit, full_page_writes) and autovacuum are as
# PostgreSQL has them by default. No checkpoint comes in between, so that the log holds what the jobs cost.
SETTINGS = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "max_connections": "200",
}


class Server:
    """Databases by name, and what was written for them."""

    def __init__(self, url: str):
        # Queries go to a database of the server that nobody measures.
        self.url = url
        self.base = url.rsplit("/", 1)[0]
        self.version = self.query("SHOW server_version")
        durable = self.query(
            "SELECT string_agg(name, ', ') FROM pg_settings "
            "WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') AND setting <> 'on'"
        )
        if durable:
            raise RuntimeError(f"commits on this PostgreSQL are not durable: {durable} is not on")

    def query(self, sql: str) -> str:
        psql = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", sql]
        done = subprocess.run(psql, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    @contextlib.contextmanager
    def database(self, name: str):
        """A fresh one; gone afterwards."""
        self.query(f"CREATE DATABASE {name}")
        try:
            yield f"{self.base}/{name}"
        finally:
            self.query(f"DROP DATABASE {name} WITH (FORCE)")

    def written(self, name: str) -> tuple[int, int]:
        """Bytes of the write-ahead log, and commits of this database, once all who used it have gone: a server process
        tells the statistics at the latest when it ends."""
        gone = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'client backend'"
        deadline = time.monotonic() + 30
        while self.query(gone) != "0":
            if time.monotonic() > deadline:
                raise RuntimeError(f"somebody is still connected to {name}")
            time.sleep(0.02)
        row = self.query(
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'), xact_commit "
            f"FROM pg_stat_database WHERE datname = '{name}'"
        )
        log, commits = row.split("|")
        return int(log), int(commits)


@contextlib.contextmanager
def private():
    """Starts PostgreSQL in a folder of its own, on a free port of the loopback, and ends it."""
    bindir = installed()
    # PostgreSQL refuses root. Not below TMPDIR: that may be closed to others, or in memory, where fsync means nothing.
    owner = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir="/var/tmp"))
    data, port = folder / "data", free_port()
    user = owner.get("user", getpass.getuser())
    if owner:
        shutil.chown(folder, "postgres", "postgres")
    try:
        initdb = [bindir / "initdb", "-D", data, "-A", "trust", "-U", user, "-E", "UTF8", "--locale=C"]
        subprocess.run(initdb, check=True, cwd=folder, stdout=subprocess.DEVNULL, **owner)
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", str(port)]
        with open(folder / "log", "w") as log:
            postgres = [bindir / "postgres", "-D", data, *listen, *settings]
            server = subprocess.Popen(postgres, cwd=folder, stdout=log, stderr=log, **owner)
        try:
            await_ready(bindir, port, server, folder / "log")
            yield Server(f"postgres://{user}@127.0.0.1:{port}/postgres")
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
    finally:
        shutil.rmtree(folder)


def installed() -> Path:
    if not shutil.which("pg_config"):
        raise RuntimeError("PostgreSQL is missing: apt-get install postgresql")
    bindir = subprocess.run(["pg_config", "--bindir"], check=True, capture_output=True, text=True)
    return Path(bindir.stdout.strip())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_ready(bindir: Path, port: int, server: subprocess.Popen, log: Path) -> None:
    isready = [bindir / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    deadline = time.monotonic() + 60
    while subprocess.run(isready).returncode:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL does not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)
