"""How a server of our own runs: reachable by password, durable, as root or not, from unreadable places."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers import (
    LocalServer,
    install_pgmq,
    install_surroundings,
    installation,
    open_server,
    pgmq_as_extension,
)

PASSWORD = "p%40@:/ 'q\\ \N{SNOWMAN}"  # noqa: S105 - of a throwaway server


def test_a_password_of_any_characters_opens_a_server_on_a_free_port() -> None:
    with open_server("embedded:18", password=PASSWORD) as server:
        parts = conninfo_to_dict(server.admin_dsn)
        assert parts["host"] == "127.0.0.1"
        assert parts["password"] == PASSWORD
        url = f"postgresql://postgres:{quote(PASSWORD, safe='')}@127.0.0.1:{parts['port']}/postgres"
        with psycopg.connect(url) as connection:
            row = connection.execute("select inet_server_addr()::text").fetchone()
            assert row == ("127.0.0.1/32",)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.admin_dsn, password="wrong")  # noqa: S106
        # The port survives a crash, so that the connection string stays true.
        assert isinstance(server, LocalServer)
        server.crash()
        psycopg.connect(url).close()


def test_without_a_password_no_port_is_open() -> None:
    with open_server("embedded:18") as server, psycopg.connect(server.admin_dsn) as connection:
        assert connection.execute("show listen_addresses").fetchall() == [("",)]
        assert connection.execute("select inet_server_addr()").fetchall() == [(None,)]


def test_a_durable_server_keeps_postgresqls_protection_and_takes_settings() -> None:
    with open_server("embedded:18", durable=True, settings={"work_mem": "3MB"}) as server:
        dsn = server.create_database("kept")
        with psycopg.connect(dsn) as connection:
            for name, value in (
                ("fsync", "on"),
                ("synchronous_commit", "on"),
                ("full_page_writes", "on"),
                ("work_mem", "3MB"),
                ("jit", "off"),
            ):
                assert connection.execute(f"show {name}".encode()).fetchall() == [(value,)]
            connection.execute("create table kept as select 42 as answer")
        assert isinstance(server, LocalServer)
        server.crash()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("table kept").fetchall() == [(42,)]
        assert server.log is not None
        assert "database system was not properly shut down" in server.log.read_text(encoding="utf-8")


def test_the_callers_postgresql_variables_do_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGDATA", "PGPORT", "PGUSER", "PGDATABASE", "PGHOST", "LANG", "LC_ALL"):
        monkeypatch.setenv(name, "nonsense")
    with open_server("embedded:18") as server, psycopg.connect(server.admin_dsn) as connection:
        assert connection.execute("select current_user, current_database()").fetchall() == [
            ("postgres", "postgres")
        ]


@pytest.mark.parametrize("version", [16, 18])
def test_a_strict_umask_does_not_matter(version: int) -> None:
    usual = os.umask(0o077)
    try:
        with open_server(f"embedded:{version}") as server, psycopg.connect(server.admin_dsn) as connection:
            install_pgmq(connection, "extension")
    finally:
        os.umask(usual)


def copy_installation(version: int, folder: Path) -> Path:
    """Copy an embedded installation and its wheel's libraries; returns the folder of its programs."""
    bin_dir = installation.embedded(version).bin_dir
    package = bin_dir.parents[1]
    copied = folder / package.name / bin_dir.parent.name
    shutil.copytree(bin_dir.parent, copied)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return copied / "bin"


@pytest.mark.parametrize("version", [16, 17, 18])
def test_root_runs_binaries_that_only_root_can_read(
    nobody: pwd.struct_passwd, tmp_path: Path, version: int
) -> None:
    bin_dir = copy_installation(version, tmp_path)
    tmp_path.chmod(0o700)
    with open_server(f"binaries:{bin_dir}") as server, psycopg.connect(server.admin_dsn) as connection:
        assert connection.info.server_version // 10000 == version
        install_pgmq(connection, "extension")
        folder = Path(str(conninfo_to_dict(server.admin_dsn)["host"]))
        assert folder.stat().st_uid == nobody.pw_uid
        assert folder.stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_an_old_installation_without_pg_config_has_pgmq_as_sql_only() -> None:
    # Not in tmp_path: nobody else may enter that.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        bin_dir = copy_installation(16, folder)
        (bin_dir / "pg_config").unlink()
        with open_server(f"binaries:{bin_dir}") as server, psycopg.connect(server.admin_dsn) as connection:
            assert not pgmq_as_extension(connection)
            with pytest.raises(PgflowMigrateError) as caught:
                install_pgmq(connection, "extension")
            assert str(caught.value) == "This server has no extension pgmq. Install PGMQ as SQL instead."
            install_pgmq(connection)
            install_surroundings(connection)
            assert connection.execute("select extname from pg_extension").fetchall() == [("plpgsql",)]
            connection.execute("select pgmq.create('Orders'), cron.schedule('job', '* * * * *', 'select 1')")
        folder.chmod(0o700)
        if os.geteuid() == 0:
            with pytest.raises(PgflowMigrateError) as caught, open_server(f"binaries:{bin_dir}"):
                pass
            assert caught.value.message == (
                f"{bin_dir} is not readable by every user, and without its pg_config it cannot be copied."
            )


def test_a_folder_of_links_leads_to_the_installation(tmp_path: Path) -> None:
    bin_dir = installation.embedded(18).bin_dir
    (tmp_path / "postgres").symlink_to(bin_dir / "postgres")
    assert installation.in_folder(tmp_path) == installation.Installation(bin_dir.resolve(), 18)


def python_for_everyone() -> Path:
    """This Python, or the system's of the same version when only root can read this one."""
    same = Path(f"/usr/bin/python3.{sys.version_info.minor}")
    for python in (Path(sys.executable), same):
        if python.exists() and all(place.stat().st_mode & 0o001 for place in python.resolve().parents):
            return python
    pytest.skip(f"{sys.executable} is in a folder that only root can read, and there is no {same}")


@pytest.mark.parametrize("version", [16, 18])
def test_a_plain_user_runs_a_server(nobody: pwd.struct_passwd, version: int) -> None:
    program = f"""
import os
import psycopg
from pgflow_migrate.servers import install_pgmq, open_server
with open_server("embedded:{version}") as server, psycopg.connect(server.admin_dsn) as connection:
    install_pgmq(connection, "extension")
    print(os.geteuid(), connection.info.server_version // 10000)
"""
    done = subprocess.run(
        [python_for_everyone(), "-c", program],
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd="/",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{nobody.pw_uid} {version}\n", "")
