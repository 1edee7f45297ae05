//! What a socket's owner has set, in the form in which it is asked on every arrival: made once for each change of the
//! route.

use std::{net::IpAddr, sync::Arc};

use sallyport_balance::{Weight, maglev::Maglev};
use sallyport_geo::Geo;
use sallyport_model::{Affinity, OriginRef, SocketRoute};
use sallyport_policy::{AccessList, CompiledList, Rule, RuleError};

use crate::{
    config::AffinityKey,
    origins::{
        affinity::origin_id,
        health::Probe,
        http::forwarding::{Forwarding, Group},
        pool::PoolContext,
    },
    policy::judge::Judge,
};

/// The rules of one socket.
#[derive(Debug)]
pub(crate) struct Rules {
    route: Arc<SocketRoute>,
    access: Access,
    judge: Option<Judge>,
    stickiness: Stickiness,
    probe: Option<Arc<Probe>>,
    forwarding: Option<Box<Forwarding>>,
}

/// Whether a client comes back to the same origin.
#[derive(Debug)]
pub(crate) enum Stickiness {
    /// It does not.
    None,
    /// By a cookie.
    Cookie,
    /// By its address, with this table of all the origins that the socket has, whether they are up or not.
    Address(Box<Maglev>),
}

/// From where clients may come.
#[derive(Debug)]
enum Access {
    /// From everywhere.
    Everyone,
    /// From where the list says.
    Listed(CompiledList),
    /// From nowhere: the list cannot be kept to, and nobody may slip through.
    Nobody,
}

impl Rules {
    /// The rules that this route says.
    pub(crate) fn new(route: Arc<SocketRoute>, shared: &PoolContext) -> Self {
        let access = Access::of(&route, shared.geo.as_deref());
        let judge = Judge::of(&route, shared.geo.as_deref(), shared.knows_identities);
        let stickiness = Stickiness::of(&route, &shared.key);
        let probe = Probe::of(&route, &shared.domain).map(Arc::new);
        let forwarding = Forwarding::of(&route);
        Self { route, access, judge, stickiness, probe, forwarding }
    }

    /// Whether they were made of this very route.
    pub(crate) fn are_of(&self, route: &Arc<SocketRoute>) -> bool {
        Arc::ptr_eq(&self.route, route)
    }

    /// The route.
    pub(crate) fn route(&self) -> &SocketRoute {
        &self.route
    }

    /// Who may come, where that is more than a matter of the access list.
    pub(crate) fn judge(&self) -> Option<&Judge> {
        self.judge.as_ref()
    }

    /// What its origins are asked, when anything.
    pub(crate) fn probe(&self) -> Option<&Arc<Probe>> {
        self.probe.as_ref()
    }

    /// What is changed of requests and their answers, when anything.
    pub(crate) fn forwarding(&self) -> Option<&Forwarding> {
        self.forwarding.as_deref()
    }

    /// The origins that serve the same paths as this one.
    pub(crate) fn group_of(&self, origin: OriginRef) -> Group {
        self.forwarding().and_then(|forwarding| forwarding.group_of(origin)).unwrap_or_default()
    }

    /// Whether a client comes back to the same origin.
    pub(crate) fn stickiness(&self) -> &Stickiness {
        &self.stickiness
    }

    /// Whether a client of this address may come in. Its country and system are looked up where a rule asks for them.
    pub(crate) fn admit(&self, client: IpAddr, geo: Option<&Geo>) -> bool {
        match &self.access {
            Access::Everyone => true,
            Access::Listed(list) => {
                let country = geo.filter(|_| list.needs_country()).and_then(|geo| geo.country(client));
                let asn = geo.filter(|_| list.needs_asn()).and_then(|geo| geo.asn(client));
                list.decide(client, country, asn).allowed
            }
            Access::Nobody => false,
        }
    }
}

impl Stickiness {
    fn of(route: &SocketRoute, key: &AffinityKey) -> Self {
        match route.settings.affinity {
            Affinity::None => Self::None,
            Affinity::Cookie => Self::Cookie,
            Affinity::Address => {
                let weight = |weight| Weight::new(weight).unwrap_or_default();
                let tunnels = route.tunnels.iter().map(|tunnel| (origin_id(tunnel.id.into()), weight(tunnel.weight)));
                let direct = route.origins.iter().map(|origin| (origin_id(origin.id.into()), weight(origin.weight)));
                let origins: Vec<_> = tunnels.chain(direct).collect();
                // A socket has fewer origins than a table takes.
                Maglev::new(key.hash_key(), &origins).map_or(Self::None, |table| Self::Address(Box::new(table)))
            }
        }
    }
}

impl Access {
    fn of(route: &SocketRoute, geo: Option<&Geo>) -> Self {
        let rules = &route.settings.access;
        if rules.is_empty() {
            return Self::Everyone;
        }
        let parse = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Rule>, RuleError>>();
        let list = parse(&rules.allow).and_then(|allow| Ok(AccessList { allow, deny: parse(&rules.deny)? }));
        let reason = match list.map(|list| list.compile()) {
            Ok(Ok(list)) if list.needs_country() && !geo.is_some_and(Geo::has_country) => {
                "it asks for countries, and there is no database of these (--geoip-country)".to_owned()
            }
            Ok(Ok(list)) if list.needs_asn() && !geo.is_some_and(Geo::has_asn) => {
                "it asks for autonomous systems, and there is no database of these (--geoip-asn)".to_owned()
            }
            Ok(Ok(list)) => return Self::Listed(list),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(socket = %route.id, reason, "a socket's access list cannot be kept to: it lets nobody in");
        Self::Nobody
    }
}
