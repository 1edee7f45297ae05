//! Services.

use super::{Condition, LoadBalancerStatus, ObjectMeta};

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceSource {
    /// What every object has.
    pub meta: ObjectMeta,
    /// `spec.type`.
    pub service_type: ServiceType,
    /// `spec.clusterIPs`: `["None"]` for a headless Service.
    pub cluster_ips: Vec<String>,
    /// `spec.externalName`.
    pub external_name: Option<String>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.loadBalancerClass`.
    pub load_balancer_class: Option<String>,
    /// Whether `spec.sessionAffinity` is `ClientIP`.
    pub is_client_ip_affine: bool,
    /// `spec.ipFamilies`: the first is the preferred one.
    pub ip_families: Vec<IpFamily>,
    /// `spec.publishNotReadyAddresses`.
    pub publishes_not_ready: bool,
    /// Whether `spec.selector` selects pods.
    pub has_selector: bool,
    /// `status.loadBalancer.ingress`.
    pub status: LoadBalancerStatus,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

impl ServiceSource {
    /// Whether it has no cluster address.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ips.first().is_some_and(|first| first == "None")
    }

    /// The port with this name or number.
    #[must_use]
    pub fn port(&self, word: &str) -> Option<&ServicePort> {
        let named = self.ports.iter().find(|port| port.name.as_deref() == Some(word));
        named.or_else(|| self.ports.iter().find(|port| word.parse() == Ok(port.port)))
    }
}

/// The type of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceType {
    /// An address within the cluster.
    #[default]
    ClusterIp,
    /// A port on every node too.
    NodePort,
    /// An address from outside too.
    LoadBalancer,
    /// An alias of a name.
    ExternalName,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; a Service with several ports names all of them.
    pub name: Option<String>,
    /// Its number.
    pub port: u16,
    /// The port of the pods.
    pub target_port: TargetPort,
    /// Its protocol.
    pub protocol: Protocol,
    /// `appProtocol`, such as `http` or `kubernetes.io/h2c`.
    pub app_protocol: Option<String>,
}

impl ServicePort {
    /// Its name, or its number.
    #[must_use]
    pub fn word(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.port.to_string())
    }
}

/// The port of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPort {
    /// By number.
    Number(u16),
    /// By its name in the containers; pods may differ in the number.
    Named(String),
}

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, which no socket carries.
    Sctp,
}

impl Protocol {
    /// The protocol as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}
