//! Options of `sallyport up`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Args;
use sallyport_net::Congestion;
use sallyport_policy::Network;

use crate::{
    args::{
        acme::{AcmeArgs, NameArgs},
        anycast::AnycastArgs,
        audit::{AuditLogArgs, AuditUseArgs},
        dns::DnsArgs,
        egress::EgressArgs,
        listen::{ListenAddress, PortRange, QuicArgs, RedirectAddress, listen_address, port_range, redirect_address},
        mail::MailArgs,
        port,
        server::{CatchmentArgs, GeoArgs, MeasureArgs, SignUpChoice, SshArgs, domain},
        site::SiteArgs,
    },
    duration,
    installation::database::DatabaseArgs,
    runtime::telemetry::LogFormat,
};

/// Options of `sallyport up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The data directory [default: /var/lib/sallyport for root, else ~/.local/share/sallyport]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    pub(super) data: Option<PathBuf>,
    #[command(flatten)]
    pub(super) database: DatabaseArgs,
    /// The domain under which sockets get their names
    #[arg(long, value_name = "DOMAIN", env = "SALLYPORT_DOMAIN", default_value = "localhost", value_parser = domain)]
    pub(super) domain: String,
    #[command(flatten)]
    pub(super) site: SiteArgs,
    /// Where to serve clients, the API and tunnels: ADDR:PORT or :PORT [default: 127.0.0.1:8443 for localhost, else
    /// [::]:8443, or [::]:443 with --acme]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN", value_parser = listen_address)]
    pub(super) listen: Option<ListenAddress>,
    /// Where to redirect plain HTTP to HTTPS: ADDR:PORT, :PORT or none [default: port 8080 when it is free,
    /// or 80 with --acme]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_HTTP", value_parser = redirect_address)]
    pub(super) listen_http: Option<RedirectAddress>,
    /// The port in public URLs, when a port mapping changes it [default: the port of --listen]
    #[arg(long, value_name = "PORT", value_parser = port::parse, allow_negative_numbers = true)]
    pub(super) public_port: Option<u16>,
    /// Replace the `sallyport up` that runs on the same data directory: take over its ports without refusing a
    /// connection, and let it finish open requests
    #[arg(long)]
    pub(super) takeover: bool,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    /// How long open requests and connections may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(super) drain: Duration,
    /// How long an origin may take to accept a connection, before the edge tries another origin
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    pub(super) connect_timeout: Duration,
    /// How long an origin may take to begin its response
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse_positive)]
    pub(super) response_timeout: Duration,
    /// The keepalive interval: a connector that is silent for so long gets a ping
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    pub(super) keepalive: Duration,
    /// The number of unanswered pings after which a connector is down
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) keepalive_missed: u32,
    /// The congestion control of connectors' connections, by its name in the kernel: bbr, cubic, reno ... [default: the
    /// kernel's]
    #[arg(long, value_name = "NAME", env = "SALLYPORT_TUNNEL_CONGESTION")]
    pub(super) tunnel_congestion: Option<Congestion>,
    #[command(flatten)]
    pub(super) quic: QuicArgs,
    /// Accept Multipath TCP besides TCP, for connectors with several networks (`connect --mptcp`)
    #[arg(long, env = "SALLYPORT_MPTCP")]
    pub(super) mptcp: bool,
    /// The ports for tcp, tls and udp sockets
    #[arg(
        long, value_name = "FROM-TO", env = "SALLYPORT_PORT_RANGE", default_value = "20000-20999",
        value_parser = port_range
    )]
    pub(super) port_range: PortRange,
    /// The number of these ports that one account may have, and all ssh clients without an account together [default:
    /// half of them, from 10 to 100]
    #[arg(
        long, value_name = "COUNT", env = "SALLYPORT_PORTS_PER_ACCOUNT",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(super) ports_per_account: Option<u16>,
    /// Require the amplification guard of every udp socket
    #[arg(long, env = "SALLYPORT_REQUIRE_AMPLIFICATION_GUARD")]
    pub(super) require_amplification_guard: bool,
    /// The networks of trusted load balancers: their connections begin with a PROXY protocol header
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_TRUST_PROXY", value_delimiter = ',')]
    pub(super) trust_proxy: Vec<Network>,
    /// Allow direct origins in these networks: edges dial the addresses that owners of sockets name (`sallyport socket
    /// origin add`). Loopback and link-local networks must be listed themselves [default: none]
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_DIRECT_ORIGINS", value_delimiter = ',')]
    pub(super) direct_origins: Vec<Network>,
    #[command(flatten)]
    pub(super) egress: EgressArgs,
    #[command(flatten)]
    pub(super) geo: GeoArgs,
    #[command(flatten)]
    pub(super) ssh: SshArgs,
    /// Who may make an account: open (everybody with access to the API) or closed (only the first, and invited people)
    /// [default: open for localhost on a loopback address, else closed]
    #[arg(long, value_enum, value_name = "WHO", env = "SALLYPORT_SIGN_UP", hide_possible_values = true)]
    pub(super) sign_up: Option<SignUpChoice>,
    /// Serve no desk, the dashboard at `https://desk.<domain>`
    #[arg(long, env = "SALLYPORT_NO_DESK")]
    pub(super) no_desk: bool,
    #[command(flatten)]
    pub(super) catchment: CatchmentArgs,
    #[command(flatten)]
    pub(super) mail: MailArgs,
    #[command(flatten)]
    pub(super) audit_use: AuditUseArgs,
    #[command(flatten)]
    pub(super) audit_log: AuditLogArgs,
    /// Do not log each request
    #[arg(long)]
    pub(super) no_access_log: bool,
    /// The format of log lines: text or json [default: text; on a terminal a few lines for people and warnings, unless
    /// this or -v is given]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub(super) log_format: Option<LogFormat>,
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub(super) otlp_endpoint: Option<String>,
    /// The share of traces to send, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub(super) otlp_ratio: f64,
    // Options with a heading come last: those behind them would stand under it.
    #[command(flatten)]
    pub(super) anycast: AnycastArgs,
    #[command(flatten)]
    pub(super) acme: AcmeArgs,
    #[command(flatten)]
    pub(super) names: NameArgs,
    #[command(flatten)]
    pub(super) dns: DnsArgs,
    /// The addresses of this machine for others, in answers of the name server [default: that of --listen; for a wildcard
    /// address, the machine's outgoing one]
    #[arg(long, value_name = "ADDR", env = "SALLYPORT_PUBLIC_ADDRESS", value_delimiter = ',')]
    pub(super) public_address: Vec<IpAddr>,
}

fn ratio(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use sallyport_control::SignUp;

    use super::*;

    #[test]
    fn sign_up_is_open_only_on_loopback_or_by_option() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            up: UpArgs,
        }
        let sign_up = |line: &[&str], listens_on: &str| {
            let args = <Line as clap::Parser>::try_parse_from([&["up"], line].concat()).unwrap().up;
            crate::roles::up::config::sign_up(&args, listens_on.parse().unwrap())
        };
        let takes_token = |line: &[&str], listens_on: &str| {
            let args = <Line as clap::Parser>::try_parse_from([&["up"], line].concat()).unwrap().up;
            crate::roles::up::config::setup_token_file(&args, listens_on.parse().unwrap(), "/data".as_ref()).is_some()
        };
        // Where strangers can connect, the first account needs the setup token.
        assert!(!takes_token(&["--domain", "a.localhost"], "::1"));
        assert!(!takes_token(&["--domain", "localhost", "--sign-up", "closed"], "127.0.0.1"));
        assert!(takes_token(&["--domain", "localhost"], "0.0.0.0") && takes_token(&["--domain", "a.example"], "::1"));
        assert!(takes_token(&["--domain", "a.example", "--sign-up", "open"], "::"));
        assert_eq!(sign_up(&["--domain", "localhost"], "127.0.0.1"), SignUp::Open);
        assert_eq!(sign_up(&["--domain", "a.localhost"], "::1"), SignUp::Open);
        assert_eq!(sign_up(&["--domain", "localhost"], "0.0.0.0"), SignUp::Closed);
        assert_eq!(sign_up(&["--domain", "example.com"], "127.0.0.1"), SignUp::Closed);
        assert_eq!(sign_up(&["--domain", "example.com", "--sign-up", "open"], "::"), SignUp::Open);
        assert_eq!(sign_up(&["--domain", "localhost", "--sign-up", "closed"], "127.0.0.1"), SignUp::Closed);
    }
}
