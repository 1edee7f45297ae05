//! The configuration of control, and of the edges that join, from the options of `sallyport control`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sallyport_anycast::model::AllowList;
use sallyport_api::{EdgeBootstrap, Secret};
use sallyport_bus::{Asker, BusCredentials};
use sallyport_control::{
    AddressDatabases, ControlConfig, DNS_STEERING_EVERY, Reach, SETUP_TOKEN_FILE, Secrets, SignUp,
    default_ports_per_account,
};
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_policy::DialedNetworks;
use sallyport_ports::LeaseTimes;
use sallyport_store::HolderId;

use super::ControlArgs;
use crate::{
    args::server::{SignUpChoice, is_of_this_machine},
    failure::Failure,
};

/// Control's configuration from options. The caller adds the parts that need opening.
pub(super) fn of_control(args: &ControlArgs, geo: Option<Arc<Geo>>) -> ControlConfig {
    let sign_up = match args.sign_up {
        Some(SignUpChoice::Open) => SignUp::Open,
        _ => SignUp::Closed,
    };
    ControlConfig {
        id: HolderId::default(),
        domain: args.domain.clone(),
        site: Site::of_domain(&args.domain),
        public_port: args.public_port,
        tunnel_host: format!("tunnel.{}", args.domain),
        quic_port: args.quic_port,
        ca_pem: None,
        ca_fingerprint: None,
        sign_up,
        port_range: args.port_range.0.clone(),
        ports_per_account: default_ports_per_account(&args.port_range.0),
        requires_amplification_guard: false,
        ssh: None,
        ssh_authority: None,
        direct_origins: DialedNetworks::new(args.direct_origins.clone()),
        databases: AddressDatabases {
            country: geo.as_ref().is_some_and(|geo| geo.has_country()),
            asn: geo.as_ref().is_some_and(|geo| geo.has_asn()),
        },
        provider_reach: if sign_up == SignUp::Open { Reach::Public } else { Reach::Anywhere },
        geo,
        audit: None,
        asker: Asker::default(),
        catchment_every: args.catchment.interval(),
        mail_hook: None,
        resolver: None,
        acme: None,
        has_name_server: args.name_server,
        dns_steering_every: (!args.no_dns_steering).then_some(DNS_STEERING_EVERY),
        anycast_allow: AllowList(args.anycast_allow.anycast_allow.clone()),
        egress_times: LeaseTimes::lasting(args.egress_lease),
        has_desk: !args.no_desk,
        labels: args.names.labels(),
        setup_token_file: None,
    }
}

/// The file of the setup token for the first account; `None` if the whole installation is on this machine.
pub(super) fn setup_token_file(args: &ControlArgs, listens_on: &[SocketAddr], data: &Path) -> Option<PathBuf> {
    let is_local =
        is_of_this_machine(&args.domain) && listens_on.iter().all(|address| address.ip().to_canonical().is_loopback());
    (!is_local).then(|| data.join(SETUP_TOKEN_FILE))
}

/// The configuration for edges.
pub(super) fn bootstrap(
    args: &ControlArgs,
    secrets: &Secrets,
    edges: SocketAddr,
    ca: String,
    node_ca: String,
) -> anyhow::Result<EdgeBootstrap> {
    let key = |purpose: &str| Secret::from(URL_SAFE_NO_PAD.encode(secrets.derived(purpose)));
    let controls = match args.advertise.as_slice() {
        [] if edges.ip().is_unspecified() => {
            return Err(Failure::usage("the address of this control for edges is not known")
                .next("give it with --advertise HOST:PORT, such as control.example.com:8444")
                .into());
        }
        [] => vec![edges.to_string()],
        given => given.to_vec(),
    };
    let bus_ca = args.bus.authority.as_ref().map(|path| {
        std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the authority of the bus {}", path.display()))
    });
    let (bus_user, bus_password, bus_token) = match args.bus.config_of_edges()?.credentials {
        BusCredentials::None => (None, None, None),
        BusCredentials::Password { user, password } => (Some(user), Some(Secret::from(password)), None),
        BusCredentials::Token(token) => (None, None, Some(Secret::from(token))),
    };
    let mut bootstrap = EdgeBootstrap {
        domain: args.domain.clone(),
        site_name: None,
        site_icon: None,
        has_public_names: args.acme.acme.is_some(),
        ca,
        node_ca,
        controls,
        bus: args.bus.servers.clone(),
        bus_user,
        bus_password,
        bus_token,
        bus_ca: bus_ca.transpose()?,
        ssh: None,
        seal_key: key("seal"),
        assertion_key: key("assertions"),
        affinity_key: key("affinity"),
        // Each edge has its own.
        steering_key: None,
    };
    args.site.write_into(&mut bootstrap)?;
    Ok(bootstrap)
}
