//! EndpointSlices.

/// An `EndpointSlice`: some of the endpoints of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Service of its label `kubernetes.io/service-name`.
    pub service: String,
    /// The kind of its addresses.
    pub address_type: AddressType,
    /// Its ports, which all its endpoints have.
    pub ports: Vec<EndpointPort>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// The kind of addresses in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressType {
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// Names, which no pool takes.
    Fqdn,
}

/// A port of the endpoints of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPort {
    /// The name of the Service's port; empty if that has none.
    pub name: String,
    /// The number; `None`: any.
    pub port: Option<u16>,
    /// The protocol.
    pub protocol: super::Protocol,
}

/// An endpoint: most often a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoint {
    /// Its addresses; the first one counts.
    pub addresses: Vec<String>,
    /// `conditions.ready`; absent means ready.
    pub ready: Option<bool>,
    /// `conditions.serving`; absent means as `ready`.
    pub serving: Option<bool>,
    /// `conditions.terminating`; absent means no.
    pub terminating: Option<bool>,
    /// The node.
    pub node_name: Option<String>,
    /// The zone.
    pub zone: Option<String>,
}

impl Endpoint {
    /// Whether it takes traffic as usual.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Whether it answers, ready or on its way out.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.serving.unwrap_or_else(|| self.is_ready())
    }

    /// Whether it is on its way out.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.terminating.unwrap_or(false)
    }
}
