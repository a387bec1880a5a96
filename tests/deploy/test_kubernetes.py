"""The manifests: they match Kubernetes' own schemas, fit together, and use options that our services know."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from kerneldyno.deploy import health
from tests.deploy.deploy_files import DEPLOY, accepted, load, modules, value

KUBERNETES = DEPLOY / "kubernetes"
#: hostUsers and an unmasked /proc need 1.33.
VERSIONS = ("1.33", "1.37")
FILES = sorted(file for file in KUBERNETES.glob("*/*.yaml") if file.name != "kustomization.yaml")
BASE = list(chain.from_iterable(load(file) for file in FILES if file.parent.name == "base"))


def find(kind: str, name: str) -> Any:
    (found,) = (one for one in BASE if one["kind"] == kind and one["metadata"]["name"] == name)
    return found


WORKLOADS = {
    "scheduler": find("StatefulSet", "kerneldyno-scheduler"),
    "evaluator": find("DaemonSet", "kerneldyno-evaluator"),
}
each = pytest.mark.parametrize("service", WORKLOADS)


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_keeps_to_the_schemas(version: str) -> None:
    for document in BASE:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_would_have_told() -> None:
    broken = {**WORKLOADS["scheduler"], "spec": {**WORKLOADS["scheduler"]["spec"], "replicaz": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def test_kustomizations_name_every_file_and_no_other() -> None:
    for kustomization in KUBERNETES.glob("*/kustomization.yaml"):
        (fields,) = load(kustomization)
        folder = kustomization.parent
        named = [*fields.get("resources", ()), *fields.get("components", ())]
        named += [patch["path"] for patch in fields.get("patches", ()) if "path" in patch]
        assert all((folder / name).exists() for name in named), kustomization
        files = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert files == {name for name in named if name.endswith(".yaml")}, kustomization


def render(folder: Path, *components: str) -> list[Any]:
    """Return what kubectl makes of a copy of the example in which these components are not commented out."""
    shared = "two-schedulers" in components
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed; Debian's own is too old for components")
    copy = shutil.copytree(KUBERNETES, folder / "kubernetes") / "example"
    (copy / "secrets").mkdir(exist_ok=True)
    database = ("database.url", "database-ca.pem") if shared else ()
    for name in ("scheduler.pem", "scheduler.key", "ca.pem", "tokens.toml", "node.token", *database):
        (copy / "secrets" / name).write_text("made up")
    overlay = (copy / "kustomization.yaml").read_text()
    for component in components:
        assert f"# - ../{component}\n" in overlay
        overlay = overlay.replace(f"# - ../{component}\n", f"- ../{component}\n")
    if "per-gpu" in components:  # as its comment says
        before, patch, after = re.split(r"^(patches:\n(?:  .*\n)+)", overlay, flags=re.MULTILINE)
        assert "nvidia.com~1gpu, value: 8" in patch
        overlay = before.replace("# replicas:", "replicas:") + after
    if shared:  # as its comment says
        overlay, count = re.subn(r"^  # (- name: kerneldyno-database\n)  # ", r"  \1  ", overlay, flags=re.MULTILINE)
        assert count == 1
    (copy / "kustomization.yaml").write_text(overlay)
    done = subprocess.run([kubectl, "kustomize", str(copy)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rendered = folder / "rendered.yaml"
    rendered.write_text(done.stdout)
    documents = load(rendered)
    more = 2 if shared else 0  # a secret and a policy
    assert len(documents) == len(BASE) + 3 + 2 + more  # three secrets and two pod monitors
    for document in documents:
        if document["apiVersion"] != "monitoring.coreos.com/v1":
            kubernetes_validate.validate(document, VERSIONS[0], strict=True)
    return documents


def evaluators(documents: list[Any]) -> Any:
    (found,) = (
        one
        for one in documents
        if one["metadata"]["name"] == "kerneldyno-evaluator" and one["kind"] in ("DaemonSet", "StatefulSet")
    )
    return found


def test_kubectl_renders_the_example_with_namespaces(tmp_path: Path) -> None:
    documents = render(tmp_path, "namespaces")
    daemons = evaluators(documents)
    assert daemons["kind"] == "DaemonSet"
    pod = daemons["spec"]["template"]["spec"]
    assert pod["hostUsers"] is False
    (container,) = pod["containers"]
    assert container["image"] == "registry.example.com/kerneldyno-evaluator:0.1.0"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert container["securityContext"]["procMount"] == "Unmasked"
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"]
    }  # the patch adds to it and replaces nothing
    secrets = {document["metadata"]["name"] for document in documents if document["kind"] == "Secret"}
    assert {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume} <= secrets


def test_kubectl_renders_the_example_with_an_evaluator_for_each_gpu(tmp_path: Path) -> None:
    before = evaluators(render(tmp_path / "before"))["spec"]["template"]
    documents = render(tmp_path / "after", "namespaces", "per-gpu")
    stateful = evaluators(documents)
    assert (stateful["kind"], stateful["spec"]["replicas"]) == ("StatefulSet", 16)
    assert stateful["spec"]["updateStrategy"] == {"type": "RollingUpdate"}  # one of a DaemonSet has other fields
    pod = stateful["spec"]["template"]["spec"]
    assert pod["hostUsers"] is False  # the component for namespaces finds it under its new kind
    (container,) = pod["containers"]
    resources = container["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == 1
    # Quality of service "Guaranteed" and whole processors: only then is a pod given processors of its own.
    assert resources["requests"] == {name: resources["limits"][name] for name in ("cpu", "memory")}
    assert resources["requests"]["cpu"].isdigit()
    # Several are on one host, so each node is named as its pod is.
    names = {one["name"]: one.get("valueFrom") for one in container["env"]}
    assert names["NODE_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert value(container["args"], "--node-id") == "$(NODE_NAME)"
    # All evaluators of a node may go at once: their replacements find no GPU, so a drain cannot wait for them.
    (budget,) = (
        one
        for one in documents
        if (one["kind"], one["metadata"]["name"]) == ("PodDisruptionBudget", "kerneldyno-evaluator")
    )
    assert budget["spec"]["maxUnavailable"] == 8
    # Nothing else differs from one for each host.
    (alone,) = before["spec"]["containers"]
    changed = {"resources", "env", "securityContext"}
    assert {key: container[key] for key in container.keys() - changed} == {
        key: alone[key] for key in alone.keys() - changed
    }
    assert pod["volumes"] == before["spec"]["volumes"]
    assert stateful["spec"]["template"]["metadata"] == before["metadata"]


def test_kubectl_renders_the_example_with_a_virtual_machine_for_each(tmp_path: Path) -> None:
    pod = evaluators(render(tmp_path, "per-gpu", "kata"))["spec"]["template"]["spec"]
    assert pod["runtimeClassName"] == "kata-qemu-nvidia-gpu"
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/pgpu": 1}


def container(service: str) -> Any:
    (only,) = WORKLOADS[service]["spec"]["template"]["spec"]["containers"]
    return only


@each
def test_services_know_their_options_and_have_time_to_drain(service: str) -> None:
    options = container(service)["args"]
    assert accepted(service, options)
    default = {"scheduler": 30, "evaluator": 60}[service]
    pod = WORKLOADS[service]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > float(value(options, "--drain-timeout") or default) + 10


@each
def test_probes_ask_the_port_that_is_served(service: str) -> None:
    fields = container(service)
    default = {"evaluator": "127.0.0.1:50052"}
    listening = (value(fields["args"], "--listen") or default[service]).rpartition(":")[2]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        command = fields[name]["exec"]["command"]
        assert modules(command) == ["kerneldyno.deploy.health"]
        assert command[3].rpartition(":")[2] == listening
        limit = float(value(command, "--timeout") or 3)
        assert limit < fields[name]["timeoutSeconds"], "the command says what is wrong before it is killed"
        # No server answers, or the files are missing; both show that the options are known.
        assert health.main(["127.0.0.1:1", *command[4:], "--timeout=1"]) in (1, 2)
        with_tls = value(fields["args"], "--tls-cert") is not None
        assert (value(command, "--tls-ca") is not None) == with_tls


@each
def test_files_that_are_named_are_mounted(service: str) -> None:
    fields, pod = container(service), WORKLOADS[service]["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in fields["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in WORKLOADS[service]["spec"].get("volumeClaimTemplates", ())}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts) == claims | set(volumes)
    for word in (*fields["args"], *fields["readinessProbe"]["exec"]["command"]):
        path = word.partition("=")[2].removeprefix("sqlite:")
        if path.startswith("/"):
            assert any(path.startswith(f"{mount}/") for mount in mounts.values()), word
    for (
        volume
    ) in volumes.values():  # services refuse a key that all may read, and cannot read one that only root may read
        if "secret" in volume:
            assert volume["secret"]["defaultMode"] == 0o440
            assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]


@each
def test_it_keeps_to_the_restricted_standard(service: str) -> None:
    pod, fields = WORKLOADS[service]["spec"]["template"]["spec"], container(service)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert fields["securityContext"]["allowPrivilegeEscalation"] is False
    assert fields["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert not any("hostPath" in volume for volume in pod["volumes"])


def test_nobody_is_let_in_but_who_has_to_be() -> None:
    deny = find("NetworkPolicy", "default-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    evaluator = find("NetworkPolicy", "kerneldyno-evaluator")["spec"]
    assert [port["port"] for rule in evaluator["ingress"] for port in rule["ports"]] == ["metrics"]
    assert "egress" not in find("NetworkPolicy", "kerneldyno-scheduler")["spec"]
    for service, workload in WORKLOADS.items():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        named = {port["name"] for port in container(service)["ports"]}
        assert find("NetworkPolicy", f"kerneldyno-{service}")["spec"]["podSelector"]["matchLabels"] == labels
        assert find("PodDisruptionBudget", f"kerneldyno-{service}")["spec"]["selector"]["matchLabels"] == labels
        for rule in find("NetworkPolicy", f"kerneldyno-{service}")["spec"]["ingress"]:
            assert {port["port"] for port in rule["ports"]} <= named


def test_evaluators_dial_the_scheduler_by_its_service() -> None:
    service = find("Service", "kerneldyno-scheduler")
    labels = WORKLOADS["scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    (port,) = service["spec"]["ports"]
    assert value(container("evaluator")["args"], "--scheduler") == f"{service['metadata']['name']}:{port['port']}"
