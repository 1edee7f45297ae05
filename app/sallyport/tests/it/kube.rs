//! `sallyport kube` at a real Kubernetes API server.

use std::{collections::BTreeMap, time::Instant};

use serde_json::json;

use crate::{
    harness::wait_until,
    kube_rig::{Pod, Stage},
};

/// How often each pod answered.
fn shares(answers: &[String]) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    answers.iter().for_each(|answer| *shares.entry(answer.clone()).or_default() += 1);
    shares
}

#[test]
fn an_annotation_gives_a_service_a_public_name_and_its_deletion_takes_it_away() {
    let Some(stage) = Stage::new("annotation") else { return };
    let pods = [Pod::start(stage.cluster), Pod::start(stage.cluster), Pod::start(stage.cluster)];
    let replica = stage.replica("one");
    replica.ready();
    let began = Instant::now();
    stage.expose("web", &pods.each_ref());
    let url = stage.exposed("web");
    println!("a Service had its public name after {:?}", began.elapsed());
    stage.answers(&url, 200);
    let shares = shares(&stage.requests(&url, 60));
    assert_eq!(shares.len(), 3, "{shares:?}");
    assert!(shares.values().all(|count| *count == 20), "{shares:?}");
    let sockets = stage.sockets();
    assert_eq!(sockets.len(), 1);
    let socket = &sockets["k8s annotation.web"];
    assert_eq!(socket["type"], "http");
    assert_eq!(socket["tunnels_up"], 1);
    let service = stage.object("service", "web");
    assert_eq!(service["metadata"]["finalizers"], json!(["sallyport.dev/socket"]));
    wait_until("the Event", || {
        stage.events("web").into_iter().find(|(reason, note)| reason == "Exposed" && note.contains(&url))
    });
    let began = Instant::now();
    stage.kubectl(&["delete", "service", "web"]);
    wait_until("the end of the socket", || stage.sockets().is_empty().then_some(()));
    println!("the socket was gone {:?} after the deletion began", began.elapsed());
    assert!(replica.program.stop().success());
}
