//! The chart with the real program: the arguments of its pods, with the rights of its account, at a real API server.

use std::{path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::{
    harness::{Program, text, wait_until},
    kube_rig::{Pod, Stage},
};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/helm/sallyport-kube");

/// A release of the chart in the namespace of a stage. Nothing runs pods here: the test does, with what the pods say.
struct Release<'a> {
    stage: &'a Stage,
    helm: PathBuf,
    /// The name of its objects.
    name: String,
    /// The file by which a program has the account of the release.
    account: PathBuf,
}

impl<'a> Release<'a> {
    /// Installs the chart; `None`, with the reason printed, where there is no Helm outside of CI.
    fn install(stage: &'a Stage) -> Option<Self> {
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tools");
        let found = Command::new(tools).arg("helm").output().unwrap();
        if !found.status.success() {
            assert!(std::env::var_os("CI").is_none(), "helm must be there in CI: scripts/tools helm");
            println!("skipped: helm cannot be built here (scripts/tools helm prints the reason)");
            return None;
        }
        let token = format!("--from-file=token={}", stage.token_file.display());
        stage.kubectl(&["create", "secret", "generic", "sallyport-token", &token]);
        stage.kubectl(&["create", "configmap", "roots", &format!("--from-file=ca.pem={}", stage.ca.display())]);
        let release = Self {
            stage,
            helm: text(&found.stdout).trim().into(),
            name: format!("{}-sallyport-kube", stage.namespace),
            account: stage.home.dir.path().join("account"),
        };
        let values = format!(
            "cluster={0},api=https://api.localhost:{1},token.existingSecret=sallyport-token,ca.existingConfigMap=roots,\
             watchNamespaces={{{0}}},ingressClass.name={0},admissionPolicy.create=false,logFormat=text",
            stage.namespace, stage.port
        );
        let output = release.helm(&["install", &stage.namespace, CHART, "--wait=hookOnly", "--set", &values]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let token = stage.kubectl(&["create", "token", &release.name]);
        let admin = std::fs::read_to_string(stage.cluster.kubeconfig()).unwrap();
        // The administrator's file, with the token of the account.
        let account = admin.replace("token: administrator", &format!("token: {}", token.trim()));
        assert_ne!(account, admin);
        std::fs::write(&release.account, account).unwrap();
        Some(release)
    }

    fn helm(&self, args: &[&str]) -> Command {
        let mut command = self.stage.cluster.inside(&self.stage.home, self.helm.to_str().unwrap(), args);
        command.args(["--namespace", &self.stage.namespace]).env("KUBECONFIG", self.stage.cluster.kubeconfig());
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, self.stage.home.dir.path());
        }
        command
    }

    /// The program as the first container of this pod starts it, with the files that are mounted there.
    fn container(&self, pod: &Value, name: &str) -> Command {
        let container = &pod["containers"][0];
        let words = [&container["command"], &container["args"]].map(|list| list.as_array().unwrap().clone()).concat();
        let mut words = words.iter().map(|word| word.as_str().unwrap().to_owned());
        assert_eq!(words.next().as_deref(), Some("sallyport-kube"));
        let args: Vec<String> = words
            .map(|word| match word.split_once('=') {
                Some(("--token-file", _)) => format!("--token-file={}", self.stage.token_file.display()),
                Some(("--ca", _)) => format!("--ca={}", self.stage.ca.display()),
                Some(("--listen", _)) => "--listen=127.0.0.1:0".to_owned(),
                _ => word,
            })
            .collect();
        let args: Vec<&str> = ["kube"].into_iter().chain(args.iter().map(String::as_str)).collect();
        let mut command = self.stage.cluster.inside(&self.stage.home, env!("CARGO_BIN_EXE_sallyport"), &args);
        command.args(["--kubeconfig", self.account.to_str().unwrap()]);
        command.env("POD_NAME", name).env("POD_NAMESPACE", &self.stage.namespace);
        command
    }

    /// A replica of the controller.
    fn replica(&self, name: &str) -> Program {
        let deployment = self.stage.object("deployment", &self.name);
        let pod = &deployment["spec"]["template"]["spec"];
        let replica = Program::start(&mut self.container(pod, name));
        replica.wait_for("the controller starts");
        replica
    }

    /// Uninstalls the release, with the cleanup that its hook asks for; gives whether both succeeded, and what the
    /// cleanup printed.
    fn uninstall(&self) -> (bool, String) {
        let uninstall = Program::start(&mut self.helm(&["uninstall", &self.stage.namespace]));
        let job = format!("{}-cleanup", self.name);
        let job = wait_until("the job of the cleanup", || {
            let jobs = self.stage.kubectl(&["get", "jobs", "--output", "json"]);
            let jobs: Value = serde_json::from_str(&jobs).unwrap();
            assert!(!uninstall.has_ended(), "{}", uninstall.output());
            jobs["items"].as_array().unwrap().iter().find(|one| one["metadata"]["name"] == job.as_str()).cloned()
        });
        let cleanup = self.container(&job["spec"]["template"]["spec"], "cleanup").output().unwrap();
        let at = "2026-01-01T00:00:00Z";
        let condition = |name: &str| json!({ "type": name, "status": "True", "lastTransitionTime": at });
        let status = if cleanup.status.success() {
            let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
            json!({ "startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions })
        } else {
            json!({ "startTime": at, "failed": 1, "conditions": [condition("FailureTarget"), condition("Failed")] })
        };
        let name = job["metadata"]["name"].as_str().unwrap();
        let patch = json!({ "status": status }).to_string();
        self.stage.kubectl(&["patch", "job", name, "--subresource=status", "--type=merge", "--patch", &patch]);
        let is_uninstalled = uninstall.ended().success();
        let printed = text(&cleanup.stderr);
        assert_eq!(is_uninstalled, cleanup.status.success(), "{printed}{}", uninstall.output());
        (is_uninstalled, printed)
    }
}

/// The finalizers of everything that may have ours.
fn finalizers(stage: &Stage) -> String {
    stage.kubectl(&["get", "services,ingresses", "--output", "jsonpath={.items[*].metadata.finalizers}"])
}

#[test]
fn an_uninstall_leaves_nothing_while_the_controller_runs() {
    let Some(stage) = Stage::new("uninstall-up") else { return };
    let Some(release) = Release::install(&stage) else { return };
    let replicas = ["one", "two"].map(|name| release.replica(name));
    let pod = Pod::start(stage.cluster);
    stage.expose("web", &[&pod]);
    let url = stage.exposed("web");
    stage.answers(&url, 200);
    assert!(finalizers(&stage).contains("sallyport.dev/socket"));
    let (is_uninstalled, printed) = release.uninstall();
    assert!(is_uninstalled, "{printed}");
    // The pods end a moment after the hook, and make nothing anew until then.
    assert!(replicas.iter().all(|replica| !replica.has_ended()));
    for replica in &replicas {
        assert!(replica.stop().success());
    }
    assert_eq!(finalizers(&stage), "");
    assert_eq!(stage.condition("web"), None);
    assert!(stage.sockets().is_empty());
    let left =
        stage.kubectl(&["get", "deployments,serviceaccounts,roles,rolebindings,leases,jobs", "--output", "name"]);
    assert_eq!(left, "");
}

#[test]
fn an_uninstall_frees_services_whose_controller_is_gone() {
    let Some(stage) = Stage::new("uninstall-down") else { return };
    let Some(release) = Release::install(&stage) else { return };
    let replica = release.replica("one");
    let pod = Pod::start(stage.cluster);
    for name in ["web", "kept"] {
        stage.expose(name, &[&pod]);
        stage.exposed(name);
    }
    replica.signal("KILL");
    replica.ended();
    stage.kubectl(&["delete", "service", "web", "--wait=false"]);
    assert!(stage.object("service", "web")["metadata"]["deletionTimestamp"].is_string(), "it waits for the controller");
    let (is_uninstalled, printed) = release.uninstall();
    assert!(is_uninstalled, "{printed}");
    assert_eq!(stage.kubectl(&["get", "services", "--output", "name"]).trim(), "service/kept");
    assert_eq!(finalizers(&stage), "");
    assert!(stage.sockets().is_empty());
}

#[test]
fn an_uninstall_without_the_api_frees_services_all_the_same_and_names_what_is_left() {
    let Some(stage) = Stage::new("uninstall-alone") else { return };
    let Some(release) = Release::install(&stage) else { return };
    let replica = release.replica("one");
    let pod = Pod::start(stage.cluster);
    stage.expose("web", &[&pod]);
    stage.exposed("web");
    assert!(replica.stop().success());
    assert!(stage.up.stop().success());
    let (is_uninstalled, printed) = release.uninstall();
    assert!(!is_uninstalled, "the sockets are still there");
    assert!(printed.contains("the sockets:") && printed.contains("run it again"), "{printed}");
    assert_eq!(finalizers(&stage), "");
    let output = release.helm(&["uninstall", &stage.namespace, "--no-hooks"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
