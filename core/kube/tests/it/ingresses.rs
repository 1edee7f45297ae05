//! What Ingresses get, and what they are refused.

use std::collections::BTreeMap;

use sallyport_kube_model::{
    Exposures, IngressBackend, IngressSource, IngressTls, PathType, ServiceType, Source, expose, settle,
};
use sallyport_model::{OriginProtocol, SocketType};

use crate::given::{Objects, all, backend, ingress, objects, service, settings};

fn cluster() -> Objects {
    let mut external = service("away", &["80"], &[]);
    external.service_type = ServiceType::ExternalName;
    objects([
        Source::from(service("web", &["http:80", "dns:53/UDP"], &[])),
        Source::from(service("api", &["grpc:50051=kubernetes.io/h2c"], &[])),
        Source::from(external),
    ])
}

fn exposed(ingress: IngressSource) -> Exposures {
    expose(&Source::from(ingress), &cluster(), &settings())
}

#[test]
fn each_host_is_a_socket_and_each_path_an_origin() {
    let made = exposed(ingress(
        "shop",
        &["app.example.com /api=api:50051 /=web:http", "Docs.example.com /=web:80", "app.example.com /v2=web:80"],
        &[("sallyport.dev/affinity", "cookie")],
    ));
    assert_eq!(made.refusals, []);
    let [app, docs] = &made.desired[..] else { panic!("{made:?}") };
    assert_eq!(app.spec.name.as_str(), "k8s default.shop ingress app.example.com");
    assert_eq!(
        (app.spec.domains.as_slice(), docs.key.port.as_str()),
        (&["app.example.com".to_owned()][..], "docs.example.com")
    );
    let paths: Vec<_> = app
        .origins
        .iter()
        .map(|origin| {
            (origin.path.prefix.as_str(), origin.target.service.name.as_str(), origin.target.port_name.as_str())
        })
        .collect();
    assert_eq!(paths, [("/api", "api", "grpc"), ("/", "web", "http"), ("/v2", "web", "http")]);
    assert_eq!((app.spec.socket_type, app.labels["sallyport.dev/kind"].as_str()), (SocketType::Http, "ingress"));
    assert_eq!(app.spec.origin_protocol, OriginProtocol::Auto, "the pods differ");
    let grpc = exposed(ingress("rpc", &["rpc.example.com /=api:grpc"], &[]));
    assert_eq!(grpc.desired[0].spec.origin_protocol, OriginProtocol::Http2);
    assert_eq!(grpc.desired[0].spec.name.as_str(), "k8s default.rpc ingress");
}

#[test]
fn a_default_backend_fills_the_root_of_every_host() {
    let mut alone = ingress("shop", &[], &[]);
    alone.default_backend = Some(backend("web:80"));
    let made = exposed(alone.clone());
    assert_eq!((made.desired[0].key.port.as_str(), made.desired[0].spec.domains.len()), ("*", 0));
    let mut beside = ingress("shop", &["app.example.com /api=web:80"], &[]);
    beside.default_backend = alone.default_backend;
    let made = exposed(beside);
    let paths: Vec<_> = made.desired[0].origins.iter().map(|origin| origin.path.prefix.as_str()).collect();
    assert_eq!((paths, made.desired.len()), (vec!["/api", "/"], 1));
}

#[test]
fn classes_of_others_are_no_concern() {
    let mut foreign = ingress("shop", &["app.example.com /=web:80"], &[]);
    foreign.class = Some("nginx".to_owned());
    assert_eq!(exposed(foreign.clone()), Exposures::none());
    foreign.meta.annotations.insert("sallyport.dev/expose".to_owned(), "true".to_owned());
    let made = exposed(foreign.clone());
    assert_eq!((made.refusals[0].reason, made.desired.len()), ("ForeignClass", 0));
    assert_eq!(made.refusals[0].remedy, "set spec.ingressClassName to sallyport");
    foreign.class = None;
    foreign.meta.annotations.clear();
    let mut settings = settings();
    assert_eq!(expose(&Source::from(foreign.clone()), &cluster(), &settings), Exposures::none());
    settings.is_default_ingress_class = true;
    assert_eq!(expose(&Source::from(foreign), &cluster(), &settings).desired.len(), 1);
}

#[test]
fn a_wrong_path_refuses_its_host_and_no_other_one() {
    for (word, reason, field) in [
        ("/x=gone:80", "ServiceNotFound", "spec.rules[0].http.paths[1].backend.service.name"),
        ("/x=web:81", "PortNotFound", "spec.rules[0].http.paths[1].backend.service.port"),
        ("/x=web:nope", "PortNotFound", "spec.rules[0].http.paths[1].backend.service.port"),
        ("/x=web:53", "UnsupportedProtocol", "spec.rules[0].http.paths[1].backend.service.port"),
        ("/x=away:80", "ExternalName", "spec.rules[0].http.paths[1].backend.service.name"),
        ("/x//y=web:80", "InvalidPath", "spec.rules[0].http.paths[1].path"),
        ("/=api:grpc", "DuplicatePath", "spec.rules[0].http.paths[1]"),
    ] {
        let rule = format!("a.example.com /=web:80 {word}");
        let made = exposed(ingress("shop", &[&rule, "b.example.com /=web:80"], &[]));
        let refusal = &made.refusals[0];
        assert_eq!((refusal.reason, refusal.field.as_str(), made.refusals.len()), (reason, field, 1), "{word}");
        assert!(!refusal.remedy.is_empty());
        let made: Vec<_> = made.to_make().map(|one| one.key.port.as_str()).collect();
        assert_eq!(made, ["b.example.com"], "{word}");
    }
    let mut exact = ingress("shop", &["a.example.com /x=web:80"], &[]);
    exact.rules[0].paths[0].path_type = PathType::Exact;
    assert_eq!(exposed(exact.clone()).refusals[0].reason, "UnsupportedPathType");
    exact.rules[0].paths[0].path_type = PathType::ImplementationSpecific;
    exact.rules[0].paths[0].backend =
        IngressBackend::Resource { kind: "StorageBucket".to_owned(), name: "static".to_owned() };
    assert_eq!(exposed(exact).refusals[0].reason, "UnsupportedBackend");
}

#[test]
fn what_an_ingress_cannot_have_is_refused() {
    let with = |pairs: &[(&str, &str)]| {
        let made = exposed(ingress("shop", &["a.example.com /=web:80"], pairs));
        assert!(made.to_make().count() == 0 && made.desired.len() == 1, "it stays as it is: {made:?}");
        made.refusals.iter().map(|one| one.reason).collect::<Vec<_>>()
    };
    assert_eq!(with(&[("sallyport.dev/type", "tcp")])[0], "UnsupportedAnnotation");
    assert_eq!(with(&[("sallyport.dev/domain", "b.example.com")])[0], "UnsupportedAnnotation");
    assert_eq!(with(&[("sallyport.dev/web.type", "http")])[0], "UnsupportedAnnotation");
    assert_eq!(with(&[("sallyport.dev/afinity", "cookie")])[0], "UnknownAnnotation");
    for host in ["localhost", "192.0.2.1", "a..example.com", "*.*.example.com", "a b.example.com"] {
        let made = exposed(ingress("shop", &[&format!("x{}", ".example.com /=web:80")], &[]));
        assert_eq!(made.refusals, []);
        let mut bad = ingress("shop", &["x.example.com /=web:80"], &[]);
        bad.rules[0].host = Some(host.to_owned());
        let made = exposed(bad);
        assert_eq!((made.refusals[0].reason, made.refusals[0].field.as_str()), ("InvalidHost", "spec.rules[0].host"));
    }
    assert_eq!(exposed(ingress("shop", &[], &[])).refusals[0].reason, "NoRules");
    let mut secret = ingress("shop", &["a.example.com /=web:80"], &[]);
    secret.tls = vec![IngressTls { hosts: Vec::new(), secret_name: Some("cert".to_owned()) }];
    let made = exposed(secret);
    assert_eq!((made.notes[0].reason, made.refusals.len()), ("SecretNotUsed", 0));
    let many: String = (0..25).map(|at| format!(" /p{at}=web:80")).collect();
    let made = exposed(ingress("shop", &[&format!("a.example.com{many}")], &[]));
    assert_eq!((made.refusals[0].reason, made.desired[0].origins.len()), ("TooManyPaths", 20));
}

#[test]
fn a_host_belongs_to_the_older_ingress_or_service() {
    let mut objects = cluster();
    let mut old = ingress("zebra", &["a.example.com /=web:80"], &[]);
    old.meta.created = 1;
    let young = ingress("ant", &["A.example.com /x=web:80", "b.example.com /=web:80"], &[]);
    let domain = [("sallyport.dev/expose", "true"), ("sallyport.dev/domain", "b.example.com")];
    let mut oldest = service("first", &["80"], &domain);
    oldest.meta.created = 0;
    objects.extend([Source::from(old), Source::from(young), Source::from(oldest)].map(|one| (one.key(), one)));
    let settled: BTreeMap<_, _> = all(&objects).into_iter().map(|(key, exposures)| (key.name, exposures)).collect();
    assert_eq!(settled["ant"].to_make().count(), 0);
    let messages: Vec<_> = settled["ant"].refusals.iter().map(|one| one.message.clone()).collect();
    assert!(messages[0].contains("Ingress default/zebra"), "{messages:?}");
    assert!(messages[1].contains("Service default/first"), "{messages:?}");
    assert_eq!(settled["zebra"].to_make().count(), 1);
    let mut alone = BTreeMap::new();
    settle(&mut alone);
}
