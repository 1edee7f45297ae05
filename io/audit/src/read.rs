//! Queries of the log.

use std::io;
use std::path::Path;

use sallyport_api::{AuditEvent, AuditKind, AuditOrder};
use sallyport_model::AccountId;
use time::OffsetDateTime;

use crate::{
    AuditError,
    recover::lines,
    segment::{self, Segment},
};

/// Bytes that one page may scan.
const MAX_SCANNED_BYTES: usize = 64 * 1024 * 1024;

/// Selects events.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Of this organisation, and gaps; all if absent.
    pub organisation: Option<AccountId>,
    /// From this time on.
    pub since: Option<OffsetDateTime>,
    /// Before this time.
    pub until: Option<OffsetDateTime>,
    /// Of this kind.
    pub kind: Option<AuditKind>,
    /// Of this person or token.
    pub identity: Option<String>,
    /// About a socket with one of these as its id or label; all if empty.
    pub socket: Vec<String>,
    /// With this verdict or outcome.
    pub verdict: Option<String>,
    /// The order of results.
    pub order: AuditOrder,
    /// Only those after this event in the order.
    pub after: Option<u64>,
    /// The most events to return.
    pub limit: usize,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The events.
    pub events: Vec<AuditEvent>,
    /// The event to continue after.
    pub position: u64,
    /// Whether there may be more events.
    pub has_more: bool,
}

impl AuditFilter {
    fn fits(&self, event: &AuditEvent) -> bool {
        let is_ours = event.organisation.is_none() || self.organisation.is_none_or(|o| event.organisation == Some(o));
        let same = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| is.is_some_and(|is| is.eq_ignore_ascii_case(wanted)))
        };
        is_ours
            && self.since.is_none_or(|since| event.at >= since)
            && self.until.is_none_or(|until| event.at < until)
            && self.kind.is_none_or(|kind| event.kind == kind)
            // A decision of a person belongs to that person, too.
            && (same(&self.identity, event.identity())
                || same(&self.identity, event.identity().and_then(|who| who.strip_prefix("person:"))))
            && same(&self.verdict, event.verdict())
            && (self.socket.is_empty() || is_about(event, &self.socket))
    }

    /// Whether a line may have a matching event: most other lines are skipped without parsing.
    fn may_fit(&self, line: &str) -> bool {
        let has = |key: &str, value: &str| line.contains(&format!("\"{key}\":\"{value}\""));
        self.organisation.is_none_or(|organisation| {
            has("organisation", &organisation.to_string()) || has("kind", AuditKind::Gap.as_str())
        }) && self.kind.is_none_or(|kind| has("kind", kind.as_str()))
    }
}

fn is_about(event: &AuditEvent, wanted: &[String]) -> bool {
    // Events about a tunnel of the socket, or a person at it, have more after the name.
    let label = |name: &str| name.split(['.', '/', ' ']).next().unwrap_or_default().to_ascii_lowercase();
    if let Some(flow) = &event.flow {
        return wanted.contains(&flow.socket_name) || wanted.contains(&flow.socket.to_string());
    }
    let names = [
        event.certificate.as_ref().and_then(|certificate| certificate.socket.as_deref()),
        event.admin.as_ref().and_then(|admin| admin.target.as_deref()),
    ];
    names.into_iter().flatten().any(|name| wanted.contains(&label(name)))
}

/// The matching events, within the bound of one scan.
pub(crate) fn page(dir: &Path, filter: &AuditFilter) -> Result<AuditPage, AuditError> {
    let segments = segment::list(dir)?;
    let newest = filter.order == AuditOrder::Newest;
    let mut wanted: Vec<(usize, &Segment)> = segments
        .iter()
        .enumerate()
        .filter(|(at, segment)| {
            let next = segments.get(at + 1).map_or(u64::MAX, |next| next.first);
            let is_behind = filter
                .after
                .is_none_or(|after| if newest { segment.first < after } else { next > after.saturating_add(1) });
            let is_recent = filter.since.is_none_or(|since| {
                segment.standing().is_none_or(|(_, written)| OffsetDateTime::from(written) >= since)
            });
            is_behind && is_recent
        })
        .collect();
    if newest {
        wanted.reverse();
    }
    let mut found = AuditPage { events: Vec::new(), position: filter.after.unwrap_or_default(), has_more: false };
    let mut scanned = 0;
    for (_, segment) in wanted {
        let bytes = match segment.read() {
            Ok(bytes) => bytes,
            // The file was removed because of its age in the meantime.
            Err(AuditError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let (whole, _) = lines(&bytes);
        let order: Box<dyn Iterator<Item = &[u8]>> = if newest { Box::new(whole.rev()) } else { Box::new(whole) };
        for line in order {
            let Some(line) = str::from_utf8(line).ok() else { continue };
            let Some(seq) = number(line) else { continue };
            if filter.after.is_some_and(|after| if newest { seq >= after } else { seq <= after }) {
                continue;
            }
            if found.events.len() == filter.limit || scanned > MAX_SCANNED_BYTES {
                found.has_more = true;
                return Ok(found);
            }
            scanned += line.len();
            found.position = seq;
            if !filter.may_fit(line) {
                continue;
            }
            match serde_json::from_str::<AuditEvent>(line) {
                Ok(event) if filter.fits(&event) => found.events.push(event),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn number(line: &str) -> Option<u64> {
    line.strip_prefix("{\"seq\":")?.split_once(',')?.0.parse().ok()
}
