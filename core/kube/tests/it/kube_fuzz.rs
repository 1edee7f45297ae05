//! What the fuzzers do with their bytes. It also lives in `fuzz/`.

use std::collections::BTreeMap;

use sallyport_kube_model::{
    Exposures, IngressBackend, IngressPath, IngressPort, IngressRule, IngressSource, ObjectKey, ObjectMeta, PathType,
    Protocol, ServicePort, ServiceSource, ServiceType, Settings, Source, TargetPort, annotations, expose, settle,
};

/// Annotations of a Service and of an Ingress: a line is `KEY=VALUE`, in which `\n` is a line end. The first byte says
/// what the objects are.
pub(crate) fn annotation_map(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let all: BTreeMap<_, _> = pairs.map(|(key, value)| (key.to_owned(), value.replace("\\n", "\n"))).collect();
    let read = annotations(&all);
    for error in &read.errors {
        assert!(!error.remedy.is_empty() && !error.message.is_empty() && error.key.chars().count() <= 317);
        assert!(error.message.chars().count() < 1_000, "{}", error.message);
    }
    let mut objects = BTreeMap::new();
    for source in [Source::Service(service(*kind, &all)), Source::Ingress(ingress(&all))] {
        objects.insert(source.key(), source);
    }
    let settings = settings();
    let mut exposures: BTreeMap<ObjectKey, Exposures> =
        objects.iter().map(|(key, source)| (key.clone(), expose(source, &objects, &settings))).collect();
    settle(&mut exposures);
    exposures.values().for_each(|one| check(one, &settings));
}

/// What holds of all exposures.
pub(crate) fn check(exposures: &Exposures, settings: &Settings) {
    for refusal in exposures.refusals.iter().chain(&exposures.notes) {
        assert!(!(refusal.remedy.is_empty() || refusal.message.is_empty() || refusal.field.is_empty()), "{refusal:?}");
        let is_word = refusal.reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(is_word && refusal.reason.starts_with(|first: char| first.is_ascii_uppercase()), "{refusal:?}");
    }
    let is_whole = exposures.refusals.is_empty();
    for exposure in &exposures.desired {
        assert!(exposures.is_requested && !(is_whole && exposure.is_held), "{exposure:?}");
        assert!(!exposure.origins.is_empty() && exposure.labels.len() <= 32);
        assert_eq!(exposure.labels["sallyport.dev/cluster"], settings.cluster.as_str());
        let of_labels = sallyport_kube_model::ExposureKey::of_labels(&exposure.labels, &settings.cluster);
        assert_eq!(of_labels.as_ref(), Some(&exposure.key));
        if exposure.is_held {
            continue;
        }
        let spec = &exposure.spec;
        spec.settings.check(spec.socket_type).unwrap_or_else(|error| panic!("{error}: {spec:?}"));
        assert!(exposure.labels.values().all(|value| value.len() <= 255), "{:?}", exposure.labels);
        assert!(spec.public_port.is_none() || spec.socket_type.has_port());
    }
}

/// The settings of a program.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::new("prod".parse().unwrap_or_else(|error| panic!("{error}")));
    settings.ingress_classes.insert("sallyport".to_owned());
    settings
}

fn meta(all: &BTreeMap<String, String>) -> ObjectMeta {
    let name = "web".to_owned();
    ObjectMeta { namespace: "default".to_owned(), name, annotations: all.clone(), ..ObjectMeta::default() }
}

fn service(kind: u8, all: &BTreeMap<String, String>) -> ServiceSource {
    let port = |name: &str, port, protocol| ServicePort {
        name: Some(name.to_owned()),
        port,
        target_port: TargetPort::Number(port),
        protocol,
        app_protocol: None,
    };
    ServiceSource {
        meta: meta(all),
        service_type: if kind & 1 == 0 { ServiceType::ClusterIp } else { ServiceType::LoadBalancer },
        load_balancer_class: (kind & 2 != 0).then(|| "sallyport.dev/edge".to_owned()),
        ports: vec![
            port("http", 80, Protocol::Tcp),
            port("dns", 53, Protocol::Udp),
            port("sip", 5_060, Protocol::Sctp),
        ],
        ..ServiceSource::default()
    }
}

fn ingress(all: &BTreeMap<String, String>) -> IngressSource {
    let backend = IngressBackend::Service { name: "web".to_owned(), port: IngressPort::Number(80) };
    let path = IngressPath { path: "/".to_owned(), path_type: PathType::Prefix, backend };
    IngressSource {
        meta: meta(all),
        class: Some("sallyport".to_owned()),
        rules: vec![IngressRule { host: Some("app.example.com".to_owned()), paths: vec![path] }],
        ..IngressSource::default()
    }
}
