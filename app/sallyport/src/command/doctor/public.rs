//! Checks of names with certificates of public authorities, on the machine of their server.
//!
//! The order is that in which to repair faults: the clock, the way to the authority, records, ports, certificates.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use sallyport_acme::{Directory, DirectoryConfig};
use sallyport_api::{Certificate, CertificateState};
use sallyport_domains::{CaaVerdict, RECORD_LABEL, caa_verdict};
use sallyport_resolver::Resolver;
use time::OffsetDateTime;
use tokio::net::TcpStream;

use super::{Check, State, compare_clocks};
use crate::{
    args::acme::{ACME_PORTS, LETS_ENCRYPT, read as read_root},
    command::api_status,
    machine::server_note::PublicNames,
    view::{quoted, utc},
};

/// How long a port may take to accept a connection.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many addresses of the domain are tried.
const MAX_ADDRESSES: usize = 8;
/// Certificates that end within this time cause a warning, in days. The shortest profile lives for six days, and is
/// renewed after three.
const END_WARN_DAYS: i64 = 2;

/// The checks that need no login.
pub(super) async fn checks(names: &PublicNames) -> Vec<Check> {
    let (mut checks, identities) = authority(names).await;
    match Resolver::new(&names.resolver) {
        Ok(resolver) => {
            let delegation = match names.name_server {
                Some(server) => Some(delegation(names, server, &resolver).await),
                None => None,
            };
            let is_broken = delegation.as_ref().is_some_and(|check| check.state == State::Fail);
            checks.extend(delegation);
            let (records, addresses) = match is_broken {
                true => (Check::skip("dns", "not tried: the name server comes first"), Vec::new()),
                false => records(names, &resolver).await,
            };
            checks.push(records);
            checks.push(match unusable(names) {
                Some(check) => check,
                None => ports(&names.ports, &addresses).await,
            });
            checks.push(caa(&names.domain, &identities, &resolver).await);
        }
        Err(error) => checks.push(Check::fail("dns", error.to_string(), "set the name servers with --resolver ADDR")),
    }
    checks
}

/// The clock of this machine against that of the authority, whether the authority can be reached, and its names in CAA
/// records.
async fn authority(names: &PublicNames) -> (Vec<Check>, Vec<String>) {
    const NAME: &str = "authority";
    let url = &names.directory;
    let roots_pem = names.directory_root.as_deref().map(read_root).transpose();
    let fetched = match roots_pem {
        Ok(roots_pem) => {
            let config = DirectoryConfig { url: url.clone(), roots_pem, ..DirectoryConfig::default() };
            Directory::fetch(&config).await.map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("{error:#}")),
    };
    match fetched {
        Ok(directory) => {
            let ahead = directory.clock.map(|clock| (OffsetDateTime::now_utc() - clock).whole_seconds());
            let mut checks: Vec<_> = ahead.map(|ahead| compare_clocks(ahead, "the authority")).into_iter().collect();
            checks.push(Check::ok(NAME, format!("{url} answers")));
            (checks, directory.caa_identities)
        }
        Err(error) => {
            let next = "let this machine connect to the authority over HTTPS";
            (vec![Check::fail(NAME, error, next)], Vec::new())
        }
    }
}

/// Whether the name server of this machine answers, has addresses, and is the one to which the parent zone leads.
async fn delegation(names: &PublicNames, server: SocketAddr, resolver: &Resolver) -> Check {
    const NAME: &str = "name server";
    let PublicNames { domain, addresses: own, .. } = names;
    let mark = format!("{RECORD_LABEL}.{domain}");
    let asked = async {
        let here = Resolver::new(&[server]).map_err(|error| error.to_string())?;
        let marks = here.txt(&mark).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((marks, here.addresses(domain).await.map_err(|error| error.to_string())?))
    };
    let marks = match asked.await {
        Ok((_, addresses)) if addresses.is_empty() => {
            let next = "give the address of this machine for others: --public-address ADDR";
            return Check::fail(NAME, format!("the name server knows no address for {domain}"), next);
        }
        Ok((marks, _)) => marks,
        Err(error) => {
            return Check::fail(NAME, format!("{server} does not answer: {error}"), "see the log of the server");
        }
    };
    let found = match resolver.txt(&mark).await {
        Ok(found) if found.iter().any(|one| marks.contains(one)) => {
            return Check::ok(NAME, format!("{domain} is delegated to the name server here"));
        }
        Ok(_) => format!("{domain} is not delegated to the name server here"),
        Err(error) => format!("{domain} is not delegated to the name server here: {error}"),
    };
    let glue = |label: &str| own.iter().map(|own| format!("{label}.{domain} {} {own}", kind(own))).collect::<Vec<_>>();
    let servers = ["ns1", "ns2"].map(|label| format!("{domain} NS {label}.{domain}"));
    let records = [servers.to_vec(), glue("ns1"), glue("ns2")].concat().join(", ");
    Check::fail(NAME, found, format!("at the zone above, set {records}; and open port 53 for UDP and TCP"))
}

/// The failure if the authority has no way to verify names: it connects to two ports alone.
fn unusable(names: &PublicNames) -> Option<Check> {
    let is_public = names.directory == LETS_ENCRYPT;
    if !is_public || names.name_server.is_some() || names.ports.iter().any(|port| ACME_PORTS.contains(port)) {
        return None;
    }
    let shown = names.ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let found = format!("the authority connects to the ports 443 and 80, and this server has {shown}");
    Some(Check::fail("ports", found, "listen at :443 and :80, or give --public-port 443 behind a port mapping"))
}

/// Whether the names of the installation lead to this server, and the addresses of the domain.
async fn records(names: &PublicNames, resolver: &Resolver) -> (Check, Vec<IpAddr>) {
    const NAME: &str = "dns";
    let PublicNames { domain, addresses: own, has_desk, .. } = names;
    let mut found: Vec<IpAddr> = Vec::new();
    for label in ["", "api.", "login.", "tunnel.", "sallyport-status."].into_iter().chain(has_desk.then_some("desk.")) {
        let name = format!("{label}{domain}");
        match resolver.addresses(&name).await {
            Ok(addresses) if addresses.is_empty() => {
                return (Check::fail(NAME, format!("{name} has no address"), wanted(domain, own)), found);
            }
            Ok(addresses) => found.extend(addresses),
            Err(error) => {
                let next = "see whether the name service of this machine answers, or set one with --resolver ADDR";
                return (Check::fail(NAME, error.to_string(), next), found);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    let lead_elsewhere: Vec<IpAddr> =
        found.iter().copied().filter(|one| !own.is_empty() && !own.contains(one)).collect();
    let check = if lead_elsewhere.is_empty() {
        Check::ok(NAME, format!("{domain} and names beneath lead to {}", list(&found)))
    } else {
        let found = format!("names lead to {}, and this server has {}", list(&lead_elsewhere), list(own));
        let next = format!("{}; where a port mapping stands in front, give --public-address", wanted(domain, own));
        Check::warn(NAME, found, next)
    };
    (check, found)
}

/// The type of a record with this address.
fn kind(address: &IpAddr) -> &'static str {
    if address.is_ipv4() { "A" } else { "AAAA" }
}

/// The records that lead names to this server, for people.
fn wanted(domain: &str, own: &[IpAddr]) -> String {
    let records = |name: &str| own.iter().map(|own| format!("{name} {} {own}", kind(own))).collect::<Vec<_>>();
    match own {
        [] => format!("set records of {domain} and *.{domain} with the addresses of the edges"),
        _ => format!("set {}", [records(domain), records(&format!("*.{domain}"))].concat().join(", ")),
    }
}

/// Whether the ports can be reached at the addresses of the domain.
async fn ports(ports: &[u16], addresses: &[IpAddr]) -> Check {
    const NAME: &str = "ports";
    let shown = ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    if addresses.is_empty() {
        return Check::skip(NAME, format!("{shown} not tried: the domain has no address"));
    }
    for ip in addresses.iter().take(MAX_ADDRESSES) {
        for port in ports {
            let at = SocketAddr::new(*ip, *port);
            let why = match tokio::time::timeout(PORT_TIMEOUT, TcpStream::connect(at)).await {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", PORT_TIMEOUT.as_secs()),
            };
            let next = format!("open port {port} in firewalls, and forward it at the router, or correct the record");
            return Check::fail(NAME, format!("{at} cannot be reached: {why}"), next);
        }
    }
    Check::ok(NAME, format!("{shown} of {} can be reached from here", list(addresses)))
}

/// Whether CAA records allow the authority.
async fn caa(domain: &str, identities: &[String], resolver: &Resolver) -> Check {
    const NAME: &str = "caa";
    let Some(wanted) = identities.first() else {
        return Check::skip(NAME, "the authority does not say by which name CAA records allow it");
    };
    let (place, records) = match resolver.caa(domain).await {
        Ok(Some(found)) => found,
        Ok(None) => return Check::ok(NAME, "no record: every authority may sign"),
        Err(error) => {
            return Check::warn(NAME, error.to_string(), "see whether the name service of the domain answers");
        }
    };
    match caa_verdict(&records, identities, false) {
        CaaVerdict::Allowed => Check::ok(NAME, format!("the records of {place} allow {wanted}")),
        CaaVerdict::Forbidden(record) => {
            let found = format!("the record {place} {record} forbids {wanted} to sign");
            Check::fail(NAME, found, format!("add the record: {domain} CAA 0 issue \"{wanted}\""))
        }
    }
}

/// Whether every name has its certificate. `None` stands for a caller that may not see them.
pub(super) fn certificates(all: Option<&[Certificate]>, now: OffsetDateTime) -> Check {
    const NAME: &str = "certificates";
    let Some(all) = all else { return Check::skip(NAME, "log in as an owner of the installation to see them") };
    let name = |one: &Certificate| one.names.first().cloned().unwrap_or_default();
    let troubled = |one: &&Certificate| !matches!(one.state, CertificateState::Valid) && one.problem.is_some();
    // One without any certificate hurts more than one whose renewal fails.
    let worst = all.iter().filter(troubled).min_by_key(|one| one.state == CertificateState::Failing);
    if let Some(worst) = worst {
        let count = all.iter().filter(troubled).count();
        let others = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
        let found = format!("{}: {}{others}", name(worst), worst.problem.clone().unwrap_or_default());
        let next = match worst.problem.as_deref() {
            Some(problem) if problem.ends_with("import a certificate") => "sallyport cert import --help".to_owned(),
            _ => format!("mend that, then order at once: sallyport cert renew {}", quoted(&name(worst))),
        };
        return match worst.state {
            CertificateState::Failing => Check::warn(NAME, found, next),
            _ => Check::fail(NAME, found, next),
        };
    }
    if let Some(expired) = all.iter().find(|one| one.state == CertificateState::Expired) {
        let next = format!("sallyport cert renew {}, or import another one", quoted(&name(expired)));
        return Check::fail(NAME, format!("{} has expired", name(expired)), next);
    }
    let waiting = all.iter().filter(|one| one.state == CertificateState::Waiting).count();
    if waiting > 0 {
        return Check::warn(
            NAME,
            format!("{waiting} of {} still to come", all.len()),
            "wait: an order takes some seconds",
        );
    }
    let first = all.iter().filter_map(|one| Some((one.not_after?, name(one)))).min();
    let Some((end, name)) = first else { return Check::ok(NAME, "none is needed yet") };
    let found = format!("{} are valid, {name} until {}", all.len(), utc(end));
    if api_status::days(end, now) < END_WARN_DAYS {
        return Check::warn(NAME, found, format!("sallyport cert show {} says when it is renewed", quoted(&name)));
    }
    Check::ok(NAME, found)
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn certificate(name: &str, state: CertificateState, problem: Option<&str>) -> Certificate {
        Certificate {
            id: uuid::Uuid::nil(),
            names: vec![name.to_owned()],
            state,
            source: "acme".to_owned(),
            is_of_installation: true,
            issuer: None,
            fingerprint: None,
            not_before: None,
            not_after: Some(datetime!(2027-01-01 0:00 UTC)),
            next_at: None,
            problem: problem.map(str::to_owned),
            created_at: datetime!(2026-01-01 0:00 UTC),
        }
    }

    #[test]
    fn a_name_without_a_certificate_is_reported_before_a_failing_renewal() {
        let now = datetime!(2026-11-01 0:00 UTC);
        let failing = certificate("a.example", CertificateState::Failing, Some("the CA is away"));
        let waiting = certificate("b.example", CertificateState::Waiting, Some("b.example has no address"));
        let valid = certificate("c.example", CertificateState::Valid, None);
        let found = certificates(Some(&[failing.clone(), waiting.clone(), valid.clone()]), now);
        assert_eq!(found.state, State::Fail);
        assert!(found.found.starts_with("b.example: b.example has no address, and 1 more"), "{}", found.found);
        assert_eq!(certificates(Some(&[failing, valid.clone()]), now).state, State::Warn);
        let first_order = certificate("b.example", CertificateState::Waiting, None);
        assert_eq!(certificates(Some(&[first_order]), now).state, State::Warn);
        assert_eq!(certificates(Some(std::slice::from_ref(&valid)), now).state, State::Ok);
        assert_eq!(certificates(Some(&[valid]), datetime!(2026-12-31 0:00 UTC)).state, State::Warn);
        assert_eq!(certificates(None, now).state, State::Skip);
    }

    #[tokio::test]
    async fn a_closed_port_is_named_with_its_address() {
        let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = taken.local_addr().unwrap().port();
        let here = ["127.0.0.1".parse().unwrap()];
        assert_eq!(ports(&[open], &here).await.state, State::Ok);
        // A bound socket that does not listen refuses connections, and no other test gets its port.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = closed.local_addr().unwrap().port();
        let found = ports(&[open, port], &here).await;
        assert_eq!((found.state, found.found.contains(&format!("127.0.0.1:{port}"))), (State::Fail, true));
        assert_eq!(ports(&[port], &[]).await.state, State::Skip);
    }

    #[test]
    fn the_wanted_records_are_written_out() {
        let own = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        let records = wanted("t.example.com", &own);
        assert!(records.contains("*.t.example.com A 192.0.2.7"), "{records}");
        assert!(records.contains("t.example.com AAAA 2001:db8::7"), "{records}");
        assert!(wanted("t.example.com", &[]).contains("edges"));
    }
}
