//! Options for what an owner can set on a socket: the same for `connect`, `socket create` and `socket edit`.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};
use sallyport_api::{CreateSocket, HealthCheck, ProbeType, Socket, UpdateSocket};
use sallyport_model::{AccessRules, Affinity, EndpointGroup, FULL_DIAL, Limits, ProxyProtocol, RegionName, TlsMode};

use super::{
    headers::{self, HeaderArgs},
    identity::{self, IdentityArgs},
};
use crate::{
    args::{
        capacity::{self, RegionCapacityArgs},
        domain,
    },
    duration,
    failure::Failure,
};

/// The word that removes a setting.
pub(crate) const OFF: &str = "off";

/// The settings of a socket.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Settings of the socket")]
pub(crate) struct SettingsArgs {
    /// Send the client's address to the service in a PROXY protocol header: v1, v2 or off (tcp and tls)
    #[arg(long, value_name = "VERSION", value_parser = proxy_protocol())]
    proxy_protocol: Option<ProxyProtocol>,
    /// Pass TLS through to the service, which holds the key; the edge reads only the name (tls)
    #[arg(long, conflicts_with = "no_passthrough")]
    passthrough: bool,
    /// Terminate TLS at the edge, with a certificate for the socket's name (tls)
    #[arg(long)]
    no_passthrough: bool,
    /// The application protocols (ALPN) to offer where the edge terminates TLS, best first; off: none (tls)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    alpn: Option<Vec<String>>,
    /// The health check of the service: tcp, http:/PATH, http:/PATH:200-299, or off
    #[arg(long, value_name = "CHECK")]
    health_check: Option<HealthCheckChoice>,
    /// The interval of health checks, in whole seconds [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    health_interval: Option<u32>,
    /// How long a health check may take, in whole seconds [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    health_timeout: Option<u32>,
    /// The number of passed health checks in a row that bring a service back [default: 2]
    #[arg(long, value_name = "COUNT")]
    healthy_threshold: Option<u32>,
    /// The number of failed health checks in a row that take a service out [default: 3]
    #[arg(long, value_name = "COUNT")]
    unhealthy_threshold: Option<u32>,
    /// The session affinity of clients to a service: none, cookie (http and https) or address
    #[arg(long, value_name = "BY", value_parser = affinity())]
    affinity: Option<Affinity>,
    /// The limit of concurrent connections, requests (http) or flows (udp); off: no limit
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<Limit>,
    /// The limit of new requests, connections or flows per second; off: no limit
    #[arg(long, value_name = "COUNT")]
    requests_per_second: Option<Limit>,
    /// The limit of bytes per second, both directions together, such as 500K or 10M (1,024 each); off: no limit
    #[arg(long, value_name = "BYTES")]
    bytes_per_second: Option<Limit>,
    /// The number of requests beyond --max-connections or --requests-per-second that wait instead of being refused;
    /// off: none
    #[arg(long, value_name = "COUNT")]
    queue: Option<Limit>,
    /// Clients to allow: networks, country:CH, asn:64500; off: all
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    allow: Option<Vec<String>>,
    /// Clients to deny, whatever --allow says; off: none
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    deny: Option<Vec<String>>,
    /// Send any amount to clients that have sent little, though their addresses may be forged (udp)
    #[arg(long, overrides_with = "amplification_guard")]
    no_amplification_guard: bool,
    /// Limit what is sent to clients that have sent little, the default (udp)
    #[arg(long, overrides_with = "no_amplification_guard")]
    amplification_guard: bool,
    /// The share of a region's traffic that its own services take, in percent: eu=20; the rest goes to the next nearest
    /// region. eu=off: all, the default; off: all everywhere
    #[arg(long = "dial", value_name = "REGION=PERCENT", value_delimiter = ',')]
    dials: Option<Vec<DialArg>>,
    #[command(flatten)]
    region_capacities: RegionCapacityArgs,
    /// The domains of yours that lead to the socket, such as app.example.com or *.example.com, all of them; off: none
    /// (http, https and tls)
    #[arg(long = "domain", value_name = "NAME", value_delimiter = ',', value_parser = domain::parse)]
    domains: Option<Vec<String>>,
    #[command(flatten)]
    headers: HeaderArgs,
    #[command(flatten)]
    identity: IdentityArgs,
}

fn proxy_protocol() -> impl TypedValueParser<Value = ProxyProtocol> {
    PossibleValuesParser::new(["v1", "v2", "off"]).try_map(|text| text.parse::<ProxyProtocol>())
}

fn affinity() -> impl TypedValueParser<Value = Affinity> {
    PossibleValuesParser::new(["none", "cookie", "address"]).try_map(|text| text.parse::<Affinity>())
}

/// A regional dial in an option.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DialArg {
    /// All dials removed.
    Off,
    /// A region and its dial; `None` removes the dial.
    Of(RegionName, Option<u8>),
}

impl FromStr for DialArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self::Off);
        }
        let wrong =
            || format!("expected REGION=PERCENT such as eu=20, with 0 to {FULL_DIAL} percent, REGION=off, or off");
        let (region, dial) = text.split_once('=').ok_or_else(wrong)?;
        let region = region.parse::<RegionName>().map_err(|error| error.to_string())?;
        if dial == OFF {
            return Ok(Self::Of(region, None));
        }
        let dial = dial.strip_suffix('%').unwrap_or(dial).parse().ok().filter(|dial| *dial <= FULL_DIAL);
        Ok(Self::Of(region, Some(dial.ok_or_else(wrong)?)))
    }
}

/// The endpoint groups after these changes.
fn dialed(dials: Vec<DialArg>, mut now: BTreeMap<RegionName, EndpointGroup>) -> BTreeMap<RegionName, EndpointGroup> {
    for dial in dials {
        match dial {
            DialArg::Off => now.values_mut().for_each(|group| group.dial = FULL_DIAL),
            DialArg::Of(region, Some(dial)) => now.entry(region).or_default().dial = dial,
            DialArg::Of(region, None) => now.entry(region).or_default().dial = FULL_DIAL,
        }
    }
    now.retain(|_, group| *group != EndpointGroup::default());
    now
}

/// A bound, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit(Option<u64>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self(None));
        }
        let wrong = || "expected a number such as 100 or 10M, or off".to_owned();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "" => 1,
            "k" | "K" => 1 << 10,
            "m" | "M" => 1 << 20,
            "g" | "G" => 1 << 30,
            _ => return Err(wrong()),
        };
        let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)?;
        Ok(Self(Some(number)))
    }
}

impl Limit {
    /// The bound in the API's type; the API refuses values beyond.
    fn small(self) -> Option<u32> {
        self.0.map(|bound| u32::try_from(bound).unwrap_or(u32::MAX))
    }
}

/// A health check, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HealthCheckChoice {
    Off,
    Tcp,
    Http { path: String, status: Option<(u16, u16)> },
}

impl FromStr for HealthCheckChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected tcp, http:/PATH, http:/PATH:200-299, or off".to_owned();
        match text {
            OFF => return Ok(Self::Off),
            "tcp" => return Ok(Self::Tcp),
            _ => {}
        }
        let rest = text.strip_prefix("http:").filter(|rest| rest.starts_with('/')).ok_or_else(wrong)?;
        if rest.starts_with("//") {
            return Err("expected a path of the service, not a URL: http:/healthz".to_owned());
        }
        // A colon may be part of the path. What follows the last colon is a status only if it looks like one.
        if let Some((path, range)) = rest.rsplit_once(':')
            && !range.is_empty()
            && range.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let status = from.parse().ok().zip(to.parse().ok()).ok_or_else(wrong)?;
            return Ok(Self::Http { path: path.to_owned(), status: Some(status) });
        }
        Ok(Self::Http { path: rest.to_owned(), status: None })
    }
}

fn whole_seconds(text: &str) -> Result<u32, String> {
    let span = duration::parse_positive(text)?;
    if span.subsec_nanos() > 0 {
        return Err("expected whole seconds, such as 5s".to_owned());
    }
    u32::try_from(span.as_secs()).map_err(|_| "expected an hour at most".to_owned())
}

/// The list; empty for `off` alone.
pub(crate) fn listed(items: Vec<String>) -> Vec<String> {
    if items.iter().all(|item| item == OFF || item.is_empty()) { Vec::new() } else { items }
}

impl SettingsArgs {
    /// Whether the change depends on the present settings.
    pub(crate) fn needs_current(&self) -> bool {
        let limits = [self.max_connections, self.requests_per_second, self.bytes_per_second, self.queue];
        limits.iter().any(Option::is_some)
            || self.allow.is_some() != self.deny.is_some()
            || self.dials.is_some()
            || !self.region_capacities.is_empty()
            || self.identity.needs_current()
            || self.headers.needs_current()
            || (self.tunes_health_check() && !matches!(self.health_check, Some(HealthCheckChoice::Off)))
    }

    fn tunes_health_check(&self) -> bool {
        let numbers = [self.health_interval, self.health_timeout, self.healthy_threshold, self.unhealthy_threshold];
        numbers.iter().any(Option::is_some)
    }

    /// Applies the options to a new socket.
    ///
    /// # Errors
    /// Options that have no effect without another one.
    pub(crate) fn set(self, create: &mut CreateSocket) -> Result<(), Failure> {
        let mut update = UpdateSocket::default();
        self.change(None, &mut update)?;
        create.proxy_protocol = update.proxy_protocol.flatten();
        create.tls_mode = update.tls_mode.flatten();
        create.alpn = update.alpn.flatten();
        create.health_check = update.health_check.flatten();
        create.affinity = update.affinity.flatten();
        create.limits = update.limits.flatten();
        create.access = update.access.flatten();
        create.amplification_guard = update.amplification_guard.flatten();
        create.identity = update.identity.flatten();
        create.regions = update.regions.flatten();
        create.host_header = update.host_header.flatten();
        create.headers = update.headers.flatten();
        create.domains = update.domains;
        Ok(())
    }

    /// Applies the options to a change. `now` has the present settings if [`SettingsArgs::needs_current`].
    ///
    /// # Errors
    /// Options that have no effect without another one.
    pub(crate) fn change(self, now: Option<&Socket>, update: &mut UpdateSocket) -> Result<(), Failure> {
        update.health_check = self.health_check(now.and_then(|now| now.health_check.clone()))?;
        update.limits = self.limits(now.map(|now| now.limits).unwrap_or_default()).map(Some);
        if self.allow.is_some() || self.deny.is_some() {
            let now = now.map(|now| now.access.clone()).unwrap_or_default();
            update.access = Some(Some(AccessRules {
                allow: self.allow.map_or(now.allow, listed),
                deny: self.deny.map_or(now.deny, listed),
            }));
        }
        update.proxy_protocol = self.proxy_protocol.map(Some);
        update.tls_mode = match (self.passthrough, self.no_passthrough) {
            (true, _) => Some(Some(TlsMode::Passthrough)),
            (false, true) => Some(Some(TlsMode::Terminate)),
            (false, false) => None,
        };
        update.alpn = self.alpn.map(listed).map(Some);
        update.domains = self.domains.map(listed);
        update.affinity = self.affinity.map(Some);
        let is_guarded = (self.amplification_guard || self.no_amplification_guard).then_some(self.amplification_guard);
        update.amplification_guard = is_guarded.map(Some);
        if self.dials.is_some() || !self.region_capacities.is_empty() {
            let regions = now.map(|now| now.regions.clone()).unwrap_or_default();
            let mut regions = dialed(self.dials.unwrap_or_default(), regions);
            self.region_capacities.change(&mut regions);
            update.regions = Some(Some(regions));
        }
        update.identity = self.identity.change(now.and_then(|now| now.identity.clone()))?;
        self.headers.change(now.map(|now| now.headers.clone()).unwrap_or_default(), update);
        Ok(())
    }

    fn limits(&self, now: Limits) -> Option<Limits> {
        let limits = Limits {
            max_connections: self.max_connections.map_or(now.max_connections, Limit::small),
            requests_per_second: self.requests_per_second.map_or(now.requests_per_second, Limit::small),
            bytes_per_second: self.bytes_per_second.map_or(now.bytes_per_second, |bound| bound.0),
            queue: self.queue.map_or(now.queue, Limit::small),
        };
        let given = [self.max_connections, self.requests_per_second, self.bytes_per_second, self.queue];
        given.iter().any(Option::is_some).then_some(limits)
    }

    fn health_check(&self, now: Option<HealthCheck>) -> Result<Option<Option<HealthCheck>>, Failure> {
        let tunes = self.tunes_health_check();
        let mut check = match (&self.health_check, now) {
            (None, _) if !tunes => return Ok(None),
            (None, None) => {
                return Err(Failure::usage("the socket has no health check whose times and thresholds could be set")
                    .next("add --health-check tcp, or --health-check http:/PATH"));
            }
            (Some(HealthCheckChoice::Off), _) if tunes => {
                return Err(Failure::usage("a health check that is off has no times and thresholds"));
            }
            (Some(HealthCheckChoice::Off), _) => return Ok(Some(None)),
            (None, Some(now)) => now,
            (Some(HealthCheckChoice::Tcp), now) => HealthCheck { probe: ProbeType::Tcp, ..plain(now) },
            (Some(HealthCheckChoice::Http { path, status }), now) => HealthCheck {
                probe: ProbeType::Http,
                path: Some(path.clone()),
                status_from: status.map(|(from, _)| from),
                status_to: status.map(|(_, to)| to),
                ..plain(now)
            },
        };
        check.interval_seconds = self.health_interval.unwrap_or(check.interval_seconds);
        check.timeout_seconds =
            self.health_timeout.unwrap_or_else(|| check.timeout_seconds.min(check.interval_seconds));
        check.healthy_threshold = self.healthy_threshold.unwrap_or(check.healthy_threshold);
        check.unhealthy_threshold = self.unhealthy_threshold.unwrap_or(check.unhealthy_threshold);
        Ok(Some(Some(check)))
    }
}

/// The present times and thresholds of the health check, or the defaults.
fn plain(now: Option<HealthCheck>) -> HealthCheck {
    let usual = HealthCheck::new(ProbeType::Tcp);
    match now {
        None => usual,
        Some(now) => HealthCheck { path: None, status_from: None, status_to: None, ..now },
    }
}

/// The settings other than the defaults, for people.
pub(crate) fn show(socket: &Socket) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if socket.proxy_protocol != ProxyProtocol::Off {
        rows.push(("PROXY protocol", socket.proxy_protocol.to_string()));
    }
    if socket.tls_mode == TlsMode::Passthrough {
        rows.push(("TLS", "passed through to the service".to_owned()));
    }
    if !socket.alpn.is_empty() {
        rows.push(("ALPN", socket.alpn.join(", ")));
    }
    if !socket.domains.is_empty() {
        rows.push(("domains", socket.domains.join(", ")));
    }
    if let Some(check) = &socket.health_check {
        rows.push(("health check", describe(check)));
    }
    if socket.affinity != Affinity::None {
        rows.push(("affinity", socket.affinity.as_str().to_owned()));
    }
    let limits = &socket.limits;
    let bounds = [
        (limits.max_connections.map(u64::from), "at a time"),
        (limits.requests_per_second.map(u64::from), "new in a second"),
        (limits.bytes_per_second, "bytes in a second"),
        (limits.queue.map(u64::from), "waiting"),
    ];
    let bounds: Vec<_> = bounds.into_iter().filter_map(|(bound, what)| Some(format!("{} {what}", bound?))).collect();
    if !bounds.is_empty() {
        rows.push(("at most", bounds.join(", ")));
    }
    for (title, rules) in [("allowed", &socket.access.allow), ("denied", &socket.access.deny)] {
        if !rules.is_empty() {
            rows.push((title, rules.join(", ")));
        }
    }
    if !socket.amplification_guard {
        rows.push(("amplification guard", OFF.to_owned()));
    }
    if !socket.regions.is_empty() {
        let dials: Vec<_> = socket.regions.iter().map(|(region, group)| format!("{region} {} %", group.dial)).collect();
        rows.push(("dials", dials.join(", ")));
        let capacities = socket.regions.iter().filter(|(_, group)| !group.capacity.is_empty());
        let capacities: Vec<_> =
            capacities.map(|(region, group)| format!("{region} {}", capacity::words(&group.capacity))).collect();
        if !capacities.is_empty() {
            rows.push(("capacities", capacities.join("; ")));
        }
    }
    rows.extend(headers::show(socket));
    rows.extend(identity::show(socket));
    rows
}

fn describe(check: &HealthCheck) -> String {
    let question = match (&check.path, check.status_from, check.status_to) {
        (Some(path), Some(from), Some(to)) => format!("GET {path} gives {from} to {to}"),
        (Some(path), ..) => format!("GET {path}"),
        (None, ..) => "takes a connection".to_owned(),
    };
    let (every, within) =
        (Duration::from_secs(check.interval_seconds.into()), Duration::from_secs(check.timeout_seconds.into()));
    let (bad, good) = (check.unhealthy_threshold, check.healthy_threshold);
    format!("{question} within {within:?}, every {every:?}; out after {bad} bad ones, back after {good} good ones")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: SettingsArgs,
    }

    fn args(line: &str) -> SettingsArgs {
        let words = std::iter::once("x").chain(line.split(' ').filter(|word| !word.is_empty()));
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).settings
    }

    fn socket() -> Socket {
        serde_json::from_str(
            r#"{"id":"0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11","name":"a","dns_name":"calm-bay-1000.localhost",
                "url":"tls://calm-bay-1000.localhost:8443","type":"tls","origin_protocol":"auto","protected":null,
                "created_at":"2026-01-01T12:00:00Z","tunnels_total":0,"tunnels_up":0,"port":20000,
                "regions":{"asia":{"dial":50}},
                "limits":{"max_connections":5,"queue":7},"access":{"allow":["192.0.2.0/24"]},
                "health_check":{"type":"http","path":"/up","status_from":200,"status_to":204,"interval_seconds":9}}"#,
        )
        .unwrap()
    }

    fn changed(line: &str) -> UpdateSocket {
        let mut update = UpdateSocket::default();
        args(line).change(Some(&socket()), &mut update).unwrap();
        update
    }

    #[test]
    fn no_option_changes_nothing() {
        assert!(changed("").is_empty() && !args("").needs_current());
        let mut create = CreateSocket::new("a".parse().unwrap(), sallyport_model::SocketType::Tls);
        args("").set(&mut create).unwrap();
        assert_eq!((create.limits, create.tls_mode, create.access), (None, None, None));
    }

    #[test]
    fn given_options_are_set_and_the_rest_is_kept() {
        let update = changed("--max-connections 10 --queue off --deny country:CH,10.0.0.0/8");
        let limits = update.limits.flatten().unwrap();
        assert_eq!((limits.max_connections, limits.queue, limits.bytes_per_second), (Some(10), None, None));
        let access = update.access.flatten().unwrap();
        assert_eq!(
            (access.allow, access.deny),
            (vec!["192.0.2.0/24".into()], vec!["country:CH".into(), "10.0.0.0/8".into()])
        );
        assert_eq!(changed("--allow off").access.flatten(), Some(AccessRules::default()));
        assert_eq!(changed("--bytes-per-second 10M").limits.flatten().unwrap().bytes_per_second, Some(10 << 20));
        assert_eq!(changed("--alpn h2,http/1.1").alpn.flatten().unwrap(), ["h2", "http/1.1"]);
        assert_eq!(changed("--alpn off").alpn, Some(Some(Vec::new())));
        assert_eq!(changed("--passthrough").tls_mode, Some(Some(TlsMode::Passthrough)));
        assert_eq!(changed("--no-passthrough").tls_mode, Some(Some(TlsMode::Terminate)));
        assert_eq!(changed("--proxy-protocol off").proxy_protocol, Some(Some(ProxyProtocol::Off)));
        assert_eq!(changed("--no-amplification-guard").amplification_guard, Some(Some(false)));
        assert_eq!(changed("--no-amplification-guard --amplification-guard").amplification_guard, Some(Some(true)));
        let dials = |line: &str| changed(line).regions.flatten().unwrap();
        assert_eq!(dials("--dial eu=20,us=80%").values().map(|group| group.dial).collect::<Vec<_>>(), [50, 20, 80]);
        let set = dials("--dial us=0");
        assert_eq!(
            set.iter().map(|(region, group)| (region.as_str(), group.dial)).collect::<Vec<_>>(),
            [("asia", 50), ("us", 0)]
        );
        assert!(dials("--dial asia=off").is_empty() && dials("--dial off").is_empty());
        for line in [
            "--dial eu=1",
            "--queue 5",
            "--deny country:CH",
            "--health-timeout 1s",
            "--health-check tcp --health-timeout 1s",
        ] {
            assert!(args(line).needs_current(), "{line}");
        }
    }

    #[test]
    fn health_checks_are_read_and_tuned() {
        let check = |line: &str| changed(line).health_check.flatten().unwrap();
        let tuned = check("--health-timeout 3s --unhealthy-threshold 5");
        assert_eq!((tuned.path.as_deref(), tuned.interval_seconds), (Some("/up"), 9), "the question stays");
        assert_eq!((tuned.timeout_seconds, tuned.unhealthy_threshold), (3, 5));
        let tcp = check("--health-check tcp --health-interval 1s");
        assert_eq!((tcp.probe, tcp.path, tcp.timeout_seconds), (ProbeType::Tcp, None, 1), "at most the interval");
        let http = check("--health-check http:/a:b/c:204 --health-interval 1m");
        assert_eq!((http.path.as_deref(), http.status_from, http.status_to), (Some("/a:b/c"), Some(204), Some(204)));
        let range = check("--health-check http:/:200-299");
        assert_eq!((range.path.as_deref(), range.status_from, range.status_to), (Some("/"), Some(200), Some(299)));
        assert_eq!(check("--health-check http:/a:b").path.as_deref(), Some("/a:b"));
        assert_eq!(changed("--health-check off").health_check, Some(None));
        let mut update = UpdateSocket::default();
        assert!(args("--health-timeout 3s").change(None, &mut update).unwrap_err().message.contains("no health check"));
        assert!(args("--health-check off --health-timeout 3s").change(None, &mut update).is_err());
    }

    #[test]
    fn errors_name_the_expected_value() {
        for (line, says) in [
            ("--health-check ftp", "expected tcp, http:/PATH"),
            ("--health-check http://localhost/up", "not a URL"),
            ("--health-check http:/up:200-299-300", "expected tcp"),
            ("--health-interval 500ms", "whole seconds"),
            ("--max-connections many", "expected a number"),
            ("--bytes-per-second 10T", "expected a number"),
            ("--passthrough --no-passthrough", "cannot be used with '--no-passthrough'"),
            ("--affinity sticky", "[possible values: none, cookie, address]"),
            ("--dial eu", "expected REGION=PERCENT"),
            ("--dial eu=101", "0 to 100 percent"),
            ("--dial eu=-1", "0 to 100 percent"),
            ("--dial EU=1", "no name of a region"),
            ("--proxy-protocol v3", "[possible values: v1, v2, off]"),
        ] {
            let words = std::iter::once("x").chain(line.split(' '));
            let error = Line::try_parse_from(words).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn only_what_was_set_is_shown() {
        let rows = show(&socket());
        let titles: Vec<_> = rows.iter().map(|(title, _)| *title).collect();
        assert_eq!(titles, ["health check", "at most", "allowed", "dials"]);
        assert_eq!(rows[3].1, "asia 50 %");
        let check = "GET /up gives 200 to 204 within 2s, every 9s; out after 3 bad ones, back after 2 good ones";
        assert_eq!((rows[0].1.as_str(), rows[1].1.as_str()), (check, "5 at a time, 7 waiting"));
    }
}
