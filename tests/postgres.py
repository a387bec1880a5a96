"""A real PostgreSQL server for tests, with its data in a temporary folder. The fixture `postgres` starts it."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from tests.needed import needs
from tests.waiting import free_port, wait_until

#: Where Debian keeps the server's programs, which are not on the PATH.
_DEBIAN = "/usr/lib/postgresql"
#: Nothing here tests the disk of the machine, and a test's server is small.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "autovacuum": "off",
}


class PostgresServer:
    """A server with its own data folder. Tests share it, each with a schema of its own."""

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        replica_of: PostgresServer | None = None,
        beside: Path | None = None,
    ) -> None:
        """Make and start a server.

        Args:
            durable: Whether a commit waits for the disk. Only measurements need that.
            settings: Further settings.
            replica_of: The primary that the server follows; None for an empty primary.
            beside: The folder in which it makes its own one; None for one with a short path, as sockets need.
        """
        self.port = free_port()
        """Its port on this machine; most connections use a Unix socket."""
        self._settings = {**_SETTINGS, "port": str(self.port)}
        if durable:
            self._settings |= {"fsync": "on", "full_page_writes": "on", "autovacuum": "on", "shared_buffers": "256MB"}
        self._initdb, self._postgres = _program("initdb"), _program("postgres")
        self._numbers = itertools.count(1)
        self.folder = Path(tempfile.mkdtemp(prefix="kerneldyno-pg-", dir=beside))
        self.process: subprocess.Popen[bytes] | None = None
        # The server refuses to run as root.
        self._user = "postgres" if _exists("postgres") else "nobody"
        if os.getuid() == 0:
            shutil.chown(self.folder, self._user)
        self._settings |= settings or {}
        if replica_of is not None:
            source = ["-h", str(replica_of.folder), "-p", str(replica_of.port), "-U", "test"]
            self._run([_program("pg_basebackup"), "-D", str(self.data), "-R", "-c", "fast", "--no-sync", *source])
            with (self.data / "postgresql.auto.conf").open("a") as file:  # under this name commits wait for it
                source_text = f"host={replica_of.folder} port={replica_of.port} user=test application_name=replica"
                file.write(f"primary_conninfo = '{source_text}'\n")
            self.start()
            return
        command = [self._initdb, "--no-sync", "-D", str(self.data), "-U", "test", "-A", "trust", "-E", "UTF8"]
        self._run([*command, "--locale=C.UTF-8"])
        self.start()

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._as_user([self._postgres, "-D", str(self.data), "-k", str(self.folder), *settings]),
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        wait_until(self._answers, "PostgreSQL answers", 30)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends all sessions, SIGQUIT is a crash that it has to recover from."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(30)
        self.process = None

    def close(self) -> None:
        """Stop the server, and delete its data."""
        if self.process is not None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def schema(self) -> str:
        """Return the URL of an empty schema that nobody else uses."""
        name = f"test{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}&options={quote(f'-c search_path={name}')}"

    @property
    def url(self) -> str:
        """The URL of the database."""
        return f"postgresql:///postgres?host={quote(str(self.folder), safe='')}&port={self.port}&user=test"

    def over(self, address: str, url: str) -> str:
        """Return the URL of a schema for connections over TCP to `address`, for example of a proxy."""
        options = url.partition("&options=")[2]
        return f"postgresql://test@{address}/postgres?sslmode=disable&options={options}"

    def execute(self, statement: str, url: str | None = None) -> list[tuple[object, ...]]:
        """Run a statement in a connection of its own; return its rows, if it has some."""
        import psycopg

        with psycopg.connect(url or self.url, autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def _answers(self) -> bool:
        import psycopg

        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(self._as_user(command), capture_output=True, text=True, cwd=self.folder, timeout=60)
        assert done.returncode == 0, done.stderr

    def _as_user(self, command: list[str]) -> list[str]:
        """Return the command as a user that is not root; it gets SIGINT when these tests end, however they end."""
        options = ["--pdeathsig", "INT"]
        if os.getuid() == 0:
            options += ["--reuid", self._user, "--regid", str(pwd.getpwnam(self._user).pw_gid), "--clear-groups"]
        return ["setpriv", *options, *command]


def _program(name: str) -> str:
    versions = sorted(Path(_DEBIAN).glob(f"*/bin/{name}"), key=lambda path: float(path.parents[1].name))
    return str(versions[-1]) if versions else needs(name, package="postgresql")


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
