//! `sallyport run`: the services of a file, in one process and over one connection to the edge.
//!
//! May use what `command` may use.

mod content;
mod file;
mod reload;
mod services;
mod watch;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use sallyport_connector::{Connector, ConnectorEvent, ConnectorOptions, Services, TransportChoice};
use sallyport_model::{SocketType, TunnelId};
use sallyport_net::Shutdown;
use serde::Serialize;
use tokio::sync::mpsc;

use self::{
    content::Look,
    file::{Plan, ServiceFile, ServiceSpec},
    reload::Reload,
    services::{ApiClients, BoundedFutures, OpenError, RunningService},
    watch::Watch,
};
use super::hold::{self, MAX_QUEUED_EVENTS, NOT_CONNECTED_AFTER};
use crate::{
    args::inspect::InspectArgs,
    context::Context,
    duration,
    inspector::Inspection,
    output,
    screen::{Screen, ScreenArgs},
    signals::{Hangup, Hangups, Signals},
    view::live::{Live, ReloadCause},
};

/// How many results of service checks may wait to be shown.
const MAX_QUEUED_LOOKS: usize = 64;

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file has a table [[service]] for each service, whose keys are the long options of `sallyport connect`, or of
`sallyport tunnel connect` where it has a socket-id:

  [[service]]
  name = \"shop\"
  port = 8000

  [[service]]
  socket-id = \"wandering-shape-7752\"
  port = 5432

  [[service]]
  name = \"blog\"
  address = \"localhost:3000\"
  path = [\"/api=8000\"]
The socket of a service with a name stays, as that of `connect --name` does: it has the same public name the next time.

`run` reads the file again when it has changed, and on SIGHUP. Services that have not changed go on undisturbed. If the
file cannot be used, `run` says why, and nothing changes.")]
pub(crate) struct RunArgs {
    /// The file of the services, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Check the file, and do nothing else
    #[arg(long)]
    check: bool,
    /// Read the file again on SIGHUP only
    #[arg(long)]
    no_watch: bool,
    /// How often to look for changes of the file. A change is taken when two looks have found the same
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    #[arg(conflicts_with = "no_watch")]
    watch_interval: Duration,
    #[command(flatten)]
    inspect: InspectArgs,
    #[command(flatten)]
    screen: ScreenArgs,
}

/// A service of the file, as `--check` shows it.
#[derive(Debug, Serialize)]
struct CheckedService {
    service: String,
    socket: Option<String>,
    origin: String,
}

/// Serves until a signal comes.
pub(crate) async fn run(context: &Context, args: RunArgs) -> anyhow::Result<()> {
    // A pipe cannot be watched.
    let is_watched = !args.no_watch && content::can_watch(&args.file);
    let look = Look::at(&args.file);
    let file = ServiceFile::of(&args.file, &look)?;
    if args.check {
        let checked: Vec<CheckedService> = file.services.iter().map(CheckedService::of).collect();
        return context.output.data(&checked, |checked| table(checked));
    }
    let addresses: Vec<_> = file.services.iter().flat_map(|spec| spec.plan.addresses()).collect();
    let inspection = Inspection::start(&args.inspect, context.output.terminal, &addresses).await?;
    let target = context.target()?;
    let api = ApiClients::new(context, &target)?;
    // From here on what is made must be removed, whatever ends the command.
    let (mut signals, mut hangups) = Signals::take_with_hangups()?;
    let edge = api.edge().await?;
    let services = match api.open_all(file.services, &mut signals).await {
        Ok(services) => services,
        Err(OpenError::Stopped(error) | OpenError::Failed(error)) => return Err(error),
    };
    let looks =
        if is_watched { Some(content::look_at_intervals(args.file.clone(), args.watch_interval)?) } else { None };
    let mut runner = Runner {
        path: args.file,
        watch: Watch::new(look, args.watch_interval),
        looks,
        way_words: file.way_words,
        transport: file.way.transport,
        live: Live::of_services(context.output, context.offset),
        api,
        running: services,
        services: None,
        inspection,
    };
    let outcome = async {
        let services = runner.running.iter().flat_map(RunningService::services).collect();
        let capture = runner.inspection.as_ref().map(Inspection::capture);
        let options = ConnectorOptions { capture, ..hold::options(&target, edge, file.way, services)? };
        let (events_in, events) = mpsc::channel(MAX_QUEUED_EVENTS + options.services.len());
        let connector = Connector::new(options, events_in)?;
        runner.services = Some(connector.services());
        if let Some(inspection) = &runner.inspection {
            inspection.set_services(connector.services());
        }
        let is_web = |service: &RunningService| service.tunnels().any(|(_, origin, _)| origin.socket_type.is_http());
        if args.screen.is_wanted(&context.output) && runner.running.iter().any(is_web) {
            runner.live.set_screen(Screen::start(&context.output, context.offset, runner.inspection.as_ref())?);
        }
        if let Some(inspection) = &runner.inspection {
            runner.live.inspector(&inspection.url())?;
        }
        runner.hold(connector, events, &mut signals, &mut hangups).await
    }
    .await;
    runner.live.end_screen();
    match (outcome, runner.api.remove_all(runner.running, &mut signals).await) {
        (outcome, Ok(0)) => outcome,
        (outcome, Ok(count)) => {
            context.output.hint(&format!("what was made for {count} of them is removed"));
            outcome
        }
        (Ok(()), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            context.output.failure(&failure);
            Err(error)
        }
    }
}

/// The running services.
struct Runner {
    path: PathBuf,
    watch: Watch,
    /// What the file has, again and again, if it is watched.
    looks: Option<mpsc::Receiver<(Look, Instant)>>,
    /// The connection options of the file.
    way_words: Vec<String>,
    transport: TransportChoice,
    live: Live,
    api: ApiClients,
    running: Vec<RunningService>,
    /// The services of the connector, once it exists.
    services: Option<Services>,
    inspection: Option<Inspection>,
}

/// A service that was not found.
type Missing = (TunnelId, SocketType, String);

impl Runner {
    /// Serves until a signal comes, or the edge refuses all tunnels.
    async fn hold(
        &mut self,
        connector: Connector,
        mut events: mpsc::Receiver<ConnectorEvent>,
        signals: &mut Signals,
        hangups: &mut Hangups,
    ) -> anyhow::Result<()> {
        let shutdown = Shutdown::new();
        let (missing_in, mut missing) = mpsc::channel(MAX_QUEUED_LOOKS);
        self.running
            .iter()
            .flat_map(RunningService::tunnels)
            .for_each(|(tunnel, _, name)| self.live.name(tunnel, &name));
        let mut shown = self.running.iter().try_for_each(|service| self.introduce(service));
        // A task of its own, which continues while the file is read again.
        let mut connector = tokio::spawn(connector.run(shutdown.clone()));
        let not_connected = tokio::time::sleep(NOT_CONNECTED_AFTER);
        tokio::pin!(not_connected);
        let mut is_patient = true;
        sallyport_net::notify_ready();
        loop {
            tokio::select! {
                biased;
                () = signals.next() => {
                    if shutdown.is_triggered() {
                        connector.abort();
                        return shown;
                    }
                    shown = shown.and_then(|()| self.stop(&shutdown));
                }
                asked = hangups.next() => {
                    let printed = match asked {
                        _ if shutdown.is_triggered() => Ok(()),
                        Hangup::End => self.stop(&shutdown),
                        Hangup::Reload => {
                            let asked = Reload { look: Look::again_at(&self.path), cause: ReloadCause::Signal };
                            self.reload(asked, signals, &shutdown, &missing_in).await
                        }
                    };
                    shown = shown.and(printed);
                }
                Some((look, at)) = next_look(&mut self.looks), if !shutdown.is_triggered() => {
                    if let Some(look) = self.watch.handle_look(look, at) {
                        let changed = Reload { look, cause: ReloadCause::File };
                        shown = shown.and(self.reload(changed, signals, &shutdown, &missing_in).await);
                    } else if self.watch.take_restless(at) {
                        shown = shown.and_then(|()| self.live.not_reloaded(&content::restless(&self.path), ReloadCause::File));
                    }
                }
                Some(event) = events.recv() => {
                    self.record_loss(&event);
                    if let Some(inspection) = &self.inspection {
                        inspection.observe(&event);
                    }
                    shown = shown.and_then(|()| self.live.event(&event));
                }
                Some((tunnel, socket_type, reason)) = missing.recv() => {
                    shown = shown.and_then(|()| self.live.origin_missing(Some(tunnel), &reason, socket_type));
                }
                () = &mut not_connected, if is_patient => {
                    is_patient = false;
                    self.live.still_connecting(self.transport);
                    look(&self.running, &missing_in);
                }
                ended = &mut connector => {
                    while let Ok(event) = events.try_recv() {
                        shown = shown.and_then(|()| self.live.event(&event));
                    }
                    return ended?.and(shown);
                }
            }
            if shown.is_err() {
                shutdown.trigger();
            }
        }
    }

    fn stop(&self, shutdown: &Shutdown) -> anyhow::Result<()> {
        sallyport_net::notify_stopping();
        shutdown.trigger();
        self.live.stopping()
    }

    fn introduce(&self, service: &RunningService) -> anyhow::Result<()> {
        service.tunnels().try_for_each(|(tunnel, origin, name)| {
            if let Some(inspection) = &self.inspection {
                inspection.name(tunnel, &name, &origin.to_string());
            }
            // Notes on the socket are shown once.
            let socket = service.socket.as_deref().filter(|_| tunnel == service.tunnel);
            self.live.serving(tunnel, socket, &origin.to_string())
        })
    }

    /// Marks services whose tunnel the edge has ended; the next reload opens them again.
    fn record_loss(&mut self, event: &ConnectorEvent) {
        let lost = match event {
            ConnectorEvent::NotAttached { tunnel, refusal } if !refusal.retry => tunnel,
            ConnectorEvent::Detached { tunnel, .. } => tunnel,
            _ => return,
        };
        if let Some(service) =
            self.running.iter_mut().find(|service| service.tunnels().any(|(tunnel, ..)| tunnel == *lost))
        {
            service.is_lost = true;
        }
    }
}

/// The next look at the file; none ever comes if nothing watches it. Cancel safe.
async fn next_look(looks: &mut Option<mpsc::Receiver<(Look, Instant)>>) -> Option<(Look, Instant)> {
    match looks {
        Some(looks) => looks.recv().await,
        None => std::future::pending().await,
    }
}

/// Checks in the background whether the services accept connections, and reports those that do not.
fn look<'a>(services: impl IntoIterator<Item = &'a RunningService>, missing: &mpsc::Sender<Missing>) {
    let all = services.into_iter().flat_map(RunningService::tunnels);
    let looks: Vec<_> = all.map(|(tunnel, origin, _)| (tunnel, origin.clone())).collect();
    let missing = missing.clone();
    tokio::spawn(async move {
        let mut several =
            BoundedFutures::of(looks.into_iter().map(|(tunnel, origin)| async move {
                Some((tunnel, origin.socket_type, origin.why_missing().await?))
            }));
        while let Some(found) = several.next(true).await {
            if let Some(found) = found {
                // The receiver is gone when the command ends.
                let _ = missing.send(found).await;
            }
        }
    });
}

impl CheckedService {
    fn of(spec: &ServiceSpec) -> Self {
        let (socket, origin) = match &spec.plan {
            Plan::Lasting { socket, origin, .. } => (Some(socket.to_string()), origin.address().to_string()),
            Plan::Requested(request) => {
                let name = request.is_named.then(|| request.create.name.to_string());
                (name, request.shown_services())
            }
        };
        Self { service: spec.name.clone(), socket, origin }
    }
}

fn table(checked: &[CheckedService]) -> String {
    let socket = |checked: &CheckedService| checked.socket.clone().unwrap_or_else(|| "a new one".to_owned());
    output::table(
        ["SERVICE", "SOCKET", "ORIGIN"],
        checked.iter().map(|checked| [checked.service.clone(), socket(checked), checked.origin.clone()]),
    )
}
