//! What Services get, and what they are refused.

use sallyport_kube_model::{
    CLASS, Exposures, IpFamily, LABEL_POLICIES, ServiceSource, ServiceType, SocketSpec, Source,
};
use sallyport_model::{Affinity, OriginProtocol, SocketType, TlsMode};

use crate::given::{all, balancer, exposed, objects, service};

const ARTICLE: (&str, &str) = ("mysocket.io/enabled", "true");
const EXPOSE: (&str, &str) = ("sallyport.dev/expose", "true");

fn specs(exposures: &Exposures) -> Vec<&SocketSpec> {
    assert!(exposures.refusals.is_empty(), "{:?}", exposures.refusals);
    exposures.to_make().map(|one| &one.spec).collect()
}

fn names(exposures: &Exposures) -> Vec<(&str, SocketType)> {
    specs(exposures).into_iter().map(|spec| (spec.name.as_str(), spec.socket_type)).collect()
}

#[test]
fn the_annotation_of_the_article_gives_the_first_port_as_http() {
    let made = exposed(service("web", &["http:80", "metrics:9090"], &[ARTICLE]));
    assert_eq!(names(&made), [("k8s default.web", SocketType::Http)]);
    assert!(made.is_requested && made.notes[0].reason == "FirstPortOnly");
    let one = &made.desired[0];
    assert_eq!((one.key.port.as_str(), one.origins[0].target.port_name.as_str()), ("http", "http"));
    let expected = [
        ("sallyport.dev/cluster", "prod"),
        ("sallyport.dev/kind", "service"),
        ("sallyport.dev/name", "web"),
        ("sallyport.dev/namespace", "default"),
        ("sallyport.dev/port", "http"),
    ];
    let labels: Vec<_> = one.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, expected);
    assert_eq!(exposed(service("web", &["80"], &[("mysocket.io/enabled", "false")])), Exposures::none());
    assert_eq!(exposed(service("web", &["80"], &[])), Exposures::none());
}

#[test]
fn ports_are_chosen_by_name_or_number_and_named_beside_each_other() {
    let ports = ["http:80", "db:5432", "dns:53/UDP"];
    let first = exposed(service("web", &ports, &[EXPOSE]));
    assert_eq!(names(&first), [("k8s default.web", SocketType::Http)]);
    let two = exposed(service(
        "web",
        &ports,
        &[EXPOSE, ("sallyport.dev/port", "http, 5432"), ("sallyport.dev/db.type", "tcp")],
    ));
    assert_eq!(names(&two), [("k8s default.web http", SocketType::Http), ("k8s default.web db", SocketType::Tcp)]);
    let every = exposed(service("web", &ports, &[EXPOSE, ("sallyport.dev/port", "all")]));
    let types: Vec<_> = names(&every).iter().map(|(_, socket_type)| *socket_type).collect();
    assert_eq!(types, [SocketType::Http, SocketType::Http, SocketType::Udp]);
}

#[test]
fn a_load_balancer_of_the_class_has_every_port() {
    let made =
        exposed(balancer("web", &["web:80", "https-admin:8443", "db:5432", "dns:53/UDP", "rpc:50051=grpc"], &[]));
    let types: Vec<_> = specs(&made).iter().map(|spec| (spec.socket_type, spec.origin_protocol)).collect();
    let auto = OriginProtocol::Auto;
    assert_eq!(
        types,
        [
            (SocketType::Http, auto),
            (SocketType::Https, auto),
            (SocketType::Tcp, auto),
            (SocketType::Udp, auto),
            (SocketType::Http, OriginProtocol::Http2)
        ]
    );
    let tls = made.desired[1].origins[0].tls.server_name.as_deref();
    assert_eq!(tls, Some("web.default.svc"));
    let never = exposed(balancer("web", &["80"], &[("sallyport.dev/expose", "false")]));
    assert_eq!(never, Exposures::none(), "an annotation takes the Service out");
}

#[test]
fn the_application_protocol_says_the_type() {
    for (said, expected, version) in [
        ("http", SocketType::Http, OriginProtocol::Auto),
        ("https", SocketType::Https, OriginProtocol::Auto),
        ("h2c", SocketType::Http, OriginProtocol::Http2),
        ("kubernetes.io/h2c", SocketType::Http, OriginProtocol::Http2),
        ("kubernetes.io/ws", SocketType::Http, OriginProtocol::Auto),
        ("kubernetes.io/wss", SocketType::Https, OriginProtocol::Auto),
        ("grpc", SocketType::Http, OriginProtocol::Http2),
        ("tls", SocketType::Tls, OriginProtocol::Auto),
        ("tcp", SocketType::Tcp, OriginProtocol::Auto),
        ("postgresql", SocketType::Tcp, OriginProtocol::Auto),
        ("example.com/own", SocketType::Tcp, OriginProtocol::Auto),
    ] {
        let made = exposed(service("web", &[&format!("port:80={said}")], &[EXPOSE]));
        let spec = specs(&made)[0].clone();
        assert_eq!((spec.socket_type, spec.origin_protocol), (expected, version), "{said}");
        assert_eq!(spec.settings.tls_mode == TlsMode::Passthrough, said == "tls", "{said}");
    }
    let udp = exposed(service("web", &["quic:443/UDP=https"], &[EXPOSE]));
    assert_eq!(specs(&udp)[0].socket_type, SocketType::Udp);
    let told = exposed(service("web", &["port:80=http"], &[EXPOSE, ("sallyport.dev/type", "tcp")]));
    assert_eq!(specs(&told)[0].socket_type, SocketType::Tcp, "the annotation wins");
}

#[test]
fn options_are_settings_of_the_socket() {
    let made = exposed(service(
        "web",
        &["http:80", "admin:81"],
        &[
            EXPOSE,
            ("sallyport.dev/port", "http,admin"),
            ("sallyport.dev/http.domain", "App.Example.com"),
            ("sallyport.dev/affinity", "cookie"),
            ("sallyport.dev/admin.affinity", "address"),
            ("sallyport.dev/81.cloudauth", "true"),
            ("sallyport.dev/admin.allowed-email-domains", "example.com"),
            ("sallyport.dev/policy", "staff,night"),
            ("sallyport.dev/health-check", "http:/healthz:200-299"),
            ("sallyport.dev/weight", "20"),
            ("sallyport.dev/max-rps", "auto"),
            ("sallyport.dev/label", "team=web"),
            ("sallyport.dev/http.name", "The shop"),
            ("sallyport.dev/request-header", "X-Env: prod\nX-Team: web"),
        ],
    ));
    let [http, admin] = specs(&made)[..] else { panic!("{made:?}") };
    assert_eq!((http.name.as_str(), admin.name.as_str()), ("The shop", "k8s default.web admin"));
    assert_eq!(http.domains, ["app.example.com"]);
    assert!(admin.domains.is_empty());
    assert_eq!((http.settings.affinity, admin.settings.affinity), (Affinity::Cookie, Affinity::Address));
    assert!(http.settings.identity.is_none());
    assert_eq!(admin.settings.identity.as_ref().unwrap().email_domains[0].as_str(), "example.com");
    assert_eq!(http.policies, ["staff", "night"]);
    assert_eq!(http.settings.headers.request.set.len(), 2);
    let one = &made.desired[0];
    assert_eq!((one.labels[LABEL_POLICIES].as_str(), one.labels["team"].as_str()), ("staff,night", "web"));
    assert_eq!(one.origins[0].weight, Some(20));
    assert!(one.origins[0].capacity.is_some() && http.settings.health_check.is_some());
}

/// What one Service is refused: the reasons in the order of the refusals.
fn reasons(source: ServiceSource) -> Vec<&'static str> {
    let made = exposed(source);
    for refusal in &made.refusals {
        assert!(!refusal.remedy.is_empty() && !refusal.sentence().contains('\n'), "{refusal:?}");
    }
    assert_eq!(made.to_make().count(), 0, "{made:?}");
    made.refusals.iter().map(|refusal| refusal.reason).collect()
}

#[test]
fn what_cannot_be_is_refused_with_field_and_remedy() {
    let with = |ports: &[&str], more: &[(&str, &str)]| {
        let annotations: Vec<_> = [EXPOSE].iter().chain(more).copied().collect();
        reasons(service("web", ports, &annotations))
    };
    assert_eq!(with(&["80"], &[("sallyport.dev/port", "8080")]), ["PortNotFound"]);
    assert_eq!(with(&["80"], &[("sallyport.dev/metrics.type", "tcp")]), ["PortNotFound"]);
    assert_eq!(with(&["a:80", "b:81"], &[("sallyport.dev/b.type", "tcp")]), ["PortNotExposed"]);
    assert_eq!(with(&["sip:5060/SCTP"], &[]), ["UnsupportedProtocol"]);
    assert_eq!(with(&[], &[]), ["NoPorts"]);
    assert_eq!(with(&["dns:53/UDP"], &[("sallyport.dev/type", "tcp")]), ["ProtocolMismatch"]);
    assert_eq!(with(&["web:80"], &[("sallyport.dev/type", "udp")]), ["ProtocolMismatch"]);
    assert_eq!(with(&["web:80=udp"], &[]), ["ProtocolMismatch"]);
    assert_eq!(
        with(&["a:80", "b:81"], &[("sallyport.dev/port", "all"), ("sallyport.dev/domain", "a.example.com")]),
        ["AmbiguousPort"]
    );
    assert_eq!(with(&["80"], &[("sallyport.dev/public-port", "20001")]), ["InvalidAnnotation"]);
    let tcp = ("sallyport.dev/type", "tcp");
    assert_eq!(with(&["80"], &[tcp, ("sallyport.dev/domain", "a.example.com")]), ["InvalidAnnotation"]);
    assert_eq!(with(&["80"], &[tcp, ("sallyport.dev/path", "/api")]), ["InvalidAnnotation"]);
    assert_eq!(with(&["80"], &[("sallyport.dev/origin-pin", &"ab".repeat(32))]), ["InvalidAnnotation"]);
    assert_eq!(with(&["80"], &[("sallyport.dev/shared-capacity", "db")]), ["InvalidAnnotation"]);
    assert_eq!(with(&["80"], &[("sallyport.dev/name", &"x".repeat(300))]), ["InvalidAnnotation"]);
    assert_eq!(with(&["80"], &[("sallyport.dev/tpye", "tcp"), ("sallyport.dev/queue", "5")]).len(), 2);
    let external = ServiceSource { service_type: ServiceType::ExternalName, ..service("web", &["80"], &[EXPOSE]) };
    assert_eq!(reasons(external), ["ExternalName"]);
    let mut misspelt = balancer("web", &["80"], &[]);
    misspelt.load_balancer_class = Some("sallyport.dev/edges".to_owned());
    assert_eq!(reasons(misspelt), ["UnknownClass"]);
    let mut foreign = balancer("web", &["80"], &[]);
    foreign.load_balancer_class = Some("service.k8s.aws/nlb".to_owned());
    assert_eq!(exposed(foreign), Exposures::none(), "the class of another program is no concern of this one");
}

#[test]
fn one_wrong_port_leaves_the_others_alone() {
    let made = exposed(balancer("web", &["http:80", "sip:5060/SCTP", "db:5432"], &[("sallyport.dev/db.queue", "5")]));
    assert_eq!(made.to_make().map(|one| one.key.port.as_str()).collect::<Vec<_>>(), ["http"]);
    let reasons: Vec<_> = made.refusals.iter().map(|one| (one.reason, one.field.as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("UnsupportedProtocol", "spec.ports[sip].protocol"),
            ("InvalidAnnotation", "metadata.annotations[sallyport.dev/queue]")
        ]
    );
}

#[test]
fn an_unclear_wish_holds_what_is_there() {
    let made = exposed(service("web", &["80"], &[("sallyport.dev/expose", "yes")]));
    assert!(made.is_requested && made.desired[0].is_held && made.to_make().count() == 0);
    let refusal = &made.refusals[0];
    assert_eq!(
        (refusal.reason, refusal.field.as_str()),
        ("InvalidAnnotation", "metadata.annotations[sallyport.dev/expose]")
    );
    assert!(refusal.sentence().contains("expected \"true\" or \"false\", and not \"yes\""), "{}", refusal.sentence());
    let made = exposed(service("web", &["80"], &[("sallyport.dev/expsoe", "true")]));
    assert!(made.desired.is_empty() && made.refusals[0].remedy.contains("sallyport.dev/expose"), "{made:?}");
    let made = exposed(service("web", &["80"], &[("sallyport.dev/type", "tcp")]));
    assert_eq!((made.refusals.len(), made.notes[0].reason), (0, "NotExposed"));
}

#[test]
fn a_change_of_class_ends_the_sockets() {
    let mut changed = balancer("web", &["80"], &[]);
    assert_eq!(exposed(changed.clone()).to_make().count(), 1);
    changed.service_type = ServiceType::ClusterIp;
    assert_eq!(exposed(changed.clone()), Exposures::none(), "a class counts for the type LoadBalancer alone");
    changed.service_type = ServiceType::LoadBalancer;
    changed.load_balancer_class = Some(CLASS.to_owned());
    changed.meta.is_deleting = true;
    assert_eq!(exposed(changed), Exposures::none());
}

#[test]
fn headless_selectorless_and_dual_stack_services_are_exposed() {
    let headless = ServiceSource { cluster_ips: vec!["None".to_owned()], ..service("web", &["http:80"], &[EXPOSE]) };
    assert!(headless.is_headless());
    assert_eq!(names(&exposed(headless)).len(), 1);
    let selectorless = ServiceSource { has_selector: false, ..service("web", &["http:80"], &[EXPOSE]) };
    let made = exposed(selectorless);
    assert_eq!((names(&made).len(), made.notes[0].reason), (1, "NoSelector"));
    let families = vec![IpFamily::Ipv6, IpFamily::Ipv4];
    let dual = ServiceSource {
        ip_families: families.clone(),
        is_client_ip_affine: true,
        publishes_not_ready: true,
        ..service("web", &["http:80"], &[EXPOSE])
    };
    let origin = exposed(dual).desired[0].origins[0].clone();
    assert_eq!(origin.target.families, families);
    assert!(origin.is_client_ip_affine && origin.target.publishes_not_ready);
}

#[test]
fn the_older_of_two_services_gets_what_both_want() {
    let claims = [
        (("sallyport.dev/domain", "app.example.com"), "http", "DomainTaken"),
        (("sallyport.dev/public-port", "20001"), "tcp", "PublicPortTaken"),
        (("sallyport.dev/name-label", "shop"), "http", "LabelTaken"),
        (("sallyport.dev/name", "Shop"), "http", "NameTaken"),
    ];
    for (claim, socket_type, reason) in claims {
        let annotations = [EXPOSE, ("sallyport.dev/type", socket_type), claim];
        let mut old = service("zebra", &["80"], &annotations);
        old.meta.created = 5;
        let young = service("ant", &["80"], &annotations);
        let objects = objects([Source::from(old), Source::from(young)]);
        let settled = all(&objects);
        let [ant, zebra] = &settled.values().collect::<Vec<_>>()[..] else { panic!("{settled:?}") };
        assert_eq!((zebra.refusals.len(), zebra.to_make().count()), (0, 1), "{reason}");
        assert_eq!((ant.refusals[0].reason, ant.to_make().count()), (reason, 0));
        assert!(ant.refusals[0].message.contains("Service default/zebra"), "{}", ant.refusals[0].message);
    }
}
