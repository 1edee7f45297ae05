//! The sockets that an object wants, or why it gets none.

mod ingress;
mod name;
mod refusal;
mod service;
mod settle;

use std::collections::{BTreeMap, BTreeSet};

use sallyport_model::{Capacity, DisplayName, OriginProtocol, PathRoute, SocketName, SocketSettings, SocketType};

pub(crate) use name::with_word;
pub use refusal::Refusal;
pub use settle::settle;

use crate::{ClusterName, ExposureKey, IpFamily, ObjectKey, Protocol, ServiceSource, Source};

/// The most ports of a Service, or hosts of an Ingress, that get a socket each.
pub const MAX_PORTS: usize = 100;

/// What the program was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the cluster.
    pub cluster: ClusterName,
    /// The uid of the namespace `kube-system`, if known. A socket of another installation is adopted by its labels,
    /// and never deleted by a sweep.
    pub installation: Option<String>,
    /// The names of IngressClasses whose controller is [`crate::INGRESS_CONTROLLER`].
    pub ingress_classes: BTreeSet<String>,
    /// Whether one of them is the default class.
    pub is_default_ingress_class: bool,
}

impl Settings {
    /// The settings for this cluster, without IngressClasses.
    #[must_use]
    pub fn new(cluster: ClusterName) -> Self {
        Self { cluster, installation: None, ingress_classes: BTreeSet::new(), is_default_ingress_class: false }
    }
}

/// A socket as it is wanted, or as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketSpec {
    /// The name for people.
    pub name: DisplayName,
    /// Its type.
    pub socket_type: SocketType,
    /// The HTTP version towards pods.
    pub origin_protocol: OriginProtocol,
    /// The public port; wanted `None`: any.
    pub public_port: Option<u16>,
    /// The first label of the public name; wanted `None`: any.
    pub label: Option<SocketName>,
    /// Its settings.
    pub settings: SocketSettings,
    /// The domains that lead to it.
    pub domains: Vec<String>,
    /// Its policies, by name or id.
    pub policies: Vec<String>,
}

/// The certificate that pods of an `https` socket must have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OriginTls {
    /// The name in it; `None`: the name of the Service, `NAME.NAMESPACE.svc`.
    pub server_name: Option<String>,
    /// Its fingerprint, `sha256:...`; `None`: a public authority signed it.
    pub pin: Option<String>,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What of the EndpointSlices of a Service belongs to one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The Service.
    pub service: ServiceRef,
    /// The name of its port; empty if it has none.
    pub port_name: String,
    /// The protocol of its port.
    pub protocol: Protocol,
    /// The families of its addresses, the preferred one first; empty: any.
    pub families: Vec<IpFamily>,
    /// Whether pods that are not ready take traffic too.
    pub publishes_not_ready: bool,
}

/// The pods behind some paths of a socket: one tunnel for each replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The paths, which are `/` except for Ingresses and the option `path`.
    pub path: PathRoute,
    /// The pods.
    pub target: Target,
    /// Whether a visitor's address decides about the pod.
    pub is_client_ip_affine: bool,
    /// The share of the tunnels.
    pub weight: Option<u16>,
    /// What the pods can carry together.
    pub capacity: Option<Capacity>,
    /// The certificate of the pods, for `https` sockets.
    pub tls: OriginTls,
    /// How long a pod may take to accept a connection, in milliseconds.
    pub connect_timeout_millis: Option<u64>,
}

/// A socket that an object wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// What it is for.
    pub key: ExposureKey,
    /// The object's uid.
    pub uid: String,
    /// When the object was created, in seconds since 1970: of two that want the same, the older one gets it.
    pub created: i64,
    /// The object has an error, so the socket stays as it is if it is there, and none is made. Only the origins count,
    /// with the type of the socket that is there.
    pub is_held: bool,
    /// The socket.
    pub spec: SocketSpec,
    /// The labels of the socket.
    pub labels: BTreeMap<String, String>,
    /// Its origins, at least one.
    pub origins: Vec<Origin>,
}

/// What an object gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exposures {
    /// Whether an annotation or a class asks for sockets: the object then has the finalizer.
    pub is_requested: bool,
    /// The sockets.
    pub desired: Vec<Exposure>,
    /// Why something gets no socket.
    pub refusals: Vec<Refusal>,
    /// What is as asked, though not as somebody may expect.
    pub notes: Vec<Refusal>,
}

impl Exposures {
    /// Nothing is asked for.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The sockets to make: those that are not held.
    pub fn to_make(&self) -> impl Iterator<Item = &Exposure> {
        self.desired.iter().filter(|exposure| !exposure.is_held)
    }
}

/// The Services that Ingresses lead to.
pub trait Services {
    /// The Service of this name.
    fn service(&self, namespace: &str, name: &str) -> Option<&ServiceSource>;
}

impl Services for BTreeMap<ObjectKey, Source> {
    fn service(&self, namespace: &str, name: &str) -> Option<&ServiceSource> {
        let key = ObjectKey { kind: crate::Kind::Service, namespace: namespace.to_owned(), name: name.to_owned() };
        match self.get(&key) {
            Some(Source::Service(service)) => Some(service),
            _ => None,
        }
    }
}

/// The sockets that one object wants. What several objects want is settled by [`settle`] afterwards.
#[must_use]
pub fn expose(source: &Source, services: &impl Services, settings: &Settings) -> Exposures {
    if source.meta().is_deleting {
        return Exposures::none();
    }
    match source {
        Source::Service(service) => service::expose(service, settings),
        Source::Ingress(ingress) => ingress::expose(ingress, services, settings),
    }
}
