//! Options of `sallyport edge` when it runs an edge.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use sallyport_model::{EdgeName, RegionName};
use sallyport_policy::Network;

use super::balanced::BehindArgs;
use crate::{
    args::{
        acme::ResolverArgs,
        anycast::{AnycastArgs, interface},
        audit::{AuditLogArgs, AuditUseArgs},
        dns::DnsArgs,
        egress::EgressArgs,
        listen::{ListenAddress, QuicArgs, RedirectAddress, listen_address, redirect_address},
        server::{GeoArgs, MeasureArgs, SshArgs},
    },
    duration,
    runtime::telemetry::LogFormat,
};

/// Options of `sallyport edge` when it runs an edge.
#[derive(Debug, Args)]
pub(crate) struct EdgeArgs {
    /// The token to join with, from `sallyport edge token create`. A token is good for one use; an edge that has joined
    /// needs none
    #[arg(long, value_name = "TOKEN", env = "SALLYPORT_JOIN", hide_env_values = true)]
    pub(super) join: Option<String>,
    /// The region of this edge [default: the one in the join token]
    #[arg(long, value_name = "REGION", env = "SALLYPORT_REGION")]
    pub(super) region: Option<RegionName>,
    /// The name of this edge [default: the one in the join token, else its region and a number]
    #[arg(long, value_name = "NAME", env = "SALLYPORT_NAME")]
    pub(super) name: Option<EdgeName>,
    /// The directory of the edge's identity, configuration and audit log
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    pub(super) data: Option<PathBuf>,
    /// Where to serve clients, the API and tunnels: ADDR:PORT or :PORT
    #[arg(
        long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN", default_value = ":443",
        value_parser = listen_address
    )]
    pub(super) listen: ListenAddress,
    /// Where to redirect plain HTTP to HTTPS: ADDR:PORT, :PORT or none
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_HTTP", default_value = "none")]
    #[arg(value_parser = redirect_address)]
    pub(super) listen_http: RedirectAddress,
    /// Where clients, connectors and other edges reach this edge [default: the address of --listen; for a wildcard
    /// address, the machine's outgoing one]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_ADVERTISE", value_delimiter = ',')]
    pub(super) advertise: Vec<SocketAddr>,
    /// The networks of trusted load balancers: their connections begin with a PROXY protocol header
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_TRUST_PROXY", value_delimiter = ',')]
    pub(super) trust_proxy: Vec<Network>,
    /// Replace the `sallyport edge` that runs on the same data directory: take over its ports without refusing a
    /// connection, and let it finish open requests
    #[arg(long)]
    pub(super) takeover: bool,
    #[command(flatten)]
    pub(super) quic: QuicArgs,
    #[command(flatten)]
    pub(super) geo: GeoArgs,
    #[command(flatten)]
    pub(super) ssh: SshArgs,
    /// Allow direct origins in these networks: the edge dials the addresses that owners of sockets name (`sallyport
    /// socket origin add`). Loopback and link-local networks must be listed themselves [default: none]
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_DIRECT_ORIGINS", value_delimiter = ',')]
    pub(super) direct_origins: Vec<Network>,
    #[command(flatten)]
    pub(super) egress: EgressArgs,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    /// How long open requests and connections may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(super) drain: Duration,
    #[command(flatten)]
    pub(super) audit_use: AuditUseArgs,
    #[command(flatten)]
    pub(super) audit_log: AuditLogArgs,
    /// Do not log each request
    #[arg(long)]
    pub(super) no_access_log: bool,
    /// The format of log lines: text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub(super) log_format: LogFormat,
    // Options with a heading come last: those behind them would stand under it.
    #[command(flatten)]
    pub(super) anycast: AnycastArgs,
    /// Share flows with the other edges of the region, in whose network this device is: few break when edges come or go
    /// [default: each edge serves what its router sends]
    #[arg(long, value_name = "DEVICE", env = "SALLYPORT_ANYCAST_BALANCE", requires = "bird", help_heading = "Anycast")]
    #[arg(value_parser = interface)]
    pub(super) anycast_balance: Option<String>,
    #[command(flatten)]
    pub(super) behind: BehindArgs,
    #[command(flatten)]
    pub(super) dns: DnsArgs,
    #[command(flatten)]
    pub(super) resolver: ResolverArgs,
}
