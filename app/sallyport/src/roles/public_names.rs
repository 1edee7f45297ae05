//! Names with certificates of public authorities: their certificates come from the bus into the TLS of this process.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use sallyport_bus::ServedCertificates;
use sallyport_identity::{Purpose, Sealer};
use sallyport_model::{CertificateId, ServedCertificate};
use sallyport_net::{Certificates, PublicCertificate};
use tracing::warn;

use crate::{
    args::acme::{ACME_PORTS, AcmeArgs, ResolverArgs},
    machine::server_note::PublicNames,
};

/// The certificates as TLS serves them, with their sources.
type Known = HashMap<CertificateId, (Arc<ServedCertificate>, Option<PublicCertificate>)>;

/// Serves the certificates of the bus from now on, for as long as the program runs. Those that are there already are
/// served when this returns.
pub(super) fn follow(bus: ServedCertificates, sealer: Arc<Sealer>, served: Arc<Certificates>) {
    let mut changes = bus.subscribe();
    let mut known = Known::default();
    take(&bus, &sealer, &served, &mut known);
    tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            take(&bus, &sealer, &served, &mut known);
        }
    });
}

/// What `doctor` checks about the names of this installation.
pub(super) fn note(
    acme: &AcmeArgs,
    resolver: &ResolverArgs,
    domain: &str,
    ports: Vec<u16>,
    addresses: Vec<IpAddr>,
    name_server: Option<SocketAddr>,
    has_desk: bool,
) -> PublicNames {
    PublicNames {
        domain: domain.to_owned(),
        directory: acme.directory().to_owned(),
        directory_root: acme.acme_root.as_ref().and_then(|path| std::path::absolute(path).ok()),
        resolver: resolver.resolver.clone(),
        ports,
        name_server,
        addresses,
        has_desk,
    }
}

/// Says at the start if no challenge can work: the authority connects to the ports 443 and 80 alone.
pub(super) fn warn_of_ports(acme: &AcmeArgs, ports: &[u16], has_name_server: bool) {
    if acme.is_public() && !has_name_server && !ports.iter().any(|port| ACME_PORTS.contains(port)) {
        warn!(
            ?ports,
            "the authority verifies names at the ports 443 and 80 alone: listen there, or give --public-port 443 where \
             a port mapping leads here"
        );
    }
}

/// The address at which a program of this machine reaches the port.
pub(super) fn on_this_machine(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn take(bus: &ServedCertificates, sealer: &Sealer, served: &Certificates, known: &mut Known) {
    let mut former = std::mem::take(known);
    for certificate in bus.all() {
        let public = match former.remove(&certificate.id) {
            Some((same, public)) if Arc::ptr_eq(&same, &certificate) => public,
            _ => open(sealer, &certificate),
        };
        known.insert(certificate.id, (certificate, public));
    }
    let all: Vec<_> = known.values().filter_map(|(_, public)| public.clone()).collect();
    served.set_public(&all);
}

fn open(sealer: &Sealer, certificate: &ServedCertificate) -> Option<PublicCertificate> {
    let name = certificate.names.first().map(ToString::to_string).unwrap_or_default();
    let Some(key) = sealer.open::<String>(Purpose::CertificateKey, &certificate.sealed_key) else {
        warn!(name, "the key of a certificate cannot be opened: it is sealed with another key");
        return None;
    };
    let names = certificate.names.iter().map(ToString::to_string).collect();
    PublicCertificate::new(names, &certificate.chain, &key, certificate.not_after)
        .inspect_err(|error| warn!(name, %error, "a certificate cannot be served"))
        .ok()
}
