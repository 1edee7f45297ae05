#!/usr/bin/env python3
"""What the chart and the plain file make of a real API server: what it admits, what it refuses, and what the account of
the controller may do. `make test` runs these."""

import json
import os
import pathlib
import shutil
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parent.parent / "scripts"
CHART = HERE.parent / "helm" / "sallyport-kube"
VALUES = CHART / "ci" / "values.yaml"
# What the API server does not know.
KINDS_OF_OTHERS = "ServiceMonitor"
PATIENCE_S = 120
# What the policy admits and refuses, and with which words. A test of core/kube judges the same.
ANNOTATIONS = json.loads((HERE / "annotations.json").read_text())
RELEASE, NAMESPACE = "chart", "of-chart"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-sallyport-kube"


def tool(name):
    found = subprocess.run([SCRIPTS / "tools", name], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        raise LookupError(f"{name} cannot be built (scripts/tools {name} says why)")
    return found.stdout.strip()


class Cluster:
    """etcd and an API server on this machine; scripts/kubernetes ends them with this program."""

    def __init__(self, parent):
        self.folder = os.path.join(parent, "cluster")
        self.script = subprocess.Popen([SCRIPTS / "kubernetes", self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        if self.script.stdout.readline().strip() != "ready":
            raise LookupError(self.script.communicate()[1].strip())
        self.url = pathlib.Path(self.folder, "url").read_text().strip()
        self.trust = ssl.create_default_context(cafile=os.path.join(self.folder, "ca.pem"))
        self.environment = {**os.environ, "KUBECONFIG": os.path.join(self.folder, "kubeconfig"), "HOME": parent,
                            "HELM_CACHE_HOME": parent, "HELM_CONFIG_HOME": parent, "HELM_DATA_HOME": parent}

    def end(self):
        self.script.stdin.close()
        self.script.stdout.close()
        self.script.stderr.close()
        self.script.wait()

    def call(self, method, path, body=None, token="administrator", kind="application/json"):
        """The status and the body of the answer."""
        request = urllib.request.Request(self.url + path, method=method, data=json.dumps(body).encode() if body is not None else None)
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, context=self.trust, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, json.load(answer)

    def good(self, method, path, body=None, **more):
        status, answer = self.call(method, path, body, **more)
        assert status < 300, (method, path, answer)
        return answer

    def run(self, *command, given=None):
        return subprocess.run(command, env=self.environment, input=given, text=True, capture_output=True)


cluster, helm, kubectl, kubeconform, unittests = None, None, None, None, None


def setUpModule():
    global cluster, helm, kubectl, kubeconform, unittests
    folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    try:
        helm, kubectl, kubeconform, unittests = map(tool, ["helm", "kubectl", "kubeconform", "helm-unittest"])
        cluster = Cluster(folder)
    except LookupError as reason:
        if "CI" in os.environ:
            raise
        print(f"skipped: the chart cannot be tried here: {reason}")
        raise unittest.SkipTest(str(reason)) from None
    unittest.addModuleCleanup(cluster.end)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.good("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": restricted}})
    cluster.good("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    installed = cluster.run(helm, "install", RELEASE, CHART, "--namespace", NAMESPACE, "--values", VALUES, "--wait=hookOnly",
                            "--set", "ingressClass.name=of-chart,metrics.port=9500")
    assert installed.returncode == 0, installed.stderr
    assert "kubectl annotate service NAME sallyport.dev/expose=true" in installed.stdout, installed.stdout


def template(*options):
    """The result of `helm template` with the values of the tests."""
    return subprocess.run([helm, "template", RELEASE, CHART, "--namespace", NAMESPACE, "--values", VALUES, *options], text=True,
                          capture_output=True)


def documents(text):
    """The objects of a manifest."""
    printed = cluster.run(kubectl, "create", "--dry-run=client", "--validate=false", "--output", "json", "--filename", "-", given=text)
    assert printed.returncode == 0, printed.stderr
    decoder, found, rest = json.JSONDecoder(), [], printed.stdout.strip()
    while rest:
        one, end = decoder.raw_decode(rest)
        found.extend(one["items"] if one["kind"] == "List" else [one])
        rest = rest[end:].lstrip()
    return found


def service(annotations, **spec):
    return {"metadata": {"generateName": "web-", "annotations": annotations}, "spec": {"ports": [{"port": 80}], **spec}}


class Chart(unittest.TestCase):
    def test_lint_has_nothing_to_say(self):
        linted = subprocess.run([helm, "lint", "--strict", "--values", VALUES, CHART], text=True, capture_output=True)
        self.assertEqual(0, linted.returncode, linted.stdout + linted.stderr)

    def test_the_tests_of_the_chart_pass(self):
        ran = subprocess.run([unittests, "--strict", CHART], text=True, capture_output=True)
        self.assertEqual(0, ran.returncode, ran.stdout + ran.stderr)

    def test_values_that_cannot_work_are_refused_with_the_remedy(self):
        for values, words in [
            (["cluster="], "give --set cluster=NAME"),
            (["cluster=Prod"], "/cluster"),
            (["cluster=" + "a" * 64], "/cluster"),
            (["api="], "give --set api=URL"),
            (["api=api.example.com"], "/api"),
            (["api=http://api.example.com"], "/api"),
            (["token.existingSecret="], "kubectl create secret generic"),
            (["token.existingSecret=", "token.value=secret"], "token.allowValue=true"),
            (["token.value=secret", "token.allowValue=true"], "keep token.existingSecret"),
            (["serviceAccount.create=false"], "serviceAccount.name is not set"),
            (["metrics.serviceMonitor.create=true", "metrics.service.create=false"], "leave metrics.service.create true"),
            (["replicas=0"], "/replicas"),
            (["replicas=two"], "/replicas"),
            (["replicaCount=3"], "replicaCount"),
            (["token.secret=x"], "secret"),
            (["image.pullPolicy=Sometimes"], "/image/pullPolicy"),
            (["image.digest=sha256:12"], "/image/digest"),
            (["tunnels.transport=carrier-pigeon"], "/tunnels/transport"),
            (["metrics.port=80"], "/metrics/port"),
            (["drainSeconds=-1"], "/drainSeconds"),
            (["watchNamespaces={a,a}"], "/watchNamespaces"),
            (["extraArgs={redundancy}"], "/extraArgs/0"),
            (["loadBalancerClass=edge"], "/loadBalancerClass"),
        ]:
            with self.subTest(values):
                made = template(*(word for value in values for word in ("--set", value)))
                self.assertNotEqual(0, made.returncode, values)
                self.assertIn(words, made.stderr)

    def test_the_plain_file_is_that_of_the_chart(self):
        made = subprocess.run([HERE / "generate", "--check"], text=True, capture_output=True)
        self.assertEqual(0, made.returncode, made.stdout + made.stderr)

    def test_each_document_is_as_the_api_server_describes_it(self):
        with tempfile.TemporaryDirectory() as folder:
            schemas(folder)
            judge = [kubeconform, "-strict", "-summary", "-skip", KINDS_OF_OTHERS, "-schema-location",
                     folder + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"]
            everything = ["--set", "metrics.serviceMonitor.create=true,networkPolicy.egress.limit=true,ca.existingConfigMap=ca,"
                          "watchNamespaces={shop,blog},token.value=secret,token.existingSecret=,token.allowValue=true,"
                          "imagePullSecrets[0].name=registry,tolerations[0].operator=Exists,priorityClassName=high,organisation=acme"]
            # Names that YAML would take for numbers and for truths.
            digits = ["--namespace", "123", "--set-string", "fullnameOverride=1e3,watchNamespaces={456,1e4},token.existingSecret=7,token.key=8,"
                      "serviceAccount.name=0x10,ingressClass.name=true,ca.existingConfigMap=null,priorityClassName=10,nameOverride=11"]
            for options in [digits, [], everything]:
                made = template(*options)
                self.assertEqual(0, made.returncode, made.stderr)
                judged = subprocess.run(judge, input=made.stdout, text=True, capture_output=True)
                self.assertEqual(0, judged.returncode, judged.stdout + judged.stderr)
                self.assertRegex(judged.stdout, r"1[0-9] resources found|2[0-9] resources found")
            wrong = made.stdout.replace("replicas: 2", "replicas: two").replace("automountServiceAccountToken", "automountToken")
            judged = subprocess.run(judge, input=wrong, text=True, capture_output=True)
            self.assertIn("Invalid: 4", judged.stdout, "Deployment, account, job and test pod")


def schemas(folder):
    """Writes a JSON schema for each kind, from the description of the API server, in which no other field may be."""
    definitions = cluster.good("GET", "/openapi/v2")["definitions"]
    for name, one in definitions.items():
        if "properties" in one:
            one["additionalProperties"] = False
        if name.endswith(("util.intstr.IntOrString", "api.resource.Quantity")):
            one.clear()
            one["type"] = ["string", "integer", "number"]
    pathlib.Path(folder, "definitions.json").write_text(json.dumps({"definitions": definitions}))
    for name, one in definitions.items():
        for kind in one.get("x-kubernetes-group-version-kind", []):
            group = kind["group"].split(".")[0]
            suffix = "-".join(part for part in [group, kind["version"]] if part)
            schema = {"$ref": f"file://{folder}/definitions.json#/definitions/{name}"}
            pathlib.Path(folder, f"{kind['kind'].lower()}-{suffix}.json").write_text(json.dumps(schema))


class Installed(unittest.TestCase):
    def test_its_pods_are_admitted_where_only_restricted_ones_are(self):
        made = documents(template().stdout)
        pods = [one["spec"]["template"]["spec"] for one in made if one["kind"] in ("Deployment", "Job")]
        pods += [one["spec"] for one in made if one["kind"] == "Pod"]
        self.assertEqual(3, len(pods), "the controller, the cleanup and the test")
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
        for spec in pods:
            pod = {"metadata": {"generateName": "pod-"}, "spec": spec}
            self.assertEqual(201, cluster.call("POST", path, pod)[0])
            spec["securityContext"]["runAsNonRoot"] = False
            status, answer = cluster.call("POST", path, pod)
            self.assertEqual((403, True), (status, "restricted" in answer["message"]), answer)

    def test_the_plain_file_is_applied_as_it_is(self):
        text = (HERE / "sallyport.yaml").read_text()
        applied = cluster.run(kubectl, "apply", "--validate=strict", "--filename", "-", given=text)
        self.assertEqual(0, applied.returncode, applied.stderr)
        self.assertNotIn("unchanged", applied.stdout)
        again = cluster.run(kubectl, "apply", "--server-side", "--force-conflicts", "--filename", "-", given=text)
        self.assertEqual(0, again.returncode, again.stderr)
        made = {(one["kind"], one["metadata"]["name"]) for one in documents(text)}
        for kind in ["Namespace", "Secret", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment",
                     "PodDisruptionBudget", "NetworkPolicy", "IngressClass", "ValidatingAdmissionPolicy", "Service"]:
            self.assertIn(kind, {one for one, _ in made})
        removed = cluster.run(kubectl, "delete", "--wait=false", "--filename", "-", given=text)
        self.assertEqual(0, removed.returncode, removed.stderr)

    def test_the_account_may_do_what_the_controller_does_and_nothing_else(self):
        token = cluster.good("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{RELEASE}-sallyport-kube/token",
                             {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        granted = {}
        for namespace in (NAMESPACE, "shop"):
            review = cluster.good("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": namespace}},
                                  token=token)["status"]
            self.assertFalse(review["incomplete"], review)
            granted[namespace] = {(group, resource, name, verb)
                                  for rule in review["resourceRules"]
                                  for group in rule["apiGroups"] for resource in rule["resources"]
                                  for name in rule.get("resourceNames", [""]) for verb in rule["verbs"]
                                  # What every account may: ask about its own rights, and read authorities.
                                  if group not in ("authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io")}
        reads = ("get", "list", "watch")
        everywhere = {
            *(("", "services", "", verb) for verb in (*reads, "patch")), ("", "services/status", "", "patch"),
            *(("networking.k8s.io", "ingresses", "", verb) for verb in (*reads, "patch")),
            ("networking.k8s.io", "ingresses/status", "", "patch"),
            *(("networking.k8s.io", "ingressclasses", "", verb) for verb in reads),
            *(("discovery.k8s.io", "endpointslices", "", verb) for verb in reads),
            *(("events.k8s.io", "events", "", verb) for verb in ("create", "patch")),
            ("", "namespaces", "kube-system", "get"),
        }
        lease = {("coordination.k8s.io", "leases", "", "create"),
                 *(("coordination.k8s.io", "leases", "sallyport-kube", verb) for verb in ("get", "update", "patch", "delete"))}
        self.assertEqual(everywhere, granted["shop"])
        self.assertEqual(everywhere | lease, granted[NAMESPACE])

        # The same by calls, so that the names of the rights are those of the API.
        path = cluster.good("POST", "/api/v1/namespaces/shop/services", service({}))["metadata"]
        path = f"/api/v1/namespaces/shop/services/{path['name']}"
        merge = "application/merge-patch+json"
        lease = {"metadata": {"name": "sallyport-kube"}, "spec": {"holderIdentity": "a"}}
        for method, path_of, body, allowed in [
            ("GET", "/api/v1/services", None, True),
            ("GET", "/apis/discovery.k8s.io/v1/endpointslices", None, True),
            ("GET", "/apis/networking.k8s.io/v1/ingresses", None, True),
            ("GET", "/apis/networking.k8s.io/v1/ingressclasses", None, True),
            ("GET", "/api/v1/namespaces/kube-system", None, True),
            ("PATCH", path, {"metadata": {"finalizers": ["sallyport.dev/socket"]}}, True),
            ("PATCH", path, {"metadata": {"finalizers": None}}, True),
            ("PATCH", path + "/status", {"status": {"conditions": []}}, True),
            ("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/sallyport-kube", None, True),
            ("POST", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", lease, True),
            ("POST", "/apis/coordination.k8s.io/v1/namespaces/shop/leases", lease, False),
            ("DELETE", path, None, False),
            ("POST", "/api/v1/namespaces/shop/services", service({}), False),
            ("GET", "/api/v1/namespaces/shop/secrets", None, False),
            ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/sallyport-token", None, False),
            ("GET", "/api/v1/namespaces", None, False),
            ("GET", "/api/v1/pods", None, False),
            ("GET", "/api/v1/nodes", None, False),
            ("GET", "/api/v1/configmaps", None, False),
        ]:
            with self.subTest(method=method, path=path_of):
                status, answer = cluster.call(method, path_of, body, token=token, kind=merge if method == "PATCH" else "application/json")
                self.assertEqual(allowed, status < 300, answer)
                self.assertIn(status, (200, 201) if allowed else (403,), answer)


class Uninstalled(unittest.TestCase):
    """The pods of hooks do not run here: the test says how they ended."""

    JOBS = "/apis/batch/v1/namespaces/gone/jobs"
    LEFT = ["/api/v1/namespaces/gone/services", "/api/v1/namespaces/gone/serviceaccounts", "/api/v1/namespaces/gone/secrets",
            "/apis/apps/v1/namespaces/gone/deployments", "/apis/batch/v1/namespaces/gone/jobs",
            "/apis/policy/v1/namespaces/gone/poddisruptionbudgets", "/apis/networking.k8s.io/v1/namespaces/gone/networkpolicies",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/gone/roles", "/apis/coordination.k8s.io/v1/namespaces/gone/leases", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "/apis/networking.k8s.io/v1/ingressclasses",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"]

    def left(self):
        """What is there with the labels of the release, or by its name."""
        found = []
        for path in self.LEFT:
            found += [f"{path}/{one['metadata']['name']}" for one in cluster.good("GET", path)["items"]
                      if one["metadata"]["name"].startswith(("gone", "sallyport-kube", "sh.helm.release.v1.gone"))]
        return found

    def uninstall(self, *conditions):
        """Uninstalls, with a cleanup that ends so."""
        running = subprocess.Popen([helm, "uninstall", "gone", "--namespace", "gone", "--timeout", f"{PATIENCE_S}s"],
                                   env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(running.kill)
        limit = time.monotonic() + PATIENCE_S
        # That of an earlier attempt has ended.
        while not any("conditions" not in job.get("status", {}) for job in cluster.good("GET", self.JOBS)["items"]):
            self.assertIsNone(running.poll(), "it does not wait for the cleanup")
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)
        # Nothing is gone yet, so that the cleanup has its account, its rights and its token.
        self.assertLessEqual(10, len(self.left()))
        at = "2026-01-01T00:00:00Z"
        status = {"startTime": at, "conditions": [{"type": one, "status": "True", "lastTransitionTime": at} for one in conditions]}
        status.update({"succeeded": 1, "completionTime": at} if "Complete" in conditions else {"failed": 1})
        cluster.good("PATCH", f"{self.JOBS}/gone-sallyport-kube-cleanup/status", {"status": status}, kind="application/merge-patch+json")
        printed = running.communicate(timeout=PATIENCE_S)[0]
        return running.returncode, printed

    def test_a_release_goes_without_a_trace_after_its_cleanup_and_stays_where_that_failed(self):
        cluster.good("POST", "/api/v1/namespaces", {"metadata": {"name": "gone"}})
        made = cluster.run(helm, "install", "gone", CHART, "--namespace", "gone", "--values", VALUES, "--wait=hookOnly",
                           "--set", "ingressClass.name=gone,token.existingSecret=,token.value=secret,token.allowValue=true")
        self.assertEqual(0, made.returncode, made.stderr)
        self.assertIn("WARNING: the token is readable", made.stdout)

        status, printed = self.uninstall("FailureTarget", "Failed")
        self.assertNotEqual(0, status, printed)
        self.assertIn("cleanup", printed)
        self.assertLessEqual(10, len(self.left()), "the controller and its rights are still there")

        status, printed = self.uninstall("SuccessCriteriaMet", "Complete")
        self.assertEqual(0, status, printed)
        self.assertEqual([], self.left())


class Admission(unittest.TestCase):
    SERVICES = "/api/v1/namespaces/shop/services"
    INGRESSES = "/apis/networking.k8s.io/v1/namespaces/shop/ingresses"

    @classmethod
    def setUpClass(cls):
        # A policy that was just made comes into force a moment later.
        limit = time.monotonic() + PATIENCE_S
        while cls.judge({"sallyport.dev/expose": "yes"})[0] < 300:
            assert time.monotonic() < limit, "the policy is not in force"
            time.sleep(0.1)

    @classmethod
    def judge(cls, annotations):
        status, answer = cluster.call("POST", cls.SERVICES + "?dryRun=All", service(annotations))
        return status, answer.get("message", "")

    def test_good_annotations_pass(self):
        for annotations in ANNOTATIONS["good"]:
            with self.subTest(annotations):
                status, message = self.judge(annotations)
                self.assertEqual(201, status, message)

    def test_bad_annotations_are_refused_with_the_remedy(self):
        for annotations, *words in ANNOTATIONS["bad"]:
            with self.subTest(annotations):
                status, message = self.judge(annotations)
                self.assertEqual(422, status, message)
                for word in words:
                    self.assertIn(word, message)

    def test_ingresses_are_judged_too(self):
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        for value, expected in [("true", 201), ("yes", 422)]:
            ingress = {"metadata": {"generateName": "web-", "annotations": {"sallyport.dev/expose": value}}, "spec": {"defaultBackend": backend}}
            self.assertEqual(expected, cluster.call("POST", self.INGRESSES + "?dryRun=All", ingress)[0])

    def test_what_was_there_before_stays_changeable_and_only_good_changes_of_it_pass(self):
        # Made while the policy was not bound.
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{RELEASE}-sallyport-kube"
        binding = cluster.good("GET", path)
        cluster.good("DELETE", path)
        bad = {"sallyport.dev/expose": "yes"}
        limit = time.monotonic() + PATIENCE_S
        while (made := cluster.call("POST", self.SERVICES, service(bad)))[0] >= 300:
            self.assertLess(time.monotonic(), limit, made)
            time.sleep(0.1)
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        cluster.good("POST", path.rsplit("/", 1)[0], binding)
        while self.judge(bad)[0] < 300:
            self.assertLess(time.monotonic(), limit, "the policy is not in force again")
            time.sleep(0.1)
        path = f"{self.SERVICES}/{made[1]['metadata']['name']}"
        for patch, expected in [
            ({"metadata": {"finalizers": ["sallyport.dev/socket"]}}, 200),
            ({"metadata": {"finalizers": None, "labels": {"a": "b"}}}, 200),
            ({"metadata": {"annotations": {"sallyport.dev/type": "http"}}}, 422),
            ({"metadata": {"annotations": {"sallyport.dev/expose": "true"}}}, 200),
            ({"metadata": {"annotations": {"sallyport.dev/expose": "maybe"}}}, 422),
            ({"metadata": {"annotations": None}}, 200),
        ]:
            status, answer = cluster.call("PATCH", path, patch, kind="application/merge-patch+json")
            self.assertEqual(expected, status, (patch, answer.get("message")))


if __name__ == "__main__":
    unittest.main(verbosity=1)
