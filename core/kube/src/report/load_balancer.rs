//! The status of load balancers.

use crate::{
    ServicePort,
    source::{LoadBalancerIngress, LoadBalancerStatus, PortStatus},
};

/// What the socket of one port, or of one host of an Ingress, has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The port of the exposure's key.
    pub port: String,
    /// The public host name, once there is a socket.
    pub hostname: Option<String>,
    /// The public URL, or the name with its port.
    pub url: Option<String>,
    /// Whether a tunnel of the socket is up.
    pub is_up: bool,
    /// Why it is not served: a word for machines, and a sentence.
    pub error: Option<(String, String)>,
}

/// The status of a Service of the class: one name for each socket, with the Service's port. Ports of one name are
/// together, in the order of the Service.
#[must_use]
pub fn load_balancer(ports: &[ServicePort], served: &[Served]) -> LoadBalancerStatus {
    let mut status = LoadBalancerStatus::new();
    for port in ports {
        let word = port.word();
        let Some(one) = served.iter().find(|one| one.port == word) else { continue };
        let Some(hostname) = &one.hostname else { continue };
        let error = one.error.as_ref().map(|(reason, _)| reason.clone());
        let entry = PortStatus { port: port.port, protocol: port.protocol, error };
        match status.iter_mut().find(|there| there.hostname == *hostname) {
            Some(there) => there.ports.push(entry),
            None => status.push(LoadBalancerIngress { hostname: hostname.clone(), ports: vec![entry] }),
        }
    }
    status
}
