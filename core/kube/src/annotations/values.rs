//! The values of options.

use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use sallyport_model::{
    DomainName, FULL_DIAL, HeaderField, MAX_DOMAINS_PER_SOCKET, MAX_ORIGIN_CONNECTIONS, MAX_WEIGHT, RegionName,
};

use super::{HealthProbe, Options};

/// The word that removes a setting.
const OFF: &str = "off";
/// The most entries of a list.
const MAX_ENTRIES: usize = 1_000;
/// The most policies of a socket.
const MAX_POLICIES: usize = 20;
/// The longest time that a pod may take to accept a connection.
const LONGEST_CONNECT_MILLIS: u64 = 60 * 60 * 1_000;

type Read<T> = Result<T, String>;

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Read<T> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// `true` or `false`.
pub(super) fn flag(text: &str) -> Read<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("expected \"true\" or \"false\", and not {:?}", shown(other))),
    }
}

/// The beginning of a text, for messages.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The words between commas and line ends; none for `off`.
fn words(text: &str) -> Read<Vec<String>> {
    let words: Vec<_> =
        text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    if words.len() > MAX_ENTRIES {
        return Err(format!("expected at most {MAX_ENTRIES} entries, and there are {}", words.len()));
    }
    if let Some(bad) = words.iter().find(|word| word.chars().any(char::is_control)) {
        return Err(format!("{:?} has control characters", shown(bad)));
    }
    if words.iter().all(|word| word == OFF) {
        return Ok(Vec::new());
    }
    Ok(words)
}

fn list<T: FromStr<Err: Display>>(text: &str) -> Read<Vec<T>> {
    words(text)?.iter().map(|word| parsed(word)).collect()
}

fn or_off<T>(text: &str, read: impl FnOnce(&str) -> Read<T>) -> Read<Option<T>> {
    if text == OFF { Ok(None) } else { read(text).map(Some) }
}

fn number(text: &str, from: u64, to: u64) -> Read<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_number && (from..=to).contains(number));
    number.ok_or_else(|| format!("expected {from} to {to}, and not {:?}", shown(text)))
}

fn small(text: &str, from: u64, to: u32) -> Read<u32> {
    number(text, from, to.into()).map(|number| u32::try_from(number).unwrap_or(to))
}

fn limit(text: &str) -> Read<Option<u64>> {
    or_off(text, |text| {
        let wrong = || format!("expected a number such as 100 or 10M, or off, and not {:?}", shown(text));
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "" => 1,
            "k" | "K" => 1 << 10,
            "m" | "M" => 1 << 20,
            "g" | "G" => 1 << 30,
            _ => return Err(wrong()),
        };
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)
    })
}

/// A time such as `500ms`, `10s`, `2m` or `1h`, in milliseconds.
fn millis(text: &str) -> Read<u64> {
    let wrong = || format!("expected a time such as 10s, and not {:?}", shown(text));
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    millis.filter(|millis| *millis > 0).ok_or_else(wrong)
}

fn seconds(text: &str) -> Read<u32> {
    let wrong = || format!("expected whole seconds, such as 5s, and not {:?}", shown(text));
    let millis = millis(text).map_err(|_| wrong())?;
    if millis % 1_000 != 0 {
        return Err(wrong());
    }
    u32::try_from(millis / 1_000).map_err(|_| wrong())
}

fn health(text: &str) -> Read<HealthProbe> {
    let wrong = || format!("expected tcp, http:/PATH, http:/PATH:200-299, or off, and not {:?}", shown(text));
    match text {
        OFF => return Ok(HealthProbe::Off),
        "tcp" => return Ok(HealthProbe::Tcp),
        _ => {}
    }
    let rest = text.strip_prefix("http:").filter(|rest| rest.starts_with('/')).ok_or_else(wrong)?;
    if rest.starts_with("//") {
        return Err("expected a path of the pods, not a URL: http:/healthz".to_owned());
    }
    // A colon may be part of the path. What follows the last colon is a status only if it looks like one.
    if let Some((path, range)) = rest.rsplit_once(':')
        && !range.is_empty()
        && range.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let status = from.parse().ok().zip(to.parse().ok()).ok_or_else(wrong)?;
        return Ok(HealthProbe::Http { path: path.to_owned(), status: Some(status) });
    }
    Ok(HealthProbe::Http { path: rest.to_owned(), status: None })
}

/// Values of regions: `eu=20,us=5`; a region with `off` has none.
fn by_region<T>(text: &str, read: impl Fn(&str) -> Read<T>) -> Read<BTreeMap<RegionName, T>> {
    let mut all = BTreeMap::new();
    for word in words(text)? {
        let wrong = || format!("expected REGION=VALUE such as eu=20, and not {:?}", shown(&word));
        let (region, value) = word.split_once('=').ok_or_else(wrong)?;
        let region = parsed::<RegionName>(region)?;
        if let Some(value) = or_off(value, &read)?
            && all.insert(region, value).is_some()
        {
            return Err(format!("{} is there twice", shown(&word)));
        }
    }
    Ok(all)
}

fn fields(text: &str) -> Read<Vec<HeaderField>> {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.iter().all(|line| *line == OFF) {
        return Ok(Vec::new());
    }
    let field = |line: &&str| {
        let wrong = || format!("expected NAME: VALUE on each line, and not {:?}", shown(line));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        Ok(HeaderField { name: name.trim().to_owned(), value: value.trim().to_owned() })
    };
    lines.iter().take(MAX_ENTRIES).map(field).collect()
}

fn labels(text: &str) -> Read<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for word in words(text)? {
        let wrong = || format!("expected KEY=VALUE such as team=web, and not {:?}", shown(&word));
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
        let is_good = (1..=63).contains(&key.len())
            && key.starts_with(|first: char| first.is_ascii_alphanumeric())
            && key.bytes().all(is_plain)
            && value.len() <= 255
            && !value.chars().any(char::is_control);
        if !is_good {
            return Err(wrong());
        }
        if key.starts_with(super::ANNOTATION_PREFIX) {
            return Err(format!("the label {} is one of the program's own", shown(key)));
        }
        all.insert(key.to_owned(), value.to_owned());
    }
    let most = 20;
    if all.len() > most { Err(format!("expected at most {most} labels")) } else { Ok(all) }
}

fn domains(text: &str) -> Read<Vec<DomainName>> {
    if let Some(bad) = words(text)?.iter().find(|word| word.contains(['/', ':'])) {
        return Err(format!("expected a domain name alone, such as app.example.org, and not {:?}", shown(bad)));
    }
    let mut domains = list::<DomainName>(text)?;
    domains.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    domains.dedup();
    if domains.len() > MAX_DOMAINS_PER_SOCKET {
        return Err(format!("expected at most {MAX_DOMAINS_PER_SOCKET} domains, and there are {}", domains.len()));
    }
    Ok(domains)
}

fn policies<T: FromStr<Err: Display>>(text: &str) -> Read<Vec<T>> {
    let policies = list(text)?;
    if policies.len() > MAX_POLICIES {
        return Err(format!("expected at most {MAX_POLICIES} policies, and there are {}", policies.len()));
    }
    Ok(policies)
}

fn ports(text: &str) -> Read<Vec<String>> {
    let ports = words(text)?;
    match ports.as_slice() {
        [] => Err("expected the name or the number of a port, or all".to_owned()),
        [all] if all == "all" => Ok(Vec::new()),
        _ => Ok(ports),
    }
}

fn pin(text: &str) -> Read<String> {
    let digits: String = text.trim().to_ascii_lowercase();
    let digits = digits.strip_prefix("sha256:").unwrap_or(&digits).replace([':', ' '], "");
    let is_good = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_good { Ok(format!("sha256:{digits}")) } else { Err("expected sha256: and 64 hexadecimal digits".to_owned()) }
}

fn host(text: &str) -> Read<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_good = (1..=253).contains(&text.len()) && text.bytes().all(is_plain);
    if is_good { Ok(text.to_owned()) } else { Err(format!("expected a host name, and not {:?}", shown(text))) }
}

/// A word and its opposite are not given together.
fn either(place: &mut Option<bool>, value: bool) -> Read<()> {
    if place.is_some_and(|there| there != value) {
        return Err("its opposite is given too".to_owned());
    }
    *place = Some(value);
    Ok(())
}

impl Options {
    /// Sets the option of this name. `None` if no option has it, or if annotations cannot set it.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Option<Read<()>> {
        let text = text.trim();
        self.set_socket(name, text).or_else(|| self.set_access(name, text)).or_else(|| self.set_tunnel(name, text))
    }

    fn set_socket(&mut self, name: &str, text: &str) -> Option<Read<()>> {
        Some(match name {
            "port" => ports(text).map(|value| self.port = Some(value)),
            "name" => parsed(text).map(|value| self.name = Some(value)),
            "name-label" => parsed(text).map(|value| self.name_label = Some(value)),
            "label" => labels(text).map(|value| self.label = Some(value)),
            "type" => parsed(text).map(|value| self.socket_type = Some(value)),
            "origin-protocol" => parsed(text).map(|value| self.origin_protocol = Some(value)),
            "public-port" => {
                small(text, 1, 65_535).map(|value| self.public_port = Some(u16::try_from(value).unwrap_or(u16::MAX)))
            }
            "proxy-protocol" => parsed(text).map(|value| self.proxy_protocol = Some(value)),
            "passthrough" => flag(text).and_then(|value| either(&mut self.passthrough, value)),
            "no-passthrough" => flag(text).and_then(|value| either(&mut self.passthrough, !value)),
            "alpn" => words(text).map(|value| self.alpn = Some(value)),
            "health-check" => health(text).map(|value| self.health_check = Some(value)),
            "health-interval" => seconds(text).map(|value| self.health_interval = Some(value)),
            "health-timeout" => seconds(text).map(|value| self.health_timeout = Some(value)),
            "healthy-threshold" => small(text, 1, 10).map(|value| self.healthy_threshold = Some(value)),
            "unhealthy-threshold" => small(text, 1, 10).map(|value| self.unhealthy_threshold = Some(value)),
            "affinity" => parsed(text).map(|value| self.affinity = Some(value)),
            "max-connections" => limit(text).map(|value| self.max_connections = Some(value)),
            "requests-per-second" => limit(text).map(|value| self.requests_per_second = Some(value)),
            "bytes-per-second" => limit(text).map(|value| self.bytes_per_second = Some(value)),
            "queue" => limit(text).map(|value| self.queue = Some(value)),
            "domain" => domains(text).map(|value| self.domain = Some(value)),
            "host-header" => or_off(text, parsed).map(|value| self.host_header = Some(value)),
            "request-header" => fields(text).map(|value| self.request_header = Some(value)),
            "response-header" => fields(text).map(|value| self.response_header = Some(value)),
            "remove-request-header" => words(text).map(|value| self.remove_request_header = Some(value)),
            "remove-response-header" => words(text).map(|value| self.remove_response_header = Some(value)),
            "dial" => by_region(text, |value| {
                let value = value.strip_suffix('%').unwrap_or(value);
                small(value, 0, FULL_DIAL.into()).map(|dial| u8::try_from(dial).unwrap_or(FULL_DIAL))
            })
            .map(|value| self.dial = Some(value)),
            _ => return None,
        })
    }

    fn set_access(&mut self, name: &str, text: &str) -> Option<Read<()>> {
        Some(match name {
            "allow" => words(text).map(|value| self.allow = Some(value)),
            "deny" => words(text).map(|value| self.deny = Some(value)),
            "amplification-guard" => flag(text).and_then(|value| either(&mut self.amplification_guard, value)),
            "no-amplification-guard" => flag(text).and_then(|value| either(&mut self.amplification_guard, !value)),
            "cloudauth" => flag(text).and_then(|value| either(&mut self.cloudauth, value)),
            "no-cloudauth" => flag(text).and_then(|value| either(&mut self.cloudauth, !value)),
            "allowed-email-addresses" => list(text).map(|value| self.allowed_email_addresses = Some(value)),
            "allowed-email-domains" => list(text).map(|value| self.allowed_email_domains = Some(value)),
            "identity-provider" => list(text).map(|value| self.identity_provider = Some(value)),
            "session-minutes" => small(text, 1, u32::MAX).map(|value| self.session_minutes = Some(value)),
            "policy" => policies(text).map(|value| self.policy = Some(value)),
            _ => return None,
        })
    }

    fn set_tunnel(&mut self, name: &str, text: &str) -> Option<Read<()>> {
        Some(match name {
            "path" => parsed(text).map(|value| self.path = Some(value)),
            "rewrite-path" => parsed(text).map(|value| self.rewrite_path = Some(value)),
            "strip-path" => flag(text).map(|value| self.strip_path = Some(value)),
            "weight" => small(text, 0, MAX_WEIGHT.into())
                .map(|value| self.weight = Some(u16::try_from(value).unwrap_or(MAX_WEIGHT))),
            "max-rps" => or_off(text, parsed).map(|value| self.max_rps = Some(value)),
            "origin-max-connections" => or_off(text, |text| small(text, 1, MAX_ORIGIN_CONNECTIONS))
                .map(|value| self.origin_max_connections = Some(value)),
            "shared-capacity" => or_off(text, parsed).map(|value| self.shared_capacity = Some(value)),
            "region-max-rps" => by_region(text, parsed).map(|value| self.region_max_rps = Some(value)),
            "region-max-connections" => by_region(text, |text| small(text, 1, MAX_ORIGIN_CONNECTIONS))
                .map(|value| self.region_max_connections = Some(value)),
            "region-shared-capacity" => by_region(text, parsed).map(|value| self.region_shared_capacity = Some(value)),
            "origin-pin" => pin(text).map(|value| self.origin_pin = Some(value)),
            "origin-server-name" => host(text).map(|value| self.origin_server_name = Some(value)),
            "connect-timeout" => millis(text).and_then(|value| {
                let is_short = value <= LONGEST_CONNECT_MILLIS;
                is_short
                    .then(|| self.connect_timeout = Some(value))
                    .ok_or_else(|| "expected an hour at most".to_owned())
            }),
            _ => return None,
        })
    }
}
