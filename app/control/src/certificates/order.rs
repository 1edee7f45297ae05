//! The next step of one certificate, under a lease: wait, ask the ACME server about the renewal, or order.

use std::{sync::Arc, time::Duration};

use sallyport_acme::{AcmeAccount, AcmeError, CertificateRequest, DirectoryConfig, Obtained};
use sallyport_acme_schedule::{Directory, Failure, Issued, RenewalAnswer, RenewalWindow, Schedule, Step, WaitReason};
use sallyport_api::Secret;
use sallyport_identity::Purpose;
use sallyport_pki::{KeyPair, server_request};
use sallyport_store::{CertificateLease, CertificateSource, IssuedChain, PendingOrder, StoredCertificate};
use time::OffsetDateTime;

use super::{
    accounts::{AccountFailure, Accounts, directory_config},
    gate::OrderGate,
    solver::OrderSolver,
};
use crate::{config::AcmeConfig, problem::ApiError, security::random, state::App};

/// How long a lease lasts without a sign of life of its holder, in seconds.
const LEASE_SECONDS: i64 = 20;
/// How often the holder prolongs its lease.
const PROLONG_EVERY: Duration = Duration::from_secs(5);
/// The time limit of one order.
const ORDER_TIME: Duration = Duration::from_secs(180);
/// The most steps that are made under one lease: renewal information, the staging order, the order.
const MAX_STEPS: usize = 4;
/// How long an order waits for a record that it needs at least, in seconds.
const MIN_RECORD_WAIT_SECONDS: i64 = 60;
/// How long an order waits for such a record at most.
const MAX_RECORD_WAIT_SECONDS: i64 = 3_600;
/// The problem of an ACME server that does not know the account (RFC 8555 section 6.7).
const NO_ACCOUNT: &str = "accountDoesNotExist";

/// The work at one certificate.
pub(super) struct OrderStep<'a> {
    pub(super) app: &'a App,
    pub(super) acme: &'a AcmeConfig,
    pub(super) accounts: &'a Accounts,
    pub(super) gate: &'a OrderGate,
}

/// The end of a step.
struct StepEnd {
    issued: Option<IssuedChain>,
    due_at: i64,
    problem: Option<String>,
}

impl OrderStep<'_> {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(self.app.clock.now().unix_seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// Makes the next step of a row. Another holder's row stays as it is.
    pub(super) async fn run(&self, row: &StoredCertificate) -> Result<(), ApiError> {
        let (app, now) = (self.app, self.app.clock.now().unix_seconds);
        let lease = app.store.lease_certificate(row.id, app.config.id, now, now + LEASE_SECONDS).await?;
        let Some(lease) = lease else { return Ok(()) };
        // The row may have changed since it was listed.
        let Some(row) = app.store.certificate(row.id).await? else { return Ok(()) };
        let names: Vec<String> = row.names.iter().map(ToString::to_string).collect();
        let mut schedule = serde_json::from_str(&row.schedule).unwrap_or_else(|_| Schedule::new(names));
        let end = tokio::select! {
            end = self.steps(&row, lease, &mut schedule) => end?,
            () = self.keep_lease(lease) => {
                tracing::warn!(name = %row.names[0], "another control works at this certificate: leaving it");
                return Ok(());
            }
        };
        let text = serde_json::to_string(&schedule).map_err(ApiError::internal)?;
        let state = (text.as_str(), end.due_at, end.problem.as_deref());
        let is_ours = app.store.end_certificate_step(lease, end.issued.as_ref(), state).await?;
        if is_ours
            && end.issued.is_some()
            && let Some(stored) = app.store.certificate(row.id).await?
        {
            app.publish_certificate(&stored);
        }
        Ok(())
    }

    /// Prolongs the lease; returns when it is lost.
    async fn keep_lease(&self, lease: CertificateLease) {
        loop {
            tokio::time::sleep(PROLONG_EVERY).await;
            let until = self.app.clock.now().unix_seconds + LEASE_SECONDS;
            match self.app.store.prolong_certificate_lease(lease, until).await {
                Ok(true) => {}
                Ok(false) => return,
                // The store says whether the lease is still there when it is back.
                Err(error) => tracing::debug!(%error, "a lease on a certificate is prolonged later"),
            }
        }
    }

    async fn steps(
        &self,
        row: &StoredCertificate,
        lease: CertificateLease,
        schedule: &mut Schedule,
    ) -> Result<StepEnd, ApiError> {
        let mut problem = None;
        for _ in 0..MAX_STEPS {
            let directories = self.accounts.directories(self.acme).await;
            match schedule.next_step(&directories, self.now()) {
                Step::Wait { until, reason } => {
                    let problem =
                        problem.or_else(|| sentence(reason, &schedule.failure_text)).filter(|_| is_problem(reason));
                    return Ok(StepEnd { issued: None, due_at: until.unix_timestamp(), problem });
                }
                Step::AskRenewalInfo { directory } => self.ask_renewal_info(row, directory, schedule).await?,
                Step::Order { directory, replaces, reason } => {
                    tracing::debug!(name = %row.names[0], %reason, "ordering a certificate");
                    let identities = self.accounts.identities(self.acme).await;
                    if let Some(obstacle) = self.app.order_obstacle(&row.names, &identities).await {
                        let due_at = look_for_record_at(row, self.app.clock.now().unix_seconds);
                        return Ok(StepEnd { issued: None, due_at, problem: Some(obstacle) });
                    }
                    let _place = self.gate.enter().await;
                    match self.order(row, lease, schedule, (directory, replaces)).await? {
                        Ok(None) => problem = None,
                        Ok(Some(issued)) => {
                            let due_at = self.due_after(schedule).await;
                            return Ok(StepEnd { issued: Some(issued), due_at, problem: None });
                        }
                        Err(reason) => problem = Some(reason),
                    }
                }
            }
        }
        let due_at = self.app.clock.now().unix_seconds + MIN_RECORD_WAIT_SECONDS;
        Ok(StepEnd { issued: None, due_at, problem })
    }

    /// When the next step of a certificate is due that was issued now.
    async fn due_after(&self, schedule: &Schedule) -> i64 {
        let directories = self.accounts.directories(self.acme).await;
        match schedule.next_step(&directories, self.now()) {
            Step::Wait { until, .. } => until.unix_timestamp(),
            // The renewal information of the new certificate is asked for in a step of its own.
            Step::AskRenewalInfo { .. } | Step::Order { .. } => self.app.clock.now().unix_seconds,
        }
    }

    async fn ask_renewal_info(
        &self,
        row: &StoredCertificate,
        directory: Directory,
        schedule: &mut Schedule,
    ) -> Result<(), ApiError> {
        let answer = match (directory_config(self.acme, directory), &row.issued) {
            (Some(config), Some(issued)) => match self.accounts.account(self.app, &config).await {
                Ok(account) => account.renewal_info(issued.chain.as_bytes()).await,
                Err(AccountFailure::Acme(error)) => Err(error),
                Err(AccountFailure::Store(error)) => return Err(error),
            },
            _ => Ok(None),
        };
        let answer = match answer {
            Ok(Some(found)) => RenewalAnswer::Window {
                window: RenewalWindow { start: found.start, end: found.end },
                explanation_url: found.explanation_url,
                ask_again_after: time::Duration::try_from(found.ask_again_after).unwrap_or(time::Duration::HOUR),
            },
            Ok(None) => RenewalAnswer::Unsupported,
            Err(error) => {
                tracing::debug!(name = %row.names[0], %error, "no renewal information now");
                RenewalAnswer::Failed
            }
        };
        schedule.inform(answer, self.now(), random_number()?);
        Ok(())
    }

    /// Makes or continues an order. `Ok(None)`: a try at the staging directory succeeded. An inner error is a sentence.
    async fn order(
        &self,
        row: &StoredCertificate,
        lease: CertificateLease,
        schedule: &mut Schedule,
        (directory, replaces): (Directory, bool),
    ) -> Result<Result<Option<IssuedChain>, String>, ApiError> {
        let Some(config) = directory_config(self.acme, directory) else {
            return Err(ApiError::internal("the schedule names a directory that is not configured"));
        };
        let account = match self.accounts.account(self.app, &config).await {
            Ok(account) => account,
            Err(AccountFailure::Store(error)) => return Err(error),
            Err(AccountFailure::Acme(error)) => {
                return Ok(Err(self.fail(row, schedule, directory, &error).await?));
            }
        };
        let obtained = self.obtain(row, lease, schedule, (&config, &account, replaces)).await?;
        let (key, obtained) = match obtained {
            Ok(obtained) => obtained,
            Err(error) => {
                if matches!(&error, AcmeError::Rejected { problem_type, .. } if problem_type == NO_ACCOUNT) {
                    self.accounts.forget(self.app, &config).await?;
                }
                // An order that is late is continued, so that it does not count twice at the CA.
                if !error.is_transient() {
                    self.app.store.set_certificate_order(lease, None).await?;
                }
                return Ok(Err(self.fail(row, schedule, directory, &error).await?));
            }
        };
        self.app.metrics.certificate_order("ok");
        if directory == Directory::Staging {
            schedule.pass_staging();
            self.app.store.set_certificate_order(lease, None).await?;
            return Ok(Ok(None));
        }
        let issued = Issued {
            not_before: obtained.not_before,
            not_after: obtained.not_after,
            directory_url: account.directory_url().to_owned(),
            account_url: account.id().to_owned(),
        };
        schedule.issue(issued, self.now(), random_number()?);
        tracing::info!(name = %row.names[0], ends = %obtained.not_after, "certificate issued");
        Ok(Ok(Some(IssuedChain {
            chain: obtained.chain_pem,
            sealed_key: key,
            not_before: obtained.not_before.unix_timestamp(),
            not_after: obtained.not_after.unix_timestamp(),
        })))
    }

    /// Obtains a certificate with the key of the order in progress, or a new key. Returns the sealed key too.
    async fn obtain(
        &self,
        row: &StoredCertificate,
        lease: CertificateLease,
        schedule: &Schedule,
        (config, account, replaces): (&DirectoryConfig, &Arc<AcmeAccount>, bool),
    ) -> Result<Result<(String, Obtained), AcmeError>, ApiError> {
        let app = self.app;
        let pending = row.order.clone().filter(|order| order.directory == config.url);
        let opened = pending.as_ref().and_then(|order| {
            let pem: String = app.sealer.open(Purpose::CertificateKey, &order.sealed_key)?;
            KeyPair::from_pem(&pem).ok()
        });
        let (key, order, order_url) = match (opened, pending) {
            (Some(key), Some(order)) => (key, PendingOrder { url: None, ..order.clone() }, order.url),
            _ => {
                let key = KeyPair::generate().map_err(ApiError::internal)?;
                let sealed_key = app.seal_certificate_key(&Secret::from(key.serialize_pem()))?;
                let order = PendingOrder { sealed_key, directory: config.url.clone(), url: None };
                if !app.store.set_certificate_order(lease, Some(&order)).await? {
                    let lost = AcmeError::Solver("another control works at this certificate".to_owned());
                    return Ok(Err(lost));
                }
                (key, order, None)
            }
        };
        let names: Vec<String> = row.names.iter().map(ToString::to_string).collect();
        let csr = server_request(&names, &key).map_err(ApiError::internal)?;
        let available = app.kinds_for(&row.names, &self.acme.challenges).await;
        let kinds = schedule.challenge_kinds(&available);
        let request = CertificateRequest {
            names: &names,
            csr_der: &csr,
            replaces: row.issued.as_ref().filter(|_| replaces).map(|issued| issued.chain.as_bytes()),
            challenge_kinds: &kinds,
            profile: config.profile.as_deref(),
            order_url: order_url.as_deref(),
            time_limit: ORDER_TIME,
        };
        let sealed_key = order.sealed_key.clone();
        let solver = Arc::new(OrderSolver { app: app.clone(), lease, order });
        Ok(account.obtain(&request, solver).await.map(|obtained| (sealed_key, obtained)))
    }

    /// Records a failure. Returns its sentence.
    async fn fail(
        &self,
        row: &StoredCertificate,
        schedule: &mut Schedule,
        directory: Directory,
        error: &AcmeError,
    ) -> Result<String, ApiError> {
        let failure: Failure = error.failure();
        let directories = self.accounts.directories(self.acme).await;
        schedule.fail(&directories, directory, failure, self.now(), random_number()?);
        schedule.failure_text = error.to_string();
        self.app.metrics.certificate_order(match failure {
            Failure::RateLimited { .. } => "limited",
            _ if failure.is_fault_of_ca() => "unavailable",
            _ => "refused",
        });
        tracing::warn!(name = %row.names[0], %error, "a certificate could not be obtained, trying again later");
        Ok(error.to_string())
    }
}

impl App {
    /// Makes certificates due whose due time is later than their schedule says: the clock was ahead when it was set.
    pub(super) async fn mend_due_times(&self, acme: &AcmeConfig) -> Result<(), ApiError> {
        let now = self.clock.now().unix_seconds;
        let at = OffsetDateTime::from_unix_timestamp(now).map_err(ApiError::internal)?;
        let directories = Accounts::default().directories(acme).await;
        for row in self.store.certificates().await?.iter().filter(|row| row.source == CertificateSource::Acme) {
            let schedule: Schedule = serde_json::from_str(&row.schedule).unwrap_or_default();
            let due_at = match schedule.next_step(&directories, at) {
                Step::Wait { until, .. } => until.unix_timestamp(),
                Step::AskRenewalInfo { .. } | Step::Order { .. } => now,
            };
            if row.due_at > due_at.saturating_add(MAX_RECORD_WAIT_SECONDS) {
                tracing::warn!(name = %row.names[0], "the clock was ahead when this certificate was looked at");
                self.store.hasten_certificate(row.id, &row.schedule, now).await?;
            }
        }
        Ok(())
    }
}

/// When to look again for a record that an order needs: after as long as the name has waited so far, within bounds. A
/// check of the domain that finds the record is faster. The few names of the installation are looked at each minute.
fn look_for_record_at(row: &StoredCertificate, now: i64) -> i64 {
    let waited = if row.organisation.is_some() { now.saturating_sub(row.created_at) } else { 0 };
    now.saturating_add(waited.clamp(MIN_RECORD_WAIT_SECONDS, MAX_RECORD_WAIT_SECONDS))
}

/// Whether a wait is because something is wrong.
fn is_problem(reason: WaitReason) -> bool {
    !matches!(reason, WaitReason::Good { .. })
}

/// Why nothing is done, with the words of the latest failure.
fn sentence(reason: WaitReason, failure_text: &str) -> Option<String> {
    Some(match reason {
        WaitReason::Failed { failures, .. } if !failure_text.is_empty() => {
            format!("{failure_text}; failures in a row: {failures}")
        }
        WaitReason::AskedToWait if !failure_text.is_empty() => failure_text.to_owned(),
        _ => reason.to_string(),
    })
}

fn random_number() -> Result<u64, ApiError> {
    Ok(u64::from_ne_bytes(random::bytes()?))
}
