//! `packet nat`: sessions, pools, drops and the log of the NAT.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use sallyport_cli::{
    failure::{Failure, Kind},
    output::{Format, Output, json_line, line, note, table},
};
use sallyport_packet_model::nat::{Endpoint, SessionState};
use sallyport_xdp::{LogLine, Router, dump, nat::NatEngine};
use serde::Serialize;

/// The most sessions that are listed.
const MAX_LISTED: usize = 1_000_000;
/// How often the log is read.
const READ_EVERY: Duration = Duration::from_millis(50);

/// Examples of the help.
const LOG_EXAMPLES: &str = "Examples:
  sallyport packet nat log
  sallyport packet nat log -o json >>sessions.jsonl";

/// What is asked of the NAT.
#[derive(Debug, Subcommand)]
pub(crate) enum NatCommand {
    /// Show sessions, pools, or drops
    #[command(subcommand)]
    Show(ShowCommand),
    /// Print a line when a session begins, and when it ends
    #[command(after_help = LOG_EXAMPLES)]
    Log(LogArgs),
}

/// What is shown.
#[derive(Debug, Subcommand)]
pub(crate) enum ShowCommand {
    /// The sessions
    Sessions,
    /// The addresses outside, and how many of their ports are in use
    Pools,
    /// What the NAT has dropped or left to the kernel, and why
    Drops,
}

/// The arguments of `log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// End after so many lines
    #[arg(long, value_name = "LINES")]
    count: Option<u64>,
}

#[derive(Debug, Serialize)]
struct SessionView {
    protocol: &'static str,
    inside: String,
    external: String,
    peer: String,
    state: &'static str,
    is_outbound: bool,
    expires_seconds: u64,
}

#[derive(Debug, Serialize)]
struct PoolView {
    sessions: usize,
    max_sessions: usize,
    ports: Vec<PortsView>,
}

#[derive(Debug, Serialize)]
struct PortsView {
    address: String,
    protocol: &'static str,
    used: usize,
    room: usize,
}

#[derive(Debug, Serialize)]
struct DropView {
    action: &'static str,
    reason: &'static str,
    packets: u64,
    meaning: &'static str,
}

#[derive(Debug, Serialize)]
struct LineView {
    /// Seconds since 1970.
    time: f64,
    event: &'static str,
    protocol: &'static str,
    inside: String,
    external: String,
    peer: String,
    is_outbound: bool,
    seconds: f64,
}

/// Runs a command.
pub(super) async fn run(output: Output, router: &Router, command: NatCommand) -> anyhow::Result<()> {
    let engine = router.nat_engine()?;
    let is_of_kernel = engine == Some(NatEngine::Conntrack) && !matches!(command, NatCommand::Show(ShowCommand::Drops));
    if is_of_kernel {
        let failure = Failure::new(Kind::Refused, "the sessions are those of the kernel's connection tracking");
        return Err(failure.next("`conntrack -L` lists them, and `conntrack -E` prints them as they come").into());
    }
    match command {
        NatCommand::Show(ShowCommand::Sessions) => sessions(output, router),
        NatCommand::Show(ShowCommand::Pools) => pools(output, router),
        NatCommand::Show(ShowCommand::Drops) => drops(output, router),
        NatCommand::Log(args) => log(output, router, args.count).await,
    }
}

/// The name of a protocol that the NAT translates.
fn protocol(number: u8) -> &'static str {
    match number {
        6 => "tcp",
        17 => "udp",
        _ => "icmp",
    }
}

fn end(end: Endpoint) -> String {
    format!("{}:{}", end.address, end.port)
}

fn sessions(output: Output, router: &Router) -> anyhow::Result<()> {
    let sessions = router.nat_sessions(MAX_LISTED)?.into_iter().map(|session| SessionView {
        protocol: protocol(session.inside.protocol),
        inside: end(session.inside),
        external: end(session.external),
        peer: session.remote.to_string(),
        state: match session.state {
            SessionState::Datagrams => "-",
            SessionState::Opening => "opening",
            SessionState::Answered => "answered",
            SessionState::Established => "established",
            SessionState::Closing => "closing",
        },
        is_outbound: session.is_outbound,
        expires_seconds: session.expires.as_secs(),
    });
    let sessions: Vec<_> = sessions.collect();
    output.list(&sessions, "the NAT has no sessions", |sessions| {
        let rows = sessions.iter().map(|session| {
            let way = if session.is_outbound { "out" } else { "in" };
            let words = [session.protocol, &session.inside, &session.external, &session.peer, way, session.state];
            let [protocol, inside, external, peer, way, state] = words.map(str::to_owned);
            [protocol, inside, external, peer, way, state, format!("{} s", session.expires_seconds)]
        });
        table(["PROTOCOL", "INSIDE", "OUTSIDE", "PEER", "WAY", "STATE", "ENDS IN"], rows)
    })
}

fn pools(output: Output, router: &Router) -> anyhow::Result<()> {
    let pool = router.nat_pool()?;
    let ports = pool.ports.iter().map(|ports| PortsView {
        address: ports.address.to_string(),
        protocol: protocol(ports.protocol),
        used: ports.used,
        room: pool.room,
    });
    let view = PoolView { sessions: pool.sessions, max_sessions: pool.max_sessions, ports: ports.collect() };
    output.data(&view, |view| {
        let rows = view.ports.iter().map(|ports| {
            [ports.address.clone(), ports.protocol.to_owned(), ports.used.to_string(), ports.room.to_string()]
        });
        let ports = table(["ADDRESS", "PROTOCOL", "PORTS IN USE", "OF"], rows);
        format!("{ports}\n{} of {} sessions", view.sessions, view.max_sessions)
    })
}

fn drops(output: Output, router: &Router) -> anyhow::Result<()> {
    let mut views: Vec<DropView> = Vec::new();
    let is_of_nat = |reason: &str| reason.starts_with("nat-") || reason == "fragment";
    for count in router.counts()?.iter().filter(|count| is_of_nat(count.reason.name())) {
        let reason = count.reason.name();
        match views.iter_mut().find(|view| view.reason == reason) {
            Some(view) => view.packets += count.packets,
            None => views.push(DropView {
                action: count.reason.action().name(),
                reason,
                packets: count.packets,
                meaning: count.reason.sentence(),
            }),
        }
    }
    output.list(&views, "the NAT has dropped nothing", |views| {
        let rows = views.iter().map(|view| {
            [view.action.to_owned(), view.reason.to_owned(), view.packets.to_string(), view.meaning.to_owned()]
        });
        table(["ACTION", "REASON", "PACKETS", "MEANING"], rows)
    })
}

/// Prints the log until it is interrupted, or has the wanted lines.
async fn log(output: Output, router: &Router, count: Option<u64>) -> anyhow::Result<()> {
    let log = router.nat_log()?;
    // The monotonic clock of the kernel, in terms of the calendar.
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(dump::now());
    note("the log begins");
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut turns = 0_u64;
    let mut left = count.unwrap_or(u64::MAX);
    let mut lost = 0;
    while left > 0 {
        for one in log.read()? {
            print(output, &one, start)?;
            left -= 1;
            if left == 0 {
                break;
            }
        }
        let now = log.lost()?;
        if now != lost {
            note(&format!("{} lines had no room", now - lost));
            lost = now;
        }
        turns += 1;
        // Each second.
        if turns.is_multiple_of(20) {
            log.renew()?;
        }
        tokio::select! {
            _ = &mut interrupt => break,
            () = tokio::time::sleep(READ_EVERY) => {}
        }
    }
    Ok(())
}

fn print(output: Output, one: &LogLine, start: Duration) -> anyhow::Result<()> {
    let view = LineView {
        time: (start + one.time).as_millis() as f64 / 1000.0,
        event: if one.is_end { "ended" } else { "new" },
        protocol: protocol(one.inside.protocol),
        inside: end(one.inside),
        external: end(one.external),
        peer: one.remote.to_string(),
        is_outbound: one.is_outbound,
        seconds: one.age.as_millis() as f64 / 1000.0,
    };
    if output.format != Format::Table {
        return json_line(&view);
    }
    let arrow = if view.is_outbound { "->" } else { "<-" };
    let LineView { time, event, protocol, inside, external, peer, seconds, .. } = view;
    let lived = if one.is_end { format!(" after {seconds} s") } else { String::new() };
    line(&format!("{time:.3} {event:5} {protocol:4} {inside} as {external} {arrow} {peer}{lived}"))
}
