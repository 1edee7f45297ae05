//! `/v1/audit`.

use std::time::Duration;

use axum::{
    extract::{Query, State},
    response::Response,
};
use http::{StatusCode, Uri};
use sallyport_api::{
    AuditEvent, AuditOrder, AuditQuery, AuditVerification, DEFAULT_PAGE_ITEMS, MAX_AUDIT_WAIT_SECONDS, MAX_PAGE_ITEMS,
    Page,
};
use sallyport_audit::{AuditError, AuditFilter, AuditLog};
use sallyport_model::{AccountId, Scope};

use crate::{
    problem::ApiError,
    request::{caller::Caller, extract::json},
    state::App,
};

/// List events of the audit log
///
/// The newest come first, unless `order` is given. A page may have fewer events than `limit`, or none, and still a
/// `next`: the search is not complete then.
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", operation_id = "list_audit_events", params(AuditQuery),
    responses(
        (status = 200, description = "One page.", body = Page<AuditEvent>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require(Scope::AuditRead)?;
    let log = log(&app)?;
    let query = read_query(&uri)?;
    let (wait, mut filter) = filter(query)?;
    filter.organisation = Some(caller.organisation);
    if let Some(text) = filter.socket.pop() {
        filter.socket = app.words_for_socket(caller.organisation, &text).await?;
    }
    let mut last = log.subscribe();
    let until = tokio::time::Instant::now() + wait.unwrap_or_default();
    let place = wait.and_then(|_| app.audit_readers.waiting.try_acquire().ok());
    let mut stopping = app.audit_readers.stopping();
    loop {
        let read = filter.clone();
        last.mark_unchanged();
        let page = reading(&app, log.clone(), move |log| log.read(&read)).await?;
        if place.is_some() && page.events.is_empty() {
            filter.after = Some(page.position);
            let is_new = page.has_more
                || tokio::select! {
                    changed = tokio::time::timeout_at(until, last.changed()) => matches!(changed, Ok(Ok(()))),
                    _ = stopping.wait_for(|stops| *stops) => false,
                };
            if is_new && tokio::time::Instant::now() < until {
                continue;
            }
        }
        let next = (page.has_more || wait.is_some()).then(|| page.position.to_string());
        return Ok(json(StatusCode::OK, &Page { items: page.events, next }));
    }
}

/// Check the audit log
///
/// The check reads the whole log of this server, of all organisations, and reports every event that is changed or
/// missing.
#[utoipa::path(
    get, path = "/v1/audit/verify", tag = "audit", operation_id = "verify_audit_log",
    responses(
        (status = 200, description = "The result of the check.", body = AuditVerification),
    )
)]
pub(crate) async fn verify(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AuditRead)?;
    let found = reading(&app, log(&app)?, AuditLog::verify).await?;
    if !found.is_good {
        tracing::warn!(problems = found.problems.len(), "the audit log is not as it was written");
    }
    Ok(json(StatusCode::OK, &found))
}

impl App {
    /// The texts that events may have for the socket with this id, label, DNS name, URL or name.
    async fn words_for_socket(&self, organisation: AccountId, text: &str) -> Result<Vec<String>, ApiError> {
        let host = text.trim().split_once("://").map_or(text.trim(), |(_, rest)| rest);
        let label = host.split(['.', ':', '/', '?', '#']).next().unwrap_or_default().to_ascii_lowercase();
        let known = match label.parse() {
            Ok(id) => self.routes.get(id),
            Err(_) => self.routes.by_name(&label),
        };
        if let Some(route) = known.filter(|route| route.account == organisation) {
            return Ok(vec![route.id.to_string(), route.name.as_str().to_owned()]);
        }
        Ok(match self.find_socket(organisation, text).await {
            Ok(socket) => vec![socket.id.to_string(), socket.name.as_str().to_owned()],
            // A deleted socket is known by its public name.
            Err(error) if error.status() == StatusCode::NOT_FOUND => vec![label],
            Err(error) => return Err(error),
        })
    }
}

fn log(app: &App) -> Result<AuditLog, ApiError> {
    let detail = "this server keeps no audit log";
    app.config.audit.clone().ok_or_else(|| ApiError::new(StatusCode::NOT_IMPLEMENTED, "not-offered", detail))
}

/// Reads files on a thread for blocking work.
async fn reading<T: Send + 'static>(
    app: &App,
    log: AuditLog,
    read: impl FnOnce(&AuditLog) -> Result<T, AuditError> + Send + 'static,
) -> Result<T, ApiError> {
    let _turn = app.audit_readers.reading.acquire().await.map_err(ApiError::internal)?;
    let read = tokio::task::spawn_blocking(move || read(&log)).await.map_err(ApiError::internal)?;
    read.map_err(ApiError::internal)
}

fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail)
}

fn read_query(uri: &Uri) -> Result<AuditQuery, ApiError> {
    let Query(query) = Query::<AuditQuery>::try_from_uri(uri)
        .map_err(|rejection| invalid(format!("the query is not valid: {}", rejection.body_text())))?;
    Ok(query)
}

fn filter(query: AuditQuery) -> Result<(Option<Duration>, AuditFilter), ApiError> {
    let limit = query.limit.unwrap_or(DEFAULT_PAGE_ITEMS);
    if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
        return Err(invalid(format!("limit must be a whole number from 1 to {MAX_PAGE_ITEMS}")));
    }
    if query.wait.is_some_and(|wait| wait > MAX_AUDIT_WAIT_SECONDS) {
        return Err(invalid(format!("wait must be a whole number from 0 to {MAX_AUDIT_WAIT_SECONDS}")));
    }
    let order = query.order.unwrap_or(if query.wait.is_some() { AuditOrder::Oldest } else { AuditOrder::Newest });
    if query.wait.is_some() && order == AuditOrder::Newest {
        return Err(invalid("only the oldest first can be waited for: leave out the order, or wait"));
    }
    let after = query.after.filter(|after| !after.is_empty()).map(|after| after.parse()).transpose();
    let after = after.map_err(|_| invalid("after must be the `next` of a page of this list"))?;
    let filter = AuditFilter {
        organisation: None,
        since: query.since,
        until: query.until,
        kind: query.kind,
        identity: query.identity,
        socket: query.socket.into_iter().collect(),
        verdict: query.verdict,
        order,
        after,
        limit: limit as usize,
    };
    Ok((query.wait.map(|seconds| Duration::from_secs(u64::from(seconds))), filter))
}
