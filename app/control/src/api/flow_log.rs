//! `/v1/flows/log`: flows and requests that ended lately, of all edges.

use std::collections::BTreeMap;

use axum::{
    extract::{Query, State},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{StatusCode, Uri};
use sallyport_api::{DEFAULT_PAGE_ITEMS, EndedFlow, EndedFlowPage, EndedFlowQuery, MAX_PAGE_ITEMS};
use sallyport_bus::{Answer, Answered, Ask};
use sallyport_model::{EdgeId, Scope};

use super::flows::{address_of, silent};
use crate::{
    clock::date_of_ms,
    problem::ApiError,
    request::{caller::Caller, extract::json},
    state::App,
};

/// How many entries of all edges one response has.
const MAX_LISTED_ENTRIES: usize = 1_000;
/// How many edges a cursor has.
const MAX_CURSOR_EDGES: usize = 1_024;
/// The first byte of a cursor: its version.
const CURSOR_FORM: u8 = 1;
/// The size of a cursor's entry: the id of an edge, and the number of its last entry.
const CURSOR_ENTRY_BYTES: usize = 16 + 8;

/// The last known entry of each edge. The edge of a single machine has an id of zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Cursor(BTreeMap<EdgeId, u64>);

fn key(edge: Option<EdgeId>) -> EdgeId {
    edge.unwrap_or_else(|| EdgeId::from_bytes([0; 16]))
}

impl Cursor {
    fn read(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (form, rest) = bytes.split_first()?;
        let (entries, []) = rest.as_chunks::<CURSOR_ENTRY_BYTES>() else { return None };
        if *form != CURSOR_FORM || entries.len() > MAX_CURSOR_EDGES {
            return None;
        }
        let read = |entry: &[u8; CURSOR_ENTRY_BYTES]| {
            let (id, number) = entry.split_first_chunk::<16>()?;
            Some((EdgeId::from_bytes(*id), u64::from_be_bytes(number.try_into().ok()?)))
        };
        entries.iter().map(read).collect::<Option<_>>().map(Self)
    }

    fn text(&self) -> String {
        let mut bytes = vec![CURSOR_FORM];
        for (edge, number) in self.0.iter().take(MAX_CURSOR_EDGES) {
            bytes.extend_from_slice(edge.as_bytes());
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// Merges the entries of all edges in the order of their ends, and moves `from` to the next position.
fn merge(
    answered: Vec<Answered>,
    from: &mut Cursor,
    is_later: bool,
    limit: usize,
    shows_clients: bool,
) -> Vec<EndedFlow> {
    let mut all = Vec::new();
    for Answered { edge, answer, .. } in answered {
        let Answer::Ended(list) = answer else { continue };
        let (id, mut at) = (key(edge.as_ref().map(|card| card.edge)), i64::MIN);
        if !is_later {
            // Entries older than the newest ones are not continued.
            from.0.insert(id, list.entries.last().map_or(0, |last| last.number));
        }
        for entry in list.entries {
            // The entries of an edge keep their order even if its clock was set back.
            at = at.max(entry.ended_ms);
            let card = edge.as_deref();
            let shown = EndedFlow {
                id: entry.id,
                edge: card.map(|card| card.name.clone()),
                region: card.map(|card| card.region.clone()),
                socket: entry.socket,
                socket_name: entry.socket_name.as_str().to_owned(),
                transport: entry.transport.as_str().to_owned(),
                tunnel: entry.tunnel,
                direct_origin: entry.direct_origin,
                direct_origin_address: None,
                ended: date_of_ms(entry.ended_ms),
                duration_ms: ms(entry.duration_us),
                first_byte_ms: entry.first_byte_us.map(ms),
                bytes_in: entry.bytes_in,
                bytes_out: entry.bytes_out,
                verdict: entry.verdict,
                method: entry.http.as_ref().map(|http| http.method.clone()),
                status: entry.http.as_ref().map(|http| http.status),
                path: entry.http.map(|http| http.path),
                client: Some(entry.client).filter(|_| shows_clients),
                identity: entry.identity.filter(|_| shows_clients),
                rule: entry.rule.filter(|_| shows_clients),
                omitted_before: entry.omitted_before,
            };
            all.push((at, id, entry.number, shown));
        }
    }
    all.sort_by_key(|(at, id, number, _)| (*at, *id, *number));
    if is_later {
        all.truncate(MAX_LISTED_ENTRIES);
        for (_, id, number, _) in &all {
            from.0.insert(*id, *number);
        }
    } else {
        all.drain(..all.len().saturating_sub(limit));
    }
    all.into_iter().map(|(.., shown)| shown).collect()
}

#[expect(clippy::cast_precision_loss, reason = "times far below 2^52 microseconds")]
fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

/// List flows and requests that ended recently
///
/// The response has flows and requests of the organisation's sockets, in the order of their ends. Each edge keeps the
/// last ones of each socket in memory: up to 256, and up to 50 a second. Without `after`, the response has the newest
/// ones; with `after`, those that ended since. Addresses, identities and rules are for tokens that may read the audit
/// log.
#[utoipa::path(
    get, path = "/v1/flows/log", tag = "audit", operation_id = "list_ended_flows", params(EndedFlowQuery),
    responses(
        (status = 200, description = "The flows and requests.", body = EndedFlowPage),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let invalid = |detail: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail);
    let Query(query) = Query::<EndedFlowQuery>::try_from_uri(&uri)
        .map_err(|rejection| invalid(format!("the query is not valid: {}", rejection.body_text())))?;
    let limit = query.limit.unwrap_or(DEFAULT_PAGE_ITEMS);
    if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
        return Err(invalid(format!("limit must be a whole number from 1 to {MAX_PAGE_ITEMS}")));
    }
    let after = query.after.filter(|after| !after.is_empty());
    let is_later = after.is_some();
    let cursor = after.map_or_else(|| Some(Cursor::default()), |after| Cursor::read(&after));
    let mut cursor = cursor.ok_or_else(|| invalid("after must be the `next` of a former response".to_owned()))?;
    let socket = match &query.socket {
        Some(socket) => Some(app.find_socket(caller.organisation, socket).await?.id),
        None => None,
    };
    let (organisation, limit) = (caller.organisation, limit as usize);
    let ask = |edge| Ask::Ended { organisation, socket, after: cursor.0.get(&key(edge)).copied(), limit };
    let gathered = app.config.asker.ask_each(ask).await;
    let shows_clients = caller.scopes.allows(Scope::AuditRead);
    let mut items = merge(gathered.answered, &mut cursor, is_later, limit, shows_clients);
    for item in &mut items {
        item.direct_origin_address = address_of(&app.routes, item.socket, item.direct_origin);
    }
    Ok(json(StatusCode::OK, &EndedFlowPage { items, next: cursor.text(), silent: silent(&gathered.silent) }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_bus::EndedList;
    use sallyport_model::{SocketId, SocketType};

    use super::*;

    fn answered(entries: &[(u64, i64)]) -> Answered {
        let entry = |(number, ended_ms): &(u64, i64)| sallyport_bus::EndedFlow {
            number: *number,
            id: number.to_string(),
            socket: SocketId::from_random([1; 16]),
            socket_name: "calm-bay-1000".parse().unwrap(),
            transport: SocketType::Http,
            tunnel: None,
            direct_origin: None,
            identity: Some("ann@example.com".to_owned()),
            rule: Some("rule".to_owned()),
            client: "192.0.2.1:1".parse().unwrap(),
            ended_ms: *ended_ms,
            duration_us: 1_500,
            first_byte_us: None,
            bytes_in: 0,
            bytes_out: 0,
            verdict: "complete".to_owned(),
            http: None,
            omitted_before: 0,
        };
        let answer = Answer::Ended(EndedList { entries: entries.iter().map(entry).collect() });
        Answered { edge: None, took: Duration::ZERO, answer }
    }

    fn ids(shown: &[EndedFlow]) -> Vec<&str> {
        shown.iter().map(|one| one.id.as_str()).collect()
    }

    #[test]
    fn a_cursor_is_read_as_it_was_given_and_nothing_else_is() {
        let cursor = Cursor(BTreeMap::from([(key(None), 7), (EdgeId::from_random([9; 16]), u64::MAX)]));
        assert_eq!(Cursor::read(&cursor.text()), Some(cursor.clone()));
        assert_eq!(Cursor::read(&Cursor::default().text()), Some(Cursor::default()));
        let text = cursor.text();
        for bad in ["", "x", "!!", &text[..text.len() - 2], &format!("{text}AA"), "Ag"] {
            assert_eq!(Cursor::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn entries_stay_in_order_and_only_some_callers_see_clients() {
        let mut cursor = Cursor::default();
        // The clock was set back between the second and the third.
        let newest = merge(vec![answered(&[(1, 10), (2, 30), (3, 20)])], &mut cursor, false, 2, true);
        assert_eq!(ids(&newest), ["2", "3"]);
        assert!(newest[0].client.is_some() && newest[0].identity.is_some());
        assert_eq!(cursor.0[&key(None)], 3);
        let later = merge(vec![answered(&[(4, 5)])], &mut cursor, true, 2, false);
        assert_eq!((ids(&later), cursor.0[&key(None)]), (vec!["4"], 4));
        assert_eq!((later[0].client, &later[0].identity, &later[0].rule), (None, &None, &None));
        assert!(merge(vec![answered(&[])], &mut cursor, true, 2, false).is_empty());
        assert_eq!(cursor.0[&key(None)], 4, "nothing new, and nothing forgotten");
    }
}
