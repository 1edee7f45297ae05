//! Policies: making, changing, attaching and testing them.

use std::net::{IpAddr, Ipv4Addr};

use http::StatusCode;
use sallyport_api::{CreatePolicy, Policy, PolicyPlace, PolicyTest, RuleTested, TestPolicy, UpdatePolicy};
use sallyport_model::{AccountId, AttachedPolicy, IdentitySettings, PolicyId, SocketRoute, SocketType};
use sallyport_policy::{Asn, DecidedBy, Document, InlineAllow, PersonView, PolicyRequest, PolicySet};
use sallyport_store::{Attachment, NewPolicy, PolicyChange};

use crate::{clock::date, config::AddressDatabases, problem::ApiError, security::random, state::App};

/// How many policies apply to one socket.
const MAX_POLICIES_PER_SOCKET: usize = 20;
/// The size of all policies of a socket, in bytes: edges keep them in memory for every socket.
const MAX_SOCKET_DOCUMENTS_BYTES: usize = 64 * 1024;
/// How many sockets an error names.
const MAX_NAMED_SOCKETS: usize = 5;
/// The longest text in a test of a policy, in bytes.
const MAX_TEST_TEXT_BYTES: usize = 8_192;

/// The change of a policy at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachmentChange {
    Attach,
    Detach,
}

impl App {
    /// The policy in the form of the API.
    pub(crate) fn policy_to_api(&self, policy: sallyport_store::Policy) -> Result<Policy, ApiError> {
        Ok(Policy {
            id: policy.id,
            name: policy.name,
            document: Document::parse(&policy.document).map_err(ApiError::internal)?,
            labels: policy.labels,
            everywhere: policy.everywhere,
            sockets: policy.sockets,
            created_at: date(policy.created_at),
            updated_at: date(policy.updated_at),
        })
    }

    /// The id of the organisation's policy with this id or name.
    async fn policy_id(&self, organisation: AccountId, id_or_name: &str) -> Result<Option<PolicyId>, ApiError> {
        if let Ok(id) = id_or_name.parse() {
            return Ok(Some(id));
        }
        let Ok(name) = id_or_name.parse() else { return Ok(None) };
        Ok(self.store.policy_named(organisation, &name).await?)
    }

    /// The organisation's policy with this id or name.
    pub(crate) async fn find_policy(
        &self,
        organisation: AccountId,
        id_or_name: &str,
    ) -> Result<sallyport_store::Policy, ApiError> {
        let found = match self.policy_id(organisation, id_or_name).await? {
            Some(id) => self.store.policy(organisation, id).await?,
            None => None,
        };
        found.ok_or_else(|| ApiError::not_found("policy"))
    }

    /// The ids of the policies for a new socket.
    pub(crate) async fn policies_of_new(
        &self,
        organisation: AccountId,
        names: &[String],
    ) -> Result<Vec<PolicyId>, ApiError> {
        if names.len() > MAX_POLICIES_PER_SOCKET {
            let detail = format!("a socket has at most {MAX_POLICIES_PER_SOCKET} policies");
            return Err(ApiError::field("policies", detail));
        }
        let mut ids = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let found = match self.policy_id(organisation, name).await? {
                Some(id) => self.store.policy(organisation, id).await?,
                None => None,
            };
            let unknown = || ApiError::field(&format!("policies[{at}]"), "there is no policy of this name");
            ids.push(found.ok_or_else(unknown)?.id);
        }
        Ok(ids)
    }

    /// Makes a policy, attached to nothing.
    pub(crate) async fn create_policy(
        &self,
        organisation: AccountId,
        create: CreatePolicy,
    ) -> Result<Policy, ApiError> {
        let now = self.clock.now();
        self.limits.create(organisation, now.monotonic)?;
        check_document(&create.document, now.unix_seconds, self.config.databases)?;
        let new = NewPolicy {
            id: PolicyId::from_random(random::bytes()?),
            organisation,
            name: create.name,
            document: create.document.to_json(),
            labels: create.labels,
            created_at: now.unix_seconds,
        };
        self.store.create_policy(&new).await?;
        tracing::info!(%organisation, policy = %new.id, name = %new.name, "policy created");
        self.policy_to_api(self.find_policy(organisation, &new.id.to_string()).await?)
    }

    /// Changes a policy; when this returns, edges know it.
    pub(crate) async fn update_policy(
        &self,
        organisation: AccountId,
        id_or_name: &str,
        update: UpdatePolicy,
    ) -> Result<Policy, ApiError> {
        let now = self.clock.now().unix_seconds;
        let UpdatePolicy { name, document, labels, force } = update;
        if let Some(document) = &document {
            check_document(document, now, self.config.databases)?;
        }
        let document = document.map(|document| document.to_json());
        let labels = labels.map(Option::unwrap_or_default);
        let change = PolicyChange { name, document, labels, now, ..PolicyChange::default() };
        self.change_policy(organisation, id_or_name, change, force).await
    }

    /// Attaches or detaches a policy; when this returns, edges know it.
    pub(crate) async fn place_policy(
        &self,
        organisation: AccountId,
        id_or_name: &str,
        place: PolicyPlace,
        change: AttachmentChange,
    ) -> Result<Policy, ApiError> {
        let attachment = match (&place.socket, place.everywhere) {
            (Some(socket), false) => Attachment::Socket(self.find_socket(organisation, socket).await?.id),
            (None, true) => Attachment::Everywhere,
            _ => return Err(ApiError::field("socket", "give either a socket, or everywhere: true")),
        };
        let now = self.clock.now().unix_seconds;
        let (attach, detach) = match change {
            AttachmentChange::Attach => (Some(attachment), None),
            AttachmentChange::Detach => (None, Some(attachment)),
        };
        let change = PolicyChange { attach, detach, now, ..PolicyChange::default() };
        self.change_policy(organisation, id_or_name, change, place.force).await
    }

    /// Deletes a policy that is attached to nothing.
    pub(crate) async fn delete_policy(&self, organisation: AccountId, id_or_name: &str) -> Result<(), ApiError> {
        let policy = self.find_policy(organisation, id_or_name).await?;
        if !self.store.delete_policy(organisation, policy.id).await? {
            return Err(ApiError::not_found("policy"));
        }
        tracing::info!(%organisation, policy = %policy.id, name = %policy.name, "policy deleted");
        Ok(())
    }

    async fn change_policy(
        &self,
        organisation: AccountId,
        id_or_name: &str,
        change: PolicyChange,
        force: bool,
    ) -> Result<Policy, ApiError> {
        let id = self.find_policy(organisation, id_or_name).await?.id;
        let check = |before: &[SocketRoute], after: &[SocketRoute]| self.check_sockets(before, after, force);
        let changed = self.store.change_policy(organisation, id, change, check).await?;
        let changed = changed.ok_or_else(|| ApiError::not_found("policy"))?;
        self.publish_organisation(organisation).await?;
        tracing::info!(%organisation, policy = %id, name = %changed.name, "policy changed");
        self.policy_to_api(changed)
    }

    /// Refuses changes that exceed a bound. Unless forced, also refuses changes that open a socket to everyone or close
    /// it to everyone.
    fn check_sockets(&self, before: &[SocketRoute], after: &[SocketRoute], force: bool) -> Result<(), ApiError> {
        let (mut opened, mut closed) = (Vec::new(), Vec::new());
        for (before, after) in before.iter().zip(after).filter(|(before, after)| before.policies != after.policies) {
            check_bounds(&after.policies)?;
            let set = |route| PolicySet::of_route(route).unwrap_or_else(|_| PolicySet::deny_all());
            let (was, is) = (set(before), set(after));
            if is.is_open() && !was.is_open() && after.basic_auth.is_none() {
                opened.push(self.dns_name(&after.name));
            }
            if !is.can_admit() && was.can_admit() {
                closed.push(self.dns_name(&after.name));
            }
        }
        if force {
            return Ok(());
        }
        let refused = |code, detail| Err(ApiError::new(StatusCode::CONFLICT, code, detail));
        if !opened.is_empty() {
            let detail = format!(
                "nothing else limits access, so this would open {} to every client: set identity there or attach \
                 another policy first; with force it is done all the same",
                some_of(&opened)
            );
            return refused("opens-sockets", detail);
        }
        if !closed.is_empty() {
            let detail = format!(
                "{} would deny every client then: no rule would allow a client, or only rules about people, which a \
                 socket without identity cannot apply; set identity there or add a rule that allows; with force it \
                 is done all the same",
                some_of(&closed)
            );
            return refused("closes-sockets", detail);
        }
        Ok(())
    }

    /// Tests a policy, rules or a socket against a client.
    pub(crate) async fn test_policy(&self, organisation: AccountId, test: TestPolicy) -> Result<PolicyTest, ApiError> {
        let given = [test.policy.is_some(), test.document.is_some(), test.socket.is_some()];
        if given.into_iter().filter(|given| *given).count() != 1 {
            return Err(ApiError::field("policy", "give one of policy, document and socket"));
        }
        let (mut http, mut port) = (true, 443);
        let unreadable = |error: sallyport_policy::PolicyError| ApiError::field("document", error.reason);
        let alone = |name: &str, document: &str| {
            PolicySet::compile(&[(name, document)], &InlineAllow::default(), false).map_err(unreadable)
        };
        let set = if let Some(socket) = &test.socket {
            let socket = self.find_socket(organisation, socket).await?;
            http = socket.socket_type.is_http();
            port = socket.port.filter(|_| socket.socket_type != SocketType::Tls).unwrap_or(self.config.public_port);
            let route = self.store.route(socket.id).await?.ok_or_else(|| ApiError::not_found("socket"))?;
            PolicySet::of_route(&route).unwrap_or_else(|_| PolicySet::deny_all())
        } else if let Some(policy) = &test.policy {
            let policy = self.find_policy(organisation, policy).await?;
            alone(policy.name.as_str(), &policy.document)?
        } else {
            alone("tested", &test.document.as_ref().map(Document::to_json).unwrap_or_default())?
        };
        let groups_stated = match &test.provider {
            Some(name) => {
                let provider = self.store.provider(organisation, name).await?;
                provider.is_none_or(|provider| provider.config.states_groups())
            }
            None => true,
        };
        answer(&set, &test, groups_stated, self.clock.now().unix_seconds, (http, port))
    }
}

/// Evaluates the set for the client of the test.
fn answer(
    set: &PolicySet,
    test: &TestPolicy,
    groups_stated: bool,
    now: i64,
    (http, port): (bool, u16),
) -> Result<PolicyTest, ApiError> {
    if test.email.is_some() && test.service_token.is_some() {
        return Err(ApiError::field("service_token", "no client is a person and a service token at once"));
    }
    if test.email.is_none() && (!test.groups.is_empty() || test.provider.is_some()) {
        return Err(ApiError::field("email", "groups and a provider belong to a person: give an email"));
    }
    if test.address.is_none() && set.has_places() && (test.country.is_none() && test.asn.is_none()) {
        return Err(ApiError::field(
            "address",
            "a rule needs the place of the client: give an address, country or asn",
        ));
    }
    for (field, text) in [("path", &test.path), ("method", &test.method), ("service_token", &test.service_token)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_TEST_TEXT_BYTES) {
            return Err(ApiError::field(field, format!("it has at most {MAX_TEST_TEXT_BYTES} bytes")));
        }
    }
    let country = test.country.as_deref().map(str::parse).transpose();
    let provider = test.provider.as_ref().map_or("", |provider| provider.as_str());
    let person = test.email.as_ref().map(|email| PersonView {
        email: email.as_str(),
        domain: email.domain(),
        groups: &test.groups,
        groups_stated: groups_stated || !test.groups.is_empty(),
        provider,
    });
    let question = PolicyRequest {
        now_unix: test.at.map_or(now, time::OffsetDateTime::unix_timestamp),
        address: test.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        country: country.map_err(|error| ApiError::field("country", error))?,
        asn: test.asn.and_then(Asn::new),
        person,
        service: test.service_token.as_deref(),
        method: test.method.as_deref().or(http.then_some("GET")),
        path: test.path.as_deref().or(http.then_some("/")),
        port: test.port.unwrap_or(port),
    };
    let decision = set.decide(&question);
    let (policy, rule) = match decision.by {
        DecidedBy::Rule { policy, rule, .. } => (Some(policy.to_owned()), Some(rule.to_owned())),
        _ => (None, None),
    };
    let rules = set.explain(&question).into_iter().map(|rule| RuleTested {
        policy: rule.policy.to_owned(),
        rule: rule.rule.to_owned(),
        unmet: rule.unmet.map(|unmet| unmet.as_str().to_owned()),
    });
    Ok(PolicyTest { allowed: decision.allowed, by: decision.by.to_string(), policy, rule, rules: rules.collect() })
}

/// Refuses rules that can never match, and rules that need a missing address database.
fn check_document(document: &Document, now: i64, databases: AddressDatabases) -> Result<(), ApiError> {
    let refused = |error: &dyn std::fmt::Display| ApiError::field("document", error);
    document.check(now).map_err(|error| refused(&error))?;
    // Measured as stored: numbers and escapes of the request may be longer or shorter.
    let json = document.to_json();
    Document::parse(&json).map_err(|error| refused(&error))?;
    let alone = PolicySet::compile(&[("", json)], &InlineAllow::default(), false);
    let alone = alone.map_err(|error| refused(&error.reason))?;
    for (is_missing, what, option) in [
        (alone.needs_country() && !databases.country, "country", "--geoip-country"),
        (alone.needs_asn() && !databases.asn, "asn", "--geoip-asn"),
    ] {
        if is_missing {
            let detail =
                format!("this server cannot determine the {what} of a client: it was started without {option}");
            return Err(refused(&detail));
        }
    }
    Ok(())
}

fn check_bounds(policies: &[AttachedPolicy]) -> Result<(), ApiError> {
    let bytes: usize = policies.iter().map(|policy| policy.document.len()).sum();
    let detail = if policies.len() > MAX_POLICIES_PER_SOCKET {
        format!("no more than {MAX_POLICIES_PER_SOCKET} policies concern one socket: join some of them")
    } else if bytes > MAX_SOCKET_DOCUMENTS_BYTES {
        format!(
            "the policies that concern one socket have at most {MAX_SOCKET_DOCUMENTS_BYTES} bytes together, and these \
             would have {bytes}"
        )
    } else {
        return Ok(());
    };
    Err(ApiError::new(StatusCode::CONFLICT, "limit-reached", detail))
}

/// Refuses a socket that would deny every client.
pub(super) fn check_some_client_is_admitted(
    policies: &[AttachedPolicy],
    identity: Option<&IdentitySettings>,
) -> Result<(), ApiError> {
    check_bounds(policies)?;
    let set = PolicySet::of(policies, identity).map_err(|error| ApiError::field("policies", error))?;
    if set.can_admit() {
        return Ok(());
    }
    let names = policies.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>().join(", ");
    Err(match (identity.is_some(), policies.is_empty()) {
        (true, true) => ApiError::field(
            "identity",
            "every client would be denied: give email_addresses or email_domains, or policies that allow a client",
        ),
        (true, false) => {
            let detail = format!(
                "every client would be denied: the policies that concern the socket ({names}) only deny; give \
                 email_addresses or email_domains, or a policy that allows a client"
            );
            ApiError::field("identity", detail)
        }
        (false, _) => {
            let detail = format!(
                "every client would be denied: the policies that concern the socket ({names}) allow no client without \
                 a login, or deny people, whom only a login identifies; set identity, or attach policies without \
                 conditions on people"
            );
            ApiError::field("identity", detail)
        }
    })
}

/// Notes that people cannot log in yet if the organisation has no provider and the socket would admit some of them.
/// Until a provider is added, no person enters.
pub(super) fn note_on_logins(
    policies: &[AttachedPolicy],
    identity: Option<&IdentitySettings>,
    lacks_provider: bool,
) -> Option<String> {
    let people = |identity: &IdentitySettings| {
        !(identity.email_addresses.is_empty() && identity.email_domains.is_empty())
            || policies.iter().any(|policy| Document::allows_people(&policy.document))
    };
    let waits = lacks_provider && identity.is_some_and(people);
    let note = "nobody can log in yet: the organisation has no identity provider; `sallyport provider add` adds one";
    waits.then(|| note.to_owned())
}

/// The first of these names, as many as fit into a sentence.
pub(super) fn some_of(names: &[String]) -> String {
    let more = names.len().saturating_sub(MAX_NAMED_SOCKETS);
    let named = names.iter().take(MAX_NAMED_SOCKETS).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_need_an_absent_database_are_refused() {
        for (place, option) in [("country:CH", "--geoip-country"), ("asn:64500", "--geoip-asn")] {
            let json = format!(r#"{{"allow":[{{"where":["192.0.2.0/24","{place}"]}}]}}"#);
            let document = Document::parse(&json).unwrap();
            let both = AddressDatabases { country: true, asn: true };
            assert!(check_document(&document, 0, both).is_ok());
            let says = check_document(&document, 0, AddressDatabases::default()).unwrap_err();
            assert!(says.sentence().contains(option), "{}", says.sentence());
        }
    }

    #[test]
    fn a_refusal_names_a_few_sockets() {
        let names: Vec<String> = (0..7).map(|n| format!("s{n}")).collect();
        assert_eq!(some_of(&names), "s0, s1, s2, s3, s4 and 2 more");
        assert_eq!(some_of(&names[..2]), "s0, s1");
    }
}
