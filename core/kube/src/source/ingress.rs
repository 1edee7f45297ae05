//! Ingresses.

use super::{LoadBalancerStatus, ObjectMeta};

/// An Ingress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IngressSource {
    /// What every object has.
    pub meta: ObjectMeta,
    /// `spec.ingressClassName`, or else the annotation `kubernetes.io/ingress.class`.
    pub class: Option<String>,
    /// `spec.defaultBackend`.
    pub default_backend: Option<IngressBackend>,
    /// `spec.rules`.
    pub rules: Vec<IngressRule>,
    /// `spec.tls`.
    pub tls: Vec<IngressTls>,
    /// `status.loadBalancer.ingress`.
    pub status: LoadBalancerStatus,
}

/// A rule for one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IngressRule {
    /// The host; `None` or `*` alone for every host.
    pub host: Option<String>,
    /// The paths.
    pub paths: Vec<IngressPath>,
}

/// A path and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressPath {
    /// The path.
    pub path: String,
    /// How it is compared.
    pub path_type: PathType,
    /// Where it leads.
    pub backend: IngressBackend,
}

/// How a path is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathType {
    /// By whole segments from the beginning.
    Prefix,
    /// As a whole.
    Exact,
    /// As the controller likes: by whole segments here.
    #[default]
    ImplementationSpecific,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngressBackend {
    /// A port of a Service in the same namespace.
    Service {
        /// The Service's name.
        name: String,
        /// Its port.
        port: IngressPort,
    },
    /// Another object, which no socket leads to.
    Resource {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
}

/// A port of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngressPort {
    /// By number.
    Number(u16),
    /// By name.
    Named(String),
}

/// An entry of `spec.tls`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IngressTls {
    /// The hosts.
    pub hosts: Vec<String>,
    /// The Secret with a certificate.
    pub secret_name: Option<String>,
}
