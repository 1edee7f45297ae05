//! What an Ingress wants: one socket for each of its hosts, with a tunnel for each path.

use std::collections::BTreeMap;

use sallyport_model::{DomainName, OriginProtocol, PathPrefix, PathRoute, SocketSettings, SocketType};

use super::{
    Exposure, Exposures, MAX_PORTS, Origin, Services, Settings, SocketSpec, name,
    refusal::{Problem, annotation_field},
    service,
};
use crate::{
    ANNOTATION_PREFIX, Annotations, ExposureKey, IngressBackend, IngressPath, IngressPort, IngressSource, Kind,
    ObjectKey, PathType, Protocol, ServiceType, Wish, annotations,
};

/// The most paths of one host: each is a tunnel for each replica.
const MAX_PATHS: usize = 20;
/// The host that stands for requests without a rule of their own.
const ANY: &str = "*";

/// The sockets that an Ingress wants.
pub(super) fn expose(ingress: &IngressSource, services: &impl Services, settings: &Settings) -> Exposures {
    let object = ingress.meta.key(Kind::Ingress);
    let is_ours = match &ingress.class {
        Some(class) => settings.ingress_classes.contains(class),
        None => settings.is_default_ingress_class,
    };
    let read = annotations(&ingress.meta.annotations);
    if !is_ours {
        return match read.wish {
            Wish::Expose | Wish::Article => {
                Exposures { refusals: vec![foreign_class(ingress, settings).of(&object)], ..Exposures::none() }
            }
            Wish::None | Wish::Never => Exposures::none(),
        };
    }
    if read.wish == Wish::Never {
        return Exposures::none();
    }
    let mut problems: Vec<Problem> = read.errors.iter().map(Problem::of_annotation).collect();
    problems.extend(unfit(&read));
    let hosts = hosts(ingress, &mut problems);
    if hosts.is_empty() && problems.is_empty() {
        let remedy = "add spec.rules or spec.defaultBackend";
        problems.push(Problem::new("spec.rules", "NoRules", "the Ingress leads nowhere", remedy));
    }
    let is_held = !problems.is_empty();
    let refusals = problems.into_iter().map(|problem| problem.of(&object)).collect();
    let mut exposures = Exposures { is_requested: true, refusals, ..Exposures::default() };
    notes(ingress, &object, &mut exposures);
    let is_one_of_several = hosts.len() > 1;
    for (host, paths) in &hosts {
        let one = Host { ingress, host, paths, is_one_of_several, read: &read, services, settings };
        let (exposure, problems) = one.exposure();
        let is_refused = !problems.is_empty();
        exposures.refusals.extend(problems.into_iter().map(|problem| problem.of(&object)));
        if !exposure.origins.is_empty() {
            exposures.desired.push(Exposure { is_held: is_held || is_refused, ..exposure });
        }
    }
    exposures
}

fn foreign_class(ingress: &IngressSource, settings: &Settings) -> Problem {
    let ours: Vec<_> = settings.ingress_classes.iter().take(8).map(String::as_str).collect();
    let remedy = match ours.as_slice() {
        [] => "make an IngressClass with the controller sallyport.dev/ingress, and name it".to_owned(),
        _ => format!("set spec.ingressClassName to {}", ours.join(" or ")),
    };
    let message = match &ingress.class {
        Some(class) => format!("the class {:?} is another controller's", class.chars().take(64).collect::<String>()),
        None => "the Ingress has no class".to_owned(),
    };
    Problem::new("spec.ingressClassName", "ForeignClass", message, remedy)
}

/// Annotations that an Ingress cannot have.
fn unfit(read: &Annotations) -> Vec<Problem> {
    let mut problems = Vec::new();
    let general = &read.general;
    let given = [
        ("port", general.port.is_some(), "its rules name the ports"),
        ("domain", general.domain.is_some(), "its rules name the hosts"),
        ("path", general.path.is_some(), "its rules name the paths"),
        ("public-port", general.public_port.is_some(), "its sockets have no port of their own"),
    ];
    for (option, _, why) in given.into_iter().filter(|(_, is_given, _)| *is_given) {
        let remedy = "remove the annotation, and change spec.rules";
        problems.push(Problem::new(&annotation_field(option), "UnsupportedAnnotation", why, remedy));
    }
    if general.socket_type.is_some_and(|socket_type| !socket_type.is_http()) {
        let remedy = format!("set {ANNOTATION_PREFIX}type to http or https, or use a Service");
        let message = "the sockets of an Ingress are http or https";
        problems.push(Problem::new(&annotation_field("type"), "UnsupportedAnnotation", message, remedy));
    }
    if let Some(port) = read.ports.keys().next() {
        let field = format!("metadata.annotations[{ANNOTATION_PREFIX}{port}.*]");
        let remedy = format!("write the option as {ANNOTATION_PREFIX}OPTION, for all hosts");
        problems.push(Problem::new(&field, "UnsupportedAnnotation", "an Ingress has no ports", remedy));
    }
    problems
}

/// The paths of each host, with where the host is written.
type Hosts<'a> = BTreeMap<String, Vec<(String, IngressPath)>>;

fn hosts(ingress: &IngressSource, problems: &mut Vec<Problem>) -> Hosts<'static> {
    let mut hosts = Hosts::new();
    for (index, rule) in ingress.rules.iter().enumerate() {
        let host = match rule.host.as_deref() {
            None | Some("" | ANY) => ANY.to_owned(),
            Some(host) => match host.parse::<DomainName>() {
                Ok(host) => host.as_str().to_owned(),
                Err(error) => {
                    let remedy = "write a name with a dot, such as app.example.com or *.example.com";
                    let field = format!("spec.rules[{index}].host");
                    problems.push(Problem::new(&field, "InvalidHost", error.to_string(), remedy));
                    continue;
                }
            },
        };
        if !hosts.contains_key(&host) && hosts.len() >= MAX_PORTS {
            let message = format!("an Ingress has at most {MAX_PORTS} hosts");
            let remedy = "make a further Ingress for the others";
            problems.push(Problem::new("spec.rules", "TooManyHosts", message, remedy));
            break;
        }
        let paths = hosts.entry(host).or_default();
        for (number, path) in rule.paths.iter().enumerate() {
            paths.push((format!("spec.rules[{index}].http.paths[{number}]"), path.clone()));
        }
    }
    if let Some(backend) = &ingress.default_backend {
        if hosts.is_empty() {
            hosts.insert(ANY.to_owned(), Vec::new());
        }
        for paths in hosts.values_mut() {
            let is_rooted = paths.iter().any(|(_, path)| matches!(path.path.as_str(), "" | "/"));
            if !is_rooted {
                let path = IngressPath { path: "/".to_owned(), path_type: PathType::Prefix, backend: backend.clone() };
                paths.push(("spec.defaultBackend".to_owned(), path));
            }
        }
    }
    hosts.retain(|_, paths| !paths.is_empty());
    hosts
}

fn notes(ingress: &IngressSource, object: &ObjectKey, exposures: &mut Exposures) {
    if ingress.tls.iter().any(|tls| tls.secret_name.is_some()) {
        let message = "the edge has certificates of its own for public names, and the Secret is not read";
        let remedy = "leave spec.tls[].secretName out; `sallyport certificate` shows the certificates";
        exposures.notes.push(Problem::new("spec.tls", "SecretNotUsed", message, remedy).of(object));
    }
}

/// One host of an Ingress.
struct Host<'a, S> {
    ingress: &'a IngressSource,
    host: &'a str,
    paths: &'a [(String, IngressPath)],
    is_one_of_several: bool,
    read: &'a Annotations,
    services: &'a S,
    settings: &'a Settings,
}

impl<S: Services> Host<'_, S> {
    /// The socket, and what is wrong with its paths. One wrong path refuses the host: its requests would otherwise
    /// reach the pods of a shorter path.
    fn exposure(&self) -> (Exposure, Vec<Problem>) {
        let Self { ingress, host, read, settings, .. } = *self;
        let options = &read.general;
        let meta = &ingress.meta;
        let word = self.is_one_of_several.then_some(host);
        let mut exposure = Exposure {
            key: ExposureKey { object: meta.key(Kind::Ingress), port: host.to_owned() },
            uid: meta.uid.clone(),
            created: meta.created,
            is_held: false,
            spec: SocketSpec {
                name: match (&options.name, word) {
                    (Some(name), Some(word)) => name::with_word(name, word),
                    (Some(name), None) => name.clone(),
                    (None, _) => name::name(&meta.namespace, &format!("{} ingress", meta.name), word),
                },
                socket_type: options.socket_type.unwrap_or(SocketType::Http),
                origin_protocol: options.origin_protocol.unwrap_or_default(),
                public_port: None,
                label: options.name_label.clone(),
                settings: SocketSettings::default(),
                domains: if host == ANY { Vec::new() } else { vec![host.to_owned()] },
                policies: options.policy.iter().flatten().map(|policy| policy.as_str().to_owned()).collect(),
            },
            labels: BTreeMap::new(),
            origins: Vec::new(),
        };
        exposure.labels = service::labels(&exposure, options, settings);
        let mut problems = Vec::new();
        let mut versions: Vec<OriginProtocol> = Vec::new();
        for (field, path) in self.paths.iter().take(MAX_PATHS) {
            match self.origin(field, path, &mut versions) {
                Ok(origin) if exposure.origins.iter().any(|there| there.path.prefix == origin.path.prefix) => {
                    let message = format!("the path {} is there twice", origin.path.prefix);
                    let remedy = "remove one of the two: paths are compared by whole segments";
                    problems.push(Problem::new(field, "DuplicatePath", message, remedy));
                }
                Ok(origin) => exposure.origins.push(origin),
                Err(problem) => problems.push(problem),
            }
        }
        if self.paths.len() > MAX_PATHS {
            let message = format!("{} has {} paths, and a host may have {MAX_PATHS}", self.host, self.paths.len());
            let remedy = "join paths with the same beginning, or route within a Service";
            problems.push(Problem::new("spec.rules", "TooManyPaths", message, remedy));
        }
        if options.origin_protocol.is_none() && versions.iter().all(|one| *one == OriginProtocol::Http2) {
            exposure.spec.origin_protocol = versions.first().copied().unwrap_or_default();
        }
        if let Err(problem) = service::finish(&mut exposure, options) {
            problems.push(problem);
        }
        (exposure, problems)
    }

    fn origin(&self, field: &str, path: &IngressPath, versions: &mut Vec<OriginProtocol>) -> Result<Origin, Problem> {
        let text = if path.path.is_empty() { "/" } else { &path.path };
        if path.path_type == PathType::Exact {
            let message = format!("a path cannot be compared as a whole, as pathType Exact of {text:?} wants");
            let remedy = "set pathType: Prefix, which takes the paths beneath it too";
            return Err(Problem::new(&format!("{field}.pathType"), "UnsupportedPathType", message, remedy));
        }
        let prefix: PathPrefix = text.parse().map_err(|error: sallyport_model::PathPrefixError| {
            let remedy = "write a plain path such as /api";
            Problem::new(&format!("{field}.path"), "InvalidPath", error.to_string(), remedy)
        })?;
        let field = if field == "spec.defaultBackend" { field.to_owned() } else { format!("{field}.backend") };
        let (name, port) = match &path.backend {
            IngressBackend::Service { name, port } => (name, port),
            IngressBackend::Resource { kind, name } => {
                let message = format!("no socket leads to the {kind} {name}");
                let remedy = "lead the path to a Service";
                return Err(Problem::new(&format!("{field}.resource"), "UnsupportedBackend", message, remedy));
            }
        };
        let namespace = &self.ingress.meta.namespace;
        let Some(service) = self.services.service(namespace, name) else {
            let message = format!("there is no Service {name} in the namespace {namespace}");
            let remedy = "make the Service, or name another one";
            return Err(Problem::new(&format!("{field}.service.name"), "ServiceNotFound", message, remedy));
        };
        if service.service_type == ServiceType::ExternalName {
            let message = format!("the Service {name} is of the type ExternalName, which may lead anywhere");
            let remedy = "lead the path to a Service with endpoints";
            return Err(Problem::new(&format!("{field}.service.name"), "ExternalName", message, remedy));
        }
        let found = match port {
            IngressPort::Number(number) => service.ports.iter().find(|one| one.port == *number),
            IngressPort::Named(word) => service.ports.iter().find(|one| one.name.as_ref() == Some(word)),
        };
        let wanted = match port {
            IngressPort::Number(number) => number.to_string(),
            IngressPort::Named(word) => word.clone(),
        };
        let Some(found) = found else {
            let has: Vec<_> = service.ports.iter().take(20).map(crate::ServicePort::word).collect();
            let message = format!("the Service {name} has no port {wanted}");
            let remedy = format!("name one of its ports: {}", has.join(", "));
            return Err(Problem::new(&format!("{field}.service.port"), "PortNotFound", message, remedy));
        };
        if found.protocol != Protocol::Tcp {
            let message = format!("the port {wanted} of {name} is for {}, and not for HTTP", found.protocol.as_str());
            let remedy = "name a port for TCP";
            return Err(Problem::new(&format!("{field}.service.port"), "UnsupportedProtocol", message, remedy));
        }
        let said = found.app_protocol.as_deref().unwrap_or_default();
        versions.push(match said.strip_prefix("kubernetes.io/").unwrap_or(said) {
            "h2c" | "grpc" | "http2" => OriginProtocol::Http2,
            _ => OriginProtocol::Auto,
        });
        let options = &self.read.general;
        let mut origin = service::origin(service, found, options);
        let is_stripped = options.strip_path == Some(true) && !prefix.is_root();
        let rewrite = if is_stripped { Some(PathPrefix::root()) } else { options.rewrite_path.clone() };
        origin.path = PathRoute { prefix, rewrite };
        Ok(origin)
    }
}
