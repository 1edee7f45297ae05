//! The leader among the replicas: the lease in the cluster. Uses `cluster`.
//!
//! `kube-lease-manager` compares the times in the lease with the clock of this machine, and replaces the holder without
//! the version that it read: replicas whose clocks are apart would take the lease from one another.

mod election;

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use sallyport_net::Shutdown;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use self::election::{Election, LeaseRecord, LeaseStep};
use crate::cluster::sentence;

/// The name of the lease.
pub(crate) const LEASE: &str = "sallyport-kube";
/// The time that one call about the lease may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// For how long the lease is taken from the replicas before they are removed.
const SEIZED_FOR: Duration = Duration::from_secs(60);
/// How often taking it is tried while a replica renews it.
const MAX_ATTEMPTS: u32 = 10;
/// In which time a replica looks at its lease again.
const NOTICE_TIME: Duration = Duration::from_secs(4);

/// The settings of the lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseOptions {
    /// The namespace of the lease.
    pub(crate) namespace: String,
    /// The name of this replica.
    pub(crate) identity: String,
    /// For how long a renewal holds.
    pub(crate) duration: Duration,
    /// How often the lease is read, and renewed by its holder.
    pub(crate) renew: Duration,
}

/// Whether this replica leads now; changes are seen by waiting.
#[derive(Debug, Clone)]
pub(crate) struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether this replica leads at this moment.
    pub(crate) fn is_leader(&self) -> bool {
        self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until this replica no longer is what it was.
    pub(crate) async fn turned(&mut self, was_leader: bool) {
        while self.is_leader() == was_leader {
            if self.0.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }
}

/// Holds the lease while it can, until the shutdown, and gives it back then.
pub(crate) struct Candidate {
    api: Api<Lease>,
    options: LeaseOptions,
    election: Election,
    /// The beginning of the time of core/kube.
    start: Instant,
    leads: watch::Sender<Option<Instant>>,
}

impl Candidate {
    /// A candidate, and what it knows about the leadership.
    pub(crate) fn new(client: Client, options: LeaseOptions) -> (Self, Leadership) {
        let (leads, leadership) = watch::channel(None);
        let election = Election::new(options.identity.clone(), options.duration, options.renew);
        let api = Api::namespaced(client, &options.namespace);
        (Self { api, options, election, start: Instant::now(), leads }, Leadership(leadership))
    }

    /// Runs until the shutdown.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut was_leader = false;
        let mut last_error = String::new();
        loop {
            let attempt = tokio::time::timeout(CALL_TIMEOUT, self.attempt()).await;
            let error = match attempt {
                Ok(Ok(())) => String::new(),
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    self.election.lost();
                    String::new()
                }
                Ok(Err(error)) => sentence(&error),
                Err(_) => format!("the API server did not answer within {} s", CALL_TIMEOUT.as_secs()),
            };
            if !error.is_empty() && error != last_error {
                warn!(%error, lease = LEASE, "the lease cannot be held");
            }
            last_error = error;
            let until = self.election.leads_until().map(|until| self.start + until);
            let is_leader = until.is_some_and(|until| Instant::now() < until);
            if is_leader != was_leader {
                was_leader = is_leader;
                info!(replica = %self.options.identity, "{}", if is_leader { "leads" } else { "no longer leads" });
            }
            self.leads.send_replace(until);
            tokio::select! {
                () = tokio::time::sleep(self.options.renew) => {}
                () = shutdown.wait() => break,
            }
        }
        if let Err(error) = tokio::time::timeout(CALL_TIMEOUT, self.release()).await.unwrap_or(Ok(())) {
            debug!(%error, "the lease was not given back");
        }
        self.leads.send_replace(None);
    }

    async fn attempt(&mut self) -> Result<(), kube::Error> {
        let lease = self.api.get_opt(LEASE).await?;
        let begun = self.start.elapsed();
        let step = self.election.look(lease.as_ref().map(record), begun);
        let parameters = PostParams { field_manager: Some(crate::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match (step, lease) {
            (LeaseStep::Wait(_), _) => return Ok(()),
            (LeaseStep::Take { transitions }, Some(lease)) => {
                let spec = LeaseSpec {
                    acquire_time: Some(MicroTime(Timestamp::now())),
                    lease_transitions: Some(i32::try_from(transitions).unwrap_or(i32::MAX)),
                    ..self.spec(lease.spec.as_ref())
                };
                self.replace(&parameters, Lease { spec: Some(spec), ..lease }).await?;
            }
            (LeaseStep::Renew, Some(lease)) => {
                let spec = self.spec(lease.spec.as_ref());
                self.replace(&parameters, Lease { spec: Some(spec), ..lease }).await?;
            }
            (LeaseStep::Create, _) | (_, None) => {
                let metadata = ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() };
                let spec = LeaseSpec { acquire_time: Some(MicroTime(Timestamp::now())), ..self.spec(None) };
                self.api.create(&parameters, &Lease { metadata, spec: Some(spec) }).await?;
            }
        }
        self.election.written(begun);
        Ok(())
    }

    /// Writes the lease. The version that was read goes along, so only one of several replicas succeeds.
    async fn replace(&self, parameters: &PostParams, lease: Lease) -> Result<(), kube::Error> {
        self.api.replace(LEASE, parameters, &lease).await.map(drop)
    }

    /// The lease with this replica as its holder, renewed now.
    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.options.duration.as_secs()).unwrap_or(i32::MAX).max(1)),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..before.cloned().unwrap_or_default()
        }
    }

    /// Gives the lease back, so that another replica takes it at its next look.
    async fn release(&mut self) -> Result<(), kube::Error> {
        self.election.released();
        let Some(lease) = self.api.get_opt(LEASE).await? else { return Ok(()) };
        if record(&lease).holder != self.options.identity {
            return Ok(());
        }
        let spec = LeaseSpec { holder_identity: None, ..lease.spec.clone().unwrap_or_default() };
        self.api.replace(LEASE, &PostParams::default(), &Lease { spec: Some(spec), ..lease }).await.map(drop)
    }
}

/// Takes the lease from whatever replica leads, for [`SEIZED_FOR`], and waits until that replica has noticed.
///
/// # Errors
/// The API server refuses or cannot be reached.
pub(crate) async fn seize(client: &Client, namespace: &str) -> Result<(), kube::Error> {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    let parameters = PostParams { field_manager: Some(crate::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let now = MicroTime(Timestamp::now());
    let spec = LeaseSpec {
        holder_identity: Some("cleanup".to_owned()),
        lease_duration_seconds: i32::try_from(SEIZED_FOR.as_secs()).ok(),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        ..LeaseSpec::default()
    };
    let mut attempt = 1;
    loop {
        let Some(lease) = api.get_opt(LEASE).await? else { return Ok(()) };
        match api.replace(LEASE, &parameters, &Lease { spec: Some(spec.clone()), ..lease }).await {
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    tokio::time::sleep(NOTICE_TIME).await;
    Ok(())
}

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        duration_seconds: spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0),
        renew_time: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
        transitions: spec.lease_transitions.map_or(0, i64::from),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}
