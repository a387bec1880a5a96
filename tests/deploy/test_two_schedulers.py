"""Two schedulers on Kubernetes: what the component makes of the base. test_scheduler_probes.py runs them.

`MERGED` is the StatefulSet after the patch; where kubectl is installed, its own rendering shows that it is the same.
"""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest

from kerneldyno.scheduler.__main__ import STORE_VARIABLE
from kerneldyno.scheduler.probes import LIVENESS, READINESS
from tests.deploy.deploy_files import accepted, load, merged, value
from tests.deploy.test_kubernetes import KUBERNETES, VERSIONS, WORKLOADS, find, render

FOLDER = KUBERNETES / "two-schedulers"
SERVICE = merged(find("Service", "kerneldyno-scheduler"), load(FOLDER / "service.yaml")[0])
MERGED = merged(WORKLOADS["scheduler"], load(FOLDER / "scheduler.yaml")[0])
POD = MERGED["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
(POLICY,) = load(FOLDER / "network-policy.yaml")
LABELS = MERGED["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_of_it_keeps_to_the_schemas(version: str) -> None:
    for document in (SERVICE, MERGED, POLICY):
        kubernetes_validate.validate(document, version, strict=True)


def test_kubectl_merges_it_in_the_same_way(tmp_path: Path) -> None:
    rendered = {(one["kind"], one["metadata"]["name"]): one for one in render(tmp_path, "two-schedulers")}
    stateful = rendered["StatefulSet", "kerneldyno-scheduler"]["spec"]
    spec = stateful["template"]["spec"]
    (container,) = spec["containers"]
    secrets = {name.rpartition("-")[0]: name for kind, name in rendered if kind == "Secret"}
    for volume in spec["volumes"]:  # kustomize adds a hash of the content to a secret's name, everywhere
        if secret := volume.get("secret"):
            assert secret["secretName"] in secrets.values()
            secret["secretName"] = secret["secretName"].rpartition("-")[0]
    (store,) = (one["valueFrom"]["secretKeyRef"] for one in container["env"] if one["name"] == STORE_VARIABLE)
    assert store["name"] == secrets["kerneldyno-database"]
    store["name"] = "kerneldyno-database"
    container["image"] = CONTAINER["image"]
    for part in (spec["volumes"], container["env"], container["volumeMounts"]):
        part.sort(key=lambda one: str(one["name"]))
    for name in ("env", "volumeMounts"):
        assert container.pop(name) == sorted(CONTAINER[name], key=lambda one: str(one["name"]))
    assert spec.pop("volumes") == sorted(POD["volumes"], key=lambda one: str(one["name"]))
    assert container == {key: field for key, field in CONTAINER.items() if key not in ("env", "volumeMounts")}
    same = {key: field for key, field in POD.items() if key not in ("containers", "volumes")}
    assert {key: field for key, field in spec.items() if key != "containers"} == same
    same = {key: field for key, field in MERGED["spec"].items() if key != "template"}
    assert {key: field for key, field in stateful.items() if key != "template"} == same
    assert rendered["Service", "kerneldyno-scheduler"]["spec"] == SERVICE["spec"]
    assert rendered["NetworkPolicy", "kerneldyno-scheduler-database"]["spec"] == POLICY["spec"]


def test_the_url_is_in_no_command_line_and_the_connection_is_checked() -> None:
    assert accepted("scheduler", CONTAINER["args"])
    assert value(CONTAINER["args"], "--store") is None, "it would replace the variable"
    environment = {one["name"]: one for one in CONTAINER["env"]}
    assert environment[STORE_VARIABLE]["valueFrom"] == {
        "secretKeyRef": {"name": "kerneldyno-database", "key": "url"}  # not optional: otherwise it would use a file
    }
    assert environment["PGSSLMODE"]["value"] == "verify-full"
    (volume,) = (one["secret"] for one in POD["volumes"] if one["name"] == "database")
    assert (volume["secretName"], volume["optional"], volume["defaultMode"]) == ("kerneldyno-database", True, 0o440)
    (mount,) = (one["mountPath"] for one in CONTAINER["volumeMounts"] if one["name"] == "database")
    assert environment["PGSSLROOTCERT"]["value"] == f"{mount}/{volume['items'][0]['path']}"
    assert [one["key"] for one in volume["items"]] == ["ca.crt"], "the URL is in no file"


def test_nothing_is_left_of_the_journal_on_a_volume() -> None:
    assert "volumeClaimTemplates" not in MERGED["spec"]
    mounts = {one["name"]: one["mountPath"] for one in CONTAINER["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in POD["volumes"]}
    for word in (*CONTAINER["args"], *CONTAINER["readinessProbe"]["exec"]["command"]):
        path = word.partition("=")[2]
        assert not path.startswith("/") or any(path.startswith(f"{mount}/") for mount in mounts.values()), word


def test_each_says_by_which_name_it_is_reached() -> None:
    environment = {one["name"]: one.get("valueFrom") for one in CONTAINER["env"]}
    assert environment["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment["POD_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    # Pods of a StatefulSet have names in DNS if its Service has no address of its own.
    assert MERGED["spec"]["serviceName"] == SERVICE["metadata"]["name"]
    assert SERVICE["spec"]["clusterIP"] == "None"
    assert SERVICE["spec"]["publishNotReadyAddresses"] is True
    assert SERVICE["spec"]["selector"] == LABELS
    (port,) = SERVICE["spec"]["ports"]
    name = f"$(POD_NAME).{SERVICE['metadata']['name']}.$(POD_NAMESPACE).svc"
    assert value(CONTAINER["args"], "--advertise") == f"{name}:{port['port']}"
    # A Service without an address of its own translates no ports.
    assert {"name": port["targetPort"], "containerPort": port["port"]} in CONTAINER["ports"]


def test_they_are_replaced_one_after_the_other_and_never_share_a_machine() -> None:
    assert MERGED["spec"]["replicas"] == 2
    assert MERGED["spec"]["podManagementPolicy"] == "Parallel"
    assert MERGED["spec"].get("updateStrategy", {"type": "RollingUpdate"}) == {"type": "RollingUpdate"}
    (rule,) = POD["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}
    (spread,) = POD["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": LABELS}
    budget = find("PodDisruptionBudget", "kerneldyno-scheduler")["spec"]
    assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (LABELS, 1)
    # A standby is ready, or neither an update nor the budget would ever let the active one go.
    asked = {name: value(CONTAINER[f"{name}Probe"]["exec"]["command"], "--service") for name in PROBES}
    assert asked == PROBES
    drain = value(CONTAINER["args"], "--drain-timeout")
    assert drain == "0", "the other one waits for the end of this one"
    assert POD["terminationGracePeriodSeconds"] > 10


PROBES = {"startup": LIVENESS, "liveness": LIVENESS, "readiness": READINESS}


def test_they_may_dial_their_database_and_nothing_else() -> None:
    assert POLICY["spec"]["podSelector"]["matchLabels"] == LABELS
    assert POLICY["spec"]["policyTypes"] == ["Egress"], "who may dial them stays as it is"
    database, names = POLICY["spec"]["egress"]
    assert database == {"ports": [{"protocol": "TCP", "port": 5432}]}
    evaluators = find("NetworkPolicy", "kerneldyno-evaluator")["spec"]["egress"]
    assert names == evaluators[-1]


def test_nothing_else_differs_from_one_scheduler() -> None:
    (alone,) = WORKLOADS["scheduler"]["spec"]["template"]["spec"]["containers"]
    changed = {"args", "env", "volumeMounts"}
    assert {key: CONTAINER[key] for key in CONTAINER.keys() - changed} == {
        key: alone[key] for key in alone.keys() - changed
    }
    own = {"--store"}
    ours = {"--advertise", "--store-lease", "--drain-timeout"}
    arguments = {word for word in alone["args"] if word.partition("=")[0] not in own}
    assert {word for word in CONTAINER["args"] if word.partition("=")[0] not in ours} == arguments
