//! What `sallyport up` can be told.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};
use sallyport_net::Congestion;
use sallyport_policy::Network;

use crate::{
    audit_args::{AuditLogArgs, AuditUseArgs},
    database::DatabaseArgs,
    duration,
    mail_args::MailArgs,
    port,
    site_args::SiteArgs,
    telemetry::LogFormat,
};

/// What `sallyport up` can be told.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Where everything is kept [default: /var/lib/sallyport for root, else ~/.local/share/sallyport]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    pub(super) data: Option<PathBuf>,
    #[command(flatten)]
    pub(super) database: DatabaseArgs,
    /// The domain under which sockets get their names
    #[arg(long, value_name = "DOMAIN", env = "SALLYPORT_DOMAIN", default_value = "localhost", value_parser = domain)]
    pub(super) domain: String,
    #[command(flatten)]
    pub(super) site: SiteArgs,
    /// Where clients, the API and tunnels are served: ADDR:PORT or :PORT [default: 127.0.0.1:8443 for localhost, else
    /// [::]:8443]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN", value_parser = listen_address)]
    pub(super) listen: Option<ListenAddress>,
    /// Where plain HTTP is redirected to HTTPS: ADDR:PORT, :PORT or none [default: port 8080 when it is free]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_HTTP", value_parser = redirect_address)]
    pub(super) listen_http: Option<RedirectAddress>,
    /// The port in public URLs, where a port mapping stands in front [default: the port of --listen]
    #[arg(long, value_name = "PORT", value_parser = port::parse, allow_negative_numbers = true)]
    pub(super) public_port: Option<u16>,
    /// Replace the `sallyport up` that runs on the same data directory: take its ports over, so that no connection is
    /// refused, and let it finish what it serves
    #[arg(long)]
    pub(super) takeover: bool,
    /// How long what runs may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(super) drain: Duration,
    /// How long an origin may take to accept a connection before another one is tried
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    pub(super) connect_timeout: Duration,
    /// How long an origin may take to begin its answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse_positive)]
    pub(super) response_timeout: Duration,
    /// After how much silence a connector is asked for a sign of life
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    pub(super) keepalive: Duration,
    /// After how many missing signs of life a connector is down
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) keepalive_missed: u32,
    /// How congestion of connectors' connections is controlled, by a name that this kernel knows: bbr, cubic, reno ...
    /// [default: the kernel's]
    #[arg(long, value_name = "NAME", env = "SALLYPORT_TUNNEL_CONGESTION")]
    pub(super) tunnel_congestion: Option<Congestion>,
    #[command(flatten)]
    pub(super) quic: QuicArgs,
    /// Take Multipath TCP besides TCP, for connectors with several networks (`connect --mptcp`)
    #[arg(long, env = "SALLYPORT_MPTCP")]
    pub(super) mptcp: bool,
    /// The ports that tcp, tls and udp sockets get for themselves
    #[arg(long, value_name = "FROM-TO", env = "SALLYPORT_PORT_RANGE", default_value = "20000-20999", value_parser = port_range)]
    pub(super) port_range: PortRange,
    /// How many of these ports one account may have, and all ssh guests together [default: half of them, from 10 to 100]
    #[arg(long, value_name = "COUNT", env = "SALLYPORT_PORTS_PER_ACCOUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) ports_per_account: Option<u16>,
    /// Let no udp socket go without the amplification guard
    #[arg(long, env = "SALLYPORT_REQUIRE_AMPLIFICATION_GUARD")]
    pub(super) require_amplification_guard: bool,
    /// The networks of balancers in front, whose connections begin with a PROXY protocol header that is believed
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_TRUST_PROXY", value_delimiter = ',')]
    pub(super) trust_proxy: Vec<Network>,
    /// Let edges dial the addresses that owners of sockets name (`sallyport socket origin add`), when they are in these
    /// networks; loopback and link-local addresses only where these are named themselves [default: none]
    #[arg(long, value_name = "NETWORK", env = "SALLYPORT_DIRECT_ORIGINS", value_delimiter = ',')]
    pub(super) direct_origins: Vec<Network>,
    #[command(flatten)]
    pub(super) geo: GeoArgs,
    #[command(flatten)]
    pub(super) ssh: SshArgs,
    /// Who may make an account: open for everybody who reaches the API, closed for nobody but the first and
    /// those who are invited [default: open for localhost on a loopback address, else closed]
    #[arg(long, value_enum, value_name = "WHO", env = "SALLYPORT_SIGN_UP", hide_possible_values = true)]
    pub(super) sign_up: Option<SignUpChoice>,
    #[command(flatten)]
    pub(super) mail: MailArgs,
    #[command(flatten)]
    pub(super) audit_use: AuditUseArgs,
    #[command(flatten)]
    pub(super) audit_log: AuditLogArgs,
    /// Do not log each request
    #[arg(long)]
    pub(super) no_access_log: bool,
    /// How log lines are written: text or json [default: text; on a terminal a few lines for people and warnings, unless
    /// this or -v is given]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub(super) log_format: Option<LogFormat>,
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub(super) otlp_endpoint: Option<String>,
    /// How many of all traces are sent, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub(super) otlp_ratio: f64,
}

/// Connectors that come over QUIC.
#[derive(Debug, Clone, Args)]
pub(crate) struct QuicArgs {
    /// Take connectors over QUIC too (`connect --transport quic`): ADDR:PORT or :PORT of UDP [default: the address and port of
    /// --listen]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_QUIC", num_args = 0..=1, default_missing_value = "same")]
    #[arg(value_parser = quic_address)]
    pub(crate) listen_quic: Option<QuicAddress>,
}

/// What is known of clients' addresses.
#[derive(Debug, Clone, Args)]
pub(crate) struct GeoArgs {
    /// A database of countries by address (MMDB), for access rules such as country:CH; read again when it changes
    #[arg(long, value_name = "FILE", env = "SALLYPORT_GEOIP_COUNTRY")]
    pub(crate) geoip_country: Option<PathBuf>,
    /// A database of autonomous systems by address (MMDB), for access rules such as asn:64500; read again when it changes
    #[arg(long, value_name = "FILE", env = "SALLYPORT_GEOIP_ASN")]
    pub(crate) geoip_asn: Option<PathBuf>,
}

/// Stock ssh clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct SshArgs {
    /// Serve ssh clients on a port of their own too, beside the one that all share: ADDR:PORT or :PORT
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_SSH", value_parser = listen_address)]
    pub(crate) listen_ssh: Option<ListenAddress>,
    /// Serve no ssh clients
    #[arg(long, conflicts_with_all = ["listen_ssh", "ssh_guests"])]
    pub(crate) no_ssh: bool,
    /// Let ssh clients without an account open temporary sockets: `ssh -R 80:localhost:8000 HOST`
    #[arg(long, env = "SALLYPORT_SSH_GUESTS")]
    pub(crate) ssh_guests: bool,
}

/// Who may make an account, as the command line says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignUpChoice {
    Open,
    Closed,
}

/// An address to listen on; without an IP address, the default one for the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Where plain HTTP is redirected, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectAddress {
    Nowhere,
    At(ListenAddress),
}

/// Where connectors come over QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuicAddress {
    Same,
    At(ListenAddress),
}

impl ListenAddress {
    pub(crate) fn with_default(self, ip: IpAddr) -> SocketAddr {
        SocketAddr::new(self.ip.unwrap_or(ip), self.port)
    }
}

/// A range of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortRange(pub(crate) RangeInclusive<u16>);

/// Ports that need no privileges, at least one.
pub(crate) fn port_range(text: &str) -> Result<PortRange, String> {
    text.split_once('-')
        .and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)))
        .filter(|(from, to)| (1_024..=*to).contains(from))
        .map(|(from, to)| PortRange(from..=to))
        .ok_or_else(|| "expected a range of ports from 1024 up, such as 20000-20999".to_owned())
}

pub(crate) fn listen_address(text: &str) -> Result<ListenAddress, String> {
    let wrong = || "expected ADDR:PORT or :PORT, such as 127.0.0.1:8443 or [::]:443".to_owned();
    if let Some(port) = text.strip_prefix(':') {
        return Ok(ListenAddress { ip: None, port: port.parse().map_err(|_| wrong())? });
    }
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    Ok(ListenAddress { ip: Some(address.ip()), port: address.port() })
}

fn quic_address(text: &str) -> Result<QuicAddress, String> {
    if text == "same" { Ok(QuicAddress::Same) } else { listen_address(text).map(QuicAddress::At) }
}

pub(crate) fn redirect_address(text: &str) -> Result<RedirectAddress, String> {
    if text == "none" {
        return Ok(RedirectAddress::Nowhere);
    }
    listen_address(text).map(RedirectAddress::At).map_err(|error| format!("{error}, or none"))
}

/// A domain: labels of letters, digits and hyphens; kept in lower case without a final dot.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label_ok = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // Room must be left for the label of a socket and its dot (RFC 1035 section 2.3.4: 255 octets in all).
    if name.len() > 253 - 64 || !name.split('.').all(label_ok) || name.parse::<Ipv4Addr>().is_ok() {
        return Err("expected a domain such as localhost or tunnels.example.com".to_owned());
    }
    Ok(name)
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
    fn an_address_may_leave_out_its_ip() {
        assert_eq!(listen_address(":443").unwrap(), ListenAddress { ip: None, port: 443 });
        let six = listen_address("[::1]:8443").unwrap();
        assert_eq!(six.with_default(Ipv4Addr::LOCALHOST.into()), "[::1]:8443".parse().unwrap());
        for bad in ["", "8443", "localhost:8443", ":70000", "127.0.0.1", "::1:8443"] {
            assert!(listen_address(bad).unwrap_err().contains("ADDR:PORT"), "{bad}");
        }
        assert_eq!(redirect_address("none").unwrap(), RedirectAddress::Nowhere);
        assert!(redirect_address("nowhere").unwrap_err().ends_with("or none"));
    }

    #[test]
    fn a_range_of_ports_has_one_and_no_privileged_one() {
        assert_eq!(port_range("20000-20000").unwrap().0, 20_000..=20_000);
        for bad in ["", "20000", "80-90", "3000-2000", "1-2-3", "1024-70000"] {
            assert!(port_range(bad).unwrap_err().contains("20000-20999"), "{bad}");
        }
    }

    #[test]
    fn a_domain_is_lower_case_and_leaves_room_for_names() {
        assert_eq!(domain("Tunnels.Example.COM.").unwrap(), "tunnels.example.com");
        for bad in ["", ".", "a..b", "-a.b", "a_b.c", "127.0.0.1", &"a.".repeat(120)] {
            assert!(domain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn strangers_sign_up_only_where_none_can_come_or_where_they_are_asked_for() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            up: UpArgs,
        }
        let sign_up = |line: &[&str], listens_on: &str| {
            let args = <Line as clap::Parser>::try_parse_from([&["up"], line].concat()).unwrap().up;
            crate::up::sign_up(&args, listens_on.parse().unwrap())
        };
        let takes_token = |line: &[&str], listens_on: &str| {
            let args = <Line as clap::Parser>::try_parse_from([&["up"], line].concat()).unwrap().up;
            crate::up::setup_token_file(&args, listens_on.parse().unwrap(), "/data".as_ref()).is_some()
        };
        // Where strangers come, whoever comes first is not enough: sign-up may be open for all but the first.
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
