//! Names with certificates of public authorities: their certificates come from the bus into the TLS of this process.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use sallyport_bus::ServedCertificates;
use sallyport_identity::{Purpose, Sealer};
use sallyport_model::{CertificateId, ServedCertificate};
use sallyport_net::{Certificates, PublicCertificate};
use tracing::warn;

use crate::{
    args::acme::{AcmeArgs, ResolverArgs},
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
) -> PublicNames {
    PublicNames {
        domain: domain.to_owned(),
        directory: acme.directory().to_owned(),
        directory_root: acme.acme_root.as_ref().and_then(|path| std::path::absolute(path).ok()),
        resolver: resolver.resolver.clone(),
        ports,
        addresses,
    }
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
