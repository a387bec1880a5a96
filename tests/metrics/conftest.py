"""One run of all services for all tests here: starting them takes longer than looking at them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.metrics.watched_load import Watched, watching


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Pages before and after a load; see `watched_load`."""
    with watching(tmp_path_factory.mktemp("watched")) as found:
        yield found
