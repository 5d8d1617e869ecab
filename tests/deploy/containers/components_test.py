"""Each component of k8s/ with each kind of workload: none patches nothing, and a
LeaderWorkerSet gets what a Deployment and a StatefulSet get."""

import pathlib
import re
import shutil
import tempfile
import unittest

import manifests
from manifests import ROOT, yaml

K8S = ROOT / "k8s"
SETS, GROUPS = "sets", "groups"
# What a component stands on: replicas of either kind.
BASES = {SETS: {"resources": ["base"]},
         GROUPS: {"resources": ["base/shared"],
                  "components": ["components/leader-worker-set"]}}
COMPONENTS = sorted(path.parent.name for path in K8S.glob(
    "components/*/kustomization.yaml")
    if path.parent.name != "leader-worker-set")
# Components that one kind of workload refuses: what their error names.
REFUSED = {("keda", SETS): "LeaderWorkerSet"}
# Paths of pods whose change differs between the kinds, and why.
DIFFERENT = {
    # Groups' gateways name their stages' layers, by number of the model's.
    ("demo-model", "gateway"): r"containers/gateway/env/SLUICE_LAYERS/value",
    # ... but with a placement the stages choose them, by their numbers.
    ("experts", "gateway"): r"containers/gateway/args/--layers.*",
    ("experts", "stage"):
        r"containers/stage/args/--(layers|config)=.*"
        r"|containers/stage/env/SLUICE_STAGE_NUMBER.*"
        r"|(containers/stage/volumeMounts|volumes)/number.*",
    # Layers that a gateway names later are of the whole model.
    ("pull", "stage"):
        r"initContainers/pull/args/--(num-stages|stage-index)=.*"
        r"|initContainers/pull/env/SLUICE_STAGE_INDEX.*"
        r"|initContainers/pull/envFrom/1.*",
}


def crossing(workload, component):
    base = BASES[workload]
    return {**base, "components": [*base.get("components", []),
                                   f"components/{component}"]}


def pods(documents):
    """{role: spec} of gateways and stages."""
    found = {}
    for one in documents:
        for _, template in manifests.pod_templates(one):
            role = template["metadata"]["labels"].get(
                "app.kubernetes.io/component")
            if role in ("gateway", "stage"):
                found[role] = template["spec"]
    return found


def leaves(value, path=""):
    """{path: value}: objects of lists by name, arguments as they are."""
    found = {}
    if isinstance(value, dict):
        for key, one in value.items():
            found |= leaves(one, f"{path}/{key}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            name = one.get("name", at) if isinstance(one, dict) else one
            found |= leaves(one, f"{path}/{name}")
    else:
        found[path.lstrip("/")] = value
    return found


def changes(before, after):
    """{(path, what it is now)} of two pods' specifications; None: gone."""
    old, new = leaves(before), leaves(after)
    return {(path, str(new.get(path))) for path in old | new
            if old.get(path) != new.get(path)}


def uneven(component, plain, made):
    """Lines on roles that a component changes in the pods of one kind of
    workload alone; `plain` and `made`: objects without and with it, by kind."""
    for role in ("gateway", "stage"):
        per_kind = []
        for kind in BASES:
            changed = changes(pods(plain[kind])[role], pods(made[kind])[role])
            reason = DIFFERENT.get((component, role))
            per_kind.append({one for one in changed if not (
                reason and re.fullmatch(reason, one[0]))})
        for kind, more in zip(BASES, (per_kind[0] - per_kind[1],
                                      per_kind[1] - per_kind[0])):
            for path, value in sorted(more):
                yield f"{component}, {role} of {kind} alone: {path} {value}"


def missing_maps(documents):
    """Names of ConfigMaps that pods need and no object is."""
    there = {one["metadata"]["name"] for one in documents
             if one["kind"] == "ConfigMap"}
    wanted = set()
    for one in documents:
        for _, template in manifests.pod_templates(one):
            text = str(template["spec"])
            wanted |= set(re.findall(r"'configMap': \{'name': '([^']+)'", text))
            wanted |= set(re.findall(r"'configMapRef': \{'name': '([^']+)'",
                                     text))
    return wanted - there


class ComponentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.plain = {kind: manifests.render(cls.folder, base)
                     for kind, base in BASES.items()}

    def test_no_component_is_silent_with_a_workload(self):
        silent = count = 0
        for component in COMPONENTS:
            made = {}
            for kind in BASES:
                with self.subTest(component=component, workload=kind):
                    count += 1
                    if (component, kind) in REFUSED:
                        with self.assertRaisesRegex(
                                AssertionError, REFUSED[component, kind]):
                            manifests.render(self.folder,
                                             crossing(kind, component))
                        continue
                    made[kind] = manifests.render(
                        self.folder, crossing(kind, component))
                    silent += made[kind] == self.plain[kind]
                    self.assertNotEqual(made[kind], self.plain[kind])
                    self.assertEqual(missing_maps(made[kind]), set())
            if len(made) == len(BASES):
                with self.subTest(component=component):
                    self.assertEqual(
                        [], list(uneven(component, self.plain, made)))
        print(f"{len(COMPONENTS)} components, {count} crossings, {silent} "
              "silent")

    def test_every_patch_changes_something(self):
        """A patch whose target is nowhere is found: without it all is as it
        was."""
        for component in COMPONENTS:
            path = K8S / "components" / component / "kustomization.yaml"
            patches = yaml.safe_load(path.read_text()).get("patches", [])
            for at, patch in enumerate(patches):
                with self.subTest(component=component, patch=patch):
                    self.assertTrue(self.counts(component, at))

    def counts(self, component, at):
        """Whether the component's patch of this number changes a rendering, or
        another one of its patches needs it."""
        for kind in BASES:
            if (component, kind) in REFUSED:
                continue
            with self.without(component, at) as k8s:
                try:
                    made = manifests.render(self.folder, crossing(kind, component), k8s)
                except AssertionError:
                    return True
            if made != manifests.render(self.folder, crossing(kind, component)):
                return True
        return False

    def without(self, component, at):
        """A copy of k8s/ without a patch, as a context."""
        copy = tempfile.TemporaryDirectory(dir=self.folder)
        shutil.copytree(K8S, copy.name, dirs_exist_ok=True)
        path = pathlib.Path(copy.name, "components", component,
                            "kustomization.yaml")
        text = yaml.safe_load(path.read_text())
        del text["patches"][at]
        path.write_text(yaml.safe_dump(text))

        class Copy:
            def __enter__(self):
                return pathlib.Path(copy.name).resolve()

            def __exit__(self, *_):
                copy.cleanup()
        return Copy()

    def test_a_component_that_knows_one_workload_alone_is_found(self):
        for component, role in (("gpu", "stage"), ("pull", "gateway"),
                                ("demo-model", "stage"), ("experts", "stage")):
            patches = yaml.safe_load(
                (K8S / "components" / component / "kustomization.yaml")
                .read_text())["patches"]
            at, = (at for at, one in enumerate(patches)
                   if one["target"].get("kind") == "LeaderWorkerSet")
            with self.without(component, at) as k8s:
                made = {kind: manifests.render(self.folder, crossing(kind, component),
                                     k8s) for kind in BASES}
            found = list(uneven(component, self.plain, made))
            self.assertTrue(any(f"{component}, {role} of sets alone" in one
                                for one in found), found)

    def test_replicas_that_are_scaled_have_no_number_of_their_own(self):
        made = manifests.render(self.folder, crossing(GROUPS, "keda"))
        group, = (one for one in made if one["kind"] == "LeaderWorkerSet")
        scaled, = (one for one in made if one["kind"] == "ScaledObject")
        self.assertNotIn("replicas", group["spec"])
        target = scaled["spec"]["scaleTargetRef"]
        self.assertEqual(
            (target["kind"], target["name"], target["apiVersion"]),
            (group["kind"], group["metadata"]["name"], group["apiVersion"]))

    def test_stages_of_a_group_are_as_many_as_their_files(self):
        made = manifests.render(self.folder, crossing(GROUPS, "experts"))
        group, = (one for one in made if one["kind"] == "LeaderWorkerSet")
        files, = (one["data"] for one in made if one["kind"] == "ConfigMap"
                  and "stage-1.toml" in one["data"])
        stages = group["spec"]["leaderWorkerTemplate"]["size"] - 1
        self.assertEqual(files, {
            f"stage-{at + 1}.toml": f'layers = "auto"\nnum-stages = {stages}\n'
                                    f"stage-index = {at}\n"
            for at in range(stages)})


if __name__ == "__main__":
    manifests.need_kustomize()
    unittest.main()
