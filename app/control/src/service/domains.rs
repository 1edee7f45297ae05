//! Domains of organisations: adding them, looking their records up, and which socket they lead to.

use std::net::IpAddr;

use http::StatusCode;
use sallyport_api::{Domain, DomainRecord, DomainState};
use sallyport_domains::{CHECK_EVERY_SECONDS, Finding, Ownership, parse_domain, proof, proof_names, registrable};
use sallyport_model::{
    AccountId, CertificateId, DomainId, DomainName, MAX_DOMAINS_PER_SOCKET, SocketId, SocketType, acme_alias,
    challenge_name,
};
use sallyport_resolver::{LOOKUP_TIMEOUT, Resolver};
use sallyport_store::{DomainCheck, StoreError, StoredDomain, StoredZone};
use tokio::task::JoinSet;

use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// What the lookups of a domain's records found.
#[derive(Debug, Clone)]
pub(crate) struct DomainLookup {
    finding: Finding,
    /// The name that has the ownership record.
    place: Option<String>,
    /// What the ownership record lacks, a sentence.
    problem: Option<String>,
    /// Whether the name leads here; `None` if that was not found out.
    leads_here: Option<bool>,
    /// What is wrong with the address, a sentence.
    address_problem: Option<String>,
    /// Whether the alias of a wildcard's challenges is there; `None` if that was not found out.
    has_challenge_alias: Option<bool>,
}

/// The name in a command line: a shell would expand an asterisk.
fn in_shell(name: &DomainName) -> String {
    if name.is_wildcard() { format!("'{name}'") } else { name.to_string() }
}

/// What goes with an organisation, beside its sockets.
pub(super) struct OwnedNames {
    zones: Vec<StoredZone>,
    certificates: Vec<CertificateId>,
}

impl App {
    /// The name of a domain as a person writes it.
    pub(crate) fn domain_name(&self, field: &str, text: &str) -> Result<DomainName, ApiError> {
        parse_domain(text, &self.config.domain).map_err(|error| ApiError::field(field, error))
    }

    /// A domain of the organisation.
    pub(crate) async fn find_domain(&self, organisation: AccountId, text: &str) -> Result<StoredDomain, ApiError> {
        // A domain that is there may be one that is refused today.
        let name = parse_domain(text, &self.config.domain).ok().or_else(|| text.parse().ok());
        let name = name.ok_or_else(|| ApiError::not_found("domain"))?;
        self.store.domain(organisation, &name).await?.ok_or_else(|| ApiError::not_found("domain"))
    }

    /// The domain in the form of the API, with the result of lookups, if some were made.
    pub(crate) async fn domain_to_api(
        &self,
        domain: &StoredDomain,
        lookup: Option<&DomainLookup>,
    ) -> Result<Domain, ApiError> {
        let state = match (domain.verified_at, domain.missing_since) {
            (None, _) => DomainState::Pending,
            (Some(_), None) => DomainState::Verified,
            (Some(_), Some(_)) => DomainState::Missing,
        };
        let found = match lookup.map(|lookup| lookup.finding) {
            Some(Finding::Present) => Some(true),
            Some(Finding::Missing) => Some(false),
            Some(Finding::Unknown) => None,
            None => domain.checked_at.map(|_| state == DomainState::Verified),
        };
        let ownership = DomainRecord {
            name: proof_names(&domain.name).swap_remove(0),
            record_type: "TXT".to_owned(),
            value: self.domain_proof(domain.organisation),
            purpose: "ownership".to_owned(),
            found,
            problem: lookup.and_then(|lookup| lookup.problem.clone()),
        };
        let mut records = vec![ownership];
        records.extend(self.address_records(&domain.name, lookup).await);
        records.extend(self.challenge_record(&domain.name, lookup));
        let socket = match domain.socket {
            Some(id) => self.store.socket(domain.organisation, id).await?.map(|socket| self.dns_name(&socket.name)),
            None => None,
        };
        let certificate = self.certificate_for(domain.organisation, &domain.name).await?;
        Ok(Domain {
            id: domain.id.uuid(),
            name: domain.name.to_string(),
            state,
            records,
            socket,
            problem: domain.problem.clone(),
            asked: self.resolver.as_ref().map_or_else(|| "no name service".to_owned(), Resolver::shown),
            certificate,
            checked_at: domain.checked_at.map(date),
            verified_at: domain.verified_at.map(date),
            created_at: date(domain.created_at),
        })
    }

    /// The record that leads the challenges of a wildcard to our name server; `None` where none is needed, or where
    /// there is no name server. The zones of our name server have the challenges themselves.
    fn challenge_record(&self, name: &DomainName, lookup: Option<&DomainLookup>) -> Option<DomainRecord> {
        if !(name.is_wildcard() && self.config.has_name_server) || self.is_in_own_zone(name) {
            return None;
        }
        let base = name.base();
        let found = lookup.and_then(|lookup| lookup.has_challenge_alias);
        Some(DomainRecord {
            name: challenge_name(base),
            record_type: "CNAME".to_owned(),
            value: acme_alias(base, &self.config.domain),
            purpose: "certificate".to_owned(),
            found,
            problem: (found == Some(false)).then(|| format!("{} does not lead to this server", challenge_name(base))),
        })
    }

    /// The text that proves a domain of this organisation.
    pub(super) fn domain_proof(&self, organisation: AccountId) -> String {
        proof(&self.domain_secret, organisation)
    }

    /// The records that lead a domain here: an alias, or addresses for a name that cannot be an alias.
    ///
    //= RFC 1034 section 3.6.2
    //# If a CNAME RR is present at a node, no other data should be present
    async fn address_records(&self, name: &DomainName, lookup: Option<&DomainLookup>) -> Vec<DomainRecord> {
        let record = |record_type: &str, value: String| DomainRecord {
            name: name.to_string(),
            record_type: record_type.to_owned(),
            value,
            purpose: "address".to_owned(),
            found: lookup.and_then(|lookup| lookup.leads_here),
            problem: lookup.and_then(|lookup| lookup.address_problem.clone()),
        };
        let is_apex = registrable(name.base()) == Some(name.as_str());
        if is_apex && let Some(resolver) = &self.resolver {
            let addresses = resolver.addresses(&self.config.tunnel_host).await.unwrap_or_default();
            let typed = |address: IpAddr| record(if address.is_ipv4() { "A" } else { "AAAA" }, address.to_string());
            if !addresses.is_empty() {
                return addresses.into_iter().map(typed).collect();
            }
        }
        vec![record("CNAME", self.config.tunnel_host.clone())]
    }

    /// Looks the records of a domain up.
    pub(crate) async fn look_domain_up(&self, organisation: AccountId, name: &DomainName) -> DomainLookup {
        let Some(resolver) = &self.resolver else {
            let problem = Some("this server has no name service to ask: see --resolver".to_owned());
            return DomainLookup {
                finding: Finding::Unknown,
                place: None,
                problem,
                leads_here: None,
                address_problem: None,
                has_challenge_alias: None,
            };
        };
        let alias = async {
            if !(name.is_wildcard() && self.config.has_name_server) {
                return None;
            }
            let alias = resolver.cname(&challenge_name(name.base())).await.ok()?;
            Some(alias.is_some_and(|alias| alias == acme_alias(name.base(), &self.config.domain)))
        };
        let (proof, (leads_here, address_problem), has_challenge_alias) = tokio::join!(
            look_proof_up(resolver, self.domain_proof(organisation), proof_names(name)),
            self.look_address_up(resolver, name),
            alias,
        );
        let (finding, place, problem) = match proof {
            Ok(place) => (Finding::Present, Some(place), None),
            Err((finding, problem)) => (finding, None, Some(problem)),
        };
        DomainLookup { finding, place, problem, leads_here, address_problem, has_challenge_alias }
    }

    async fn look_address_up(&self, resolver: &Resolver, name: &DomainName) -> (Option<bool>, Option<String>) {
        // Any name below stands for a wildcard.
        let asked = if name.is_wildcard() { format!("sallyport-check.{}", name.base()) } else { name.to_string() };
        let own = match resolver.addresses(&self.config.tunnel_host).await {
            Ok(own) => own,
            Err(error) => return (None, Some(error.to_string())),
        };
        let theirs = match resolver.addresses(&asked).await {
            Ok(theirs) => theirs,
            Err(error) => return (None, Some(error.to_string())),
        };
        let listed = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        if theirs.is_empty() {
            return (Some(false), Some(format!("{asked} has no address")));
        }
        if own.is_empty() {
            return (None, Some(format!("{} has no address, so nothing can lead there", self.config.tunnel_host)));
        }
        if theirs.iter().all(|address| own.contains(address)) {
            return (Some(true), None);
        }
        let problem = format!("{asked} leads to {}, and this installation is at {}", listed(&theirs), listed(&own));
        (Some(false), Some(problem))
    }

    /// Adds a domain to the organisation. The domain is verified at once if its record is there.
    pub(crate) async fn add_domain(
        &self,
        organisation: AccountId,
        text: &str,
    ) -> Result<(StoredDomain, DomainLookup), ApiError> {
        let name = self.domain_name("name", text)?;
        self.limits.create(organisation, self.clock.now().monotonic)?;
        audit::set_target(&name);
        let lookup = self.look_domain_up(organisation, &name).await;
        let owner = self.store.domain_owner(&name).await?;
        if owner.is_some_and(|owner| owner != organisation) {
            self.take_domain_over(organisation, &name, lookup.finding).await?;
        }
        let now = self.clock.now().unix_seconds;
        let ownership = Ownership::default().after(lookup.finding, now);
        let domain = StoredDomain {
            id: DomainId::from_random(random::bytes()?),
            organisation,
            name,
            socket: None,
            verified_at: ownership.verified_at,
            missing_since: None,
            checked_at: Some(now),
            problem: lookup.problem.clone(),
            check_at: ownership.check_at(now),
            created_at: now,
        };
        self.store.create_domain(&domain).await?;
        if domain.verified_at.is_some() {
            self.drop_names_of_others(organisation, &domain.name).await?;
        }
        tracing::info!(name = %domain.name, verified = domain.verified_at.is_some(), "domain added");
        Ok((domain, lookup))
    }

    /// Admits a name that another organisation has or had. Only the record of this organisation admits it, so that
    /// nobody takes a forgotten alias over. A present owner keeps the name while its own record is there.
    async fn take_domain_over(
        &self,
        organisation: AccountId,
        name: &DomainName,
        finding: Finding,
    ) -> Result<(), ApiError> {
        let refused = |detail: String| Err(ApiError::new(StatusCode::CONFLICT, "domain-taken", detail));
        let place = proof_names(name).swap_remove(0);
        if finding != Finding::Present {
            let value = self.domain_proof(organisation);
            return refused(format!(
                "{name} is or was a domain of another organisation: to show that it is yours now, set the TXT record \
                 {place} to \"{value}\" and try again"
            ));
        }
        let Some(held) = self.store.verified_domain(name).await? else { return Ok(()) };
        if held.organisation == organisation {
            return Ok(());
        }
        let theirs = self.look_domain_up(held.organisation, name).await;
        if theirs.finding != Finding::Missing {
            let mut detail = format!(
                "{name} is a domain of another organisation, whose TXT record is still there: remove it from {} and \
                 try again",
                theirs.place.as_deref().unwrap_or(&place)
            );
            if self.zone_above(organisation, name.as_str()).await?.is_some() {
                detail.push_str(&format!("; `sallyport zone rm {name}` removes a zone of theirs below yours"));
            }
            return refused(detail);
        }
        let now = self.clock.now().unix_seconds;
        let lapsed = DomainCheck {
            verified_at: None,
            missing_since: None,
            checked_at: now,
            problem: Some("another organisation has proved the name".to_owned()),
            check_at: Ownership::default().check_at(now),
        };
        self.store.check_domain(held.id, &lapsed).await?;
        self.drop_foreign_imports(held.organisation).await?;
        if let Some(socket) = held.socket {
            self.publish(socket).await?;
        }
        tracing::info!(%name, "a domain has another organisation now");
        Ok(())
    }

    /// Looks the record of a domain up, and stores the result. Edges have the change when this returns.
    pub(crate) async fn check_domain(&self, domain: &StoredDomain) -> Result<(StoredDomain, DomainLookup), ApiError> {
        let lookup = self.look_domain_up(domain.organisation, &domain.name).await;
        let now = self.clock.now().unix_seconds;
        if domain.verified_at.is_none()
            && lookup.finding == Finding::Present
            && let Err(refused) = self.take_domain_over(domain.organisation, &domain.name, lookup.finding).await
        {
            let refusal = DomainCheck {
                verified_at: None,
                missing_since: None,
                checked_at: now,
                problem: Some(refused.sentence().to_owned()),
                check_at: Ownership::default().check_at(now),
            };
            self.store.check_domain(domain.id, &refusal).await?;
            return Err(refused);
        }
        let ownership = Ownership { verified_at: domain.verified_at, missing_since: domain.missing_since };
        let after = ownership.after(lookup.finding, now);
        let check = DomainCheck {
            verified_at: after.verified_at,
            missing_since: after.missing_since,
            checked_at: now,
            problem: lookup.problem.clone(),
            check_at: after.check_at(now),
        };
        let checked = match self.store.check_domain(domain.id, &check).await {
            Ok(checked) => checked.ok_or_else(|| ApiError::not_found("domain"))?,
            Err(error @ StoreError::DomainTaken { .. }) => return Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        if checked.verified_at.is_some() != domain.verified_at.is_some() {
            let verified = checked.verified_at.is_some();
            tracing::info!(name = %checked.name, verified, "the state of a domain has changed");
            if let Some(socket) = checked.socket {
                self.publish(socket).await?;
            }
            if verified {
                self.drop_names_of_others(checked.organisation, &checked.name).await?;
            } else {
                self.drop_foreign_imports(checked.organisation).await?;
            }
            self.names_changed.notify_one();
        }
        if lookup.leads_here == Some(true) && self.store.look_at_certificate(&checked.name, now).await? {
            self.names_changed.notify_one();
        }
        Ok((checked, lookup))
    }

    /// The sockets to which these domains lead and which have no service now. A new socket may take a domain from these
    /// alone: an edit of a socket moves any.
    pub(super) async fn idle_holders(
        &self,
        organisation: AccountId,
        names: &[DomainName],
    ) -> Result<Vec<SocketId>, ApiError> {
        let mut idle = Vec::new();
        for name in names {
            let holder = self.store.domain(organisation, name).await?.and_then(|domain| domain.socket);
            let has_service = |route: &sallyport_model::SocketRoute| {
                !route.origins.is_empty() || route.tunnels.iter().any(|tunnel| self.directory.get(tunnel.id).is_some())
            };
            idle.extend(holder.filter(|id| !self.routes.get(*id).is_some_and(|route| has_service(&route))));
        }
        Ok(idle)
    }

    /// The zones and certificates of an organisation.
    pub(super) async fn names_of(&self, organisation: AccountId) -> Result<OwnedNames, ApiError> {
        let zones = self.store.zones().await?.into_iter().filter(|zone| zone.organisation == Some(organisation));
        let certificates = self.store.certificates_of(Some(organisation)).await?;
        Ok(OwnedNames { zones: zones.collect(), certificates: certificates.iter().map(|row| row.id).collect() })
    }

    /// Takes zones and certificates away from edges, after they were removed from the store.
    pub(super) async fn unpublish_names(&self, names: OwnedNames) -> Result<(), ApiError> {
        for id in names.certificates {
            self.certificates.remove(id);
        }
        for zone in names.zones {
            self.unpublish_zone(zone.id).await;
            self.renew_parent_serial(&zone.apex).await?;
        }
        self.names_changed.notify_one();
        Ok(())
    }

    /// Removes a domain of the organisation; edges know it when this returns.
    pub(crate) async fn delete_domain(&self, organisation: AccountId, text: &str) -> Result<(), ApiError> {
        let found = self.find_domain(organisation, text).await?;
        audit::set_target(&found.name);
        let zone = self.store.zone(found.name.as_str()).await?;
        if zone.is_some_and(|zone| zone.organisation == Some(organisation)) {
            let name = &found.name;
            let detail = format!("there is a zone {name}: remove it first with `sallyport zone rm {name}`");
            return Err(ApiError::new(StatusCode::CONFLICT, "has-zone", detail));
        }
        let Some(gone) = self.store.delete_domain(organisation, &found.name).await? else {
            return Err(ApiError::not_found("domain"));
        };
        if let Some(socket) = gone.socket {
            self.publish(socket).await?;
        }
        self.drop_foreign_imports(organisation).await?;
        self.names_changed.notify_one();
        tracing::info!(name = %gone.name, "domain removed");
        Ok(())
    }

    /// The names in a request for a socket.
    pub(super) fn socket_domains(
        &self,
        socket_type: SocketType,
        texts: Option<&[String]>,
    ) -> Result<Option<Vec<DomainName>>, ApiError> {
        let Some(texts) = texts else { return Ok(None) };
        if !(texts.is_empty() || socket_type.is_http() || socket_type == SocketType::Tls) {
            let detail = "a domain leads to http, https and tls sockets: clients of tcp and udp sockets send no name";
            return Err(ApiError::field("domains", detail));
        }
        if texts.len() > MAX_DOMAINS_PER_SOCKET {
            return Err(ApiError::field("domains", format!("a socket has at most {MAX_DOMAINS_PER_SOCKET} domains")));
        }
        let mut names = texts.iter().map(|text| self.domain_name("domains", text)).collect::<Result<Vec<_>, _>>()?;
        names.sort_unstable();
        names.dedup();
        Ok(Some(names))
    }

    /// Refuses names that are no verified domains of the organisation. A domain that is not verified yet is looked up
    /// now.
    pub(super) async fn check_socket_domains(
        &self,
        organisation: AccountId,
        names: &[DomainName],
    ) -> Result<(), ApiError> {
        for name in names {
            let known = self.store.domain(organisation, name).await?;
            let found = match known {
                Some(known) if known.verified_at.is_none() => Some(self.check_domain(&known).await?.0),
                other => other,
            };
            match found {
                Some(found) if found.verified_at.is_some() => {}
                Some(found) => {
                    let why = found.problem.unwrap_or_else(|| "its record was not found".to_owned());
                    let detail = format!(
                        "{name} is not verified: {why}; `sallyport domain show {}` has the records to set",
                        in_shell(name)
                    );
                    return Err(ApiError::new(StatusCode::CONFLICT, "domain-not-verified", detail));
                }
                None => {
                    let owner = self.store.domain_owner(name).await?;
                    let detail = if owner.is_some_and(|owner| owner != organisation) {
                        format!("{name} is or was a domain of another organisation: add it to yours first")
                    } else {
                        format!(
                            "{name} is not a domain of this organisation: add it with `sallyport domain add {}`",
                            in_shell(name)
                        )
                    };
                    return Err(ApiError::new(StatusCode::CONFLICT, "domain-not-verified", detail));
                }
            }
        }
        Ok(())
    }

    /// Leads domains to a socket, and publishes the sockets that had them before. The caller publishes the socket.
    pub(super) async fn lead_domains(
        &self,
        organisation: AccountId,
        socket: SocketId,
        names: &[DomainName],
    ) -> Result<(), ApiError> {
        for former in self.store.set_socket_domains(organisation, socket, names).await? {
            self.publish(former).await?;
        }
        self.names_changed.notify_one();
        Ok(())
    }

    /// Looks up the records of the domains that are due, all at once. Gives how many those were.
    pub(crate) async fn check_due_domains(&self, limit: u32) -> Result<usize, ApiError> {
        let now = self.clock.now().unix_seconds;
        let due = self.store.due_domains(now, now.saturating_add(CHECK_EVERY_SECONDS), limit).await?;
        let (count, mut checks) = (due.len(), JoinSet::new());
        for domain in due {
            let app = self.clone();
            checks.spawn(async move {
                if let Err(error) = app.check_domain(&domain).await {
                    tracing::warn!(name = %domain.name, error = error.sentence(), "a domain could not be checked");
                }
            });
        }
        while checks.join_next().await.is_some() {}
        Ok(count)
    }
}

/// Looks for a text at several names, at once and within [`LOOKUP_TIMEOUT`]. Gives the nearest name that has it, or
/// what was found and a sentence.
async fn look_proof_up(resolver: &Resolver, value: String, places: Vec<String>) -> Result<String, (Finding, String)> {
    let mut lookups = JoinSet::new();
    for (number, place) in places.iter().cloned().enumerate() {
        let resolver = resolver.clone();
        lookups.spawn(async move { (number, resolver.txt(&place).await) });
    }
    let mut failure: Option<String> = None;
    let (mut found, mut others) = (None::<usize>, Vec::new());
    let all = async {
        while let Some(Ok((number, answer))) = lookups.join_next().await {
            match answer {
                Ok(texts) if texts.iter().any(|text| text.trim() == value) => {
                    found = Some(found.map_or(number, |known| known.min(number)));
                }
                Ok(texts) => others.extend(texts),
                Err(error) => failure = failure.take().or(Some(error.to_string())),
            }
        }
    };
    let is_in_time = tokio::time::timeout(LOOKUP_TIMEOUT, all).await.is_ok();
    if let Some(place) = found {
        return Ok(places[place].clone());
    }
    let place = &places[0];
    if !is_in_time {
        failure = failure.or_else(|| Some(format!("the name service did not answer for {place} in time")));
    }
    if let Some(failure) = failure {
        return Err((Finding::Unknown, failure));
    }
    // Of several other texts, the one that is most like ours.
    let other = others.iter().find(|text| text.starts_with("sallyport-domain=")).or_else(|| others.first());
    let problem = match other {
        Some(other) => {
            let other: String = other.chars().filter(|c| !c.is_control()).take(80).collect();
            format!("the TXT record of {place} is \"{other}\", and should be \"{value}\"")
        }
        None => format!("{place} has no TXT record"),
    };
    Err((Finding::Missing, problem))
}
