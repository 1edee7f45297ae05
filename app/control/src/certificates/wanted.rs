//! The names that need a certificate.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

use sallyport_model::{AccountId, CertificateId, DomainName, Socket, SocketRoute, SocketType, TlsMode};
use sallyport_store::WantedCertificate;

use crate::{problem::ApiError, security::random, state::App};

/// The labels below the domain that the server itself uses; the empty one is the domain.
const OWN_LABELS: [&str; 4] = ["", "api.", "login.", "tunnel."];
/// The label of the desk, where there is one.
const DESK_LABEL: &str = "desk.";

/// The certificates that the installation needs now: one for each name, with its organisation. Where the domain of the
/// installation is delegated to its name server, one wildcard covers the domain, so that generated names are in no
/// public log.
fn wanted_names<'a>(
    domain: &str,
    (is_delegated, has_desk): (bool, bool),
    routes: impl Iterator<Item = &'a SocketRoute>,
) -> BTreeMap<Vec<DomainName>, Option<AccountId>> {
    let mut wanted = BTreeMap::new();
    let mut want = |names: &[String], organisation| {
        let names: Result<Vec<DomainName>, _> = names.iter().map(|name| name.parse()).collect();
        if let Ok(names) = names {
            wanted.insert(names, organisation);
        }
    };
    if is_delegated {
        // The wildcard first: the row of the domain alone keeps its name until this one is issued.
        want(&[format!("*.{domain}"), domain.to_owned()], None);
    } else {
        let labels = OWN_LABELS.iter().chain(has_desk.then_some(&DESK_LABEL));
        labels.for_each(|label| want(&[format!("{label}{domain}")], None));
    }
    for route in routes.filter(|route| has_certificate(route)) {
        if !is_delegated {
            want(&[format!("{}.{domain}", route.name)], Some(route.account));
        }
        for name in &route.domains {
            want(&[name.to_string()], Some(route.account));
        }
    }
    wanted
}

/// Whether edges present a certificate for the socket's names.
fn has_certificate(route: &SocketRoute) -> bool {
    needs_certificate(route.socket_type, route.settings.tls_mode)
}

/// Whether edges present a certificate for the names of such a socket.
fn needs_certificate(socket_type: SocketType, tls_mode: TlsMode) -> bool {
    match socket_type {
        SocketType::Http | SocketType::Https => true,
        SocketType::Tls => tls_mode == TlsMode::Terminate,
        SocketType::Tcp | SocketType::Udp => false,
    }
}

impl App {
    /// The note of a new socket whose name has no certificate yet. Clients are refused until the certificate is there.
    pub(crate) fn note_on_certificate(&self, socket: &Socket) -> Option<String> {
        self.config.acme.as_ref()?;
        let name = self.dns_name(&socket.name);
        let covers = |known: &DomainName| known.as_str() == name || known.covers(&name);
        let is_there = self.certificates.all().iter().any(|one| one.names.iter().any(covers));
        (needs_certificate(socket.socket_type, socket.settings.tls_mode) && !is_there).then(|| {
            format!(
                "its certificate is ordered: browsers accept the name some seconds later (`sallyport cert show {name}`)"
            )
        })
    }

    /// Makes the rows of the store those of the names that need a certificate now.
    pub(super) async fn want_certificates(&self) -> Result<(), ApiError> {
        let (routes, config) = (self.routes.all(), &self.config);
        let how = (self.is_delegated.load(Relaxed), config.has_desk);
        let wanted = wanted_names(&config.domain, how, routes.iter().map(std::convert::AsRef::as_ref));
        let mut rows = Vec::with_capacity(wanted.len());
        for (names, organisation) in wanted {
            rows.push(WantedCertificate { id: CertificateId::from_random(random::bytes()?), organisation, names });
        }
        let changes = self.store.want_certificates(&rows, self.clock.now().unix_seconds).await?;
        changes.removed.into_iter().for_each(|id| self.certificates.remove(id));
        for id in changes.restored {
            if let Some(stored) = self.store.certificate(id).await? {
                self.publish_certificate(&stored);
                tracing::info!(name = %stored.names[0], "the name has its former certificate again");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::{OriginProtocol, SocketId, SocketSettings};

    use super::*;

    fn route(name: &str, socket_type: SocketType, domains: &[&str]) -> SocketRoute {
        SocketRoute {
            id: SocketId::from_random([1; 16]),
            account: AccountId::from_random([2; 16]),
            name: name.parse().unwrap(),
            domains: domains.iter().map(|name| name.parse().unwrap()).collect(),
            socket_type,
            origin_protocol: OriginProtocol::Auto,
            basic_auth: None,
            port: None,
            settings: SocketSettings::default(),
            policies: Vec::new(),
            client_authority: None,
            tunnels: Vec::new(),
            origins: Vec::new(),
        }
    }

    fn names(is_delegated: bool, routes: &[SocketRoute]) -> Vec<String> {
        let wanted = wanted_names("t.example", (is_delegated, false), routes.iter());
        let text = |names: Vec<DomainName>| names.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        wanted.into_keys().map(text).collect()
    }

    #[test]
    fn one_wildcard_covers_the_domain_where_dns_can_prove_it() {
        let routes = [
            route("calm-bay-1000", SocketType::Http, &["app.example.com", "*.example.com"]),
            route("calm-bay-1001", SocketType::Tcp, &[]),
        ];
        let own = ["api.t.example", "app.example.com", "calm-bay-1000.t.example", "login.t.example", "t.example"];
        let mut expected = vec!["*.example.com"];
        expected.extend(own);
        expected.push("tunnel.t.example");
        assert_eq!(names(false, &routes), expected);
        let with_desk = wanted_names("t.example", (false, true), routes.iter());
        assert!(
            with_desk.contains_key(&vec!["desk.t.example".parse().unwrap()]) && with_desk.len() == expected.len() + 1
        );
        assert_eq!(names(true, &routes), ["*.example.com", "*.t.example+t.example", "app.example.com"]);
    }

    #[test]
    fn a_socket_whose_origin_ends_tls_needs_none() {
        let mut passed = route("calm-bay-1000", SocketType::Tls, &["app.example.com"]);
        passed.settings.tls_mode = TlsMode::Passthrough;
        assert_eq!(names(false, &[passed]).len(), OWN_LABELS.len());
    }
}
