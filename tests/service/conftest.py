"""One small model for all tests of the service."""

import pytest
from service_parts import demo_rows, running, train


@pytest.fixture(scope="session")
def demo():
    return demo_rows(0, 1200)


@pytest.fixture(scope="session")
def model_dir(demo, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "packages"
    train(demo, n_neighbors=5).save(path)
    return path


@pytest.fixture(scope="session")
def client(model_dir):
    with running(model_dir, access_log=False) as client:
        yield client
