//! Repeated checks at providers whether logins are still valid.
//!
//! The tokens for these checks (a refresh token, or an access token for introspection) are stored sealed, and never
//! leave control. If a provider reports the end of a login, the login ends here and at edges. If a provider cannot be
//! reached, no login ends; the next check comes later each time.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use sallyport_identity::Purpose;
use sallyport_model::{LoginSessionId, Person};
use sallyport_oidc::{CompletedLogin, LoginCheck, ProviderTokens};
use sallyport_store::{DueCheck, NewProviderSession, StoredProvider};
use serde::{Deserialize, Serialize};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    problem::ApiError,
    security::random,
    state::{App, AppParts, failing_providers::FailingProviders},
};

/// How often due checks are searched for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How many checks run at once.
const MAX_CHECKS_AT_ONCE: usize = 16;
/// How often in a row the time to the next check doubles while a provider cannot be reached.
const MAX_DOUBLINGS: u32 = 3;
/// The longest time to the next check while a provider cannot be reached, in seconds, unless the usual one is longer.
const MAX_PAUSE_SECONDS: i64 = 900;
/// How long a logout waits for the provider's discovery document.
const END_SESSION_WAIT: Duration = Duration::from_secs(3);
/// The sealed tokens of a provider, with their session: tokens that are moved to another row do not open.
#[derive(Serialize, Deserialize)]
struct SealedProviderTokens {
    session: LoginSessionId,
    tokens: ProviderTokens,
}

/// When a provider is checked next after this many failures in a row, in seconds since 1970 (UTC).
fn next_after(now: i64, every: i64, failures: u32) -> i64 {
    let pause = every.saturating_mul(1 << failures.min(MAX_DOUBLINGS)).min(MAX_PAUSE_SECONDS.max(every));
    now.saturating_add(pause)
}

impl App {
    /// The tokens to store for a new login at this provider.
    pub(crate) fn at_provider(
        &self,
        session: LoginSessionId,
        provider: &StoredProvider,
        finished: &CompletedLogin,
    ) -> Result<NewProviderSession, ApiError> {
        let now = self.clock.now().unix_seconds;
        let every = provider.config.check_seconds().filter(|_| finished.tokens.can_ask(now));
        let is_empty = finished.tokens == ProviderTokens::default();
        let tokens = if is_empty { None } else { Some(self.seal_tokens(session, &finished.tokens)?) };
        Ok(NewProviderSession {
            provider: provider.id,
            sid: finished.sid.clone(),
            tokens,
            check_at: every.map(|every| now.saturating_add(every)),
        })
    }

    fn seal_tokens(&self, session: LoginSessionId, tokens: &ProviderTokens) -> Result<String, ApiError> {
        let kept = SealedProviderTokens { session, tokens: tokens.clone() };
        let sealed = self.sealer.seal(Purpose::ProviderTokens, &kept, random::bytes()?);
        sealed.ok_or_else(|| ApiError::internal("the tokens of a provider could not be sealed"))
    }

    /// Opens the provider's tokens of this login.
    pub(crate) fn open_tokens(&self, session: LoginSessionId, sealed: &str) -> Option<ProviderTokens> {
        let kept: SealedProviderTokens = self.sealer.open(Purpose::ProviderTokens, sealed)?;
        (kept.session == session).then_some(kept.tokens)
    }

    /// The provider's address for logouts, if discovery answers in time.
    pub(crate) async fn end_session_endpoint(&self, provider: &StoredProvider) -> Option<String> {
        let asked = self.providers.end_session_endpoint(&provider.config);
        tokio::time::timeout(END_SESSION_WAIT, asked).await.ok()?.ok()?
    }

    /// Runs the due checks. Returns how many there were.
    pub(crate) async fn check_providers(&self) -> Result<usize, ApiError> {
        let due = self.store.claim_provider_checks(self.clock.now().unix_seconds).await?;
        let count = due.len();
        let turns = Arc::new(Semaphore::new(MAX_CHECKS_AT_ONCE));
        // Providers that failed in this round: their other checks are postponed, and delay no other provider's.
        let silent = Arc::new(FailingProviders::default());
        let mut checks = JoinSet::new();
        for check in due {
            let (app, turns, silent) = (self.clone(), turns.clone(), silent.clone());
            checks.spawn(async move {
                let _turn = turns.acquire_owned().await;
                if let Err(error) = app.check_one(&check, &silent).await {
                    // The check is due again when its claim expires.
                    tracing::warn!(
                        session = %check.session.id, error = error.sentence(),
                        "a login could not be checked"
                    );
                }
            });
        }
        while checks.join_next().await.is_some() {}
        Ok(count)
    }

    async fn check_one(&self, check: &DueCheck, silent: &FailingProviders) -> Result<(), ApiError> {
        let (session, provider) = (&check.session, &check.provider);
        let now = self.clock.now().unix_seconds;
        let (Some(every), Some(tokens)) =
            (provider.config.check_seconds(), self.open_tokens(session.id, &check.tokens))
        else {
            return Ok(self.store.record_provider_check(session.id, None, 0, None).await?);
        };
        let is_silent = silent.contains(provider.id);
        let asked = match self.open_secret(provider) {
            _ if is_silent => Err("the provider could not be reached just now".to_owned()),
            None => Err("the provider's secret cannot be decrypted".to_owned()),
            Some(secret) => {
                let whose = (session.person.subject.as_str(), &tokens);
                let asked = self.providers.check(&provider.config, &provider.name, &secret, whose, now).await;
                asked.map_err(|error| error.to_string())
            }
        };
        match asked {
            Ok(LoginCheck::Good { tokens, person }) => {
                let tokens = tokens.map(|tokens| self.seal_tokens(session.id, &tokens)).transpose()?;
                let next = Some(now.saturating_add(every));
                self.store.record_provider_check(session.id, next, 0, tokens.as_deref()).await?;
                self.metrics.provider_check("good");
                self.log_failing(provider, None);
                match person {
                    Some(person) => self.describe(check, *person).await,
                    None => Ok(()),
                }
            }
            Ok(LoginCheck::Ended(reason)) => {
                self.metrics.provider_check("ended");
                let (organisation, id) = (session.organisation, session.id);
                self.store.end_person_sessions(organisation, Some(id), None, None).await?;
                self.identities.end_these(&[id]);
                self.audit_ended_by_provider(session, &reason);
                let provider = &provider.name;
                tracing::info!(
                    account = %organisation, session = %id, %provider, reason,
                    "a login has ended at its provider"
                );
                Ok(())
            }
            Ok(LoginCheck::CannotAsk) => {
                self.metrics.provider_check("cannot-ask");
                Ok(self.store.record_provider_check(session.id, None, 0, None).await?)
            }
            Err(reason) => {
                self.metrics.provider_check("failed");
                silent.set_failing(provider.id, true);
                self.log_failing(provider, Some(&reason));
                let failures = check.failures.saturating_add(1);
                let next = Some(next_after(now, every, failures));
                Ok(self.store.record_provider_check(session.id, next, failures, None).await?)
            }
        }
    }

    /// Logs once that a provider cannot be reached, and once that it can be again.
    fn log_failing(&self, provider: &StoredProvider, reason: Option<&str>) {
        if !self.failing.set_failing(provider.id, reason.is_some()) {
            return;
        }
        let (account, name) = (provider.organisation, &provider.name);
        match reason {
            Some(reason) => {
                tracing::warn!(
                    %account, provider = %name, reason,
                    "logins cannot be checked at a provider: they stay valid meanwhile"
                );
            }
            None => tracing::info!(%account, provider = %name, "logins can be checked at a provider again"),
        }
    }

    /// Applies the provider's new description of the person; edges have it when this returns.
    async fn describe(&self, check: &DueCheck, person: Person) -> Result<(), ApiError> {
        let was = &check.session;
        if person == was.person {
            return Ok(());
        }
        let session = sallyport_model::LoginSession { person, ..was.clone() };
        if self.store.describe_person_session(was.id, &session.person).await? {
            self.identities.put_session(session);
            // The login may have ended meanwhile.
            if self.session(was.id).await?.is_none() {
                self.identities.end_these(&[was.id]);
            }
            tracing::info!(
                account = %was.organisation, session = %was.id,
                "a provider has changed the description of a person"
            );
        }
        Ok(())
    }
}

/// Runs due checks for as long as control lives.
pub(crate) async fn follow(app: Weak<AppParts>) {
    while let Some(app) = app.upgrade().map(App) {
        if let Err(error) = app.check_providers().await {
            tracing::warn!(error = error.sentence(), "the due checks of logins cannot be read: trying again");
        }
        drop(app);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_is_down_is_checked_more_and_more_rarely() {
        let pauses: Vec<i64> = (0..6).map(|failures| next_after(1_000, 60, failures) - 1_000).collect();
        assert_eq!(pauses, [60, 120, 240, 480, 480, 480]);
        assert_eq!(next_after(0, 300, 9), 900);
        assert_eq!(next_after(0, 7_200, 9), 7_200, "never more often than usual");
    }
}
