"""A hot standby is looked at, and not upgraded."""

from __future__ import annotations

import pytest

from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, PgflowMigrateError
from pgflow_migrate.servers import account, cluster, installation
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.status import read_status


def test_a_hot_standby_is_refused_and_the_primary_named() -> None:
    settings = {"wal_level": "replica", "hot_standby": "on"}
    with cluster.run(installation.embedded(18), settings=settings) as standby:
        standby.stop()
        (standby.data / "standby.signal").touch()
        account.give(standby.data / "standby.signal")
        standby.start()
        assert read_status(standby.admin_dsn).server.standby
        with pytest.raises(PgflowMigrateError) as caught:
            upgrade(standby.admin_dsn)
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    assert caught.value.message == "The server is a hot standby, which only the primary can change."
    assert caught.value.remedy == "To upgrade, connect to the primary."
