//! What is looked up before an order, so that no order fails for a reason that is known.

use std::sync::atomic::Ordering::Relaxed;

use sallyport_acme_schedule::ChallengeKind;
use sallyport_domains::{CaaVerdict, caa_verdict};
use sallyport_model::{DomainName, acme_alias, challenge_name};
use sallyport_resolver::LOOKUP_TIMEOUT;

use crate::state::App;

impl App {
    /// Looks whether the name service leads to our own name server for the domain of the installation. A silent name
    /// service changes nothing.
    pub(super) async fn look_at_delegation(&self) {
        let Some(resolver) = self.resolver.as_ref().filter(|_| self.config.has_name_server) else { return };
        let (name, mark) = self.zone_mark();
        if let Ok(texts) = resolver.txt(&name).await {
            let is_ours = texts.contains(&mark);
            if self.is_delegated.swap(is_ours, Relaxed) != is_ours {
                tracing::info!(domain = self.config.domain, delegated = is_ours, "the delegation of the domain");
            }
        }
    }

    /// The kinds of challenges that can prove these names, of those that the edges answer at their ports. The name
    /// server can prove names of our own zones, and names whose challenges lead to it by an alias.
    pub(super) async fn kinds_for(&self, names: &[DomainName], at_ports: &[ChallengeKind]) -> Vec<ChallengeKind> {
        let mut kinds = at_ports.to_vec();
        if self.config.has_name_server && self.is_delegated.load(Relaxed) {
            let mut all_lead_here = true;
            for name in names {
                all_lead_here &= self.leads_challenges_here(name).await;
            }
            if all_lead_here {
                kinds.push(ChallengeKind::Dns01);
            }
        }
        kinds
    }

    /// Whether a name is in a zone of our name server.
    pub(crate) fn is_in_own_zone(&self, name: &DomainName) -> bool {
        let is_ours = |apex: &str| {
            name.base() == apex || name.base().strip_suffix(apex).is_some_and(|label| label.ends_with('.'))
        };
        self.zones.all().iter().any(|zone| is_ours(&zone.apex))
    }

    /// Whether our name server answers the DNS-01 challenges of a name.
    async fn leads_challenges_here(&self, name: &DomainName) -> bool {
        if self.is_in_own_zone(name) {
            return true;
        }
        let Some(resolver) = &self.resolver else { return false };
        let alias = resolver.cname(&challenge_name(name.base())).await;
        alias.is_ok_and(|alias| alias.as_deref() == Some(acme_alias(name.base(), &self.config.domain).as_str()))
    }

    /// Reason why an order for these names would fail now: a name without an address, or a CAA record that forbids the
    /// authority. `None` if nothing is known; a silent or slow name service says nothing.
    pub(super) async fn order_obstacle(&self, names: &[DomainName], identities: &[String]) -> Option<String> {
        tokio::time::timeout(LOOKUP_TIMEOUT, self.find_obstacle(names, identities)).await.ok().flatten()
    }

    async fn find_obstacle(&self, names: &[DomainName], identities: &[String]) -> Option<String> {
        let resolver = self.resolver.as_ref()?;
        for name in names {
            if name.is_wildcard() && !self.is_delegated.load(Relaxed) {
                let domain = &self.config.domain;
                return Some(format!(
                    "a certificate for {name} needs the name server of this installation, and {domain} is not delegated \
                     to one: import a certificate"
                ));
            }
            if name.is_wildcard() && !self.leads_challenges_here(name).await {
                let (base, target) = (name.base(), acme_alias(name.base(), &self.config.domain));
                return Some(format!(
                    "a certificate for {name} needs a record of the name service: {} CNAME {target}",
                    challenge_name(base)
                ));
            }
            if !name.is_wildcard() && resolver.addresses(name.as_str()).await.is_ok_and(|found| found.is_empty()) {
                return Some(format!("{name} has no address at the name service: set its record first"));
            }
            if identities.is_empty() {
                continue;
            }
            let Ok(Some((place, records))) = resolver.caa(name.base()).await else { continue };
            if let CaaVerdict::Forbidden(record) = caa_verdict(&records, identities, name.is_wildcard()) {
                let wanted = identities.first().map(String::as_str).unwrap_or_default();
                return Some(format!(
                    "the record {place} {record} forbids the authority to sign for {name}: add one with \"{wanted}\""
                ));
            }
        }
        None
    }
}
