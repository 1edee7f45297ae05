//! The command line.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use sallyport_cli::{completion::CompletionArgs, duration, failure::Failure, manual::ManualArgs, usage::Printing};
use sallyport_client::ApiAddress;
use sallyport_connector::{DEFAULT_REDUNDANCY, MAX_REDUNDANCY, TransportChoice};
use sallyport_kube_model::ClusterName;
use sallyport_model::RegionName;

/// The part of the command line of `sallyport` that has the controller.
#[derive(Debug, Parser)]
#[command(name = "sallyport", disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The root certificate of the API to trust, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "SALLYPORT_CA")]
    pub(crate) ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Log more to the standard error; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The one command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The controller for Kubernetes: Services with an annotation get public names
    #[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    #[command(after_help = "\
A Service with the annotation sallyport.dev/expose: \"true\" gets a public name, which its status and an Event show:

  kubectl annotate service web sallyport.dev/expose=true
  kubectl get events --field-selector involvedObject.name=web

So does a Service of type LoadBalancer with loadBalancerClass: sallyport.dev/edge, for every port.")]
    Kube(Box<KubeArgs>),
}

/// The controller, or one of its commands.
#[derive(Debug, Args)]
pub(crate) struct KubeArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(subcommand)]
    pub(crate) command: Option<KubeCommand>,
}

/// What else can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum KubeCommand {
    /// List what the cluster asks for: each exposed port, its socket, and what is refused
    #[command(alias = "list")]
    Ls(InstallationArgs),
    /// Remove what this installation left in the cluster and at the API: finalizers, conditions, sockets
    Cleanup(CleanupArgs),
    /// Write the manual pages of the controller into a folder
    #[command(hide = true)]
    Man(ManualArgs),
    /// Print the completion script of a shell, for `sallyport-kube`
    #[command(hide = true)]
    Completion(CompletionArgs),
}

/// Which installation: its cluster, and the two APIs.
#[derive(Debug, Clone, Args)]
pub(crate) struct InstallationArgs {
    /// The name of this cluster, which bounds what is changed and deleted: sockets of other clusters are never touched
    #[arg(long, value_name = "NAME", env = "SALLYPORT_CLUSTER", value_parser = ClusterName::from_str)]
    pub(crate) cluster: Option<ClusterName>,
    /// The address of the API of Sallyport, such as https://api.example.com
    #[arg(long = "api", visible_alias = "server", value_name = "URL", env = "SALLYPORT_API", value_parser = ApiAddress::from_str)]
    pub(crate) api: Option<ApiAddress>,
    /// The file with the API token, which is read again when it changes
    #[arg(long, value_name = "FILE", env = "SALLYPORT_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The organisation to act for, by name or id, instead of that of the token
    #[arg(long, value_name = "NAME", env = "SALLYPORT_ORGANISATION")]
    pub(crate) organisation: Option<String>,
    /// The file that names the cluster's API server [default: the service account of the pod, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace of the controller itself, and of its lease [default: that of the service account, else default]
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// A namespace to watch; repeatable [default: all namespaces]
    #[arg(long = "watch-namespace", value_name = "NAMESPACE")]
    pub(crate) watch_namespaces: Vec<String>,
    /// The class of Services of type LoadBalancer that are exposed
    #[arg(long = "class", value_name = "CLASS", default_value = "sallyport.dev/edge")]
    pub(crate) class: String,
}

/// Options of the controller.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) installation: InstallationArgs,
    /// The name of this replica, which no other replica has [default: the host name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) replica: Option<String>,
    /// The address of /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9464")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
    #[command(flatten)]
    pub(crate) tunnels: TunnelArgs,
    /// The format of log lines: text or json
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, hide_possible_values = true)]
    pub(crate) log_format: LogFormat,
}

/// Spans of the controller.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Times")]
pub(crate) struct TimingArgs {
    /// For how long a replica leads after it last renewed its lease
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = whole_seconds)]
    pub(crate) lease_duration: Duration,
    /// How often the lease is renewed, and looked at by the other replicas
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::parse_positive)]
    pub(crate) lease_renew: Duration,
    /// How often the sockets are compared with the cluster where nothing has changed
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse_positive)]
    pub(crate) resync: Duration,
    /// How long changes of the cluster are gathered before they are acted on
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration::parse_positive)]
    pub(crate) settle: Duration,
    /// The first wait after a failed call; each further one is twice as long, up to a minute
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    pub(crate) retry: Duration,
    /// How often the file of the token is looked at
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::parse_positive)]
    pub(crate) token_poll: Duration,
    /// How often the token is tried where no call needs it
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration::parse_positive)]
    pub(crate) token_check: Duration,
    /// How long sockets stay whose object has vanished without its finalizer, as after a loss of etcd
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse_positive)]
    pub(crate) sweep_after: Duration,
    /// For how long tunnels of a replica stay that holds them no more
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse_positive)]
    pub(crate) forget_after: Duration,
    /// How long readiness is false before tunnels are let go at the end
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    pub(crate) drain_delay: Duration,
    /// How long requests may continue after that
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(crate) drain: Duration,
}

/// The connection to the edge.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The connection to the edge")]
pub(crate) struct TunnelArgs {
    /// The number of edges to hold each tunnel at, 1 to 4, in different regions where possible
    #[arg(long, value_name = "COUNT", env = "SALLYPORT_REDUNDANCY", default_value_t = DEFAULT_REDUNDANCY)]
    #[arg(value_parser = redundancy)]
    pub(crate) redundancy: usize,
    /// The region of the cluster; edges prefer services of their own region [default: that of the first edge that
    /// answers]
    #[arg(id = "home_region", long = "region", value_name = "REGION", env = "SALLYPORT_HOME_REGION")]
    pub(crate) region: Option<RegionName>,
    /// The transport of the tunnels: auto, tcp, websocket or quic
    #[arg(long, value_name = "TRANSPORT", env = "SALLYPORT_TRANSPORT", default_value = "auto")]
    pub(crate) transport: TransportChoice,
    /// The keepalive interval: an edge that is silent for so long gets a ping
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    pub(crate) keepalive: Duration,
    /// How long a pod may take to accept a connection
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::parse_positive)]
    pub(crate) connect_timeout: Duration,
}

/// Options of `cleanup`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CleanupArgs {
    #[command(flatten)]
    pub(crate) installation: InstallationArgs,
    /// Keep the sockets, so that another installation with the same cluster name adopts their public names
    #[arg(long)]
    pub(crate) keep_sockets: bool,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line a person reads.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl InstallationArgs {
    /// The name of the cluster.
    ///
    /// # Errors
    /// It is missing.
    pub(crate) fn cluster(&self) -> Result<ClusterName, Failure> {
        self.cluster.clone().ok_or_else(|| {
            Failure::usage("the cluster has no name").next(
                "give --cluster NAME, the same at each start: sockets are found again by it, and only those of this \
                 cluster are changed",
            )
        })
    }

    /// The address of the API, and the file of the token.
    ///
    /// # Errors
    /// One is missing.
    pub(crate) fn api(&self) -> Result<(ApiAddress, PathBuf), Failure> {
        let api = self.api.clone().ok_or_else(|| {
            Failure::usage("the API of Sallyport has no address").next("give --api, such as https://api.example.com")
        })?;
        let file = self.token_file.clone().ok_or_else(|| {
            Failure::usage("there is no API token").next(
                "give --token-file, the mounted file of a Secret; `sallyport token create` creates a token for it",
            )
        })?;
        Ok((api, file))
    }
}

/// A span of whole seconds, as a lease has it.
fn whole_seconds(text: &str) -> Result<Duration, String> {
    let span = duration::parse_positive(text)?;
    if span.subsec_nanos() == 0 { Ok(span) } else { Err("expected whole seconds, such as 12s".to_owned()) }
}

/// The number of edges of a tunnel.
fn redundancy(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_REDUNDANCY).contains(count));
    count.ok_or_else(|| format!("expected a number of edges from 1 to {MAX_REDUNDANCY}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
