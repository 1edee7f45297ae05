//! `sallyport doctor`: finds faults, in the order in which to repair them.
//!
//! May use what `command` may use.

mod machine;
mod public;

use std::path::PathBuf;

use clap::{Args, builder::styling::AnsiColor};
use serde::Serialize;
use time::OffsetDateTime;

use super::{
    api_status::{self, ApiStatus, Login},
    trust,
};
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
    machine::server_note,
    output::{paint, safe},
    view::utc,
};

/// The check of the clock.
const CLOCK: &str = "clock";
/// From which difference of the clocks on to warn, in seconds; one-time codes last half a minute.
const CLOCK_WARN_SECONDS: i64 = 20;
/// From which difference on logins and certificates fail, in seconds.
const CLOCK_FAIL_SECONDS: i64 = 120;
/// Certificates that end within this time cause a warning.
const LEAF_WARN_DAYS: i64 = 3;
const ROOT_WARN_DAYS: i64 = 60;

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The data directory to look at [default: that of the `sallyport up` that runs here, else the one it would take]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    data: Option<PathBuf>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// No fault.
    Ok,
    /// It works, but not for long, or not for everyone.
    Warn,
    /// It does not work.
    Fail,
    /// It cannot be checked from here.
    Skip,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Check {
    /// What was checked.
    name: &'static str,
    /// The result.
    state: State,
    /// What was found.
    found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Check {
    /// No fault.
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), next: None }
    }

    /// It works, with a warning.
    pub(super) fn warn(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state: State::Warn, found: found.into(), next: Some(next.into()) }
    }

    /// It does not work.
    pub(super) fn fail(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        let next = Some(next.into()).filter(|next| !next.is_empty());
        Self { name, state: State::Fail, found: found.into(), next }
    }

    /// It cannot be checked from here.
    pub(super) fn skip(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Skip, found: found.into(), next: None }
    }
}

/// Runs the command.
pub(crate) async fn run(context: &Context, args: DoctorArgs) -> anyhow::Result<()> {
    let programs = super::status::programs();
    let mut checks = machine::checks(&programs, args.data);
    let api = context.target().ok().map(|target| target.api);
    let mut notes = server_note::by_preference();
    // Another server may be the latest of this machine.
    let own = notes.iter().position(|note| api.as_ref().is_some_and(|api| note.is_of(api))).unwrap_or(0);
    let public_names = (!notes.is_empty()).then(|| notes.swap_remove(own)).and_then(|note| note.public_names);
    if let Some(names) = &public_names {
        checks.extend(public::checks(names).await);
    }
    match api_status::probe(context).await {
        Ok(reached) => {
            let now = OffsetDateTime::now_utc();
            // The clock of a public authority says more than that of an API on the same machine.
            let has_clock = checks.iter().any(|check| check.name == CLOCK);
            checks.extend(of_reached(&reached, now).into_iter().filter(|check| !(has_clock && check.name == CLOCK)));
            if reached.has_public_names() {
                checks.push(public::certificates(reached.certificates.as_deref(), now));
            }
            checks.extend(egress(context).await);
        }
        Err(error) => {
            let failure = failure::describe(&error).ok_or(error)?;
            let next = failure.next_step.unwrap_or_default();
            checks.push(Check::fail("API", failure.message, next));
        }
    }
    checks.push(machine::files());
    checks.extend(machine::room(&programs));
    context.output.data(&checks, |checks| text(checks, context.output.color))?;
    let failed = checks.iter().filter(|check| check.state == State::Fail).count();
    if failed == 0 {
        return Ok(());
    }
    let which = if failed == 1 { "one check failed".to_owned() } else { format!("{failed} checks failed") };
    Err(Failure::new(Kind::Failed, which)
        .next("repair the first one, then run this again: it may cause the others")
        .into())
}

/// Checks whether edges can use their slices of egress addresses. `None` if there are none, or if the account does not
/// own the installation.
async fn egress(context: &Context) -> Option<Check> {
    const NAME: &str = "egress";
    let slices = context.client(&context.target().ok()?).ok()?.egress_slices().await.ok()?;
    let count = slices.len();
    let mut odd = slices.iter().flat_map(|slice| slice.notes.iter().map(move |note| format!("{}: {note}", slice.id)));
    match odd.next() {
        Some(note) => Some(Check::warn(NAME, safe(&note), "`sallyport egress slice ls` shows all slices")),
        None => (count > 0).then(|| Check::ok(NAME, format!("edges use {count} slices of egress addresses"))),
    }
}

fn text(checks: &[Check], color: bool) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let lines = checks.iter().flat_map(|check| {
        let (word, hue) = match check.state {
            State::Ok => ("ok", AnsiColor::Green),
            State::Warn => ("warn", AnsiColor::Yellow),
            State::Fail => ("fail", AnsiColor::Red),
            State::Skip => ("-", AnsiColor::BrightBlack),
        };
        let word = format!("{word:<4}");
        let word = if color { paint(&word, hue) } else { word };
        let first = format!("{word}  {:<width$}  {}", check.name, safe(&check.found));
        let next = check.next.as_ref().map(|next| format!("      {:<width$}  -> {}", "", safe(next)));
        std::iter::once(first).chain(next)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The checks of everything between this machine and the API.
fn of_reached(reached: &ApiStatus, now: OffsetDateTime) -> Vec<Check> {
    let mut checks = vec![clock(reached, now)];
    checks.extend(certificates(reached, now));
    checks.push(names(reached));
    checks.extend(trust_stores(reached));
    checks.push(api(reached));
    checks.push(login(reached));
    checks.push(edge(reached));
    checks.push(udp(reached));
    checks
}

fn clock(reached: &ApiStatus, now: OffsetDateTime) -> Check {
    let Some(ahead) = reached.probe.as_ref().ok().and_then(|probe| api_status::clock_ahead(probe, now)) else {
        return Check::skip(CLOCK, "not compared: the API does not answer");
    };
    compare_clocks(ahead, "the API")
}

/// The clock of this machine against another one, of which it is so many seconds ahead.
fn compare_clocks(ahead: i64, other: &str) -> Check {
    let found = match ahead {
        -1..=1 => format!("as that of {other}"),
        2.. => format!("{ahead} s ahead of that of {other}"),
        _ => format!("{} s behind that of {other}", -ahead),
    };
    let next = "set it by NTP, here or there: timedatectl set-ntp true";
    match ahead.abs() {
        CLOCK_FAIL_SECONDS.. => Check::fail(CLOCK, found, next),
        CLOCK_WARN_SECONDS.. => Check::warn(CLOCK, found, next),
        _ => Check::ok(CLOCK, found),
    }
}

fn certificates(reached: &ApiStatus, now: OffsetDateTime) -> Vec<Check> {
    const LEAF: &str = "certificate";
    const ROOT: &str = "root";
    let mut checks = Vec::new();
    if let Some(shown) = reached.probe.as_ref().ok().and_then(|probe| probe.certificate.as_ref()) {
        let left = api_status::days(shown.not_after, now);
        let found = format!("good until {} ({left} days)", utc(shown.not_after));
        checks.push(if left < LEAF_WARN_DAYS {
            Check::warn(LEAF, found, "it is renewed by itself: see the log of the server for why it was not")
        } else {
            Check::ok(LEAF, found)
        });
    } else {
        checks.push(Check::skip(LEAF, "not seen: the API does not answer"));
    }
    if let Some(root) = &reached.root {
        let left = api_status::days(root.not_after, now);
        let until = format!("{} until {}", root.fingerprint, root.not_after.date());
        let next = "make another with `sallyport authority rotate`, and have clients trust it";
        checks.push(if root.has_ended(now) {
            Check::fail(ROOT, format!("it has ended: {until}"), next)
        } else if !root.has_begun(now) {
            Check::fail(ROOT, format!("it has not begun: {until}"), "the clock of this machine is behind: set it")
        } else if left < ROOT_WARN_DAYS {
            Check::warn(ROOT, format!("{until} ({left} days)"), next)
        } else {
            Check::ok(ROOT, until)
        });
    }
    checks
}

fn names(reached: &ApiStatus) -> Check {
    const NAME: &str = "names";
    let list =
        |addresses: &[std::net::IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = reached.names.iter().find(|name| name.error.is_some()) {
        let error = unknown.error.clone().unwrap_or_default();
        let domain = unknown.name.split_once('.').map_or("", |(_, domain)| domain);
        let next = format!("in the DNS, point {domain} and *.{domain} to the edge, by A and AAAA records");
        return Check::fail(NAME, format!("{} leads nowhere: {error}", unknown.name), next);
    }
    let Some(api) = reached.names.first() else { return Check::skip(NAME, "none are known") };
    let found = format!("{} and names beneath lead to {}", api.name, list(&api.addresses));
    let runs_here = super::status::programs().iter().any(|one| one.role == "up" && !one.is_of_other);
    if let Some(other) = reached.names.iter().find(|name| name.is_here != api.is_here) {
        let found =
            format!("{} leads to {}, and {} to {}", api.name, list(&api.addresses), other.name, list(&other.addresses));
        return Check::warn(NAME, found, "have all names lead to the edges of one installation");
    }
    if runs_here && !api.is_here && reached.probe.is_err() {
        return Check::warn(
            NAME,
            found,
            "that is no address of this machine: right where a port mapping stands in front",
        );
    }
    Check::ok(NAME, found)
}

/// Whether other programs on this machine trust the root: the system's store, and browsers.
fn trust_stores(reached: &ApiStatus) -> Vec<Check> {
    const SYSTEM: &str = "trust";
    if reached.has_public_names() {
        return vec![Check::skip(SYSTEM, "names get certificates of public authorities")];
    }
    let (Some(root), true) = (&reached.root, reached.info.as_ref().is_some_and(|info| info.ca_pem.is_some())) else {
        return vec![Check::skip(SYSTEM, "no root of its own is known")];
    };
    let install = "so that curl and browsers trust it: sudo sallyport trust install";
    let mut checks = vec![if sallyport_trust::TrustStore::system().has(root.fingerprint) {
        Check::ok(SYSTEM, "programs of this machine trust the root certificate")
    } else {
        Check::warn(SYSTEM, "only Sallyport trusts the root certificate; curl and browsers do not", install)
    }];
    let Some(stores) = trust::browser_stores() else { return checks };
    checks.push(match stores.lacking(root.fingerprint) {
        Err(missing) => Check::warn("browsers", missing.to_string(), "then: sallyport trust install --only-browsers"),
        Ok(lacking) if !lacking.is_empty() => {
            let mut names: Vec<_> = lacking.iter().map(|store| store.browser.name()).collect();
            names.dedup();
            let found = format!("{} has certificates of its own, without the root", names.join(" and "));
            Check::warn("browsers", found, "sallyport trust install --only-browsers")
        }
        Ok(_) if stores.all().is_empty() => Check::skip("browsers", "none with certificates of its own is here"),
        Ok(_) => Check::ok("browsers", "they trust the root certificate"),
    });
    checks
}

fn api(reached: &ApiStatus) -> Check {
    const NAME: &str = "API";
    let url = &reached.target.api;
    match &reached.probe {
        Err(failure) => Check::fail(NAME, failure.message.clone(), failure.next_step.clone().unwrap_or_default()),
        Ok(probe) => match (&probe.ready, probe.notes.as_slice()) {
            (Err(why), _) => Check::fail(NAME, format!("{url} is not ready: {why}"), "see the log of the server"),
            (Ok(()), []) => Check::ok(NAME, format!("{url} is ready, version {}", version(reached))),
            (Ok(()), notes) => {
                let found = format!("{url} is ready, but: {}", notes.join("; "));
                let next = match notes.iter().find(|note| note.contains("`cert ls`")) {
                    Some(_) => "sallyport cert ls",
                    None => "see the log of the server",
                };
                Check::warn(NAME, found, next)
            }
        },
    }
}

fn version(reached: &ApiStatus) -> &str {
    reached.info.as_ref().map_or("unknown", |info| info.version.as_str())
}

fn login(reached: &ApiStatus) -> Check {
    const NAME: &str = "login";
    match &reached.login {
        None => Check::skip(NAME, "not tried: the API does not answer"),
        Some(Login::LoggedIn { email }) => Check::ok(NAME, email.clone()),
        Some(Login::Token) => Check::ok(NAME, "an API token"),
        Some(Login::Nobody) => Check::warn(NAME, "nobody is logged in", "sallyport login --email you@example.com"),
        Some(Login::Invalid { reason }) => {
            Check::fail(NAME, reason.clone(), "sallyport login --email you@example.com, or use another API token")
        }
    }
}

fn edge(reached: &ApiStatus) -> Check {
    const NAME: &str = "edge";
    let (Some(info), Some(answer)) = (&reached.info, &reached.edge) else {
        return Check::skip(NAME, "not tried: the API does not give its address");
    };
    let at = format!("{}:{}", info.tunnel_host, info.tunnel_port);
    match answer {
        Ok(took) => Check::ok(NAME, format!("{at} accepts connectors, {} ms away", took.as_millis())),
        Err(why) => Check::fail(
            NAME,
            format!("{at} cannot be dialed: {why}"),
            format!("allow connections of this machine to port {}, or name a proxy with --proxy", info.tunnel_port),
        ),
    }
}

fn udp(reached: &ApiStatus) -> Check {
    const NAME: &str = "UDP";
    let port = reached.info.as_ref().and_then(|info| info.tunnel_quic_port);
    let (Some(port), Some(answer)) = (port, &reached.udp) else {
        return Check::skip(NAME, "the edge has no port for HTTP/3 and QUIC");
    };
    match answer {
        Ok(took) => Check::ok(NAME, format!("port {port} answers over UDP, {} ms away", took.as_millis())),
        Err(why) => Check::warn(
            NAME,
            format!("{why}: browsers here load by HTTP/2"),
            format!("let UDP pass to port {port}, in firewalls and port mappings"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_with_one_next_step_below() {
        let checks = [
            Check::ok("clock", "as that of the API"),
            Check::fail("certificate", "ended\u{1b}[2J", "renew it"),
            Check::fail("login", "it is open to others: run `chmod 700 x`", ""),
            Check::skip("API", "not tried"),
        ];
        let lines: Vec<_> = text(&checks, false).lines().map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                "ok    clock        as that of the API",
                "fail  certificate  ended\\u{1b}[2J",
                "                   -> renew it",
                "fail  login        it is open to others: run `chmod 700 x`",
                "-     API          not tried",
            ]
        );
        assert!(text(&checks, true).contains("\u{1b}[31mfail"));
        let json = serde_json::to_value(&checks).unwrap();
        assert_eq!((&json[1]["state"], &json[1]["next"]), (&"fail".into(), &"renew it".into()));
    }
}
