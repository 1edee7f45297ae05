//! Objects for tests.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_kube_model::{
    AddressType, CLASS, Endpoint, EndpointPort, EndpointSlice, Exposure, Exposures, IngressBackend, IngressPath,
    IngressPort, IngressRule, IngressSource, ObjectKey, ObjectMeta, OwnedSocket, PathType, Protocol, ServicePort,
    ServiceSource, ServiceType, Settings, Source, TargetPort, expose,
};
use sallyport_model::SocketId;

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::new("prod".parse().unwrap());
    settings.ingress_classes.insert("sallyport".to_owned());
    settings
}

pub(crate) fn meta(name: &str, annotations: &[(&str, &str)]) -> ObjectMeta {
    ObjectMeta {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: "1".to_owned(),
        created: 1_000,
        annotations: annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..ObjectMeta::default()
    }
}

/// A port such as `http:80`, `80`, `dns:53/UDP` or `web:80=kubernetes.io/h2c`.
pub(crate) fn port(text: &str) -> ServicePort {
    let (rest, app_protocol) = match text.split_once('=') {
        Some((rest, said)) => (rest, Some(said.to_owned())),
        None => (text, None),
    };
    let (rest, protocol) = match rest.split_once('/') {
        Some((rest, "UDP")) => (rest, Protocol::Udp),
        Some((rest, "SCTP")) => (rest, Protocol::Sctp),
        Some((rest, _)) => (rest, Protocol::Tcp),
        None => (rest, Protocol::Tcp),
    };
    let (name, number) = match rest.split_once(':') {
        Some((name, number)) => (Some(name.to_owned()), number),
        None => (None, rest),
    };
    let number = number.parse().unwrap();
    ServicePort { name, port: number, target_port: TargetPort::Number(number), protocol, app_protocol }
}

pub(crate) fn service(name: &str, ports: &[&str], annotations: &[(&str, &str)]) -> ServiceSource {
    ServiceSource {
        meta: meta(name, annotations),
        cluster_ips: vec!["10.96.0.1".to_owned()],
        ports: ports.iter().map(|text| port(text)).collect(),
        has_selector: true,
        ..ServiceSource::default()
    }
}

pub(crate) fn balancer(name: &str, ports: &[&str], annotations: &[(&str, &str)]) -> ServiceSource {
    ServiceSource {
        service_type: ServiceType::LoadBalancer,
        load_balancer_class: Some(CLASS.to_owned()),
        ..service(name, ports, annotations)
    }
}

/// A rule such as `app.example.com /api=web:80 /=web:http`.
pub(crate) fn rule(text: &str) -> IngressRule {
    let mut words = text.split(' ');
    let host = words.next().filter(|host| *host != "*").map(str::to_owned);
    let path = |word: &str| {
        let (path, backend) = word.split_once('=').unwrap();
        IngressPath { path: path.to_owned(), path_type: PathType::Prefix, backend: self::backend(backend) }
    };
    IngressRule { host, paths: words.map(path).collect() }
}

pub(crate) fn backend(text: &str) -> IngressBackend {
    let (name, port) = text.split_once(':').unwrap();
    let port = port.parse().map_or_else(|_| IngressPort::Named(port.to_owned()), IngressPort::Number);
    IngressBackend::Service { name: name.to_owned(), port }
}

pub(crate) fn ingress(name: &str, rules: &[&str], annotations: &[(&str, &str)]) -> IngressSource {
    IngressSource {
        meta: meta(name, annotations),
        class: Some("sallyport".to_owned()),
        rules: rules.iter().map(|text| rule(text)).collect(),
        ..IngressSource::default()
    }
}

pub(crate) type Objects = BTreeMap<ObjectKey, Source>;

pub(crate) fn objects(sources: impl IntoIterator<Item = Source>) -> Objects {
    sources.into_iter().map(|source| (source.key(), source)).collect()
}

pub(crate) fn exposed(source: impl Into<Source>) -> Exposures {
    expose(&source.into(), &Objects::new(), &settings())
}

/// The exposures of all objects, settled.
pub(crate) fn all(objects: &Objects) -> BTreeMap<ObjectKey, Exposures> {
    let mut all = objects.iter().map(|(key, source)| (key.clone(), expose(source, objects, &settings()))).collect();
    sallyport_kube_model::settle(&mut all);
    all
}

pub(crate) fn desired(all: &BTreeMap<ObjectKey, Exposures>) -> Vec<Exposure> {
    all.values().flat_map(|one| one.desired.clone()).collect()
}

pub(crate) fn keys(objects: &Objects) -> BTreeSet<ObjectKey> {
    objects.keys().cloned().collect()
}

pub(crate) fn slice(name: &str, addresses: &[&str]) -> EndpointSlice {
    let is_v6 = addresses.first().is_some_and(|address| address.contains(':'));
    EndpointSlice {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        service: "web".to_owned(),
        address_type: if is_v6 { AddressType::Ipv6 } else { AddressType::Ipv4 },
        ports: vec![EndpointPort { name: "http".to_owned(), port: Some(8_080), protocol: Protocol::Tcp }],
        endpoints: addresses.iter().map(|address| endpoint(address)).collect(),
    }
}

pub(crate) fn endpoint(address: &str) -> Endpoint {
    Endpoint { addresses: vec![address.to_owned()], ready: Some(true), ..Endpoint::default() }
}

/// A socket as the API would have it after these actions.
pub(crate) fn socket(id: u128, exposure: &Exposure) -> OwnedSocket {
    OwnedSocket {
        id: socket_id(id),
        labels: exposure.labels.clone(),
        spec: exposure.spec.clone(),
        is_served_elsewhere: false,
    }
}

pub(crate) fn socket_id(id: u128) -> SocketId {
    format!("{:08x}-0000-4000-8000-{:012x}", id >> 48, id & 0xffff_ffff_ffff).parse().unwrap()
}
