//! Whether this process can do its work, for `/readyz`.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

/// Checks whether the other parts of this process can work, such as control. The error is for the log only, because it
/// may have internals.
pub type Readiness = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// How long the check may take.
const MAX_ASKING: Duration = Duration::from_secs(2);
/// How long a result is reused. `/readyz` is open to everyone, so this bounds the rate of checks.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Runs the readiness check within bounds of time and rate.
pub(crate) struct ReadinessCheck {
    ask: Readiness,
    /// The public reason for a failed check.
    public_reason: &'static str,
    /// Locked during a check, so that concurrent requests share its result.
    last: Mutex<Option<(Instant, Result<(), &'static str>)>>,
}

impl ReadinessCheck {
    pub(crate) fn new(public_reason: &'static str, ask: Readiness) -> Self {
        Self { ask, public_reason, last: Mutex::new(None) }
    }

    /// The result of the check. The error is the public reason.
    pub(crate) async fn ready(&self) -> Result<(), &'static str> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = *last
            && at.elapsed() < GOOD_FOR
        {
            return answer;
        }
        let was_ready = last.is_none_or(|(_, answer)| answer.is_ok());
        let asked = tokio::time::timeout(MAX_ASKING, (self.ask)()).await;
        let (answer, why) = match asked {
            Ok(Ok(())) => (Ok(()), String::new()),
            Ok(Err(why)) => (Err(self.public_reason), why),
            Err(_) => (Err("control does not answer"), format!("no answer within {MAX_ASKING:?}")),
        };
        match answer {
            Err(reason) if was_ready => tracing::warn!(why, "not ready: {reason}"),
            Ok(()) if !was_ready => tracing::info!("ready again"),
            _ => {}
        }
        *last = Some((Instant::now(), answer));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_checks_share_one_query() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let check = Arc::new(ReadinessCheck::new(
            "control cannot use its database",
            Arc::new(move || {
                let counter = counter.clone();
                Box::pin(async move {
                    counter.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Err("the disk is on fire".to_owned())
                })
            }),
        ));
        let began = Instant::now();
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let check = check.clone();
            asking.spawn(async move { check.ready().await });
        }
        for answer in asking.join_all().await {
            assert_eq!(answer, Err("control cannot use its database"), "without the reason");
        }
        // On a busy machine the test may take longer than [`GOOD_FOR`], which allows further checks.
        let most = began.elapsed().as_millis() / GOOD_FOR.as_millis() + 1;
        assert!(asked.load(Ordering::SeqCst) as u128 <= most);
    }

    #[tokio::test]
    async fn a_check_without_an_answer_fails() {
        let check = ReadinessCheck::new("it cannot", Arc::new(|| Box::pin(std::future::pending())));
        assert_eq!(check.ready().await, Err("control does not answer"));
    }
}
