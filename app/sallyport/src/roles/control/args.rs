//! Options of `sallyport control`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use sallyport_model::Email;
use sallyport_policy::Network;

use crate::{
    args::{
        acme::{AcmeArgs, NameArgs},
        anycast::AnycastAllowArgs,
        audit::AuditLogArgs,
        bus::BusArgs,
        egress::lease as egress_lease,
        listen::{ListenAddress, PortRange, listen_address, port_range},
        mail::MailArgs,
        port,
        server::{CatchmentArgs, GeoArgs, SignUpChoice, domain},
        site::SiteArgs,
    },
    duration,
    installation::{KeyArgs, database::DatabaseArgs},
    runtime::telemetry::LogFormat,
};

/// Options of `sallyport control`.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The directory of the audit log; without --database also of the database and the keys
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    pub(super) data: PathBuf,
    /// The domain under which sockets get their names: two labels or more, such as tunnels.example.com
    #[arg(long, value_name = "DOMAIN", env = "SALLYPORT_DOMAIN", value_parser = domain)]
    pub(super) domain: String,
    #[command(flatten)]
    pub(super) site: SiteArgs,
    #[command(flatten)]
    pub(super) database: DatabaseArgs,
    #[command(flatten)]
    pub(super) key: KeyArgs,
    #[command(flatten)]
    pub(super) bus: BusArgs,
    /// The number of NATS servers that keep each entry: 1, or 3 in a cluster
    #[arg(long, value_name = "COUNT", env = "SALLYPORT_BUS_REPLICAS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(super) bus_replicas: u8,
    /// Where to serve the API and the login to clients that connect without an edge: ADDR:PORT or :PORT
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN", default_value = "127.0.0.1:8443")]
    #[arg(value_parser = listen_address)]
    pub(super) listen: ListenAddress,
    /// Where to serve edges: ADDR:PORT or :PORT
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_EDGES", default_value = ":8444")]
    #[arg(value_parser = listen_address)]
    pub(super) listen_edges: ListenAddress,
    /// Replace the `sallyport control` that runs on the same data directory: take over its ports without refusing a
    /// connection, and let it finish open requests
    #[arg(long)]
    pub(super) takeover: bool,
    /// How long open requests and connections may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(super) drain: Duration,
    /// Where edges reach the controls: HOST:PORT, several by commas [default: the address of --listen-edges]
    #[arg(long, value_name = "HOST:PORT", env = "SALLYPORT_ADVERTISE", value_delimiter = ',')]
    pub(super) advertise: Vec<String>,
    /// The port at which clients and connectors reach edges
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = port::parse, allow_negative_numbers = true)]
    pub(super) public_port: u16,
    /// The port at which ssh clients reach edges [default: that of --public-port]
    #[arg(
        long, value_name = "PORT", env = "SALLYPORT_SSH_PORT",
        value_parser = port::parse, allow_negative_numbers = true
    )]
    pub(super) ssh_port: Option<u16>,
    /// Let edges serve no ssh clients
    #[arg(long, conflicts_with = "ssh_port")]
    pub(super) no_ssh: bool,
    /// The UDP port at which connectors reach edges over QUIC, where edges have --listen-quic
    #[arg(
        long, value_name = "PORT", env = "SALLYPORT_QUIC_PORT",
        value_parser = port::parse, allow_negative_numbers = true
    )]
    pub(super) quic_port: Option<u16>,
    #[command(flatten)]
    pub(super) geo: GeoArgs,
    /// The lifetime of edge certificates; edges renew them after two thirds of it
    #[arg(long, value_name = "TIME", default_value = "14d", value_parser = duration::parse_long)]
    pub(super) edge_certificates: Duration,
    /// The ports for tcp, tls and udp sockets, at every edge
    #[arg(
        long, value_name = "FROM-TO", env = "SALLYPORT_PORT_RANGE", default_value = "20000-20999",
        value_parser = port_range
    )]
    pub(super) port_range: PortRange,
    /// Allow direct origins in these networks: edges dial the addresses that owners of sockets name (`sallyport socket
    /// origin add`). Loopback and link-local networks must be listed themselves [default: none]
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_DIRECT_ORIGINS", value_delimiter = ',')]
    pub(super) direct_origins: Vec<Network>,
    #[command(flatten)]
    pub(super) anycast_allow: AnycastAllowArgs,
    /// How long an edge keeps its slices of egress addresses while no beat of it reaches the bus
    #[arg(long, value_name = "TIME", env = "SALLYPORT_EGRESS_LEASE", default_value = "24h", value_parser = egress_lease)]
    pub(super) egress_lease: Duration,
    /// Who may make an account: open (everybody with access to the API) or closed (only the first) [default: closed]
    #[arg(long, value_enum, value_name = "WHO", env = "SALLYPORT_SIGN_UP", hide_possible_values = true)]
    pub(super) sign_up: Option<SignUpChoice>,
    /// The edges answer DNS for the domain and for zones of organisations: they have --listen-dns
    #[arg(long, env = "SALLYPORT_NAME_SERVER")]
    pub(super) name_server: bool,
    /// Answer DNS with the addresses of all edges, whatever was measured for the network of a client
    #[arg(long, env = "SALLYPORT_NO_DNS_STEERING")]
    pub(super) no_dns_steering: bool,
    /// Serve no desk, the dashboard at `https://desk.<domain>`
    #[arg(long, env = "SALLYPORT_NO_DESK")]
    pub(super) no_desk: bool,
    #[command(flatten)]
    pub(super) catchment: CatchmentArgs,
    #[command(flatten)]
    pub(super) mail: MailArgs,
    /// The account that owns the installation and lets edges join, by e-mail address [default: the first account]
    #[arg(long, value_name = "EMAIL", env = "SALLYPORT_OWNER")]
    pub(super) owner: Option<Email>,
    #[command(flatten)]
    pub(super) audit_log: AuditLogArgs,
    /// The format of log lines: text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub(super) log_format: LogFormat,
    // Options with a heading come last: those behind them would stand under it.
    #[command(flatten)]
    pub(super) acme: AcmeArgs,
    #[command(flatten)]
    pub(super) names: NameArgs,
}
