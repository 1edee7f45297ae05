//! What `sallyport control` can be told.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use sallyport_model::Email;
use sallyport_policy::Network;

use crate::{
    args::{
        audit::AuditLogArgs,
        bus::BusArgs,
        listen::{ListenAddress, PortRange, listen_address, port_range},
        mail::MailArgs,
        port,
        server::{GeoArgs, SignUpChoice, domain},
        site::SiteArgs,
    },
    duration,
    installation::{KeyArgs, database::DatabaseArgs},
    runtime::telemetry::LogFormat,
};

/// What `sallyport control` can be told.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Where its audit log is kept, and without --database its database and its keys too
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
    /// On how many machines of the bus each entry is kept: 1, or 3 in a cluster
    #[arg(long, value_name = "COUNT", env = "SALLYPORT_BUS_REPLICAS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(super) bus_replicas: u8,
    /// Where the API and the login are served for those who come without an edge: ADDR:PORT or :PORT
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN", default_value = "127.0.0.1:8443")]
    #[arg(value_parser = listen_address)]
    pub(super) listen: ListenAddress,
    /// Where edges come: ADDR:PORT or :PORT
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_EDGES", default_value = ":8444")]
    #[arg(value_parser = listen_address)]
    pub(super) listen_edges: ListenAddress,
    /// Replace the `sallyport control` that runs on the same data directory: take its ports over, so that no connection is
    /// refused, and let it finish what it serves
    #[arg(long)]
    pub(super) takeover: bool,
    /// How long what runs may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(super) drain: Duration,
    /// Where edges find the controls: HOST:PORT, several by commas [default: the address of --listen-edges]
    #[arg(long, value_name = "HOST:PORT", env = "SALLYPORT_ADVERTISE", value_delimiter = ',')]
    pub(super) advertise: Vec<String>,
    /// The port at which clients and connectors reach edges
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = port::parse, allow_negative_numbers = true)]
    pub(super) public_port: u16,
    /// The port at which ssh clients reach edges [default: that of --public-port]
    #[arg(long, value_name = "PORT", env = "SALLYPORT_SSH_PORT", value_parser = port::parse, allow_negative_numbers = true)]
    pub(super) ssh_port: Option<u16>,
    /// Let edges serve no ssh clients
    #[arg(long, conflicts_with = "ssh_port")]
    pub(super) no_ssh: bool,
    /// The UDP port at which connectors reach edges over QUIC, where edges have --listen-quic
    #[arg(long, value_name = "PORT", env = "SALLYPORT_QUIC_PORT", value_parser = port::parse, allow_negative_numbers = true)]
    pub(super) quic_port: Option<u16>,
    #[command(flatten)]
    pub(super) geo: GeoArgs,
    /// How long certificates of edges live; they are renewed when two thirds are over
    #[arg(long, value_name = "TIME", default_value = "14d", value_parser = duration::parse_long)]
    pub(super) edge_certificates: Duration,
    /// The ports that tcp, tls and udp sockets get for themselves, at every edge
    #[arg(long, value_name = "FROM-TO", env = "SALLYPORT_PORT_RANGE", default_value = "20000-20999", value_parser = port_range)]
    pub(super) port_range: PortRange,
    /// Take direct origins: let edges dial the addresses that owners of sockets name (`sallyport socket origin add`), when they are in these
    /// networks; loopback and link-local addresses only where these are named themselves [default: none]
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_DIRECT_ORIGINS", value_delimiter = ',')]
    pub(super) direct_origins: Vec<Network>,
    /// Who may make an account: open for everybody who reaches the API, closed for nobody but the first [default: closed]
    #[arg(long, value_enum, value_name = "WHO", env = "SALLYPORT_SIGN_UP", hide_possible_values = true)]
    pub(super) sign_up: Option<SignUpChoice>,
    #[command(flatten)]
    pub(super) mail: MailArgs,
    /// Make the account with this e-mail address the owner of the installation, who lets edges join [default: the first account
    /// that is made]
    #[arg(long, value_name = "EMAIL", env = "SALLYPORT_OWNER")]
    pub(super) owner: Option<Email>,
    #[command(flatten)]
    pub(super) audit_log: AuditLogArgs,
    /// How log lines are written: text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub(super) log_format: LogFormat,
}
