//! What is looked up before an order, so that no order fails for a reason that is known.

use sallyport_domains::{CaaRecord, CaaVerdict, caa_verdict};
use sallyport_model::DomainName;

use crate::state::App;

impl App {
    /// Reason why an order for these names would fail now: a name without an address, or a CAA record that forbids the
    /// authority. `None` if nothing is known; a silent name service says nothing.
    pub(super) async fn order_obstacle(&self, names: &[DomainName], identities: &[String]) -> Option<String> {
        let resolver = self.resolver.as_ref()?;
        for name in names {
            if !name.is_wildcard() && resolver.addresses(name.as_str()).await.is_ok_and(|found| found.is_empty()) {
                return Some(format!("{name} has no address at the name service: set its record first"));
            }
            if identities.is_empty() {
                continue;
            }
            let Ok(Some((place, records))) = resolver.caa(name.base()).await else { continue };
            let records: Vec<CaaRecord> = records
                .into_iter()
                .map(|one| CaaRecord { is_critical: one.is_critical, tag: one.tag, value: one.value })
                .collect();
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
