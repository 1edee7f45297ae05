//! `sallyport status`: what runs here, what answers, and what comes next.

use serde::Serialize;
use time::OffsetDateTime;

use super::api_status::{self, ApiStatus, Login, ResolvedName};
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
    machine::{
        processes::{self, Running},
        server_note,
    },
    output::{self, pairs, table},
    view::utc,
};

/// Certificates that end within this time are reported; the built-in authority renews its own earlier.
const SOON_DAYS: i64 = 3;

/// The state of the API.
#[derive(Debug, Serialize)]
struct Api {
    url: String,
    /// `ready`, `not-ready`, or `unreachable`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_ms: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    trusted_by: String,
}

/// The certificate of the API, and the root of its authority.
#[derive(Debug, Serialize)]
struct Certificate {
    issuer: String,
    #[serde(with = "time::serde::rfc3339")]
    not_after: OffsetDateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_fingerprint: Option<String>,
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    root_not_after: Option<OffsetDateTime>,
}

/// The address for connectors.
#[derive(Debug, Serialize)]
struct Edge {
    host: String,
    port: u16,
    answers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// How many sockets there are.
#[derive(Debug, Serialize)]
struct Sockets {
    total: usize,
    /// Those with a tunnel that is up.
    up: usize,
    /// Those with an origin that gets no requests.
    failing: usize,
    tunnels_up: u32,
}

/// The whole status.
#[derive(Debug, Serialize)]
struct Status {
    programs: Vec<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<Api>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<Certificate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edge: Option<Edge>,
    names: Vec<ResolvedName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<Login>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sockets: Option<Sockets>,
    next: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(context: &Context) -> anyhow::Result<()> {
    let programs = programs();
    let reached = match api_status::probe(context).await {
        Ok(reached) => reached,
        Err(error) => {
            let failure = failure::describe(&error).ok_or(error)?;
            let next = failure.next_step.iter().cloned().collect();
            let none = Status {
                programs,
                api: None,
                certificate: None,
                edge: None,
                names: Vec::new(),
                login: None,
                sockets: None,
                next,
            };
            context.output.data(&none, |status| text(status, OffsetDateTime::now_utc()))?;
            return Err(failure.into());
        }
    };
    let (status, failure) = status(programs, reached, OffsetDateTime::now_utc());
    context.output.data(&status, |status| text(status, OffsetDateTime::now_utc()))?;
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// The running processes, with their notes.
pub(super) fn programs() -> Vec<Running> {
    let mut programs = processes::running();
    for note in server_note::all() {
        if let Some(program) = programs.iter_mut().find(|program| program.pid == note.pid) {
            program.version = Some(note.version).filter(|version| !version.is_empty());
            program.data = note.data.or_else(|| program.data.take());
            program.listen = note.listen;
        }
    }
    programs
}

/// The status, and the first fault.
fn status(programs: Vec<Running>, reached: ApiStatus, now: OffsetDateTime) -> (Status, Option<Failure>) {
    let ApiStatus { target, info, probe, names, edge, login, sockets, root, udp: _, certificates: _ } = reached;
    let url = target.api.to_string();
    let mut failure = None;
    let (mut state, mut reason, mut certificate) = ("ready", None, None);
    match &probe {
        Err(why) => {
            (state, reason) = ("unreachable", Some(why.message.clone()));
            failure = Some(why.clone());
        }
        Ok(probe) => {
            if let Err(why) = &probe.ready {
                (state, reason) = ("not-ready", Some(why.clone()));
                failure = Some(Failure::new(Kind::Failed, format!("{url} is not ready: {why}")).next("see its log"));
            }
            certificate = probe.certificate.as_ref().map(|shown| Certificate {
                issuer: shown.issuer.clone(),
                not_after: shown.not_after,
                root_fingerprint: root.as_ref().map(|root| root.fingerprint.to_string()),
                root_not_after: root.as_ref().map(|root| root.not_after),
            });
        }
    }
    let probed = probe.as_ref().ok();
    let api = Api {
        url: url.clone(),
        state,
        reason,
        version: info.as_ref().map(|info| info.version.clone()),
        round_trip_ms: probed.map(|probe| probe.connected_after.as_secs_f64() * 1_000.0),
        notes: probed.map(|probe| probe.notes.clone()).unwrap_or_default(),
        trusted_by: api_status::trusted_by(&target.trust),
    };
    let edge = edge.zip(info.as_ref()).map(|(answer, info)| Edge {
        host: info.tunnel_host.clone(),
        port: info.tunnel_port,
        answers: answer.is_ok(),
        reason: answer.err(),
    });
    if let Some(Edge { host, port, reason: Some(reason), .. }) = &edge {
        let message = format!("connectors cannot dial the edge at {host}:{port}: {reason}");
        failure = failure.or(Some(Failure::new(Kind::Failed, message).next("`sallyport doctor` shows what to repair")));
    }
    if let Some(shown) = certificate.as_ref().filter(|shown| api_status::days(shown.not_after, now) < SOON_DAYS) {
        let message = format!("the certificate of {url} ends on {}", utc(shown.not_after));
        failure = failure.or(Some(Failure::new(Kind::Failed, message).next("see the log of `sallyport up`")));
    }
    let sockets = sockets.map(|sockets| Sockets {
        total: sockets.len(),
        up: sockets.iter().filter(|socket| socket.tunnels_up > 0).count(),
        failing: sockets.iter().filter(|socket| socket.origins_failing > 0).count(),
        tunnels_up: sockets.iter().map(|socket| socket.tunnels_up).sum(),
    });
    let next = match &failure {
        Some(failure) => failure.next_step.iter().cloned().collect(),
        None => next(login.as_ref(), sockets.as_ref()),
    };
    (Status { programs, api: Some(api), certificate, edge, names, login, sockets, next }, failure)
}

/// The next steps if nothing is wrong.
fn next(login: Option<&Login>, sockets: Option<&Sockets>) -> Vec<String> {
    let step = match (login, sockets) {
        (Some(Login::Nobody), _) => {
            "log in with `sallyport login --email you@example.com`; `sallyport account create` makes an account"
        }
        (Some(Login::Invalid { .. }), _) => "log in again with `sallyport login --email you@example.com`",
        (_, Some(sockets)) if sockets.failing > 0 => "`sallyport socket ls` shows which fail, and why",
        (_, Some(Sockets { total: 0, .. })) => "`sallyport connect PORT` gives a service a public name for a while",
        (_, Some(sockets)) if sockets.tunnels_up == 0 => {
            "`sallyport tunnel connect SOCKET PORT` attaches a service to a socket"
        }
        _ => return Vec::new(),
    };
    vec![step.to_owned()]
}

fn text(status: &Status, now: OffsetDateTime) -> String {
    let mut rows = Vec::new();
    if let Some(api) = &status.api {
        rows.push(("API", of_api(api)));
        rows.extend(api.notes.iter().map(|note| ("", note.clone())));
    }
    if let Some(edge) = &status.edge {
        let answer = edge.reason.as_ref().map_or_else(|| "answers".to_owned(), |why| format!("does not answer: {why}"));
        rows.push(("edge", format!("{}:{}  {answer}", edge.host, edge.port)));
    }
    if let Some(shown) = &status.certificate {
        let left = api_status::days(shown.not_after, now);
        rows.push(("certificate", format!("until {} ({left} days), by {}", utc(shown.not_after), shown.issuer)));
    }
    if let (Some(fingerprint), Some(until)) = status
        .certificate
        .as_ref()
        .map_or((None, None), |shown| (shown.root_fingerprint.as_ref(), shown.root_not_after))
    {
        rows.push(("root", format!("{fingerprint} until {}", until.date())));
    }
    for (at, name) in status.names.iter().enumerate() {
        let addresses: Vec<_> = name.addresses.iter().map(ToString::to_string).collect();
        let place = if name.is_here { " (this machine)" } else { "" };
        let leads = match &name.error {
            None => format!("{}{place}", addresses.join(", ")),
            Some(error) => error.clone(),
        };
        rows.push((if at == 0 { "names" } else { "" }, format!("{}  {leads}", name.label())));
    }
    if let Some(login) = &status.login {
        rows.push((
            "login",
            match login {
                Login::LoggedIn { email } => email.clone(),
                Login::Token => "an API token".to_owned(),
                Login::Nobody => "nobody is logged in".to_owned(),
                Login::Invalid { reason } => reason.clone(),
            },
        ));
    }
    if let Some(Sockets { total, up, failing, tunnels_up }) = &status.sockets {
        let failing = if *failing == 0 { String::new() } else { format!(", {failing} with an origin that fails") };
        rows.push(("sockets", format!("{total}, of which {up} have a tunnel that is up{failing}")));
        rows.push(("tunnels", format!("{tunnels_up} up")));
    }
    let mut parts = Vec::new();
    if !rows.is_empty() {
        parts.push(pairs(&rows));
    }
    parts.push(if status.programs.is_empty() {
        "no program of Sallyport runs on this machine".to_owned()
    } else {
        of_programs(&status.programs)
    });
    parts.extend(
        status
            .next
            .iter()
            .filter(|_| status.api.as_ref().is_some_and(|api| api.state == "ready"))
            .map(|step| format!("next: {}", output::safe(step))),
    );
    parts.join("\n\n")
}

fn of_api(api: &Api) -> String {
    let mut line = api.url.clone();
    match (api.state, &api.reason) {
        ("ready", _) => line += "  ready",
        ("not-ready", Some(reason)) => line += &format!("  not ready: {reason}"),
        _ => line += "  does not answer",
    }
    if let Some(version) = &api.version {
        line += &format!(", version {version}");
    }
    if let Some(ms) = api.round_trip_ms {
        line += &format!(", connected in {ms:.0} ms");
    }
    line
}

fn of_programs(programs: &[Running]) -> String {
    table(
        ["RUNS", "PROCESS", "USER", "VERSION", "MEMORY", "LISTENS", "DATA"],
        programs.iter().map(|one| {
            let none = || "-".to_owned();
            [
                one.role.to_owned(),
                one.pid.to_string(),
                one.user.clone(),
                one.version.clone().unwrap_or_else(none),
                one.memory_bytes.map_or_else(none, |bytes| format!("{} MB", bytes / 1_000_000)),
                if one.listen.is_empty() { none() } else { one.listen.join(" ") },
                one.data.as_ref().map_or_else(none, |data| data.display().to_string()),
            ]
        }),
    )
}
