//! The settings of a socket in compiled form, made once for each change of the route.

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

/// Whether a client returns to the same origin.
#[derive(Debug)]
pub(crate) enum Stickiness {
    /// No.
    None,
    /// By a cookie.
    Cookie,
    /// By its address, with this table of all the socket's origins, up or not.
    Address(Box<Maglev>),
}

/// The compiled access list.
#[derive(Debug)]
enum Access {
    /// Every address is admitted.
    AllowAll,
    /// The list decides.
    Listed(CompiledList),
    /// No address is admitted, because the list cannot be evaluated.
    DenyAll,
}

impl Rules {
    /// The rules of this route.
    pub(crate) fn new(route: Arc<SocketRoute>, shared: &PoolContext) -> Self {
        let access = Access::of(&route, shared.geo.as_deref());
        let judge = Judge::of(&route, shared.geo.as_deref(), shared.knows_identities);
        let stickiness = Stickiness::of(&route, &shared.key);
        let probe = Probe::of(&route, &shared.domain).map(Arc::new);
        let forwarding = Forwarding::of(&route);
        Self { route, access, judge, stickiness, probe, forwarding }
    }

    /// Whether they were made of this very route object.
    pub(crate) fn are_of(&self, route: &Arc<SocketRoute>) -> bool {
        Arc::ptr_eq(&self.route, route)
    }

    /// The route.
    pub(crate) fn route(&self) -> &SocketRoute {
        &self.route
    }

    /// The identity and policies, if the socket has any.
    pub(crate) fn judge(&self) -> Option<&Judge> {
        self.judge.as_ref()
    }

    /// The health check, if any.
    pub(crate) fn probe(&self) -> Option<&Arc<Probe>> {
        self.probe.as_ref()
    }

    /// The changes of requests and responses, if any.
    pub(crate) fn forwarding(&self) -> Option<&Forwarding> {
        self.forwarding.as_deref()
    }

    /// The origins that serve the same paths as this one.
    pub(crate) fn group_of(&self, origin: OriginRef) -> Group {
        self.forwarding().and_then(|forwarding| forwarding.group_of(origin)).unwrap_or_default()
    }

    /// Whether a client returns to the same origin.
    pub(crate) fn stickiness(&self) -> &Stickiness {
        &self.stickiness
    }

    /// Whether the address of a client may decide about a request.
    pub(crate) fn look_at_addresses(&self) -> bool {
        self.judge.is_some() || !matches!(self.access, Access::AllowAll)
    }

    /// Whether the access list admits this address. Country and autonomous system are looked up only if a rule needs
    /// them.
    pub(crate) fn admit(&self, client: IpAddr, geo: Option<&Geo>) -> bool {
        match &self.access {
            Access::AllowAll => true,
            Access::Listed(list) => {
                let country = geo.filter(|_| list.needs_country()).and_then(|geo| geo.country(client));
                let asn = geo.filter(|_| list.needs_asn()).and_then(|geo| geo.asn(client));
                list.decide(client, country, asn).allowed
            }
            Access::DenyAll => false,
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
            return Self::AllowAll;
        }
        let parse = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Rule>, RuleError>>();
        let list = parse(&rules.allow).and_then(|allow| Ok(AccessList { allow, deny: parse(&rules.deny)? }));
        let reason = match list.map(|list| list.compile()) {
            Ok(Ok(list)) if list.needs_country() && !geo.is_some_and(Geo::has_country) => {
                "it names countries, and there is no database of countries (--geoip-country)".to_owned()
            }
            Ok(Ok(list)) if list.needs_asn() && !geo.is_some_and(Geo::has_asn) => {
                "it names autonomous systems, and there is no database of them (--geoip-asn)".to_owned()
            }
            Ok(Ok(list)) => return Self::Listed(list),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(socket = %route.id, reason, "the access list of a socket cannot be evaluated: no client is admitted");
        Self::DenyAll
    }
}
