"""A schema-driven tool tries what /openapi.json promises on a running server (``make test-openapi``)."""

import subprocess
import sys
from pathlib import Path

import pytest
from service_parts import TOKEN, running

PROGRAM = Path(sys.executable).with_name("schemathesis")
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="needs the package schemathesis: make test-openapi")
# What no schema can say: as many values as indices, a list of labels per text, labels that the model has.
RULES = """\
[[operations]]
include-path-regex = "/(suggest|explain|update)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422]
checks.negative_data_rejection.expected-statuses = [400, 401, 403, 404, 409, 413, 415, 422]
"""


@pytest.mark.parametrize("closed", [False, True])
def test_the_server_does_as_it_says(model_dir, tmp_path, closed):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "schemathesis.toml").write_text(RULES)
    access = {"token_file": str(tmp_path / "token"), "allow_update": True} if closed else {}
    with running(model_dir, access_log=False, **access) as client:
        command = [PROGRAM, "--config-file", tmp_path / "schemathesis.toml", "run", f"{client.base_url}/openapi.json"]
        command += ["--checks", "all", "--max-examples", "15", "--seed", "1", "--no-color"]
        command += ["-H", f"Authorization: Bearer {TOKEN}"] if closed else []
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
        assert ended.returncode == 0, "\n".join(line[:200] for line in ended.stdout.splitlines())
        assert "Tested: 17" in ended.stdout
