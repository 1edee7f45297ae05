//! `sallyport ping`: measures the way to a host.
//!
//! May use what `command` may use.

mod report;
mod target;

use std::{sync::Arc, time::Duration};

use clap::{ArgAction, Args};
use sallyport_probe::{
    Counts, DEFAULT_DATA_BYTES, Family, MAX_DATA_BYTES, MAX_TIMEOUT, MAX_WAITING, MIN_DATA_BYTES, ProbeError, Prober,
    Rejected, Source, Statistics, check_target, connect,
};
use tokio::{
    task::{JoinSet, LocalSet},
    time::{MissedTickBehavior, interval},
};

use self::{
    report::{Report, ms},
    target::{Families, Target},
};
use crate::{
    context::Context,
    duration,
    failure::{Failure, Kind},
    output::{self, Format},
    signals::Signals,
};

/// The most probes of one command.
const MAX_COUNT: u64 = 1_000_000_000;
/// The shortest interval for users other than root.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// How many bytes an echo request has before its data.
const ICMP_HEADER_BYTES: usize = 8;

/// Options of `ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// The host, by name or address. With a port, the time of TCP connects is measured: HOST:PORT, or [ADDRESS]:PORT
    #[arg(value_name = "HOST")]
    host: String,
    /// The number of probes; 0 probes until this command is stopped
    #[arg(long, short, value_name = "COUNT", default_value_t = 5, value_parser = parse_count)]
    count: u64,
    /// The time between two probes: at least 200ms, except for root
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    interval: Duration,
    /// How long to wait for each answer, at most an hour
    #[arg(long, short = 'W', value_name = "TIME", default_value = "2s", value_parser = duration::parse_positive)]
    timeout: Duration,
    /// The data of an echo request, from 16 to 65507 bytes
    #[arg(long, short, value_name = "BYTES", default_value_t = DEFAULT_DATA_BYTES, value_parser = parse_size)]
    size: usize,
    /// Only IPv4
    #[arg(short = '4', action = ArgAction::SetTrue, conflicts_with = "only_v6")]
    only_v4: bool,
    /// Only IPv6
    #[arg(short = '6', action = ArgAction::SetTrue)]
    only_v6: bool,
    /// Print only the summary
    #[arg(long, short)]
    quiet: bool,
}

/// What is known of one probe at its end.
enum Outcome {
    /// The time, and what the line says behind it.
    Answered(Duration, &'static str),
    /// A refused connect, which is an answer.
    Refused(Duration),
    /// Why there is no answer.
    Lost(String),
    /// No probe can have an answer.
    Failed(ProbeError),
}

/// Runs the command.
pub(crate) async fn run(context: &Context, args: PingArgs) -> anyhow::Result<()> {
    check_times(&args)?;
    let families = Families { v4: !args.only_v6, v6: !args.only_v4 };
    let target = target::resolve(&args.host, families).await?;
    let prober = Arc::new(Prober::new().map_err(refused)?);
    if let Target::Echo(address) = target {
        check_target(address).map_err(refused)?;
        prober.open(Family::of(address)).await.map_err(refused)?;
    }
    let shows_lines = context.output.format == Format::Table && !args.quiet;
    if context.output.format == Format::Table {
        output::line(&format!("PING {}: {}", named(&args.host, target), kind(target, args.size)))?;
    }
    // In one thread, so that requests leave and answers count in their order.
    let thread = LocalSet::new();
    let (statistics, refusals) = thread.run_until(probe(&args, target, &prober, shows_lines)).await?;
    let counts = prober.counts();
    let report = Report::new(&args.host, target, args.size, &statistics, refusals, counts);
    context.output.data(&report, |report| format!("\n{}", report.table()))?;
    if statistics.answered() == 0 {
        return Err(silent(&args.host, &statistics, counts).into());
    }
    Ok(())
}

/// Sends the probes; returns their statistics, and how many connects were refused.
async fn probe(
    args: &PingArgs,
    target: Target,
    prober: &Arc<Prober>,
    shows_lines: bool,
) -> anyhow::Result<(Statistics, u64)> {
    let mut signals = Signals::take()?;
    let (mut statistics, mut refusals) = (Statistics::default(), 0);
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = JoinSet::new();
    let mut begun = 0;
    loop {
        let has_more = args.count == 0 || begun < args.count;
        if !has_more && running.is_empty() {
            return Ok((statistics, refusals));
        }
        tokio::select! {
            () = signals.next() => return Ok((statistics, refusals)),
            _ = ticks.tick(), if has_more => {
                begun += 1;
                running.spawn_local(one(begun, target, prober.clone(), args.size, args.timeout));
            }
            Some(ended) = running.join_next() => {
                let (number, outcome) = ended?;
                let text = line(number, target, args.size, &outcome);
                match outcome {
                    Outcome::Answered(time, _) => statistics.handle_answer(number, time),
                    Outcome::Refused(time) => {
                        refusals += 1;
                        statistics.handle_answer(number, time);
                    }
                    Outcome::Lost(_) => statistics.handle_loss(),
                    Outcome::Failed(error) => return Err(refused(error).into()),
                }
                if shows_lines {
                    output::line(&text)?;
                }
            }
        }
    }
}

/// Makes one probe.
async fn one(number: u64, target: Target, prober: Arc<Prober>, size: usize, timeout: Duration) -> (u64, Outcome) {
    let outcome = match target {
        Target::Echo(address) => prober.echo_of(size, address, timeout).await.map(|answer| {
            let remark = match answer.source {
                Source::Kernel => "",
                Source::Unstamped => " (without stamps of the kernel)",
                Source::ClockJumped => " (the wall clock jumped)",
            };
            Outcome::Answered(answer.time, remark)
        }),
        Target::Connect(address) => connect(address, timeout).await.map(|connection| {
            let (time, is_refused) = (connection.time, connection.is_refused);
            if is_refused { Outcome::Refused(time) } else { Outcome::Answered(time, "") }
        }),
    };
    let outcome = outcome.unwrap_or_else(|error| match error {
        ProbeError::NoAnswer { .. } => Outcome::Lost(format!("no answer within {} ms", timeout.as_millis())),
        ProbeError::Unreachable { .. } => Outcome::Lost(error.to_string()),
        _ => Outcome::Failed(error),
    });
    (number, outcome)
}

/// The line about a probe.
fn line(number: u64, target: Target, size: usize, outcome: &Outcome) -> String {
    match (outcome, target) {
        (Outcome::Answered(time, remark), Target::Echo(address)) => {
            let bytes = size + ICMP_HEADER_BYTES;
            format!("{bytes} bytes from {address}: icmp_seq={number} time={} ms{remark}", ms(*time))
        }
        (Outcome::Answered(time, remark), Target::Connect(address)) => {
            format!("connected to {address}: seq={number} time={} ms{remark}", ms(*time))
        }
        (Outcome::Refused(time), target) => {
            format!("refused by {target}: seq={number} time={} ms (an answer: the port is closed)", ms(*time))
        }
        (Outcome::Lost(why), Target::Echo(_)) => format!("icmp_seq={number}: {why}"),
        (Outcome::Lost(why), Target::Connect(_)) => format!("seq={number}: {why}"),
        (Outcome::Failed(error), _) => error.to_string(),
    }
}

/// The host with its address, where they differ.
fn named(host: &str, target: Target) -> String {
    let shown = target.to_string();
    if host == shown { shown } else { format!("{} ({shown})", output::safe(host)) }
}

fn kind(target: Target, size: usize) -> String {
    match target {
        Target::Echo(_) => format!("{size} data bytes"),
        Target::Connect(_) => "TCP connects".to_owned(),
    }
}

fn parse_count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count <= MAX_COUNT);
    count.ok_or_else(|| format!("expected a number of probes from 0 to {MAX_COUNT}"))
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (MIN_DATA_BYTES..=MAX_DATA_BYTES).contains(size));
    size.ok_or_else(|| format!("expected a number of bytes from {MIN_DATA_BYTES} to {MAX_DATA_BYTES}"))
}

/// Checks the options that depend on the user and on each other.
fn check_times(args: &PingArgs) -> Result<(), Failure> {
    if args.interval < MIN_INTERVAL && !rustix::process::geteuid().is_root() {
        let shortest = MIN_INTERVAL.as_millis();
        return Err(Failure::usage(format!("--interval is at least {shortest}ms for users other than root")));
    }
    if args.timeout > MAX_TIMEOUT {
        return Err(Failure::usage(format!("--timeout is at most {}s", MAX_TIMEOUT.as_secs())));
    }
    if args.timeout.as_millis() / args.interval.as_millis().max(1) >= MAX_WAITING as u128 {
        return Err(Failure::usage(format!("more than {MAX_WAITING} probes would wait for their answers at a time"))
            .next("set a longer --interval or a shorter --timeout"));
    }
    Ok(())
}

/// The failure for an error that ends the command.
fn refused(error: ProbeError) -> Failure {
    let kind = match error {
        ProbeError::NotAllowed => Kind::NotAllowed,
        ProbeError::NotOneHost(_) | ProbeError::Begin(_) => Kind::Usage,
        _ => Kind::Failed,
    };
    Failure::new(kind, error.to_string())
}

/// The failure of a host that never answered.
fn silent(host: &str, statistics: &Statistics, counts: Counts) -> Failure {
    let host = output::safe(host);
    let failure = Failure::new(Kind::Unreachable, format!("{host} answered none of {} probes", statistics.sent()));
    if counts.rejected == Rejected::default() { failure } else { failure.next("see which replies were not believed") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_have_bounds() {
        assert_eq!(parse_count("0"), Ok(0));
        assert_eq!(parse_count("1000000000"), Ok(MAX_COUNT));
        for bad in ["", "-1", "x", "1.5", "1000000001", "99999999999999999999"] {
            assert!(parse_count(bad).unwrap_err().starts_with("expected a number of probes"), "{bad}");
        }
        assert_eq!((parse_size("16"), parse_size("65507")), (Ok(16), Ok(65_507)));
        for bad in ["", "0", "15", "65508", "-1", "x"] {
            assert!(parse_size(bad).unwrap_err().starts_with("expected a number of bytes"), "{bad}");
        }
    }

    #[test]
    fn lines_say_what_answered() {
        let echo = Target::Echo([192, 0, 2, 1].into());
        let connect = Target::Connect(([192, 0, 2, 1], 443).into());
        let time = Duration::from_micros(1_234);
        let answered = Outcome::Answered(time, "");
        assert_eq!(line(1, echo, 56, &answered), "64 bytes from 192.0.2.1: icmp_seq=1 time=1.234 ms");
        assert_eq!(line(2, connect, 56, &answered), "connected to 192.0.2.1:443: seq=2 time=1.234 ms");
        let refused = line(3, connect, 56, &Outcome::Refused(time));
        assert_eq!(refused, "refused by 192.0.2.1:443: seq=3 time=1.234 ms (an answer: the port is closed)");
        let lost = line(4, echo, 56, &Outcome::Lost("no answer within 2000 ms".to_owned()));
        assert_eq!(lost, "icmp_seq=4: no answer within 2000 ms");
        assert_eq!(named("a.example", echo), "a.example (192.0.2.1)");
        assert_eq!(named("192.0.2.1", echo), "192.0.2.1");
    }
}
