//! The edge's part in the mesh: certificates, and its address for other edges.

use std::net::SocketAddr;

use anyhow::Context as _;
use sallyport_bus::Bus;
use sallyport_edge::{MeshSettings, MeshTls, MeshTlsPair};
use sallyport_net::{client_config_of_node_for, client_config_of_pem, server_config_of_node};
use sallyport_wire::{ALPN, MESH_ALPN};
use tracing::warn;

use super::state::EdgeState;
use crate::roles::own_address::own_addresses;

/// TLS between edges, with the certificates from control.
pub(super) fn tls(state: &EdgeState) -> anyhow::Result<MeshTlsPair> {
    let (root, chain, key) = (&state.bootstrap.node_ca, &state.certificates.node, state.key.expose());
    Ok(MeshTlsPair {
        server: server_config_of_node(root, chain, key, &[MESH_ALPN])?,
        client: client_config_of_node_for(root, chain, key, &[MESH_ALPN])?,
    })
}

/// The mesh settings.
pub(super) fn settings(state: &EdgeState, bus: &Bus) -> anyhow::Result<MeshSettings> {
    let legs = client_config_of_pem(state.bootstrap.ca.as_bytes(), &[ALPN]);
    Ok(MeshSettings {
        own: state.id,
        agent: format!("sallyport-edge {}/{}", state.name, env!("CARGO_PKG_VERSION")),
        fleet: bus.fleet.clone(),
        orders: bus.orders.clone(),
        steering: bus.steering.clone(),
        tls: MeshTls::new(tls(state)?),
        legs: legs.context("the authority of the installation is damaged: join again")?,
    })
}

/// The addresses for other edges: the advertised ones, else the listening one. For a wildcard, the address of this
/// machine's default route.
pub(super) fn addresses(advertise: &[SocketAddr], listening: SocketAddr) -> Vec<SocketAddr> {
    if !advertise.is_empty() {
        return advertise.to_vec();
    }
    let own = own_addresses(listening.ip());
    if own.is_empty() {
        warn!("the address of this edge for others is not known: give it with --advertise ADDR:PORT");
        return vec![listening];
    }
    own.into_iter().map(|own| SocketAddr::new(own, listening.port())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_address_counts_and_wildcards_do_not() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        assert_eq!(addresses(&[at("192.0.2.7:443")], at("0.0.0.0:8443")), [at("192.0.2.7:443")]);
        assert_eq!(addresses(&[], at("127.0.0.2:8443")), [at("127.0.0.2:8443")]);
        for found in addresses(&[], at("0.0.0.0:8443")) {
            assert_eq!(found.port(), 8443);
            assert!(found.is_ipv4());
        }
    }
}
