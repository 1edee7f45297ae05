//! What a Service wants.

use sallyport_model::{OriginProtocol, SocketType};

use super::{
    Exposure, Exposures, MAX_PORTS, Origin, OriginTls, Refusal, ServiceRef, Settings, SocketSpec, Target, name,
    refusal::{Problem, annotation_field},
};
use crate::{
    ANNOTATION_PREFIX, ARTICLE_ANNOTATION, Annotations, CLASS, EXPOSE_ANNOTATION, ExposureKey, Kind, LABEL_POLICIES,
    ObjectKey, Options, Protocol, ServicePort, ServiceSource, ServiceType, Wish, annotations,
};

/// Who asks for public names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Article,
    Annotation,
    Class,
}

/// The sockets that a Service wants.
pub(super) fn expose(service: &ServiceSource, settings: &Settings) -> Exposures {
    let object = service.meta.key(Kind::Service);
    let read = annotations(&service.meta.annotations);
    let mut problems: Vec<Problem> = read.errors.iter().map(Problem::of_annotation).collect();
    let asks = asks(service, &read, &mut problems);
    let Some(asks) = asks else {
        if problems.is_empty() && !(read.general.is_empty() && read.ports.is_empty()) && read.wish == Wish::None {
            let remedy = format!("add {EXPOSE_ANNOTATION}: \"true\", or remove the others");
            let note = Problem::new("metadata.annotations", "NotExposed", "annotations have no effect", remedy);
            return Exposures { notes: vec![note.of(&object)], ..Exposures::none() };
        }
        return Exposures { refusals: all(&object, problems), ..Exposures::none() };
    };
    if let Some(problem) = impossible(service) {
        problems.push(problem);
        return Exposures { is_requested: true, refusals: all(&object, problems), ..Exposures::none() };
    }
    let chosen = chosen(service, &read, asks, &mut problems);
    check_ports(service, &read, &chosen, &mut problems);
    let is_held = !problems.is_empty();
    let mut exposures = Exposures { is_requested: true, refusals: all(&object, problems), ..Exposures::default() };
    notes(service, asks, &object, &mut exposures.notes);
    for port in &chosen {
        let made = one(service, port, chosen.len() > 1, &read, asks, settings);
        match made {
            Ok(exposure) => exposures.desired.push(Exposure { is_held, ..exposure }),
            Err((problem, held)) => {
                exposures.refusals.push(problem.of(&object));
                exposures.desired.extend(held.map(|held| *held));
            }
        }
    }
    exposures
}

fn all(object: &ObjectKey, problems: Vec<Problem>) -> Vec<Refusal> {
    problems.into_iter().map(|problem| problem.of(object)).collect()
}

/// Who asks. `expose: "false"` wins over everything; a value that is neither holds what is there.
fn asks(service: &ServiceSource, read: &Annotations, problems: &mut Vec<Problem>) -> Option<Asks> {
    let is_of_class =
        service.service_type == ServiceType::LoadBalancer && service.load_balancer_class.as_deref() == Some(CLASS);
    if let (Some(class), ServiceType::LoadBalancer) = (&service.load_balancer_class, service.service_type)
        && class != CLASS
        && class.starts_with(ANNOTATION_PREFIX)
    {
        let message = format!("{class:?} is no class of this program");
        let remedy = format!("make the Service anew with {CLASS}: a class cannot be changed");
        problems.push(Problem::new("spec.loadBalancerClass", "UnknownClass", message, remedy));
    }
    let is_unclear = |key| read.errors.iter().any(|error| error.key == key);
    match read.wish {
        Wish::Never => None,
        Wish::Expose if is_of_class => Some(Asks::Class),
        Wish::Expose => Some(Asks::Annotation),
        _ if is_of_class => Some(Asks::Class),
        _ if is_unclear(EXPOSE_ANNOTATION) => Some(Asks::Annotation),
        Wish::Article => Some(Asks::Article),
        Wish::None if is_unclear(ARTICLE_ANNOTATION) => Some(Asks::Article),
        Wish::None => None,
    }
}

/// Why no port of the Service can have a socket.
fn impossible(service: &ServiceSource) -> Option<Problem> {
    if service.service_type == ServiceType::ExternalName {
        let message = "a Service of the type ExternalName has no endpoints, and its name may lead anywhere";
        let remedy = "use `sallyport connect` beside that host, or a Service with EndpointSlices of your own";
        return Some(Problem::new("spec.type", "ExternalName", message, remedy));
    }
    if service.ports.is_empty() {
        let remedy = "add a port to spec.ports: a headless Service may have some too";
        return Some(Problem::new("spec.ports", "NoPorts", "the Service has no port", remedy));
    }
    None
}

/// The ports that get a socket.
fn chosen<'a>(
    service: &'a ServiceSource,
    read: &Annotations,
    asks: Asks,
    problems: &mut Vec<Problem>,
) -> Vec<&'a ServicePort> {
    let mut chosen: Vec<&ServicePort> = match (&read.general.port, asks) {
        (None, Asks::Article | Asks::Annotation) => service.ports.first().into_iter().collect(),
        (None, Asks::Class) => service.ports.iter().collect(),
        (Some(words), _) if words.is_empty() => service.ports.iter().collect(),
        (Some(words), _) => {
            let mut chosen: Vec<&ServicePort> = Vec::new();
            for word in words {
                match service.port(word) {
                    Some(port) if chosen.iter().any(|there| there.word() == port.word()) => {}
                    Some(port) => chosen.push(port),
                    None => problems.push(no_port(service, word, &annotation_field("port"))),
                }
            }
            chosen
        }
    };
    if chosen.len() > MAX_PORTS {
        let message = format!("{} ports are asked for, and {MAX_PORTS} get a socket", chosen.len());
        let remedy = format!("name the ports that need one in {ANNOTATION_PREFIX}port");
        problems.push(Problem::new("spec.ports", "TooManyPorts", message, remedy));
        chosen.truncate(MAX_PORTS);
    }
    chosen
}

fn no_port(service: &ServiceSource, word: &str, field: &str) -> Problem {
    let has: Vec<_> = service.ports.iter().take(20).map(ServicePort::word).collect();
    let message = format!("the Service has no port {:?}", word.chars().take(64).collect::<String>());
    Problem::new(field, "PortNotFound", message, format!("name one of its ports: {}", has.join(", ")))
}

/// Options of ports that are not there or not exposed, and general options that only one socket can have.
fn check_ports(service: &ServiceSource, read: &Annotations, chosen: &[&ServicePort], problems: &mut Vec<Problem>) {
    for word in read.ports.keys() {
        let field = format!("metadata.annotations[{ANNOTATION_PREFIX}{word}.*]");
        match service.port(word) {
            None => problems.push(no_port(service, word, &field)),
            Some(port) if !chosen.iter().any(|one| one.word() == port.word()) => {
                let message = format!("the port {} gets no socket", port.word());
                let remedy = format!("add it to {ANNOTATION_PREFIX}port, or remove its options");
                problems.push(Problem::new(&field, "PortNotExposed", message, remedy));
            }
            Some(_) => {}
        }
    }
    if chosen.len() < 2 {
        return;
    }
    let general = &read.general;
    let alone = [
        ("domain", general.domain.as_ref().is_some_and(|domains| !domains.is_empty())),
        ("public-port", general.public_port.is_some()),
        ("name-label", general.name_label.is_some()),
    ];
    for (option, _) in alone.into_iter().filter(|(_, is_given)| *is_given) {
        let message = format!("{} ports cannot all have it", chosen.len());
        let first = chosen.first().map(|port| port.word()).unwrap_or_default();
        let remedy = format!("say which one has it: {ANNOTATION_PREFIX}{first}.{option}");
        problems.push(Problem::new(&annotation_field(option), "AmbiguousPort", message, remedy));
    }
}

fn notes(service: &ServiceSource, asks: Asks, object: &ObjectKey, notes: &mut Vec<Refusal>) {
    if !service.has_selector {
        let message = "the Service selects no pods";
        let remedy = "make EndpointSlices for it with the label kubernetes.io/service-name";
        notes.push(Problem::new("spec.selector", "NoSelector", message, remedy).of(object));
    }
    if asks == Asks::Article && service.ports.len() > 1 {
        let message = format!("{ARTICLE_ANNOTATION} gives the first port a name, and no other one");
        let remedy = format!("for more, use {EXPOSE_ANNOTATION} and {ANNOTATION_PREFIX}port");
        notes.push(Problem::new("spec.ports", "FirstPortOnly", message, remedy).of(object));
    }
}

/// A problem, and the socket that stays as it is if it is there.
type Refused = (Problem, Option<Box<Exposure>>);

fn one(
    service: &ServiceSource,
    port: &ServicePort,
    is_one_of_several: bool,
    read: &Annotations,
    asks: Asks,
    settings: &Settings,
) -> Result<Exposure, Refused> {
    let word = port.word();
    let number = port.port.to_string();
    let options = match &port.name {
        Some(name) => read.of_port(&[name, &number]),
        None => read.of_port(&[&number]),
    };
    let field = |what: &str| format!("spec.ports[{word}].{what}");
    if port.protocol == Protocol::Sctp {
        let remedy = format!("leave the port out by {ANNOTATION_PREFIX}port, or serve the same over TCP or UDP");
        return Err((Problem::new(&field("protocol"), "UnsupportedProtocol", "no socket carries SCTP", remedy), None));
    }
    let namespaced = &service.meta;
    let usual = name::name(&namespaced.namespace, &namespaced.name, is_one_of_several.then_some(&word));
    let mut exposure = Exposure {
        key: ExposureKey { object: service.meta.key(Kind::Service), port: word.clone() },
        uid: service.meta.uid.clone(),
        created: service.meta.created,
        is_held: true,
        spec: SocketSpec {
            name: match (&options.name, is_one_of_several) {
                (Some(name), true) if read.general.name.as_ref() == Some(name) => name::with_word(name, &word),
                (Some(name), _) => name.clone(),
                (None, _) => usual,
            },
            socket_type: SocketType::Http,
            origin_protocol: OriginProtocol::default(),
            public_port: None,
            label: options.name_label.clone(),
            settings: sallyport_model::SocketSettings::default(),
            domains: options.domain.iter().flatten().map(|domain| domain.as_str().to_owned()).collect(),
            policies: options.policy.iter().flatten().map(|policy| policy.as_str().to_owned()).collect(),
        },
        labels: std::collections::BTreeMap::new(),
        origins: vec![origin(service, port, &options)],
    };
    exposure.labels = labels(&exposure, &options, settings);
    match fill(&mut exposure, port, &options, asks, &word) {
        Ok(()) => Ok(Exposure { is_held: false, ..exposure }),
        Err(problem) => Err((problem, Some(Box::new(exposure)))),
    }
}

/// The labels of the socket: the program's own ones, and those of the option `label`.
pub(super) fn labels(
    exposure: &Exposure,
    options: &Options,
    settings: &Settings,
) -> std::collections::BTreeMap<String, String> {
    let mut labels = options.label.clone().unwrap_or_default();
    labels.extend(exposure.key.labels(&settings.cluster, settings.installation.as_deref()));
    if !exposure.spec.policies.is_empty() {
        labels.insert(LABEL_POLICIES.to_owned(), exposure.spec.policies.join(","));
    }
    labels
}

/// The pods of a port.
pub(super) fn origin(service: &ServiceSource, port: &ServicePort, options: &Options) -> Origin {
    Origin {
        path: sallyport_model::PathRoute::default(),
        target: Target {
            service: ServiceRef { namespace: service.meta.namespace.clone(), name: service.meta.name.clone() },
            port_name: port.name.clone().unwrap_or_default(),
            protocol: port.protocol,
            families: service.ip_families.clone(),
            publishes_not_ready: service.publishes_not_ready,
        },
        is_client_ip_affine: service.is_client_ip_affine,
        weight: options.weight,
        capacity: None,
        tls: OriginTls { server_name: options.origin_server_name.clone(), pin: options.origin_pin.clone() },
        connect_timeout_millis: options.connect_timeout,
    }
}

/// The type, the settings and what depends on them.
fn fill(exposure: &mut Exposure, port: &ServicePort, options: &Options, asks: Asks, word: &str) -> Result<(), Problem> {
    let (socket_type, origin_protocol, is_passed) = kind(port, options, asks, word)?;
    let mut options = options.clone();
    if is_passed && options.passthrough.is_none() && options.cloudauth != Some(true) {
        options.passthrough = Some(true);
    }
    let spec = &mut exposure.spec;
    spec.socket_type = socket_type;
    spec.origin_protocol = origin_protocol;
    finish(exposure, &options)
}

/// The settings for the type of the exposure, and what else depends on it.
pub(super) fn finish(exposure: &mut Exposure, options: &Options) -> Result<(), Problem> {
    let spec = &mut exposure.spec;
    let socket_type = spec.socket_type;
    spec.settings = options.settings(socket_type).map_err(Problem::of_misfit)?;
    if options.public_port.is_some() && !socket_type.has_port() {
        let message = format!("a {socket_type} socket has no port of its own");
        let remedy = format!("remove it, or set {ANNOTATION_PREFIX}type to tcp, tls or udp");
        return Err(Problem::new(&annotation_field("public-port"), "InvalidAnnotation", message, remedy));
    }
    spec.public_port = options.public_port;
    let is_named = socket_type.is_http() || socket_type == SocketType::Tls;
    if !(is_named || spec.domains.is_empty()) {
        let message = format!("domains are for http, https and tls sockets, and this is a {socket_type} socket");
        let remedy = format!("remove it, or set {ANNOTATION_PREFIX}type: its port is part of the address");
        return Err(Problem::new(&annotation_field("domain"), "InvalidAnnotation", message, remedy));
    }
    if exposure.labels.get(LABEL_POLICIES).is_some_and(|value| value.len() > 255) {
        let remedy = "join some of them into one policy";
        let message = "the names of the policies have more than 255 bytes together";
        return Err(Problem::new(&annotation_field("policy"), "TooManyPolicies", message, remedy));
    }
    let capacity = options.capacity().map_err(Problem::of_misfit)?;
    let is_https = socket_type == SocketType::Https;
    let of_https =
        [("origin-pin", options.origin_pin.is_some()), ("origin-server-name", options.origin_server_name.is_some())];
    if let Some((option, _)) = of_https.into_iter().find(|(_, is_given)| *is_given && !is_https) {
        let message = format!("it is for pods that speak HTTPS, and this is a {socket_type} socket");
        let remedy = format!("remove it, or set {ANNOTATION_PREFIX}type: https");
        return Err(Problem::new(&annotation_field(option), "InvalidAnnotation", message, remedy));
    }
    for origin in &mut exposure.origins {
        origin.capacity.clone_from(&capacity);
        if is_https && origin.tls.server_name.is_none() {
            let ServiceRef { namespace, name } = &origin.target.service;
            origin.tls.server_name = Some(format!("{name}.{namespace}.svc"));
        }
    }
    if exposure.key.object.kind == Kind::Service {
        let route = options.route(socket_type).map_err(Problem::of_misfit)?;
        for origin in &mut exposure.origins {
            origin.path = route.clone();
        }
    }
    Ok(())
}

/// The type and the HTTP version towards the pods, and whether the pods end TLS themselves.
fn kind(
    port: &ServicePort,
    options: &Options,
    asks: Asks,
    word: &str,
) -> Result<(SocketType, OriginProtocol, bool), Problem> {
    let (from_port, version, is_passed) = of_port(port, asks, word)?;
    let version = options.origin_protocol.unwrap_or(version);
    let Some(socket_type) = options.socket_type else { return Ok((from_port, version, is_passed)) };
    let is_udp = port.protocol == Protocol::Udp;
    if is_udp != (socket_type == SocketType::Udp) {
        let protocol = port.protocol.as_str();
        let message = format!("a {socket_type} socket cannot lead to a port of the protocol {protocol}");
        let remedy = match is_udp {
            true => format!("set {ANNOTATION_PREFIX}{word}.type: udp, or remove it"),
            false => format!("set {ANNOTATION_PREFIX}{word}.type to http, https, tcp or tls"),
        };
        return Err(Problem::new(&annotation_field("type"), "ProtocolMismatch", message, remedy));
    }
    Ok((socket_type, version, is_passed && socket_type == SocketType::Tls))
}

fn of_port(port: &ServicePort, asks: Asks, word: &str) -> Result<(SocketType, OriginProtocol, bool), Problem> {
    let auto = OriginProtocol::Auto;
    let is_udp = port.protocol == Protocol::Udp;
    if let Some(said) = port.app_protocol.as_deref() {
        let of_app = match said.strip_prefix("kubernetes.io/").unwrap_or(said).to_ascii_lowercase().as_str() {
            "http" | "ws" => Some((SocketType::Http, auto, false)),
            "https" | "wss" => Some((SocketType::Https, auto, false)),
            "h2c" | "grpc" | "http2" => Some((SocketType::Http, OriginProtocol::Http2, false)),
            "tls" | "ssl" => Some((SocketType::Tls, auto, true)),
            "tcp" => Some((SocketType::Tcp, auto, false)),
            "udp" if is_udp => Some((SocketType::Udp, auto, false)),
            "udp" => {
                let field = format!("spec.ports[{word}].appProtocol");
                let remedy = "set the protocol of the port to UDP, or remove appProtocol";
                return Err(Problem::new(&field, "ProtocolMismatch", "udp is said of a port for TCP", remedy));
            }
            _ => None,
        };
        return Ok(match of_app {
            _ if is_udp => (SocketType::Udp, auto, false),
            Some(kind) => kind,
            // A protocol of its own, such as postgresql, is bytes over TCP.
            None => (SocketType::Tcp, auto, false),
        });
    }
    if is_udp {
        return Ok((SocketType::Udp, auto, false));
    }
    if asks != Asks::Class {
        return Ok((SocketType::Http, auto, false));
    }
    // A load balancer carries bytes, unless the name or the number of the port says more.
    let first = word.split('-').next().unwrap_or_default();
    Ok(match first {
        "http" | "ws" | "80" => (SocketType::Http, auto, false),
        "h2c" | "grpc" | "http2" => (SocketType::Http, OriginProtocol::Http2, false),
        "https" => (SocketType::Https, auto, false),
        "tls" => (SocketType::Tls, auto, true),
        _ if port.port == 80 => (SocketType::Http, auto, false),
        _ => (SocketType::Tcp, auto, false),
    })
}
