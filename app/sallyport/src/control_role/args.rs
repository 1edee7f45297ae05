//! What `sallyport control` can be told.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    bus_args::BusArgs,
    database::DatabaseArgs,
    duration,
    telemetry::LogFormat,
    up::args::{ListenAddress, PortRange, SignUpChoice, domain, listen_address, port_range},
};

/// What `sallyport control` can be told.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Where its keys are kept, and its database unless --database names one. All controls of an installation have the same keys
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    pub(super) data: PathBuf,
    /// The domain under which sockets get their names: two labels or more, such as tunnels.example.com
    #[arg(long, value_name = "DOMAIN", env = "SALLYPORT_DOMAIN", value_parser = domain)]
    pub(super) domain: String,
    #[command(flatten)]
    pub(super) database: DatabaseArgs,
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
    /// Where edges find the controls: HOST:PORT, several by commas [default: the address of --listen-edges]
    #[arg(long, value_name = "HOST:PORT", env = "SALLYPORT_ADVERTISE", value_delimiter = ',')]
    pub(super) advertise: Vec<String>,
    /// The port at which clients and connectors reach edges
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) public_port: u16,
    /// How long certificates of edges live; they are renewed when two thirds are over
    #[arg(long, value_name = "TIME", default_value = "14d", value_parser = duration::parse_long)]
    pub(super) edge_certificates: Duration,
    /// The ports that tcp, tls and udp sockets get for themselves, at every edge
    #[arg(long, value_name = "FROM-TO", env = "SALLYPORT_PORT_RANGE", default_value = "20000-20999", value_parser = port_range)]
    pub(super) port_range: PortRange,
    /// Who may make an account: open for everybody who reaches the API, closed for nobody but the first [default: closed]
    #[arg(long, value_enum, value_name = "WHO", env = "SALLYPORT_SIGN_UP", hide_possible_values = true)]
    pub(super) sign_up: Option<SignUpChoice>,
    /// How log lines are written: text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub(super) log_format: LogFormat,
}
