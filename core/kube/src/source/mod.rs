//! What Kubernetes has, as far as the rules need it.

mod ingress;
mod object;
mod service;
mod slice;
mod status;

pub use ingress::{IngressBackend, IngressPath, IngressPort, IngressRule, IngressSource, IngressTls, PathType};
pub use object::{Kind, ObjectKey, ObjectMeta};
pub use service::{IpFamily, Protocol, ServicePort, ServiceSource, ServiceType, TargetPort};
pub use slice::{AddressType, Endpoint, EndpointPort, EndpointSlice};
pub(crate) use status::cut;
pub use status::{Condition, ConditionStatus, LoadBalancerIngress, LoadBalancerStatus, MAX_MESSAGE_CHARS, PortStatus};

/// The class of a Service of the type `LoadBalancer` that gets a public name for every port.
pub const CLASS: &str = "sallyport.dev/edge";

/// The `spec.controller` of an IngressClass whose Ingresses get public names.
pub const INGRESS_CONTROLLER: &str = "sallyport.dev/ingress";

/// The finalizer of objects that have sockets.
pub const FINALIZER: &str = "sallyport.dev/socket";

/// An object that may want a public name. A Gateway becomes a third kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A Service.
    Service(ServiceSource),
    /// An Ingress.
    Ingress(IngressSource),
}

impl Source {
    /// What every object has.
    #[must_use]
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Service(service) => &service.meta,
            Self::Ingress(ingress) => &ingress.meta,
        }
    }

    /// Which object it is.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        let kind = match self {
            Self::Service(_) => Kind::Service,
            Self::Ingress(_) => Kind::Ingress,
        };
        self.meta().key(kind)
    }
}

impl From<ServiceSource> for Source {
    fn from(service: ServiceSource) -> Self {
        Self::Service(service)
    }
}

impl From<IngressSource> for Source {
    fn from(ingress: IngressSource) -> Self {
        Self::Ingress(ingress)
    }
}
