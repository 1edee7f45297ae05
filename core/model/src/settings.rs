//! An owner's settings of a socket beyond its type: forwarding, health checks, balancing and limits.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    Capacity, CapacityError, HeaderRules, HeaderRulesError, HostHeader, IdentitySettings, MAX_IDENTITY_ENTRIES,
    MAX_SESSION_MINUTES, RegionName,
};

/// The most application protocols (ALPN) that a socket offers.
pub const MAX_ALPN_PROTOCOLS: usize = 8;
/// The longest name of an application protocol, in bytes (RFC 7301 section 3.1).
pub const MAX_ALPN_BYTES: usize = 255;
/// The most rules in one access list.
pub const MAX_ACCESS_RULES: usize = 1_000;
/// The lowest limit of bytes per second.
const MIN_BYTES_PER_SECOND: u64 = 1 << 10;
/// The highest limit of bytes per second.
const MAX_BYTES_PER_SECOND: u64 = 1 << 40;
/// The highest weight of a tunnel.
pub const MAX_WEIGHT: u16 = 1_000;
/// The default weight of a tunnel.
pub const DEFAULT_WEIGHT: u16 = 100;
/// The most regions with settings of their own.
pub const MAX_REGIONS: usize = 64;
/// The default dial of a region: it keeps all flows.
pub const FULL_DIAL: u8 = 100;

/// The version of the PROXY protocol header with the client's address for the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// No header.
    #[default]
    Off,
    /// The text header.
    V1,
    /// The binary header.
    V2,
}

/// The text is not a version of the PROXY protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of the PROXY protocol: use v1, v2 or off")]
pub struct UnknownProxyProtocol(pub String);

impl ProxyProtocol {
    /// The version as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

impl FromStr for ProxyProtocol {
    type Err = UnknownProxyProtocol;
    fn from_str(text: &str) -> Result<Self, UnknownProxyProtocol> {
        match text {
            "off" => Ok(Self::Off),
            "v1" => Ok(Self::V1),
            "v2" => Ok(Self::V2),
            other => Err(UnknownProxyProtocol(other.chars().take(64).collect())),
        }
    }
}

impl fmt::Display for ProxyProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where the TLS of a `tls` socket ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// At the edge, with a certificate for the socket's name; the origin gets plain TCP.
    #[default]
    Terminate,
    /// At the origin: the edge reads only the name in the ClientHello.
    Passthrough,
}

/// Whether a client returns to the same origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// No affinity: every flow goes to the least loaded origin.
    #[default]
    None,
    /// By a cookie that the edge sets (only HTTP).
    Cookie,
    /// By a hash of the client's address, with a Maglev table.
    Address,
}

/// The text is not an affinity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an affinity: use none, cookie or address")]
pub struct UnknownAffinity(pub String);

impl Affinity {
    /// The affinity as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cookie => "cookie",
            Self::Address => "address",
        }
    }
}

impl FromStr for Affinity {
    type Err = UnknownAffinity;
    fn from_str(text: &str) -> Result<Self, UnknownAffinity> {
        match text {
            "none" => Ok(Self::None),
            "cookie" => Ok(Self::Cookie),
            "address" => Ok(Self::Address),
            other => Err(UnknownAffinity(other.chars().take(64).collect())),
        }
    }
}

/// Active health checks of origins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// The kind of check.
    #[serde(flatten)]
    pub probe: Probe,
    /// Time from one check to the next, in seconds; 1 to 3,600.
    #[serde(default = "default_interval")]
    pub interval_seconds: u32,
    /// Timeout of a check, in seconds; 1 to the interval.
    #[serde(default = "default_timeout")]
    pub timeout_seconds: u32,
    /// Consecutive passed checks that bring an origin back; 1 to 10.
    #[serde(default = "default_healthy")]
    pub healthy_threshold: u32,
    /// Consecutive failed checks that take an origin out; 1 to 10.
    #[serde(default = "default_unhealthy")]
    pub unhealthy_threshold: u32,
}

/// A kind of health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Probe {
    /// Opens a TCP connection.
    Tcp,
    /// Sends a GET request for this path and checks the status.
    Http {
        /// The path, beginning with a slash.
        path: String,
        /// The lowest passing status; 200 if absent.
        #[serde(default = "lowest_status")]
        status_from: u16,
        /// The highest passing status; 399 if absent.
        #[serde(default = "highest_status")]
        status_to: u16,
    },
}

fn default_interval() -> u32 {
    5
}
fn default_timeout() -> u32 {
    2
}
fn default_healthy() -> u32 {
    2
}
fn default_unhealthy() -> u32 {
    3
}
fn lowest_status() -> u16 {
    200
}
fn highest_status() -> u16 {
    399
}

/// Reason why a setting is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A number is out of range.
    #[error("{what} must be {from} to {to}{unit}")]
    OutOfRange {
        /// The setting.
        what: &'static str,
        /// The lowest allowed value.
        from: u64,
        /// The highest allowed value.
        to: u64,
        /// Its unit, after a space; empty for counts.
        unit: &'static str,
    },
    /// The timeout of a check exceeds its interval.
    #[error("a health check may take 1 to {interval} seconds: not longer than from one check to the next")]
    TimeoutOverInterval {
        /// The interval, in seconds.
        interval: u32,
    },
    /// The path of a check is malformed.
    #[error("a health check's path begins with / and has at most 1,024 printable characters, and no #")]
    Path,
    /// A queue without a limit.
    #[error(
        "a queue is for what is beyond a bound: bound the connections at a time or the requests per second too, or \
         leave the queue out"
    )]
    QueueWithoutBound,
    /// The protocols are too many or too long.
    #[error("at most {MAX_ALPN_PROTOCOLS} protocols (ALPN) of 1 to {MAX_ALPN_BYTES} bytes can be offered")]
    Alpn,
    /// The socket type does not support the setting.
    #[error("{setting} is for {types} sockets")]
    NotForType {
        /// The setting.
        setting: &'static str,
        /// The types that support it.
        types: &'static str,
    },
    /// Too many rules in an access list.
    #[error("an access list has at most {MAX_ACCESS_RULES} rules")]
    TooManyRules,
    /// Too many addresses, domains or providers.
    #[error(
        "a socket names at most {MAX_IDENTITY_ENTRIES} e-mail addresses, {MAX_IDENTITY_ENTRIES} domains and \
         {MAX_IDENTITY_ENTRIES} providers: put more into a policy"
    )]
    TooManyIdentities,
    /// Too many regions.
    #[error("a socket has dials for at most {MAX_REGIONS} regions")]
    TooManyRegions,
    /// A dial is out of range.
    #[error("the dial of {region} must be 0 to {FULL_DIAL} percent")]
    Dial {
        /// The region.
        region: RegionName,
    },
    /// The capacity of a region is out of range.
    #[error("in the region {region}, {error}")]
    Capacity {
        /// The region.
        region: RegionName,
        /// The problem.
        error: CapacityError,
    },
    /// Identity with TLS passthrough.
    #[error("the edge cannot identify clients with TLS passthrough: drop passthrough, or identity")]
    IdentityBehindPassthrough,
    /// The header rules are invalid.
    #[error(transparent)]
    Headers(#[from] HeaderRulesError),
}

/// The limits of one socket; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Concurrent client connections (for HTTP: requests; for UDP: flows).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// New requests per second (for TCP, TLS and UDP: connections or flows), with a burst of one second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Bytes per second, both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Requests or connections beyond a limit that wait for their turn instead of being refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
}

/// Access by client address. Rules are networks (`192.0.2.0/24`), countries (`country:CH`) and autonomous systems
/// (`asn:64500`). A deny rule wins over an allow rule; if there are allow rules, addresses that match none are refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRules {
    /// Admitted addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Refused addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl AccessRules {
    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}

/// Settings of the origins in one region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointGroup {
    /// The percentage of its flows that the region keeps; the others go on to the next nearest region.
    #[serde(default = "full_dial")]
    pub dial: u8,
    /// What the origins in the region can carry together.
    #[serde(default, skip_serializing_if = "Capacity::is_empty")]
    pub capacity: Capacity,
}

impl Default for EndpointGroup {
    fn default() -> Self {
        Self { dial: FULL_DIAL, capacity: Capacity::default() }
    }
}

fn full_dial() -> u8 {
    FULL_DIAL
}

/// All settings of a socket beyond its type and basic authentication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketSettings {
    /// The PROXY protocol header for the origin (`tcp` and `tls` sockets).
    pub proxy_protocol: ProxyProtocol,
    /// Where TLS ends (`tls` sockets).
    pub tls_mode: TlsMode,
    /// The protocols (ALPN) that the edge offers if it ends the TLS of a `tls` socket, preferred first.
    pub alpn: Vec<String>,
    /// Active health checks; `None`: origins are judged only by the outcome of their flows.
    pub health_check: Option<HealthCheck>,
    /// Whether a client returns to the same origin.
    pub affinity: Affinity,
    /// The limits of the socket.
    pub limits: Limits,
    /// Access by client address.
    pub access: AccessRules,
    /// Whether the edge limits the bytes to a client of a `udp` socket that has sent little: its address may be
    /// spoofed.
    pub amplification_guard: bool,
    /// Identity settings (`http` and `https` sockets: by a login; `tls` sockets that end at the edge: by a
    /// certificate).
    pub identity: Option<IdentitySettings>,
    /// Settings by region; other regions keep all their flows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub regions: BTreeMap<RegionName, EndpointGroup>,
    /// The `Host` that origins get; `None`: the public name (`http` and `https` sockets).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_header: Option<HostHeader>,
    /// Changes to header fields (`http` and `https` sockets).
    #[serde(skip_serializing_if = "HeaderRules::is_empty")]
    pub headers: HeaderRules,
}

impl Default for SocketSettings {
    fn default() -> Self {
        Self {
            proxy_protocol: ProxyProtocol::default(),
            tls_mode: TlsMode::default(),
            alpn: Vec::new(),
            health_check: None,
            affinity: Affinity::default(),
            limits: Limits::default(),
            access: AccessRules::default(),
            amplification_guard: true,
            identity: None,
            regions: BTreeMap::new(),
            host_header: None,
            headers: HeaderRules::default(),
        }
    }
}

impl SocketSettings {
    /// The dial of this region, in percent; `None` means origins without a known region, which cannot be dialed down.
    #[must_use]
    pub fn dial(&self, region: Option<&RegionName>) -> u8 {
        region.and_then(|region| self.regions.get(region)).map_or(FULL_DIAL, |group| group.dial)
    }

    /// Checks whether a socket of this type can have these settings. The text of access rules is not checked here.
    ///
    /// # Errors
    /// The first setting that is out of bounds or not supported by the type.
    pub fn check(&self, socket_type: crate::SocketType) -> Result<(), SettingError> {
        use crate::SocketType as T;
        let only = |is_set: bool, types: &[T], setting, names| {
            let fits = !is_set || types.contains(&socket_type);
            fits.then_some(()).ok_or(SettingError::NotForType { setting, types: names })
        };
        only(self.proxy_protocol != ProxyProtocol::Off, &[T::Tcp, T::Tls], "the PROXY protocol", "tcp and tls")?;
        only(self.tls_mode != TlsMode::Terminate, &[T::Tls], "passthrough", "tls")?;
        only(!self.alpn.is_empty(), &[T::Tls], "ALPN", "tls")?;
        only(self.affinity == Affinity::Cookie, &[T::Http, T::Https], "affinity by cookie", "http and https")?;
        only(!self.amplification_guard, &[T::Udp], "going without the amplification guard", "udp")?;
        only(self.host_header.is_some(), &[T::Http, T::Https], "a host header", "http and https")?;
        only(!self.headers.is_empty(), &[T::Http, T::Https], "changing header fields", "http and https")?;
        self.headers.check()?;
        if let Some(identity) = &self.identity {
            only(true, &[T::Http, T::Https, T::Tls], "identity", "http, https and tls")?;
            if self.tls_mode == TlsMode::Passthrough {
                return Err(SettingError::IdentityBehindPassthrough);
            }
            identity.check()?;
        }
        if let Some(check) = &self.health_check {
            only(true, &[T::Http, T::Https, T::Tcp, T::Tls], "a health check", "http, https, tcp and tls")?;
            check.check()?;
        }
        let alpn_ok =
            |name: &String| (1..=MAX_ALPN_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        if self.alpn.len() > MAX_ALPN_PROTOCOLS || !self.alpn.iter().all(alpn_ok) {
            return Err(SettingError::Alpn);
        }
        if self.access.allow.len().max(self.access.deny.len()) > MAX_ACCESS_RULES {
            return Err(SettingError::TooManyRules);
        }
        if self.regions.len() > MAX_REGIONS {
            return Err(SettingError::TooManyRegions);
        }
        if let Some((region, _)) = self.regions.iter().find(|(_, group)| group.dial > FULL_DIAL) {
            return Err(SettingError::Dial { region: region.clone() });
        }
        for (region, group) in &self.regions {
            let error = |error| SettingError::Capacity { region: region.clone(), error };
            group.capacity.check().map_err(error)?;
        }
        let limits = &self.limits;
        let bounds = [
            ("the most connections", limits.max_connections.map(u64::from), 1, 1_000_000, ""),
            ("requests per second", limits.requests_per_second.map(u64::from), 1, 1_000_000, ""),
            ("the queue", limits.queue.map(u64::from), 1, 10_000, ""),
            (
                "bytes per second",
                limits.bytes_per_second,
                MIN_BYTES_PER_SECOND,
                MAX_BYTES_PER_SECOND,
                " bytes (1 KiB to 1 TiB)",
            ),
        ];
        for (what, value, from, to, unit) in bounds {
            value.map_or(Ok(()), |value| in_range(what, value, from, to, unit))?;
        }
        if limits.queue.is_some() && limits.max_connections.is_none() && limits.requests_per_second.is_none() {
            return Err(SettingError::QueueWithoutBound);
        }
        Ok(())
    }
}

impl IdentitySettings {
    fn check(&self) -> Result<(), SettingError> {
        let entries = [self.email_addresses.len(), self.email_domains.len(), self.providers.len()];
        if entries.into_iter().any(|count| count > MAX_IDENTITY_ENTRIES) {
            return Err(SettingError::TooManyIdentities);
        }
        let max = u64::from(MAX_SESSION_MINUTES);
        in_range("the length of a login", self.session_minutes.into(), 1, max, " minutes")?;
        in_range("the idle time of a login", self.session_idle_minutes.into(), 1, max, " minutes")
    }
}

impl HealthCheck {
    fn check(&self) -> Result<(), SettingError> {
        let in_range = |what, value, from, to, unit| in_range(what, u64::from(value), from, to, unit);
        in_range("the time between health checks", self.interval_seconds, 1, 3_600, " seconds")?;
        if !(1..=self.interval_seconds).contains(&self.timeout_seconds) {
            return Err(SettingError::TimeoutOverInterval { interval: self.interval_seconds });
        }
        in_range("the healthy threshold", self.healthy_threshold, 1, 10, "")?;
        in_range("the unhealthy threshold", self.unhealthy_threshold, 1, 10, "")?;
        if let Probe::Http { path, status_from, status_to } = &self.probe {
            // A fragment is for a browser and never sent (RFC 3986 section 3.5).
            let is_sent = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
            if !path.starts_with('/') || path.len() > 1_024 || !path.bytes().all(is_sent) {
                return Err(SettingError::Path);
            }
            in_range("the lowest good status", u32::from(*status_from), 200, 599, "")?;
            in_range("the highest good status", u32::from(*status_to), u64::from(*status_from), 599, "")?;
        }
        Ok(())
    }
}

fn in_range(what: &'static str, value: u64, from: u64, to: u64, unit: &'static str) -> Result<(), SettingError> {
    (from..=to).contains(&value).then_some(()).ok_or(SettingError::OutOfRange { what, from, to, unit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SocketType;

    #[test]
    fn settings_without_fields_are_the_defaults_and_survive_json() {
        let plain: SocketSettings = serde_json::from_str("{}").unwrap();
        assert_eq!(plain, SocketSettings::default());
        assert!(plain.amplification_guard);
        let full: SocketSettings = serde_json::from_str(
            r#"{"proxy_protocol":"v2","tls_mode":"passthrough","affinity":"address","limits":{"max_connections":5},
                "health_check":{"type":"http","path":"/up"},"access":{"deny":["country:CH"]}}"#,
        )
        .unwrap();
        let check = full.health_check.as_ref().unwrap();
        assert_eq!((check.interval_seconds, check.unhealthy_threshold), (5, 3));
        let again: SocketSettings = serde_json::from_str(&serde_json::to_string(&full).unwrap()).unwrap();
        assert_eq!(again, full);
        assert_eq!(full.check(SocketType::Tls), Ok(()));
        assert!(full.check(SocketType::Tcp).unwrap_err().to_string().starts_with("passthrough is for tls"));
    }

    #[test]
    fn a_region_that_is_not_named_takes_all() {
        let settings: SocketSettings = serde_json::from_str(r#"{"regions":{"eu":{"dial":20},"us":{}}}"#).unwrap();
        let [eu, us, asia] = ["eu", "us", "asia"].map(|name| name.parse::<RegionName>().unwrap());
        let dials = [Some(&eu), Some(&us), Some(&asia), None].map(|region| settings.dial(region));
        assert_eq!(dials, [20, 100, 100, 100]);
        assert_eq!(settings.check(SocketType::Udp), Ok(()));
        for bad in [r#"{"regions":{"EU":{"dial":1}}}"#, r#"{"regions":{"eu":{"dail":1}}}"#, r#"{"regions":{"eu":1}}"#] {
            assert!(serde_json::from_str::<SocketSettings>(bad).is_err(), "{bad}");
        }
        let many: Vec<_> = (0..65).map(|n| format!(r#""r{n}":{{}}"#)).collect();
        let many = format!(r#"{{"regions":{{{}}}}}"#, many.join(","));
        let many: SocketSettings = serde_json::from_str(&many).unwrap();
        assert_eq!(many.check(SocketType::Http), Err(SettingError::TooManyRegions));
        assert!(
            !serde_json::to_string(&SocketSettings::default()).unwrap().contains("regions"),
            "older edges read it too"
        );
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_in_a_sentence() {
        let refused = |json: &str, kind| {
            let settings: SocketSettings = serde_json::from_str(json).unwrap();
            settings.check(kind).unwrap_err().to_string()
        };
        for (json, kind, says) in [
            (r#"{"limits":{"max_connections":0}}"#, SocketType::Tcp, "the most connections must be 1 to"),
            (
                r#"{"limits":{"bytes_per_second":5}}"#,
                SocketType::Tcp,
                "bytes per second must be 1024 to 1099511627776 bytes (1 KiB to 1 TiB)",
            ),
            (
                r#"{"limits":{"queue":5,"bytes_per_second":5000}}"#,
                SocketType::Tcp,
                "a queue is for what is beyond a bound",
            ),
            (r#"{"affinity":"cookie"}"#, SocketType::Tcp, "affinity by cookie is for http"),
            (r#"{"amplification_guard":false}"#, SocketType::Tcp, "the amplification guard is for udp"),
            (r#"{"alpn":["a b"]}"#, SocketType::Tls, "protocols (ALPN)"),
            (r#"{"health_check":{"type":"tcp","timeout_seconds":9}}"#, SocketType::Http, "may take 1 to 5 seconds"),
            (r#"{"health_check":{"type":"http","path":"up"}}"#, SocketType::Http, "begins with /"),
            (r#"{"health_check":{"type":"http","path":"/up#x"}}"#, SocketType::Http, "no #"),
            (r#"{"health_check":{"type":"tcp"}}"#, SocketType::Udp, "a health check is for"),
            (r#"{"regions":{"eu":{"dial":101}}}"#, SocketType::Udp, "the dial of eu must be 0 to 100 percent"),
        ] {
            assert!(refused(json, kind).contains(says), "{json}: {}", refused(json, kind));
        }
    }
}
