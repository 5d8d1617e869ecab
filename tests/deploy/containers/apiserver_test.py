"""Every overlay of k8s/, applied to a real API server as a server-side dry
run: its defaults, validation and admission, Pod Security restricted. The server
is built from Kubernetes' module, on Debian's etcd."""

import json
import tempfile
import unittest

import api_server
import manifests
from manifests import ROOT


class DryRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = api_server.ApiServer(folder.name)
        cls.addClassCleanup(cls.server.close)
        cls.server.define_all()

    def test_every_overlay_is_accepted(self):
        counts = {}
        for overlay in manifests.OVERLAYS:
            documents = manifests.objects(manifests.kustomize(overlay))
            for one in documents:
                if one["kind"] == "Namespace":
                    self.assertLess(self.server.apply(one, dry=False)[0], 300)
            for one in documents:
                name = f"{one['kind']} {one['metadata']['name']}"
                with self.subTest(overlay=overlay.name, object=name):
                    self.assertIsNotNone(self.server.path_of(one))
                    status, text, warnings = self.server.apply(one)
                    self.assertLess(status, 300, text[:2000])
                    self.assertEqual(warnings, [])
                    counts[overlay.name] = counts.get(overlay.name, 0) + 1
        print("accepted:", ", ".join(f"{name} {count}" for name, count
                                     in counts.items()), flush=True)
        self.assertEqual(len(counts), len(manifests.OVERLAYS))

    def test_what_is_wrong_is_refused(self):
        documents = manifests.objects(manifests.kustomize(
            ROOT / "k8s/overlays/cpu"))
        for one in documents:
            if one["kind"] == "Namespace":
                self.server.apply(one, dry=False)
        stage = next(one for one in documents if one["kind"] == "StatefulSet")
        text = json.dumps(stage)
        for old, new in (('"replicas"', '"replica"'),
                         ('"serviceName"', '"servicename"'),
                         ('"readinessProbe"', '"readinesProbe"')):
            self.assertIn(old, text)
            status, told, _ = self.server.apply(json.loads(
                text.replace(old, new, 1)))
            self.assertGreaterEqual(status, 400, new)
            self.assertIn(new.strip('"'), told)
        # Pod Security tells of a pod that asks for more.
        bold = json.loads(text)
        bold["spec"]["template"]["spec"]["hostNetwork"] = True
        status, told, warnings = self.server.apply(bold)
        self.assertIn("PodSecurity", " ".join(warnings) + told)


if __name__ == "__main__":
    manifests.need_kustomize()
    manifests.need(api_server.is_there(),
                   "no kube-apiserver or etcd (install_tools --long)")
    unittest.main()
