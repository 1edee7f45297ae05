//! What `sallyport edge` can be told when it runs an edge.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use sallyport_model::{EdgeName, RegionName};
use sallyport_policy::Network;

use crate::{
    args::{
        audit::{AuditLogArgs, AuditUseArgs},
        listen::{ListenAddress, QuicArgs, RedirectAddress, listen_address, redirect_address},
        server::{GeoArgs, SshArgs},
    },
    duration,
    runtime::telemetry::LogFormat,
};

/// What `sallyport edge` can be told when it runs an edge.
#[derive(Debug, Args)]
pub(crate) struct EdgeArgs {
    /// Join with this token, which `sallyport edge token create` has printed; it is used once. An edge that has joined needs none
    #[arg(long, value_name = "TOKEN", env = "SALLYPORT_JOIN", hide_env_values = true)]
    pub(super) join: Option<String>,
    /// The region that this edge is in, unless the join token says it
    #[arg(long, value_name = "REGION", env = "SALLYPORT_REGION")]
    pub(super) region: Option<RegionName>,
    /// What this edge is called [default: what the join token says, else its region and a number]
    #[arg(long, value_name = "NAME", env = "SALLYPORT_NAME")]
    pub(super) name: Option<EdgeName>,
    /// Where it keeps who it is and what it knows
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    pub(super) data: Option<PathBuf>,
    /// Where clients, the API and tunnels are served: ADDR:PORT or :PORT
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN", default_value = ":443", value_parser = listen_address)]
    pub(super) listen: ListenAddress,
    /// Where plain HTTP is redirected to HTTPS: ADDR:PORT, :PORT or none
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_HTTP", default_value = "none")]
    #[arg(value_parser = redirect_address)]
    pub(super) listen_http: RedirectAddress,
    /// Where clients, connectors and other edges reach this edge [default: the address of --listen; where that is every address, the one by which this machine reaches others]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_ADVERTISE", value_delimiter = ',')]
    pub(super) advertise: Vec<SocketAddr>,
    /// The networks of balancers in front, whose connections begin with a PROXY protocol header that is believed
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_TRUST_PROXY", value_delimiter = ',')]
    pub(super) trust_proxy: Vec<Network>,
    /// Replace the `sallyport edge` that runs on the same data directory: take its ports over, so that no connection is
    /// refused, and let it finish what it serves
    #[arg(long)]
    pub(super) takeover: bool,
    #[command(flatten)]
    pub(super) quic: QuicArgs,
    #[command(flatten)]
    pub(super) geo: GeoArgs,
    #[command(flatten)]
    pub(super) ssh: SshArgs,
    /// Dial the addresses that owners of sockets name (`sallyport socket origin add`), when they are in these
    /// networks; loopback and link-local addresses only where these are named themselves [default: none]
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_DIRECT_ORIGINS", value_delimiter = ',')]
    pub(super) direct_origins: Vec<Network>,
    /// How long what runs may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(super) drain: Duration,
    #[command(flatten)]
    pub(super) audit_use: AuditUseArgs,
    #[command(flatten)]
    pub(super) audit_log: AuditLogArgs,
    /// Do not log each request
    #[arg(long)]
    pub(super) no_access_log: bool,
    /// How log lines are written: text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub(super) log_format: LogFormat,
}
