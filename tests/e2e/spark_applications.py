"""Applications of Spark, submitted as users do it: ``spark-submit`` in cluster mode, with the account of a driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import yaml

from e2e.images import spark as image
from support.kube.client import KubeApiError, KubeClient
from support.waiting import HANG_GUARD, eventually

# Another Namespace than that of the release, as users have it.
SPACE = "spark"

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "spark"
PAGE = ROOT / "docs" / "spark.md"
SPARK_HOME = Path(pyspark.__file__).parent
ENDED = ("Succeeded", "Failed")
# A driver here is over before the compiler for long runs has paid off, and all Pods share few cores.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SMALL = {
    "spark.executor.instances": "1",
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.kubernetes.driverEnv.JDK_JAVA_OPTIONS": JAVA_OPTIONS,
    "spark.executorEnv.JDK_JAVA_OPTIONS": JAVA_OPTIONS,
    "spark.ui.enabled": "false",
}


def documented_settings() -> dict[str, str]:
    """Those of the command in docs/spark.md."""
    found = re.search(r"^```bash\n(spark-submit .*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return dict(re.findall(r"--conf ([\w.]+)=(\S+)", found[1]))


class SparkApplications:
    """Drivers in a separate Namespace, submitted by `spark-submit`."""

    def __init__(self, kube: KubeClient, folder: Path) -> None:
        self._kube = kube
        self._folder = folder
        self._kubeconfig = folder / "spark.kubeconfig"

    def install(self) -> None:
        """A Namespace of the level *restricted*, with the account of examples/spark/rbac.yaml, which also submits."""
        confined = {"name": SPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
        self._kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": confined})
        for resource in yaml.safe_load_all((EXAMPLES / "rbac.yaml").read_text()):
            resource["metadata"]["namespace"] = SPACE
            self._kube.apply(resource)
        token = self._kube.kubectl("-n", SPACE, "create", "token", "spark", "--duration=12h").strip()
        config = yaml.safe_load(self._kube.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": token}
        self._kubeconfig.write_text(json.dumps(config))

    def uninstall(self) -> None:
        self._kube.kubectl("delete", "namespace", SPACE, "--ignore-not-found")

    def example(self, stem: str) -> dict[str, str]:
        """The settings of an application in examples/spark/apache, which name its Pod templates."""
        spec = yaml.safe_load((EXAMPLES / "apache" / f"{stem}.yaml").read_text())["spec"]
        settings: dict[str, str] = dict(spec["sparkConf"])
        for role in ("driver", "executor"):
            template = self._folder / f"{stem}-{role}.yaml"
            pod = {"apiVersion": "v1", "kind": "Pod", **spec[f"{role}Spec"]["podTemplateSpec"]}
            template.write_text(yaml.safe_dump(pod))
            settings[f"spark.kubernetes.{role}.podTemplateFile"] = str(template)
        return settings

    def submit(self, name: str, job: str, *arguments: str, settings: Mapping[str, str]) -> None:
        """Returns when the driver's Pod ``name`` is made."""
        own = {
            "spark.kubernetes.namespace": SPACE,
            "spark.kubernetes.container.image": image.NAME,
            "spark.kubernetes.driver.pod.name": name,
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }
        chosen = {**settings, **SMALL, **own}
        command = [
            str(SPARK_HOME / "bin" / "spark-submit"),
            f"--master=k8s://{self._kube.url}",
            "--deploy-mode=cluster",
        ]
        command += ["--name", name, *(f"--conf={key}={value}" for key, value in chosen.items())]
        command += [f"local:///app/jobs/{job}.py", *arguments]
        environment = os.environ | {"SPARK_HOME": str(SPARK_HOME), "KUBECONFIG": str(self._kubeconfig)}
        environment |= {"JDK_JAVA_OPTIONS": JAVA_OPTIONS}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=HANG_GUARD)
        said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("\tat ")]
        assert done.returncode == 0, f"{name} was not submitted:\n" + "\n".join(said[-40:])

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Deletes the driver after the block, and with it all it has made. A failure there shows what it said."""
        try:
            yield
        except BaseException as error:
            raise AssertionError(f"{error}\n{self.describe(name)}") from error
        finally:
            self._kube.kubectl("-n", SPACE, "delete", "pod", name, "--ignore-not-found")

    def finish(self, name: str) -> str:
        """Waits until the driver has ended. Its log; fails with the end of it if the driver failed."""
        try:
            phase = eventually(lambda: self.ended(name), what=f"the driver {name} ends", pause=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(name)}") from error
        assert phase == "Succeeded", f"the driver {name} failed\n{self.describe(name)}"
        return self.log(name)

    def ended(self, name: str) -> str | None:
        """Succeeded or Failed; None while the driver runs."""
        phase = self.driver(name)["status"].get("phase", "")
        return phase if phase in ENDED else None

    def driver(self, name: str) -> dict[str, Any]:
        """The Pod."""
        return self._kube.get({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}})

    def kill(self, name: str) -> None:
        """Deletes the driver's Pod at once, as when its node is lost."""
        self._kube.kubectl("-n", SPACE, "delete", "pod", name, "--force", "--grace-period=0")

    def executors(self, name: str) -> list[dict[str, Any]]:
        """The Pods that this driver has made and that are there."""
        found = self._kube.list("v1", "Pod", SPACE, labelSelector="spark-role=executor")
        uid = self.driver(name)["metadata"]["uid"]
        return [pod for pod in found if uid in {owner["uid"] for owner in pod["metadata"].get("ownerReferences", ())}]

    def log(self, name: str, *flags: str) -> str:
        return self._kube.kubectl("-n", SPACE, "logs", name, *flags)

    def describe(self, name: str) -> str:
        """What is there, and the end of the driver's and the executors' logs, for a test that failed."""
        said = [self._kube.kubectl("-n", SPACE, "get", "pods", "-o", "wide")]
        said.append(json.dumps(self.driver(name)["status"].get("containerStatuses", []), indent=1))
        for pod in (name, *(executor["metadata"]["name"] for executor in self.executors(name))):
            try:
                said.append(f"--- {pod}\n" + self.log(pod, "--tail=60"))
            except (subprocess.CalledProcessError, KubeApiError) as error:
                said.append(f"--- {pod}: no log: {error}")
        return "\n".join(said)
