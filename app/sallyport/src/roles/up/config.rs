//! The configuration of the control and the edge of `sallyport up`, from its options.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sallyport_anycast::model::AllowList;
use sallyport_bus::{Asker, Bus};
use sallyport_control::{
    AddressDatabases, ControlConfig, Reach, SETUP_TOKEN_FILE, Secrets, SignUp, default_ports_per_account,
};
use sallyport_edge::{EdgeConfig, EdgeIdentity};
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_identity::{AssertionKey, Sealer};
use sallyport_policy::DialedNetworks;
use sallyport_ports::LeaseTimes;
use sallyport_store::HolderId;

use super::UpArgs;
use crate::args::server::{SignUpChoice, is_of_this_machine};

/// How long leases of slices last. Their machine is this one, whose control hears it always.
const EGRESS_LEASE: Duration = Duration::from_secs(86_400);

/// The public address of the server.
pub(super) struct Public {
    /// The address that it listens on.
    pub(super) ip: IpAddr,
    /// The port in public URLs.
    pub(super) port: u16,
}

/// Control's configuration from options. The caller adds the parts that need opening.
pub(super) fn of_control(args: &UpArgs, public: &Public, data: &Path, geo: Option<Arc<Geo>>) -> ControlConfig {
    ControlConfig {
        id: HolderId::default(),
        domain: args.domain.clone(),
        site: Site::of_domain(&args.domain),
        public_port: public.port,
        tunnel_host: format!("tunnel.{}", args.domain),
        quic_port: None,
        ca_pem: None,
        ca_fingerprint: None,
        sign_up: sign_up(args, public.ip),
        port_range: args.port_range.0.clone(),
        ports_per_account: args
            .ports_per_account
            .map_or_else(|| default_ports_per_account(&args.port_range.0), usize::from),
        requires_amplification_guard: args.require_amplification_guard,
        ssh: None,
        ssh_authority: None,
        direct_origins: DialedNetworks::new(args.direct_origins.clone()),
        databases: AddressDatabases {
            country: geo.as_ref().is_some_and(|geo| geo.has_country()),
            asn: geo.as_ref().is_some_and(|geo| geo.has_asn()),
        },
        provider_reach: provider_reach(args, public.ip),
        geo,
        audit: None,
        asker: Asker::default(),
        catchment_every: args.catchment.interval(),
        mail_hook: None,
        resolver: None,
        acme: None,
        has_name_server: args.dns.listen_dns.is_some(),
        // One machine is in no region.
        dns_steering_every: None,
        anycast_allow: AllowList(args.anycast.allow.anycast_allow.clone()),
        egress_times: LeaseTimes::lasting(EGRESS_LEASE),
        has_desk: !args.no_desk,
        labels: args.names.labels(),
        setup_token_file: setup_token_file(args, public.ip, data),
    }
}

/// The edge's configuration from options. The caller adds the parts that need opening.
pub(super) fn of_edge(args: &UpArgs, public_port: u16, geo: Option<Arc<Geo>>, affinity_key: [u8; 32]) -> EdgeConfig {
    let mut config = EdgeConfig::new(&args.domain, public_port);
    config.connect_timeout = args.connect_timeout;
    config.response_timeout = args.response_timeout;
    config.shutdown_grace = args.drain;
    config.session.keepalive = args.keepalive;
    config.session.missed_limit = args.keepalive_missed;
    config.trusted_proxies.clone_from(&args.trust_proxy);
    config.access_log = !args.no_access_log;
    config.measure_every = args.measure.interval();
    config.measure_private = args.measure.measure_private;
    config.direct_origins = DialedNetworks::new(args.direct_origins.clone());
    config.geo = geo;
    config.affinity_key = affinity_key.into();
    config.tunnel_congestion = args.tunnel_congestion.clone();
    config
}

/// The keys by which the edge identifies clients, derived from the installation's secret like those of control.
pub(super) fn identity(secrets: &Secrets, bus: &Bus) -> Option<EdgeIdentity> {
    let assertions = AssertionKey::new(secrets.derived("assertions"))?;
    let sealer = Arc::new(Sealer::new(secrets.derived("seal")));
    Some(EdgeIdentity { sealer, identities: bus.identities.clone(), assertions: Arc::new(assertions) })
}

/// Whether only this machine reaches the server.
fn is_local(args: &UpArgs, listens_on: IpAddr) -> bool {
    is_of_this_machine(&args.domain) && listens_on.to_canonical().is_loopback()
}

/// Which accounts may be made: all on a server that only this machine reaches, or if the option is given.
pub(super) fn sign_up(args: &UpArgs, listens_on: IpAddr) -> SignUp {
    match args.sign_up {
        Some(SignUpChoice::Open) => SignUp::Open,
        Some(SignUpChoice::Closed) => SignUp::Closed,
        None if is_local(args, listens_on) => SignUp::Open,
        None => SignUp::Closed,
    }
}

/// Where identity providers may be: anywhere, unless strangers can sign up from other machines.
fn provider_reach(args: &UpArgs, listens_on: IpAddr) -> Reach {
    match sign_up(args, listens_on) {
        SignUp::Open if !is_local(args, listens_on) => Reach::Public,
        SignUp::Open | SignUp::Closed => Reach::Anywhere,
    }
}

/// The file of the setup token for the first account; `None` if only this machine reaches the server.
pub(super) fn setup_token_file(args: &UpArgs, listens_on: IpAddr, data: &Path) -> Option<PathBuf> {
    (!is_local(args, listens_on)).then(|| data.join(SETUP_TOKEN_FILE))
}
