"""What deploy/ and docs/howto/serving.md give to other programs, in these programs; without one its test is skipped."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import pytest
import typer
import yaml
from service_parts import TOKEN, running

from blockxmc.cli import app

ROOT = Path(__file__).parents[2]
PAGE, DEPLOY = ROOT / "docs" / "howto" / "serving.md", ROOT / "deploy"


def shown(kind):
    """The one block of a kind on the page."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return block


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    unit = tmp_path / "blockxmc.service"
    # The program must exist: any will do here.
    unit.write_text((DEPLOY / unit.name).read_text().replace("/opt/blockxmc/bin/blockxmc", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "blockxmc" in line]) == (0, [])


def understood(command):
    """What the command line makes of ``blockxmc serve ...``."""
    program, name, *args = command
    assert (Path(program).name, name) == ("blockxmc", "serve")
    return typer.main.get_command(app).commands["serve"].make_context("serve", args).params


def test_the_commands_of_unit_and_image_are_ours():
    [line] = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "blockxmc.service").read_text(), re.MULTILINE)
    assert understood(line.split())["workers"] == 2
    image = (DEPLOY / "Dockerfile").read_text()
    entry, given = (json.loads(re.search(rf"^{word} (.*)$", image, re.MULTILINE)[1]) for word in ("ENTRYPOINT", "CMD"))
    params = understood([*entry, *given])
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["blockxmc"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    targets = [Path(volume.split(":")[-2]) for volume in service["volumes"]]
    assert targets == [params["models"][0].parent, params["token_file"]]
    assert service["ports"] == [f"127.0.0.1:{params['port']}:{params['port']}"]
    assert f"EXPOSE {params['port']}" in image
    assert f":{params['port']}/readyz" in image


def test_the_image_gets_all_that_a_wheel_is_built_from():
    rules = (ROOT / ".dockerignore").read_text().split()
    assert rules[0] == "*"  # nothing else: no data, no environment, no history
    sent = {rule.removeprefix("!") for rule in rules[1:]}
    assert all((ROOT / name).exists() for name in sent)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    licenses = {Path(pattern).parts[0] for pattern in project["license-files"]}
    assert sent == {"src", "CMakeLists.txt", "pyproject.toml", project["readme"], *licenses}


@pytest.fixture
def behind_nginx(model_dir, tmp_path):
    """A client of nginx, set up as the page has it, before a service that wants a token."""
    (tmp_path / "token").write_text(TOKEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running(model_dir, token_file=str(tmp_path / "token"), access_log=False) as service:
        location = shown("nginx").replace("http://127.0.0.1:8080", str(service.base_url).rstrip("/"))
        places = "".join(
            f"{kind}_temp_path {tmp_path};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        server = f"server {{ listen 127.0.0.1:{port}; {location} }}"
        http = f"http {{ access_log off; {places} {server} }}"
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr; events {{}} {http}"
        )
        command = [shutil.which("nginx") or "/usr/sbin/nginx", "-p", tmp_path, "-e", "stderr", "-c", "nginx.conf"]
        nginx = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/labels", timeout=30) as client:
                wait_for(client, nginx)
                yield client
        finally:
            nginx.terminate()
            nginx.wait(20)


def wait_for(client, process):
    deadline = time.monotonic() + 30
    while True:
        assert process.poll() is None, "nginx did not start"
        try:
            client.get("/healthz")
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


@pytest.mark.skipif(not (shutil.which("nginx") or Path("/usr/sbin/nginx").exists()), reason="needs nginx")
def test_behind_nginx(behind_nginx):
    client, body = behind_nginx, {"text": "a perl parser", "k": 1}
    assert client.get("/readyz").json() == {"status": "ready"}
    page = client.get("/")
    # Addresses of the page are relative: it works below any prefix.
    assert set(re.findall(r'(?:src|href)="([^"#]+)"', page.text)) == {"icon.svg", "style.css", "main.js"}
    assert client.get("/main.js").status_code == client.get("/style.css").status_code == 200
    assert client.post("/v1/models/packages/suggest", json=body).status_code == 401
    client.headers["authorization"] = f"Bearer {TOKEN}"
    found = client.post("/v1/models/packages/suggest", json=body).json()
    assert found["results"][0]["suggestions"][0]["label"] == "perl"
    large = {"text": "a" * (8 << 20)}
    assert client.post("/v1/models/packages/suggest", json=large).status_code == 413
