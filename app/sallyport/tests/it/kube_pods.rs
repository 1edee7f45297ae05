//! Hundreds of pods that kube-controller-manager makes, and EndpointSlices as it writes them.

use std::collections::BTreeSet;

use serde_json::json;

use crate::{
    harness::wait_until,
    kube_rig::{POD_PORT, Replica, Stage, cluster_of_its_own, serve_every_pod},
};

/// More than one `EndpointSlice` holds.
const MANY: usize = 250;
const FEW: usize = 120;

/// The sum of the metrics that begin so.
fn sum(replica: &Replica, prefix: &str, without: &str) -> f64 {
    let (_, text) = replica.get("/metrics");
    let lines = text.lines().filter(|line| line.starts_with(prefix) && !line.contains(without));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

#[test]
fn hundreds_of_pods_get_requests_in_turn_and_cost_no_write_when_they_come_and_go() {
    let Some(cluster) = cluster_of_its_own("pods") else { return };
    cluster.tell("controllers");
    cluster.tell("nodes");
    serve_every_pod(cluster);
    let stage = Stage::on(cluster, "pods");
    let replica = stage.replica("one");
    stage.apply(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node" } }));
    let deployment = |count: usize| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
            "spec": {
                "replicas": count,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "nodeName": "node", "containers": [{ "name": "web", "image": "web" }] },
                },
            },
        })
    };
    stage.apply(&deployment(MANY));
    stage.apply(&stage.service("web", json!({ "mysocket.io/enabled": "true" })));
    let has = |count: usize| {
        wait_until(&format!("{count} endpoints"), || {
            let endpoints = replica.metric("sallyport_kube_endpoints")?;
            #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
            let is_so = endpoints == count as f64;
            is_so.then_some(())
        });
    };
    let url = stage.exposed("web");
    has(MANY);
    stage.answers(&url, 200);
    let slices = stage.kubectl(&["get", "endpointslices", "--output", "name"]);
    assert!(slices.lines().count() > 2, "{POD_PORT}: {slices}");
    let answers = stage.requests(&url, MANY);
    assert_eq!(answers.iter().collect::<BTreeSet<_>>().len(), MANY, "each pod once");

    let writes = |replica: &Replica| {
        (
            sum(replica, "sallyport_kube_api_calls_total", "call=\"list\""),
            sum(replica, "sallyport_kube_cluster_writes_total", "\u{0}"),
        )
    };
    let before = writes(&replica);
    stage.apply(&deployment(FEW));
    has(FEW);
    let answers = stage.requests(&url, FEW);
    assert_eq!(answers.iter().collect::<BTreeSet<_>>().len(), FEW, "each pod once");
    assert_eq!(writes(&replica), before, "pods that go cost no write");
    assert!(replica.program.stop().success());
}
