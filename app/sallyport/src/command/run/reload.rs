//! Reading the file of `sallyport run` again: what differs is changed, and nothing else is touched.

use std::time::Duration;

use sallyport_connector::Services;
use sallyport_net::Shutdown;
use tokio::sync::mpsc;

use super::{
    Missing, Runner,
    file::{Plan, ServiceFile, ServiceSpec},
    look,
    services::{OpenError, RunningService},
};
use crate::{
    command::hold::Origin,
    failure::{self, Failure, Kind},
    signals::Signals,
};

/// How many tunnels are attached anew at once, and after how long each further one: an edge takes no more of a session.
const MAX_ANEW_AT_ONCE: usize = 8;
const ANEW_PERIOD: Duration = Duration::from_millis(1_100);

/// What a file asks for that was read again.
struct ReloadPlan {
    /// The services that keep their tunnels.
    keeps: Vec<String>,
    /// Those among them behind which something else stands from now on.
    moves: Vec<OriginChange>,
    /// Those that are new, or get a new tunnel.
    opens: Vec<ServiceSpec>,
}

/// What stands behind a service that keeps its tunnels.
struct OriginChange {
    /// What the service is called.
    name: String,
    /// The service, then those of other paths.
    origins: Vec<Origin>,
    /// What the file says of it.
    words: Vec<String>,
}

/// What was done, by the services' names.
#[derive(Default)]
struct ReloadReport {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    /// What could not be done.
    failures: Vec<Failure>,
}

impl Runner {
    /// Reads the file again, and changes what differs. A file that cannot be used, and services that cannot be opened,
    /// are told, and change nothing.
    pub(super) async fn reload(
        &mut self,
        signals: &mut Signals,
        shutdown: &Shutdown,
        missing: &mpsc::Sender<Missing>,
    ) -> anyhow::Result<()> {
        match self.try_reload(signals, missing).await {
            Ok(told) => told,
            Err(OpenError::Stopped(_)) => self.stop(shutdown),
            Err(OpenError::Failed(error)) => match failure::describe(&error) {
                Some(failure) => self.live.not_reloaded(&failure),
                None => Err(error),
            },
        }
    }

    async fn try_reload(
        &mut self,
        signals: &mut Signals,
        missing: &mpsc::Sender<Missing>,
    ) -> Result<anyhow::Result<()>, OpenError> {
        let file = ServiceFile::read(&self.path).map_err(OpenError::Failed)?;
        if file.way_words != self.way_words {
            let text = "what stands above the services is taken in by a restart only";
            let failure = Failure::new(Kind::Refused, text).next("restart the command, or take the change back");
            return Err(OpenError::Failed(failure.into()));
        }
        let Some(services) = self.services.clone() else { return Ok(Ok(())) };
        let changes = self.compare(file.services).map_err(OpenError::Failed)?;
        let opened = self.api.open_all(changes.opens, signals).await?;
        // From here on it is done, whatever else fails.
        let mut done = ReloadReport::default();
        let (kept, over): (Vec<RunningService>, Vec<RunningService>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| changes.keeps.contains(&held.name));
        self.held = kept;
        self.move_origins(&services, changes.moves, &mut done).await;
        let (replaced, removed): (Vec<RunningService>, Vec<RunningService>) =
            over.into_iter().partition(|held| opened.iter().any(|new| new.name == held.name));
        // A session has a bound on its tunnels: those that go make room first, where nothing takes their place.
        self.release(&services, &removed).await;
        let mut shown = Ok(());
        for held in opened {
            held.tunnels().for_each(|(tunnel, _, name)| self.live.name(tunnel, &name));
            shown = shown.and_then(|()| self.introduce(&held));
            let is_changed = replaced.iter().any(|former| former.name == held.name);
            let names = if is_changed { &mut done.changed } else { &mut done.added };
            names.push(held.name.clone());
            self.serve(&services, held, missing, &mut done).await;
        }
        self.release(&services, &replaced).await;
        done.removed = removed.iter().map(|held| held.name.clone()).collect();
        let over = removed.into_iter().chain(replaced).collect();
        done.failures.extend(self.api.remove_all(over, signals).await.err());
        let ReloadReport { added, changed, removed, failures } = done;
        for failure in &failures {
            shown = shown.and_then(|()| self.live.in_reload(failure));
        }
        Ok(shown.and_then(|()| self.live.reloaded(&added, &changed, &removed)))
    }

    /// What differs between the services that are held and those of the file.
    fn compare(&self, specs: Vec<ServiceSpec>) -> anyhow::Result<ReloadPlan> {
        let mut changes = ReloadPlan { keeps: Vec::new(), moves: Vec::new(), opens: Vec::new() };
        for spec in specs {
            let known = self.held.iter().find(|held| held.name == spec.name && !held.is_lost);
            let Some(held) = known.filter(|held| held.tunnel_words == spec.tunnel_words) else {
                changes.opens.push(spec);
                continue;
            };
            changes.keeps.push(spec.name.clone());
            if held.origin_words != spec.origin_words {
                let place = spec.place;
                let origins = match spec.plan {
                    Plan::Lasting { origin, .. } => origin.prepare(held.origin.socket_type).map(|origin| vec![origin]),
                    Plan::Requested(request) => {
                        let services = request.services(held.origin.socket_type);
                        services.map(|services| services.into_iter().map(|service| service.origin).collect())
                    }
                };
                let origins = origins.map_err(|error| place.error(error))?;
                changes.moves.push(OriginChange { name: spec.name, origins, words: spec.origin_words });
            }
        }
        Ok(changes)
    }

    /// Puts another service behind tunnels that stay.
    async fn move_origins(&mut self, services: &Services, moves: Vec<OriginChange>, done: &mut ReloadReport) {
        let mut moved = Vec::new();
        for OriginChange { name, origins, words } in moves {
            let Some(held) = self.held.iter_mut().find(|held| held.name == name) else { continue };
            held.set_origins(origins);
            let mut served = Ok(());
            for service in held.services().collect::<Vec<_>>() {
                let tunnel = service.tunnel.clone();
                served = services.serve(service).await;
                if served.is_err() {
                    break;
                }
                moved.push(tunnel);
            }
            match served {
                Ok(()) => {
                    held.origin_words = words;
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

    /// Serves one that was opened. One that cannot be served is opened anew by the next reload.
    async fn serve(
        &mut self,
        services: &Services,
        mut held: RunningService,
        missing: &mpsc::Sender<Missing>,
        done: &mut ReloadReport,
    ) {
        for service in held.services().collect::<Vec<_>>() {
            if let Err(error) = services.serve(service).await {
                held.is_lost = true;
                done.failures.push(Failure::usage(format!("service {:?}: {error}", held.name)));
            }
        }
        if !held.is_lost {
            look([&held], missing);
        }
        self.held.push(held);
    }

    async fn release(&mut self, services: &Services, over: &[RunningService]) {
        for (tunnel, ..) in over.iter().flat_map(RunningService::tunnels) {
            services.let_go(tunnel).await;
            self.live.forget(tunnel);
        }
    }
}
