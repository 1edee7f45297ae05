//! `sallyport kube` at a real Kubernetes API server.

use std::{collections::BTreeMap, time::Instant};

use serde_json::json;

use crate::{
    harness::{Home, text, wait_until},
    kube_rig::{Pod, Stage},
    names::offered,
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

#[test]
fn two_replicas_share_the_pods_and_one_that_is_killed_takes_no_service_along() {
    let Some(stage) = Stage::new("replicas") else { return };
    let pods = [Pod::start(stage.cluster), Pod::start(stage.cluster), Pod::start(stage.cluster)];
    let leader = stage.replica("one");
    leader.leads();
    let other = stage.replica("two");
    stage.expose("web", &pods.each_ref());
    let url = stage.exposed("web");
    wait_until("both tunnels", || (stage.sockets()["k8s replicas.web"]["tunnels_up"] == 2).then_some(()));
    other.ready();
    let shares = shares(&stage.requests(&url, 60));
    assert!(shares.len() == 3 && shares.values().all(|count| (18..=22).contains(count)), "{shares:?}");
    let before: Vec<_> = [&leader, &other].map(|replica| replica.metric("sallyport_kube_leader")).into();
    assert_eq!(before, [Some(1.0), Some(0.0)]);
    leader.program.signal("KILL");
    leader.program.ended();
    let began = Instant::now();
    stage.expose("later", &[&pods[0]]);
    let later = stage.exposed("later");
    println!("a new Service was exposed {:?} after the leader was killed", began.elapsed());
    stage.answers(&later, 200);
    assert_eq!(stage.requests(&url, 30).len(), 30);
    assert_eq!(stage.sockets().len(), 2);
}

#[test]
fn a_rollout_of_pods_and_of_the_controller_fails_no_request() {
    let Some(stage) = Stage::new("rollout") else { return };
    let pods: Vec<Pod> = (0..6).map(|_| Pod::start(stage.cluster)).collect();
    let (old, new) = pods.split_at(3);
    let first = stage.replica("one");
    stage.expose("web", &old.iter().collect::<Vec<_>>());
    let url = stage.exposed("web");
    stage.answers(&url, 200);
    let load = stage.load(&url);
    for step in 0..3 {
        let mut endpoints: Vec<_> = new[..=step].iter().map(|pod| (pod, true, false)).collect();
        endpoints.push((&old[step], false, true));
        endpoints.extend(old[step + 1..].iter().map(|pod| (pod, true, false)));
        stage.endpoints("web", &endpoints);
        wait_until("requests at the new pod", || (new[step].count() > 0).then_some(()));
        old[step].stop();
    }
    stage.endpoints("web", &new.iter().map(|pod| (pod, true, false)).collect::<Vec<_>>());
    let second = stage.replica("two");
    second.ready();
    let before: usize = new.iter().map(Pod::count).sum();
    assert!(first.program.stop().success());
    wait_until("requests by the new replica", || {
        (new.iter().map(Pod::count).sum::<usize>() > before + 50).then_some(())
    });
    let answers = load.end();
    println!("{answers:?}");
    assert!(answers.len() == 1 && answers.contains_key("200"), "{answers:?}");
    wait_until("the end of the old tunnel", || {
        (stage.sockets()["k8s rollout.web"]["tunnels_total"] == 1).then_some(())
    });
}

#[test]
fn a_service_that_was_deleted_meanwhile_loses_its_socket_at_the_next_start() {
    let Some(stage) = Stage::new("away") else { return };
    let pod = Pod::start(stage.cluster);
    let replica = stage.replica("one");
    stage.expose("web", &[&pod]);
    stage.expose("kept", &[&pod]);
    let (_, kept) = (stage.exposed("web"), stage.exposed("kept"));
    assert!(replica.program.stop().success());
    stage.kubectl(&["delete", "service", "web", "--wait=false"]);
    assert_eq!(stage.sockets().len(), 2, "nobody is there to delete it");
    let began = Instant::now();
    let _replica = stage.replica("two");
    wait_until("the end of the socket", || (stage.sockets().len() == 1).then_some(()));
    println!("the socket was gone {:?} after the start", began.elapsed());
    wait_until("the end of the Service", || {
        stage.kubectl(&["get", "service", "web", "--ignore-not-found"]).is_empty().then_some(())
    });
    assert_eq!(stage.exposed("kept"), kept, "the same public name");
    stage.answers(&kept, 200);
}

#[test]
fn a_wrong_token_ends_readiness_and_no_traffic_and_a_new_one_is_read() {
    let Some(stage) = Stage::new("token") else { return };
    let pod = Pod::start(stage.cluster);
    let replica = stage.replica("one");
    stage.expose("web", &[&pod]);
    let url = stage.exposed("web");
    replica.ready();
    std::fs::write(&stage.token_file, "a-wrong-token").unwrap();
    let why = wait_until("the end of readiness", || {
        let (status, body) = replica.get("/readyz");
        (status == 503).then_some(body)
    });
    assert!(why.contains("refuses the token") && why.contains("sallyport token create"), "{why}");
    stage.answers(&url, 200);
    stage.expose("later", &[&pod]);
    let message = stage.refused("later", "Unauthorized");
    assert!(message.contains("put a valid token"), "{message}");
    std::fs::remove_file(&stage.token_file).unwrap();
    wait_until("the missing file", || replica.get("/readyz").1.contains("cannot be read").then_some(()));
    stage.new_token();
    replica.ready();
    let later = stage.exposed("later");
    stage.answers(&later, 200);
    assert!(!replica.program.has_ended());
}

#[test]
fn a_bad_service_is_told_what_to_do_and_disturbs_no_other() {
    let Some(stage) = Stage::new("bad") else { return };
    let pod = Pod::start(stage.cluster);
    let _replica = stage.replica("one");
    let bad = [
        ("unknown", json!({ "sallyport.dev/expose": "true", "sallyport.dev/tpye": "tcp" }), "sallyport.dev/type"),
        ("yes", json!({ "sallyport.dev/expose": "yes" }), "true"),
    ];
    for (name, annotations, _) in &bad {
        stage.apply(&stage.service(name, annotations.clone()));
    }
    let mut sctp = stage.service("sctp", json!({ "sallyport.dev/expose": "true" }));
    sctp["spec"]["ports"][0]["protocol"] = json!("SCTP");
    stage.apply(&sctp);
    let mut foreign = stage.service("foreign", json!({}));
    foreign["spec"]["type"] = json!("LoadBalancer");
    foreign["spec"]["loadBalancerClass"] = json!("example.com/other");
    stage.apply(&foreign);
    stage.expose("good", &[&pod]);
    let url = stage.exposed("good");
    stage.answers(&url, 200);
    for (name, _, remedy) in &bad {
        let message = wait_until(&format!("the refusal of {name}"), || {
            let condition = stage.condition(name)?;
            (condition["status"] == "False").then(|| condition["message"].as_str().unwrap().to_owned())
        });
        assert!(message.contains(remedy), "{name}: {message}");
        let events = stage.events(name);
        assert!(events.iter().any(|(_, note)| note.contains(remedy)), "{name}: {events:?}");
    }
    wait_until("the refusal of SCTP", || {
        stage.condition("sctp").filter(|one| one["message"].as_str().unwrap().contains("SCTP"))
    });
    assert!(stage.condition("foreign").is_none());
    assert_eq!(stage.object("service", "foreign")["status"]["loadBalancer"], json!({}));
    assert_eq!(stage.sockets().keys().collect::<Vec<_>>(), ["k8s bad.good"]);
}

#[test]
fn a_load_balancer_of_the_class_gets_a_name_for_every_port() {
    let Some(stage) = Stage::new("class") else { return };
    let pod = Pod::start(stage.cluster);
    let _replica = stage.replica("one");
    let mut service = stage.service("web", json!({}));
    service["spec"]["type"] = json!("LoadBalancer");
    service["spec"]["loadBalancerClass"] = json!("sallyport.dev/edge");
    service["spec"]["ports"] = json!([
        { "name": "http", "port": 80, "targetPort": 8080 },
        { "name": "admin", "port": 81, "targetPort": 8080 },
    ]);
    stage.apply(&service);
    stage.endpoints("web", &[(&pod, true, false)]);
    let names = wait_until("both names", || {
        let status = stage.object("service", "web")["status"]["loadBalancer"]["ingress"].clone();
        status.as_array().filter(|names| names.len() == 2).cloned()
    });
    let mut ports: Vec<_> = names.iter().map(|name| name["ports"][0]["port"].as_u64().unwrap()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [80, 81], "{names:?}");
    let mut known: Vec<_> = stage.sockets().values().map(|one| one["dns_name"].as_str().unwrap().to_owned()).collect();
    let mut told: Vec<_> = names.iter().map(|name| name["hostname"].as_str().unwrap().to_owned()).collect();
    known.sort();
    told.sort();
    assert_eq!(told, known);
}

#[test]
fn traffic_outlives_the_api_server_and_names_outlive_etcd() {
    let Some(stage) = Stage::alone("outlives") else { return };
    let pods = [Pod::start(stage.cluster), Pod::start(stage.cluster)];
    let replica = stage.replica("one");
    stage.expose("web", &pods.each_ref());
    let url = stage.exposed("web");
    stage.answers(&url, 200);
    stage.cluster.tell("pause api");
    wait_until("the end of the lease", || (replica.metric("sallyport_kube_leader") == Some(0.0)).then_some(()));
    assert_eq!(shares(&stage.requests(&url, 20)).into_values().collect::<Vec<_>>(), [10, 10]);
    stage.cluster.tell("continue api");
    replica.leads();
    replica.program.signal("KILL");
    replica.program.ended();
    let before = stage.sockets();
    stage.cluster.tell("empty");
    stage.kubectl(&["create", "namespace", &stage.namespace]);
    let _replica = stage.replica("two");
    stage.expose("web", &pods.each_ref());
    assert_eq!(stage.exposed("web"), url, "the same public name");
    stage.answers(&url, 200);
    let after = stage.sockets();
    assert_eq!(after["k8s outlives.web"]["id"], before["k8s outlives.web"]["id"]);
    assert_eq!(after.len(), 1);
}

#[test]
fn help_completion_and_errors_are_those_of_the_controller() {
    let home = Home::new();
    let help = home.run(&["kube", "--help"]);
    let printed = text(&help.stdout);
    assert!(help.status.success() && printed.contains("Usage: sallyport kube [OPTIONS]"), "{printed}");
    assert!(printed.contains("--cluster") && printed.contains("cleanup"), "{printed}");
    assert!(text(&home.run(&["--help"]).stdout).contains("  kube "));
    let words = offered(&home, &["sallyport", "kube", "clea"]);
    assert!(words.iter().any(|word| word.trim() == "cleanup"), "{words:?}");
    let refused = home.run(&["kube"]);
    assert!(text(&refused.stderr).contains("the cluster has no name") && refused.status.code() == Some(2));
}

#[test]
fn a_cleanup_beside_a_running_controller_leaves_nothing() {
    let Some(stage) = Stage::new("cleanup") else { return };
    let pod = Pod::start(stage.cluster);
    let replica = stage.replica("one");
    stage.expose("web", &[&pod]);
    let url = stage.exposed("web");
    let listed = stage.kube("ls", &["-o", "json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["url"]), (&json!("web"), &json!(url)), "{listed}");
    let output = stage.kube("cleanup", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(replica.metric("sallyport_kube_leader"), Some(0.0), "the lease is taken from it");
    assert!(stage.sockets().is_empty());
    let service = stage.object("service", "web");
    assert_eq!(service["metadata"]["finalizers"], json!(null));
    assert!(stage.condition("web").is_none());
    stage.kubectl(&["delete", "service", "web"]);
    assert!(!replica.program.has_ended());
}

#[test]
fn of_two_services_that_want_one_port_the_older_one_gets_it() {
    let Some(stage) = Stage::new("port") else { return };
    let pod = Pod::start(stage.cluster);
    let _replica = stage.replica("one");
    let annotations = || {
        json!({
            "sallyport.dev/expose": "true", "sallyport.dev/type": "tcp", "sallyport.dev/public-port": "20777",
        })
    };
    stage.apply(&stage.service("first", annotations()));
    stage.endpoints("first", &[(&pod, true, false)]);
    let url = stage.exposed("first");
    assert!(url.starts_with("tcp://") && url.ends_with(":20777"), "{url}");
    stage.apply(&stage.service("second", annotations()));
    let message = wait_until("the refusal of the second", || {
        let condition = stage.condition("second")?;
        (condition["status"] == "False").then(|| condition["message"].as_str().unwrap().to_owned())
    });
    assert!(message.contains("20777") || message.contains("first"), "{message}");
    assert_eq!(stage.sockets().len(), 1);
    assert_eq!(stage.exposed("first"), url);
    // It is free once the first one is gone.
    stage.kubectl(&["delete", "service", "first"]);
    assert!(stage.exposed("second").ends_with(":20777"));
}
