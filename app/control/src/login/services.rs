//! Links to services that admit a person, for pages that would otherwise be dead ends.

use std::net::IpAddr;

use sallyport_http::page::Escaped;
use sallyport_model::{AccountId, Person, SocketType};

use super::page::ways_on;
use crate::{problem::ApiError, state::App};

/// How many services are shown.
const MAX_SHOWN_SERVICES: usize = 20;

/// A service with pages, by URL and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    url: String,
    host: String,
}

impl App {
    /// The services of an organisation that admit this person from this address, by name. Others are not shown.
    pub(super) async fn services_for(
        &self,
        organisation: AccountId,
        person: &Person,
        address: IpAddr,
    ) -> Result<Vec<Service>, ApiError> {
        let mut found = Vec::new();
        for route in self.store.routes_of(organisation).await? {
            let Some(asks) = &route.settings.identity else { continue };
            let has_pages = matches!(route.socket_type, SocketType::Http | SocketType::Https);
            let may_vouch = asks.providers.is_empty() || asks.providers.contains(&person.provider);
            if has_pages && may_vouch && self.allows_visit(&route, person, address) {
                found.push(Service { url: self.service_url(&route), host: self.dns_name(&route.name) });
            }
        }
        found.sort_by(|one, other| one.host.cmp(&other.host));
        found.truncate(MAX_SHOWN_SERVICES);
        Ok(found)
    }
}

/// Links to services: a button for one, a list for several, nothing for none.
pub(super) fn ways_to(services: &[Service], verb: &str) -> String {
    match services {
        [] => String::new(),
        [one] => ways_on(&[(&format!("{}/", one.url), &format!("{verb} {}", one.host))]),
        several => {
            let mut text = "\n<ul>".to_owned();
            for service in several {
                text.push_str(&format!(
                    "<li><a href=\"{}/\">{}</a></li>",
                    Escaped(&service.url),
                    Escaped(&service.host)
                ));
            }
            text + "</ul>"
        }
    }
}
