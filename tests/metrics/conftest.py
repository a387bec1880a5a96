"""A fixture that runs all services once for all tests here, because starting them takes longer than the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.metrics.watched_load import Watched, watching


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The pages before and after a load; see `watched_load`."""
    with watching(tmp_path_factory.mktemp("watched")) as found:
        yield found
