//! Reloads the file of `sallyport run`: only differences are applied.

use std::time::{Duration, Instant};

use sallyport_connector::Services;
use sallyport_net::Shutdown;
use tokio::sync::mpsc;

use super::{
    Missing, Runner,
    content::{Look, NamedDigest},
    file::{Plan, ServiceFile, ServiceSpec},
    look,
    services::{OpenError, RunningService},
    watch::ReloadEnd,
};
use crate::{
    command::hold::Origin,
    failure::{self, Failure, Kind},
    signals::Signals,
    view::live::ReloadCause,
};

/// How many tunnels are attached again at once, and the interval after that: an edge accepts no higher rate from a
/// session.
const MAX_ANEW_AT_ONCE: usize = 8;
const ANEW_PERIOD: Duration = Duration::from_millis(1_100);

/// A file to reload.
pub(super) struct Reload {
    /// What it has.
    pub(super) look: Look,
    /// Who asks for the reload.
    pub(super) cause: ReloadCause,
}

/// The differences of a reloaded file.
struct ReloadPlan {
    /// Services that keep their tunnels.
    keeps: Vec<String>,
    /// Of these, services with a changed address or options.
    moves: Vec<OriginChange>,
    /// New services, and services that need a new tunnel.
    opens: Vec<ServiceSpec>,
}

/// The changed origin of a service that keeps its tunnels.
struct OriginChange {
    /// The name of the service.
    name: String,
    /// The service first, then those of other paths.
    origins: Vec<Origin>,
    /// The options in the file.
    words: Vec<String>,
    /// The digest of the authority, if there is one.
    authority: NamedDigest,
}

/// What was done, by names of services.
#[derive(Default)]
struct ReloadReport {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    /// What failed.
    failures: Vec<Failure>,
}

impl Runner {
    /// Applies the differences of the file. If the file or a new service cannot be used, that is reported, and nothing
    /// changes.
    pub(super) async fn reload(
        &mut self,
        reload: Reload,
        signals: &mut Signals,
        shutdown: &Shutdown,
        missing: &mpsc::Sender<Missing>,
    ) -> anyhow::Result<()> {
        let (printed, end) = match self.try_reload(&reload, signals, missing).await {
            Ok(printed) => (printed, ReloadEnd::Final),
            Err(OpenError::Stopped(_)) => (self.stop(shutdown), ReloadEnd::Final),
            Err(OpenError::Failed(error)) => match failure::describe(&error) {
                Some(failure) => {
                    // The fault may be of the API, and of this moment.
                    let may_pass = matches!(failure.kind, Kind::Unreachable | Kind::Failed);
                    let end = if may_pass { ReloadEnd::MayPassLater } else { ReloadEnd::Final };
                    (self.live.not_reloaded(&failure, reload.cause), end)
                }
                None => (Err(error), ReloadEnd::Final),
            },
        };
        self.watch.handle_end(reload.look, end, Instant::now());
        printed
    }

    async fn try_reload(
        &mut self,
        reload: &Reload,
        signals: &mut Signals,
        missing: &mpsc::Sender<Missing>,
    ) -> Result<anyhow::Result<()>, OpenError> {
        let file = ServiceFile::of(&self.path, &reload.look).map_err(OpenError::Failed)?;
        if file.way_words != self.way_words {
            let text = "what stands above the services is taken in by a restart only";
            let failure = Failure::new(Kind::Refused, text).next("restart the command, or take the change back");
            return Err(OpenError::Failed(failure.into()));
        }
        let of_inspector = self.inspection.as_ref().and_then(|inspection| {
            let mut addresses = file.services.iter().flat_map(|spec| spec.plan.addresses());
            addresses.find(|address| inspection.is_at(address))
        });
        if let Some(address) = of_inspector {
            let failure = Failure::usage(format!("{address} is the inspector's own address, not a service"));
            return Err(OpenError::Failed(failure.next("choose another port for the service").into()));
        }
        let Some(services) = self.services.clone() else { return Ok(Ok(())) };
        let changes = self.compare(file.services).map_err(OpenError::Failed)?;
        let opened = self.api.open_all(changes.opens, signals).await?;
        // From here on the reload happens, even if parts of it fail.
        let mut done = ReloadReport::default();
        let (kept, over): (Vec<RunningService>, Vec<RunningService>) =
            std::mem::take(&mut self.running).into_iter().partition(|service| changes.keeps.contains(&service.name));
        self.running = kept;
        self.move_origins(&services, changes.moves, &mut done).await;
        let (replaced, removed): (Vec<RunningService>, Vec<RunningService>) =
            over.into_iter().partition(|service| opened.iter().any(|new| new.name == service.name));
        // A session has a bound on its tunnels, so removed ones are released first if nothing replaces them.
        self.release(&services, &removed).await;
        let mut shown = Ok(());
        for service in opened {
            service.tunnels().for_each(|(tunnel, _, name)| self.live.name(tunnel, &name));
            shown = shown.and_then(|()| self.introduce(&service));
            let is_changed = replaced.iter().any(|former| former.name == service.name);
            let names = if is_changed { &mut done.changed } else { &mut done.added };
            names.push(service.name.clone());
            self.serve(&services, service, missing, &mut done).await;
        }
        self.release(&services, &replaced).await;
        done.removed = removed.iter().map(|service| service.name.clone()).collect();
        let over = removed.into_iter().chain(replaced).collect();
        done.failures.extend(self.api.remove_all(over, signals).await.err());
        let ReloadReport { added, changed, removed, failures } = done;
        for failure in &failures {
            shown = shown.and_then(|()| self.live.in_reload(failure, reload.cause));
        }
        Ok(shown.and_then(|()| self.live.reloaded([&added, &changed, &removed], reload.cause)))
    }

    /// The differences between running services and those of the file.
    fn compare(&self, specs: Vec<ServiceSpec>) -> anyhow::Result<ReloadPlan> {
        let mut changes = ReloadPlan { keeps: Vec::new(), moves: Vec::new(), opens: Vec::new() };
        for spec in specs {
            let known = self.running.iter().find(|service| service.name == spec.name && !service.is_lost);
            let Some(service) = known.filter(|service| service.tunnel_words == spec.tunnel_words) else {
                changes.opens.push(spec);
                continue;
            };
            changes.keeps.push(spec.name.clone());
            if service.origin_words != spec.origin_words || service.authority != spec.authority {
                let place = spec.place;
                let origins = match spec.plan {
                    Plan::Lasting { origin, .. } => {
                        origin.prepare(service.origin.socket_type).map(|origin| vec![origin])
                    }
                    Plan::Requested(request) => {
                        let services = request.services(service.origin.socket_type);
                        services.map(|services| services.into_iter().map(|service| service.origin).collect())
                    }
                };
                let origins = origins.map_err(|error| place.error(error))?;
                changes.moves.push(OriginChange {
                    name: spec.name,
                    origins,
                    words: spec.origin_words,
                    authority: spec.authority,
                });
            }
        }
        Ok(changes)
    }

    /// Changes the origin behind tunnels that stay.
    async fn move_origins(&mut self, services: &Services, moves: Vec<OriginChange>, done: &mut ReloadReport) {
        let mut moved = Vec::new();
        for OriginChange { name, origins, words, authority } in moves {
            let Some(running) = self.running.iter_mut().find(|service| service.name == name) else { continue };
            running.set_origins(origins);
            let mut served = Ok(());
            for service in running.services().collect::<Vec<_>>() {
                let tunnel = service.tunnel.clone();
                served = services.serve(service).await;
                if served.is_err() {
                    break;
                }
                moved.push(tunnel);
            }
            match served {
                Ok(()) => {
                    (running.origin_words, running.authority) = (words, authority);
                    done.changed.push(name);
                }
                Err(error) => done.failures.push(Failure::usage(format!("service {name:?}: {error}"))),
            }
        }
        let services = services.clone();
        tokio::spawn(async move {
            for (number, tunnel) in moved.into_iter().enumerate() {
                if number >= MAX_ANEW_AT_ONCE {
                    tokio::time::sleep(ANEW_PERIOD).await;
                }
                services.attach_anew(tunnel).await;
            }
        });
    }

    /// Serves an opened service. If that fails, the next reload opens it again.
    async fn serve(
        &mut self,
        services: &Services,
        mut running: RunningService,
        missing: &mpsc::Sender<Missing>,
        done: &mut ReloadReport,
    ) {
        for service in running.services().collect::<Vec<_>>() {
            if let Err(error) = services.serve(service).await {
                running.is_lost = true;
                done.failures.push(Failure::usage(format!("service {:?}: {error}", running.name)));
            }
        }
        if !running.is_lost {
            look([&running], missing);
        }
        self.running.push(running);
    }

    async fn release(&mut self, services: &Services, over: &[RunningService]) {
        for (tunnel, ..) in over.iter().flat_map(RunningService::tunnels) {
            services.let_go(tunnel).await;
            self.live.forget(tunnel);
        }
    }
}
