"""The unit and the manifest in deploy/: what they say is what the worker takes, and their spans fit each other."""

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from milepost.cli.worker import worker
from milepost.core.duration import parse_ms

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "milepost-worker.service"


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def manifests() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def container() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    return found


def options_of(words: list[str]) -> dict[str, Any]:
    """Return the options of a worker's command line, as the command itself reads them."""
    after = words[words.index("worker") + 1 :]
    return worker.make_context("worker", list(after), resilient_parsing=False).params


@pytest.fixture(params=["systemd", "kubernetes"])
def words(request: pytest.FixtureRequest) -> list[str]:
    """How each starts a worker."""
    if request.param == "systemd":
        return shlex.split(unit()["Service"]["ExecStart"])
    return [str(word) for word in container()["args"]]


def test_the_worker_takes_the_command_line_that_is_written_there(words: list[str]) -> None:
    given = options_of(words)

    assert given["together"] == 50
    assert given["metrics"].endswith(":9464")
    assert given["as_json"]
    assert "--queue" in CliRunner().invoke(worker, ["--help"]).output


def test_who_stops_a_worker_waits_longer_than_the_grace_in_which_it_drains(words: list[str]) -> None:
    """Requirement 13."""
    grace_s = parse_ms(options_of(words)["grace"]) / 1000
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]

    assert int(unit()["Service"]["TimeoutStopSec"]) >= grace_s + 15
    assert pod["terminationGracePeriodSeconds"] >= grace_s + 15


def test_the_probes_ask_on_the_port_that_the_worker_answers_on() -> None:
    port = container()["ports"][0]

    assert port["containerPort"] == int(
        options_of([str(word) for word in container()["args"]])["metrics"].split(":")[1]
    )
    for probe, path in (("startupProbe", "/live"), ("livenessProbe", "/live"), ("readinessProbe", "/ready")):
        assert container()[probe]["httpGet"] == {"path": path, "port": port["name"]}


def test_the_selectors_name_the_pods_that_are_made() -> None:
    made = manifests()
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]

    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert container()["envFrom"] == [{"secretRef": {"name": made["Secret"]["metadata"]["name"]}}]


def test_the_unit_drains_by_one_signal_to_the_supervisor_alone(tmp_path: Path) -> None:
    service = unit()["Service"]

    assert (service["KillSignal"], service["KillMode"], service["Restart"]) == ("SIGTERM", "mixed", "always")
    if shutil.which("systemd-analyze"):  # where it is there, it knows every word
        copy = tmp_path / UNIT.name
        text = UNIT.read_text().replace("/srv/milepost/venv/bin/milepost", sys.executable)
        copy.write_text(text.replace("User=milepost\nGroup=milepost\n", "").replace("/srv/milepost", str(tmp_path)))
        said = subprocess.run(
            ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False, timeout=60
        )
        assert (said.returncode, said.stderr) == (0, "")
