//! One order, from names and a signing request to a certificate.

use std::{sync::Arc, time::Duration};

use instant_acme::{CertificateIdentifier, Identifier, NewOrder, Order, OrderStatus};
use sallyport_acme_schedule::ChallengeKind;
use time::OffsetDateTime;

use crate::{
    AcmeAccount, AcmeError, Solver, authorize,
    certificate::{check_chain, leaf_der, public_key},
    error::harmless,
    http::{MAX_TRIES_WITH_NONCES, latest_retry_after, with_retry_after},
    presented::Presented,
};

/// Bound on the names of a certificate: the one of Let's Encrypt.
pub const MAX_NAMES: usize = 100;
/// Bound on the time limit of an order.
pub const MAX_TIME_LIMIT: Duration = Duration::from_secs(3_600);
/// Bound on a name, in bytes.
const MAX_NAME_BYTES: usize = 253;
/// Bound on a signing request, in bytes.
const MAX_CSR_BYTES: usize = 64 * 1_024;
/// Bound on the states that an order goes through: pending, ready, processing, valid, and some to spare.
const MAX_STATES: usize = 8;
/// Bound on the looks at one state.
const MAX_POLLS: usize = 500;
/// Bound on lost answers in a row, while an order is looked at.
const MAX_LOST_ANSWERS: usize = 3;
/// The first pause between two looks, where the CA names none. Each further one is half as long again.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two looks, where the CA names none.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A certificate to obtain.
#[derive(Debug, Clone, Copy)]
pub struct CertificateRequest<'a> {
    /// The names, in lower case and ASCII: `a.example` or `*.a.example`. At most [`MAX_NAMES`].
    pub names: &'a [String],
    /// The signing request (PKCS#10) in DER, for exactly these names.
    pub csr_der: &'a [u8],
    /// The certificate that this one replaces: a chain in PEM, or the certificate in DER.
    pub replaces: Option<&'a [u8]>,
    /// The kinds of challenges that the solver answers, best first.
    pub challenge_kinds: &'a [ChallengeKind],
    /// The profile, in place of the directory's.
    pub profile: Option<&'a str>,
    /// An order of the same account, names and signing request, to be continued.
    pub order_url: Option<&'a str>,
    /// Time limit of the whole order, at most [`MAX_TIME_LIMIT`].
    pub time_limit: Duration,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obtained {
    /// The chain in PEM; the certificate itself comes first.
    pub chain_pem: String,
    /// The certificate is valid from this time on.
    pub not_before: OffsetDateTime,
    /// The certificate is valid up to this time.
    pub not_after: OffsetDateTime,
    /// The order, which may be another than the one of the request.
    pub order_url: String,
}

impl AcmeAccount {
    /// Obtains a certificate, by a new order or the continued one.
    ///
    /// A continued order goes on where it is: one that is valid already gives its certificate, so a killed process
    /// never causes two. A new order is made if the CA has dropped it, or its certificate has another key. A CA that
    /// refuses to replace the certificate gets the order again without `replaces`. Answers of challenges are taken away
    /// in every case, by a task in the background when the future is dropped.
    ///
    /// # Errors
    /// Any but [`AcmeError::AlreadyReplaced`].
    pub async fn obtain(
        &self,
        request: &CertificateRequest<'_>,
        solver: Arc<dyn Solver>,
    ) -> Result<Obtained, AcmeError> {
        check(request)?;
        let limit = request.time_limit.min(MAX_TIME_LIMIT);
        let mut presented = Presented::new(solver.clone());
        let run = with_retry_after(run(self, request, solver.as_ref(), &mut presented));
        let result = tokio::time::timeout(limit, run).await;
        presented.remove_all().await;
        result.unwrap_or_else(|_| Err(timed_out(limit)))
    }
}

fn timed_out(limit: Duration) -> AcmeError {
    AcmeError::TimedOut { what: "the order".to_owned(), seconds: limit.as_secs() }
}

/// Refuses what no CA would take.
fn check(request: &CertificateRequest<'_>) -> Result<(), AcmeError> {
    if request.names.is_empty() || request.names.len() > MAX_NAMES {
        return Err(AcmeError::Config(format!("a certificate has 1 to {MAX_NAMES} names")));
    }
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    for name in request.names {
        let base = name.strip_prefix("*.").unwrap_or(name);
        if base.is_empty() || base.len() > MAX_NAME_BYTES || !base.bytes().all(is_plain) {
            return Err(AcmeError::Config(format!("{} is not a name for a certificate", harmless(name))));
        }
    }
    if request.csr_der.len() > MAX_CSR_BYTES {
        return Err(AcmeError::Config(format!("the signing request is longer than {MAX_CSR_BYTES} bytes")));
    }
    public_key(request.csr_der)?;
    Ok(())
}

async fn run(
    account: &AcmeAccount,
    request: &CertificateRequest<'_>,
    solver: &dyn Solver,
    presented: &mut Presented,
) -> Result<Obtained, AcmeError> {
    let mut order_url = request.order_url.map(str::to_owned);
    for _ in 1..MAX_TRIES_WITH_NONCES {
        let request = CertificateRequest { order_url: order_url.as_deref(), ..*request };
        match once(account, &request, solver, presented).await {
            Err((error, url)) if error.is_nonce_refused() => order_url = url.or(order_url),
            other => return other.map_err(|(error, _)| error),
        }
        presented.remove_all().await;
    }
    let request = CertificateRequest { order_url: order_url.as_deref(), ..*request };
    once(account, &request, solver, presented).await.map_err(|(error, _)| error)
}

/// Continues the order of the request, or makes one. An error comes with the URL of the new order, if there is one.
async fn once(
    account: &AcmeAccount,
    request: &CertificateRequest<'_>,
    solver: &dyn Solver,
    presented: &mut Presented,
) -> Result<Obtained, (AcmeError, Option<String>)> {
    if let Some(obtained) = resume(account, request, presented).await.map_err(|error| (error, None))? {
        return Ok(obtained);
    }
    let mut order = new_order(account, request).await.map_err(|error| (error, None))?;
    let url = order.url().to_owned();
    let result = match solver.order_created(&url).await {
        Ok(()) => complete(&mut order, request, presented).await,
        Err(reason) => Err(AcmeError::Solver(harmless(&reason))),
    };
    result.map_err(|error| (error, Some(url)))
}

/// Continues the order of the request; `None` if there is none that can be continued.
async fn resume(
    account: &AcmeAccount,
    request: &CertificateRequest<'_>,
    presented: &mut Presented,
) -> Result<Option<Obtained>, AcmeError> {
    let Some(url) = request.order_url.filter(|url| account.is_callable(url)) else { return Ok(None) };
    let result = match account.account.order(url.to_owned()).await {
        Ok(mut order) => {
            if order.state().status == OrderStatus::Invalid {
                return Ok(None);
            }
            complete(&mut order, request, presented).await
        }
        Err(error) => Err(AcmeError::from(error)),
    };
    match result {
        Ok(obtained) => Ok(Some(obtained)),
        // The CA knows it no more, or it was for other names or another key. An answer that cannot be read is no
        // reason: the certificate may be there.
        Err(error @ (AcmeError::Rejected { .. } | AcmeError::Certificate(_))) if !error.is_nonce_refused() => {
            tracing::info!(%error, "an earlier order cannot be continued: a new one is made");
            presented.remove_all().await;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Makes an order, without `replaces` if the CA does not take it.
async fn new_order(account: &AcmeAccount, request: &CertificateRequest<'_>) -> Result<Order, AcmeError> {
    let identifiers: Vec<Identifier> = request.names.iter().map(|name| Identifier::Dns(name.clone())).collect();
    let make = |replaces: Option<CertificateIdentifier<'static>>| {
        let mut new = NewOrder::new(&identifiers);
        if let Some(profile) = request.profile.or(account.profile.as_deref()) {
            new = new.profile(profile);
        }
        if let Some(replaces) = replaces {
            new = new.replaces(replaces);
        }
        new
    };
    if let Some(replaced) = request.replaces.and_then(identifier) {
        match account.account.new_order(&make(Some(replaced))).await.map_err(AcmeError::from) {
            Ok(order) => return Ok(order),
            // Servers refuse a certificate that is already replaced, that another account ordered, or that they do not
            // know. Their words and statuses differ (409, 403, 404, even 500), so any refusal counts.
            Err(error) if is_refusal(&error) => {
                tracing::info!(%error, "the order is made again without naming the certificate that it replaces");
            }
            Err(error) => return Err(error),
        }
    }
    match account.account.new_order(&make(None)).await.map_err(AcmeError::from) {
        // It cannot be: this order replaces nothing.
        Err(AcmeError::AlreadyReplaced { detail }) => Err(AcmeError::malformed(detail)),
        other => other,
    }
}

/// Whether the order may be taken without `replaces`.
fn is_refusal(error: &AcmeError) -> bool {
    match error {
        AcmeError::AlreadyReplaced { .. } | AcmeError::Malformed { .. } => true,
        AcmeError::Rejected { .. } => !error.is_nonce_refused(),
        AcmeError::Server { status, .. } => *status == 500,
        _ => false,
    }
}

/// The identifier of the certificate to be replaced. One that cannot be read is no reason to have none.
fn identifier(certificate: &[u8]) -> Option<CertificateIdentifier<'static>> {
    let leaf = leaf_der(certificate).ok()?;
    CertificateIdentifier::try_from(&leaf).ok()
}

/// Brings the order to its end from whatever state it is in.
async fn complete(
    order: &mut Order,
    request: &CertificateRequest<'_>,
    presented: &mut Presented,
) -> Result<Obtained, AcmeError> {
    for _ in 0..MAX_STATES {
        match order.state().status {
            OrderStatus::Pending => {
                authorize::authorize(order, request, presented).await?;
                poll(order, OrderStatus::Pending, request.time_limit).await?;
            }
            OrderStatus::Ready => finalize(order, request.csr_der).await?,
            OrderStatus::Processing => poll(order, OrderStatus::Processing, request.time_limit).await?,
            OrderStatus::Valid => return download(order, request).await,
            OrderStatus::Invalid => return Err(authorize::refusal(order).await),
        }
    }
    Err(AcmeError::malformed("the order does not advance"))
}

/// Looks at the order until it leaves this state.
async fn poll(order: &mut Order, left: OrderStatus, limit: Duration) -> Result<(), AcmeError> {
    let (mut pause, mut lost_answers) = (FIRST_PAUSE, 0);
    let mut asked = None;
    for _ in 0..MAX_POLLS {
        //= RFC 8555 section 7.4
        // Send a POST-as-GET request after the time given in the Retry-After header field of the response, if any.
        let wait = asked.take().filter(|wait| *wait > Duration::ZERO).unwrap_or(pause);
        if wait >= limit {
            // The order would end while it waits. Its URL is stored, so a later request continues it.
            let what = format!("the order, for which the CA asks to wait {} seconds,", wait.as_secs());
            return Err(AcmeError::TimedOut { what, seconds: limit.as_secs() });
        }
        tokio::time::sleep(wait).await;
        pause = (pause * 3 / 2).min(MAX_PAUSE);
        match order.refresh().await.map(|state| state.status).map_err(AcmeError::from) {
            Ok(status) if status != left => return Ok(()),
            Ok(_) => {
                lost_answers = 0;
                asked = latest_retry_after();
            }
            Err(error) if error.is_transient() && lost_answers < MAX_LOST_ANSWERS => {
                lost_answers += 1;
                asked = latest_retry_after();
            }
            Err(error) => return Err(error),
        }
    }
    Err(AcmeError::malformed("the order does not advance"))
}

async fn finalize(order: &mut Order, csr_der: &[u8]) -> Result<(), AcmeError> {
    let Err(error) = order.finalize_csr(csr_der).await else { return Ok(()) };
    let error = AcmeError::from(error);
    //= RFC 8555 section 7.4
    // A request to finalize an order will result in error if the order is not in the "ready" state.
    // The CA may have taken a request whose answer was lost; the order's state tells.
    let is_not_ready = matches!(&error, AcmeError::Rejected { problem_type, .. } if problem_type == "orderNotReady");
    if !(error.is_transient() || is_not_ready) {
        return Err(error);
    }
    match order.refresh().await {
        Ok(state) if state.status != OrderStatus::Ready => Ok(()),
        _ => Err(error),
    }
}

async fn download(order: &mut Order, request: &CertificateRequest<'_>) -> Result<Obtained, AcmeError> {
    let chain = order.certificate().await?.ok_or_else(|| AcmeError::malformed("a valid order has no certificate"))?;
    let chain = check_chain(&chain, request.names, request.csr_der)?;
    Ok(Obtained {
        chain_pem: chain.pem,
        not_before: chain.not_before,
        not_after: chain.not_after,
        order_url: order.url().to_owned(),
    })
}
