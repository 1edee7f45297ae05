//! The controller: composes the rooms, and ends them in order.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use sallyport_cli::{output::Output, signals::Signals};
use sallyport_kube_model::Settings;
use sallyport_model::SocketId;
use sallyport_net::Shutdown;
use tokio::{sync::watch, task::JoinSet};
use tracing::{info, warn};

use crate::{
    args::{Global, InstallationArgs, KubeArgs, KubeCommand, RunArgs, TimingArgs},
    cluster, commands,
    control::{ApiHealth, ControlApi, ControlOptions},
    lead::{Candidate, LeaseOptions},
    logs,
    report::{Reporter, Reports},
    serve::{self, Health},
    sockets::{KnownSockets, SocketKeeper, SocketOptions},
    status::ClusterWriter,
    tunnels::{TunnelKeeper, TunnelOptions, WantedTunnels},
    wants,
    watch::{Mirror, SlicesByService, View},
};

/// The namespace whose uid tells one installation of a cluster from another.
const SYSTEM_NAMESPACE: &str = "kube-system";
/// How long the API server may take to tell that uid.
const SYSTEM_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the parts may take to end after the tunnels.
const END_TIME: Duration = Duration::from_secs(10);

/// Runs the command.
///
/// # Errors
/// An option is missing or cannot be used.
pub(crate) async fn run(global: &Global, args: KubeArgs, output: Output) -> anyhow::Result<()> {
    match args.command {
        None => controller(global, args.run).await,
        Some(KubeCommand::Ls(installation)) => {
            let (client, control, settings) = apis(global, &installation).await?;
            commands::ls(&client, &control, &settings, &installation, &output).await
        }
        Some(KubeCommand::Cleanup(args)) => {
            let (client, control, settings) = apis(global, &args.installation).await?;
            let namespace = namespace(&args.installation);
            commands::cleanup(&client, &control, &settings, &args, &namespace, &output).await
        }
        // They need no runtime: `main` runs them.
        Some(KubeCommand::Man(_) | KubeCommand::Completion(_)) => Ok(()),
    }
}

/// Both APIs, and the settings of core/kube.
async fn apis(global: &Global, args: &InstallationArgs) -> anyhow::Result<(Client, ControlApi, Settings)> {
    // What is missing is said before anything is asked.
    args.cluster()?;
    let control = control(global, args)?;
    let client = cluster::connect(args.kubeconfig.as_deref()).await?;
    let settings = settings(&client, args).await?;
    Ok((client, control, settings))
}

/// The namespace of the controller.
fn namespace(args: &InstallationArgs) -> String {
    args.namespace.clone().filter(|name| !name.is_empty()).unwrap_or_else(cluster::own_namespace)
}

/// The settings of core/kube.
async fn settings(client: &Client, installation: &InstallationArgs) -> anyhow::Result<Settings> {
    let mut settings = Settings::new(installation.cluster()?);
    let namespaces = Api::<Namespace>::all(client.clone());
    let read = tokio::time::timeout(SYSTEM_TIMEOUT, namespaces.get(SYSTEM_NAMESPACE)).await;
    match read {
        Ok(Ok(namespace)) => settings.installation = namespace.metadata.uid,
        Ok(Err(error)) => {
            let error = cluster::sentence(&error);
            warn!(%error, "the namespace {SYSTEM_NAMESPACE} cannot be read: another cluster of this name is not noticed");
        }
        Err(_) => warn!("the API server does not answer: another cluster of this name is not noticed"),
    }
    Ok(settings)
}

/// The API of Sallyport.
fn control(global: &Global, installation: &InstallationArgs) -> anyhow::Result<ControlApi> {
    let (address, token_file) = installation.api()?;
    let ca = global.ca.clone().filter(|path| !path.as_os_str().is_empty());
    let organisation = installation.organisation.clone().filter(|name| !name.is_empty());
    Ok(ControlApi::new(ControlOptions { address, ca, token_file, organisation }))
}

/// The controller, until a signal comes.
async fn controller(global: &Global, args: RunArgs) -> anyhow::Result<()> {
    // What is missing is said before anything starts.
    args.installation.cluster()?;
    args.installation.api()?;
    let _log = logs::start(global.verbose, args.log_format)?;
    let mut signals = Signals::take()?;
    let health = Arc::new(Health::default());
    let listener = serve::bind(args.listen).await?;
    info!(address = %listener.local_addr()?, "answers /healthz, /readyz and /metrics");
    let client = cluster::connect(args.installation.kubeconfig.as_deref()).await?;
    let control = control(global, &args.installation)?;
    let settings = settings(&client, &args.installation).await?;
    let replica = args.replica.clone().filter(|name| !name.is_empty());
    let replica = replica.or_else(sallyport_connector::host_name).unwrap_or_else(|| "sallyport-kube".to_owned());
    let namespace = namespace(&args.installation);
    let TimingArgs { retry, resync, sweep_after, forget_after, .. } = args.timing;
    info!(cluster = %settings.cluster, %replica, %namespace, "the controller starts");

    // The tunnels end first, then everything else.
    let (draining, ending) = (Shutdown::new(), Shutdown::new());
    let mut parts = JoinSet::new();
    parts.spawn(serve::serve(listener, health.clone(), ending.clone()));
    parts.spawn(control.clone().keep_token(args.timing.token_poll, args.timing.token_check, ending.clone()));
    parts.spawn(note_api(control.clone(), health.clone(), ending.clone()));
    let (candidate, leadership) = Candidate::new(
        client.clone(),
        LeaseOptions {
            namespace,
            identity: replica.clone(),
            duration: args.timing.lease_duration,
            renew: args.timing.lease_renew,
        },
    );
    // A replica that drains leads no longer, so that another one takes over at once.
    parts.spawn(candidate.run(draining.clone()));
    let mirror = Mirror::start(&client, &args.installation.watch_namespaces, &ending);
    let writer = ClusterWriter::new(client, &replica, health.clone());
    let missing = watch::channel(0).0;
    let tunnels = TunnelKeeper::new(control.clone(), tunnel_options(&args), health.clone(), missing.clone())?;
    let up = tunnels.watch();
    let sockets = SocketKeeper::new(
        control.clone(),
        writer.clone(),
        health.clone(),
        SocketOptions { resync, retry, sweep_after, forget_after },
        leadership.clone(),
    );
    let known = sockets.watch();
    let class = args.installation.class.clone();
    let view = watch::channel(Arc::new(View::read(&mirror, &settings, &class))).0;
    let (wanted, wanted_tunnels) = watch::channel(None);
    parts.spawn(sockets.run(view.subscribe(), missing.subscribe(), ending.clone()));
    let reports = reports(&view, &known, &up, leadership, &control);
    parts.spawn(Reporter::new(writer, reports, retry).run(ending.clone()));
    let observer = Observer {
        mirror,
        settings,
        class,
        replica,
        known,
        view,
        wanted,
        health: health.clone(),
        settle: args.timing.settle,
    };
    parts.spawn(observer.run(draining.clone()));
    let mut tunnels = tokio::spawn(tunnels.run(wanted_tunnels, draining.clone()));

    signals.next().await;
    info!("stops: no longer ready");
    health.readiness.drain();
    tokio::select! {
        () = tokio::time::sleep(args.timing.drain_delay) => {}
        () = signals.next() => {}
    }
    draining.trigger();
    tokio::select! {
        _ = &mut tunnels => {}
        () = signals.next() => tunnels.abort(),
    }
    ending.trigger();
    let ended = async { while parts.join_next().await.is_some() {} };
    if tokio::time::timeout(END_TIME, ended).await.is_err() {
        warn!("a part did not end in time");
    }
    info!("stopped");
    Ok(())
}

fn reports(
    view: &watch::Sender<Arc<View>>,
    known: &watch::Receiver<Arc<KnownSockets>>,
    up: &watch::Receiver<Arc<BTreeSet<SocketId>>>,
    leadership: crate::lead::Leadership,
    api: &ControlApi,
) -> Reports {
    Reports { view: view.subscribe(), known: known.clone(), up: up.clone(), leadership, api: api.clone() }
}

fn tunnel_options(args: &RunArgs) -> TunnelOptions {
    TunnelOptions {
        redundancy: args.tunnels.redundancy,
        region: args.tunnels.region.clone(),
        transport: args.tunnels.transport,
        keepalive: args.tunnels.keepalive,
        connect_timeout: args.tunnels.connect_timeout,
        retry: args.timing.retry,
        drain: args.timing.drain,
    }
}

/// Brings what is known about the API to readiness and metrics.
async fn note_api(api: ControlApi, health: Arc<Health>, shutdown: Shutdown) {
    let mut changes = api.watch();
    loop {
        let now = changes.borrow_and_update().clone();
        let token_problem = match &now {
            ApiHealth::NoToken(problem) => Some(problem.as_str()),
            _ => None,
        };
        health.readiness.set_token_problem(token_problem);
        health.metrics.api_usable.set(i64::from(now == ApiHealth::Fine));
        tokio::select! {
            () = shutdown.wait() => return,
            Ok(()) = changes.changed() => {}
        }
    }
}

/// Reads the mirror whenever it changes, and tells what follows.
struct Observer {
    mirror: Mirror,
    settings: Settings,
    class: String,
    replica: String,
    known: watch::Receiver<Arc<KnownSockets>>,
    view: watch::Sender<Arc<View>>,
    wanted: watch::Sender<Option<Arc<WantedTunnels>>>,
    health: Arc<Health>,
    settle: Duration,
}

impl Observer {
    async fn run(mut self, shutdown: Shutdown) {
        let mut changes = self.mirror.watch();
        let mut view = self.view.borrow().clone();
        loop {
            let mut is_mirror_new = false;
            tokio::select! {
                () = shutdown.wait() => return,
                Ok(()) = changes.changed() => is_mirror_new = true,
                Ok(()) = self.known.changed() => {}
            }
            if is_mirror_new {
                changes.mark_unchanged();
                view = Arc::new(View::read(&self.mirror, &self.settings, &self.class));
                self.tell(&view);
            }
            let known = self.known.borrow_and_update().clone();
            if view.is_complete && known.is_listed {
                let slices = SlicesByService::read(&self.mirror);
                let wanted = wants::wanted(&view, &known, &slices, &self.replica);
                self.wanted.send_if_modified(|there| {
                    let is_new = there.as_deref() != Some(&wanted);
                    if is_new {
                        *there = Some(Arc::new(wanted));
                    }
                    is_new
                });
            }
            tokio::select! {
                () = shutdown.wait() => return,
                () = tokio::time::sleep(self.settle) => {}
            }
        }
    }

    fn tell(&self, view: &Arc<View>) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.health.metrics.exposures.set(gauge(view.desired().count()));
        self.health.metrics.refusals.set(gauge(view.refusals()));
        self.view.send_if_modified(|there| {
            let is_new = there.is_complete != view.is_complete
                || there.exposures != view.exposures
                || there.sources != view.sources;
            if is_new {
                *there = view.clone();
            }
            is_new
        });
    }
}
