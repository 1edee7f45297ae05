//! `sallyport inspect tcp`: what limits live TCP connections.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use sallyport_sock_diag::{SockDiagError, Watch, Watched, network_counts};
use sallyport_tcp_window::{Drawn, Judgement, NetworkCounts, Sample, Target, draw, judge};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    context::Context,
    duration,
    failure::{Failure, Kind},
    output,
    signals::Signals,
};

/// How long connections are watched at most.
const MAX_TIME: Duration = Duration::from_secs(600);
/// How many readings of a connection there are at most.
const MAX_READINGS: u128 = 60_000;

/// What is looked into.
#[derive(Debug, Subcommand)]
pub(crate) enum InspectCommand {
    /// Watch live TCP connections of this machine: their buffers and windows, and what limits each
    #[command(after_help = "\
Examples:
  sallyport inspect tcp 443
  sallyport inspect tcp pid:1234 --for 10s --svg windows.svg
  sallyport inspect tcp 10.0.0.1:443-10.0.0.2:51000 -o json")]
    Tcp(TcpArgs),
}

/// Options of `inspect tcp`.
#[derive(Debug, Args)]
pub(crate) struct TcpArgs {
    /// Whose connections: a port, pid:NUMBER, or a flow as ADDRESS:PORT-ADDRESS:PORT
    target: Target,
    /// How long to watch, at most 10m
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = duration::parse_positive)]
    lasting: Duration,
    /// The time between two readings, from 1ms
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration::parse_positive)]
    every: Duration,
    /// Draw the windows into this file, as SVG; an existing file is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// One connection, as it is shown.
#[derive(Debug, Serialize)]
struct ConnectionView {
    local: String,
    remote: String,
    has_ended: bool,
    #[serde(flatten)]
    judgement: Judgement,
    readings: Vec<Sample>,
}

/// All that was seen.
#[derive(Debug, Serialize)]
struct TcpView {
    connections: Vec<ConnectionView>,
    /// Further connections that were not watched.
    left_out: usize,
    /// What the whole network namespace counted meanwhile.
    network: NetworkCounts,
}

/// Runs a command.
pub(crate) async fn run(context: &Context, command: InspectCommand) -> anyhow::Result<()> {
    let InspectCommand::Tcp(args) = command;
    args.check()?;
    // A file that cannot be written is told before the time has passed.
    let drawing = args.svg.as_deref().map(|file| Ok::<_, Failure>((file, create(file)?))).transpose()?;
    let (earlier, mut watch) = (network_counts(), Watch::begin(args.target).map_err(failure)?);
    if watch.watched().is_empty() {
        let target = args.target;
        let failure =
            Failure::new(Kind::NotFound, format!("{target} has no TCP connections in this network namespace"));
        return Err(failure.next("`ss -tn` lists the connections that there are").into());
    }
    context.output.hint(&format!("watching {} connections; Ctrl-C ends it early", watch.watched().len()));
    watch_for(&args, &mut watch).await?;
    let network = network_counts().since(earlier);
    let connections: Vec<_> = watch.watched().iter().map(ConnectionView::of).collect();
    if let Some((file, mut opened)) = drawing {
        let titled: Vec<_> = connections.iter().map(|one| (one.title(), one)).collect();
        let drawn = titled.iter().map(|(title, one)| Drawn {
            title,
            sentence: &one.judgement.sentence,
            samples: &one.readings,
        });
        let text = draw(&drawn.collect::<Vec<_>>(), network);
        opened.write_all(text.as_bytes()).map_err(|error| unwritable(file, &error))?;
        context.output.hint(&format!("drawn into {}", file.display()));
    }
    let view = TcpView { connections, left_out: watch.left_out(), network };
    context.output.data(&view, TcpView::lines)
}

impl TcpArgs {
    fn check(&self) -> Result<(), Failure> {
        if self.lasting > MAX_TIME {
            return Err(Failure::usage("--for is at most 10m"));
        }
        if self.lasting.as_micros() / self.every.as_micros().max(1) > MAX_READINGS {
            let failure = Failure::usage(format!("that are more than {MAX_READINGS} readings of each connection"));
            return Err(failure.next("read less often with --every, or for a shorter time with --for"));
        }
        Ok(())
    }
}

/// Reads until the time is over, all connections have ended, or a signal comes.
async fn watch_for(args: &TcpArgs, watch: &mut Watch) -> anyhow::Result<()> {
    let mut signals = Signals::take()?;
    let began = Instant::now();
    let mut readings = interval(args.every);
    readings.set_missed_tick_behavior(MissedTickBehavior::Skip);
    readings.tick().await;
    while watch.is_running() && began.elapsed() < args.lasting {
        tokio::select! {
            _ = readings.tick() => watch.read(began.elapsed()).map_err(failure)?,
            () = signals.next() => break,
        }
    }
    Ok(())
}

impl ConnectionView {
    fn of(watched: &Watched) -> Self {
        Self {
            local: watched.local.to_string(),
            remote: watched.remote.to_string(),
            has_ended: watched.has_ended,
            judgement: judge(&watched.samples),
            readings: watched.samples.clone(),
        }
    }

    fn title(&self) -> String {
        let end = if self.has_ended { ", which ended" } else { "" };
        format!("{} to {}{end}", self.local, self.remote)
    }
}

impl TcpView {
    /// A sentence for each connection, and what the namespace counted.
    fn lines(&self) -> String {
        let mut lines: Vec<String> =
            self.connections.iter().map(|one| format!("{}: {}", one.title(), one.judgement.sentence)).collect();
        if self.left_out > 0 {
            lines.push(format!("{} more connections were not watched: name a flow", self.left_out));
        }
        let NetworkCounts { coalesced, collapsed, dropped } = self.network;
        lines.push(output::pairs(&[(
            "segments",
            format!("{coalesced} coalesced, {collapsed} collapsed, {dropped} dropped, of the whole network namespace"),
        )]));
        lines.join("\n")
    }
}

fn failure(error: SockDiagError) -> Failure {
    let kind = match error {
        SockDiagError::NoProcess(_) => Kind::NotFound,
        SockDiagError::NotAllowed(_) => Kind::NotAllowed,
        SockDiagError::NoList(_) | SockDiagError::Unreadable { .. } => Kind::Failed,
    };
    Failure::new(kind, error.to_string())
}

fn create(file: &Path) -> Result<File, Failure> {
    File::create(file).map_err(|error| unwritable(file, &error))
}

fn unwritable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Kind::Failed, format!("cannot write {}: {error}", file.display()))
}
