//! The API of the inspector, as `api/inspector.json` describes it.

use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use sallyport_inspect::{
    Exchange, Filter, MAX_DECODED_BYTES, Message, Store,
    answer::{Details, ExchangePage, Frame, FramePage, Problem, Replay, Replayed, Summary},
    decode, diff, export, view,
};

use super::{
    replay,
    server::{Answer, Server, events, json, problem, refused, with_type},
};

/// The longest body of a request, in bytes: 8 MiB in base64.
const MAX_REQUEST_BYTES: usize = 12 * 1024 * 1024;
/// How many exchanges a page has, and how many if nobody says so.
const MAX_PAGE: usize = 1_000;
const USUAL_PAGE: usize = 100;
/// How many frames a page has.
const FRAMES_PAGE: usize = 200;

/// Answers a request that has passed the guards.
pub(super) async fn answer(server: &Server, request: Request<Incoming>) -> Answer {
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let segments: Vec<&str> = path.trim_start_matches("/api").trim_matches('/').split('/').collect();
    let outcome = match (method, segments.as_slice()) {
        (Method::GET, ["stream"]) => Ok(events(server)),
        (Method::GET, ["state"]) => Ok(json(&server.shared.state())),
        (Method::GET, ["exchanges"]) => list(server, &query),
        (Method::DELETE, ["exchanges"]) => Ok(clear(server)),
        (Method::GET, ["har"]) => har(server, &query),
        (Method::GET, ["exchanges", id]) => one(server, id, |found| json(&Details::from(found))),
        (Method::GET, ["exchanges", id, "frames"]) => frames(server, id, &query),
        (Method::GET, ["exchanges", id, "curl"]) => {
            one(server, id, |found| with_type("text/plain; charset=utf-8", export::curl(found)))
        }
        (Method::GET, ["exchanges", id, "har"]) => copied(server, id)
            .map(|found| attachment(json(&export::har([&found], env!("CARGO_PKG_VERSION"))), "exchange.har")),
        (Method::GET, ["exchanges", first, "diff", second]) => copied(server, first)
            .and_then(|first| Ok((first, copied(server, second)?)))
            .map(|(first, second)| json(&diff(&first, &second))),
        (Method::GET, ["exchanges", id, side, "view"]) => side_of(server, id, side).map(|found| json(&view(&found))),
        (Method::GET, ["exchanges", id, side, "body"]) => body(server, id, side, &query),
        (Method::POST, ["exchanges", id, "replay"]) => send_again(server, id, request).await,
        (method, _) if !matches!(method, Method::GET | Method::POST | Method::DELETE) => {
            Err(refused(StatusCode::METHOD_NOT_ALLOWED, "The inspector takes GET, POST and DELETE."))
        }
        _ => Err(refused(StatusCode::NOT_FOUND, "The inspector's API has nothing at this address.")),
    };
    outcome.unwrap_or_else(|refusal| problem(&refusal))
}

/// The refusal of an exchange that is not kept.
pub(super) fn no_exchange(id: impl std::fmt::Display) -> Problem {
    refused(StatusCode::NOT_FOUND, &format!("Exchange {id} is not kept, or not any more."))
}

/// A value of the query, without its escapes.
fn value(query: &str, wanted: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, found) = pairs.find(|(name, _)| *name == wanted)?;
    let spaced = found.replace('+', " ");
    let (bytes, mut out, mut at) = (spaced.as_bytes(), Vec::with_capacity(spaced.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| spaced.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn number<T: std::str::FromStr>(query: &str, wanted: &str) -> Result<Option<T>, Problem> {
    let Some(text) = value(query, wanted).filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| refused(StatusCode::UNPROCESSABLE_ENTITY, &format!("`{wanted}` is no number.")))
}

fn filter(query: &str) -> Result<Filter, Problem> {
    Filter::parse(&value(query, "filter").unwrap_or_default())
        .map_err(|error| refused(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()))
}

fn find<'a>(store: &'a Store, id: &str) -> Result<&'a Exchange, Problem> {
    id.parse().ok().and_then(|id| store.get(id)).ok_or_else(|| no_exchange(id))
}

fn one(server: &Server, id: &str, shown: impl FnOnce(&Exchange) -> Answer) -> Result<Answer, Problem> {
    let inspector = server.shared.inspector.lock();
    find(inspector.store(), id).map(shown)
}

/// A copy, for work that takes longer. Bodies are shared, not copied.
fn copied(server: &Server, id: &str) -> Result<Exchange, Problem> {
    find(server.shared.inspector.lock().store(), id).cloned()
}

fn side_of(server: &Server, id: &str, side: &str) -> Result<Message, Problem> {
    let found = copied(server, id)?;
    match side {
        "request" => Ok(found.request),
        "response" => Ok(found.response.unwrap_or_default()),
        _ => Err(refused(StatusCode::NOT_FOUND, "An exchange has a request and a response.")),
    }
}

fn list(server: &Server, query: &str) -> Result<Answer, Problem> {
    let (filter, before) = (filter(query)?, number::<u64>(query, "before")?);
    let limit = number::<usize>(query, "limit")?.unwrap_or(USUAL_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        let detail = format!("`limit` is a number from 1 to {MAX_PAGE}.");
        return Err(refused(StatusCode::UNPROCESSABLE_ENTITY, &detail));
    }
    let inspector = server.shared.inspector.lock();
    let selected = inspector.store().before(before).filter(|exchange| filter.matches(exchange));
    let mut items: Vec<Summary> = selected.take(limit + 1).map(Summary::from).collect();
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|last| last.id);
    Ok(json(&ExchangePage { items, next }))
}

fn clear(server: &Server) -> Answer {
    let mut inspector = server.shared.inspector.lock();
    inspector.clear();
    server.shared.tell(&mut inspector);
    let mut answer = with_type("application/json", "");
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

fn har(server: &Server, query: &str) -> Result<Answer, Problem> {
    let filter = filter(query)?;
    // Archives begin with the oldest entry.
    let mut selected: Vec<Exchange> = {
        let inspector = server.shared.inspector.lock();
        inspector.store().newest().filter(|exchange| filter.matches(exchange)).cloned().collect()
    };
    selected.reverse();
    Ok(attachment(json(&export::har(&selected, env!("CARGO_PKG_VERSION"))), "sallyport.har"))
}

fn frames(server: &Server, id: &str, query: &str) -> Result<Answer, Problem> {
    let after = number::<u64>(query, "after")?.unwrap_or(0);
    one(server, id, |found| {
        let mut items: Vec<Frame> =
            found.frames.iter().filter(|frame| frame.number > after).take(FRAMES_PAGE + 1).map(Frame::from).collect();
        let has_more = items.len() > FRAMES_PAGE;
        items.truncate(FRAMES_PAGE);
        let next = items.last().filter(|_| has_more).map(|last| last.number);
        let dropped = found.frame_count - found.frames.len() as u64;
        json(&FramePage { items, next, dropped })
    })
}

fn body(server: &Server, id: &str, side: &str, query: &str) -> Result<Answer, Problem> {
    let message = side_of(server, id, side)?;
    let content = match value(query, "form").as_deref() {
        None | Some("raw") => message.body.bytes.clone(),
        Some("decoded") => decode(&message.encoding(), &message.body.bytes, MAX_DECODED_BYTES).bytes.into(),
        Some(_) => return Err(refused(StatusCode::UNPROCESSABLE_ENTITY, "`form` is raw or decoded.")),
    };
    Ok(attachment(with_type("application/octet-stream", content), "body.bin"))
}

/// The answer as a file that no browser shows.
fn attachment(mut answer: Answer, name: &'static str) -> Answer {
    let value = format!("attachment; filename=\"{name}\"");
    if let Ok(value) = HeaderValue::from_str(&value) {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    answer
}

async fn send_again(server: &Server, id: &str, request: Request<Incoming>) -> Result<Answer, Problem> {
    let id = id.parse().map_err(|_| no_exchange(id))?;
    let body = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect().await;
    let body = body.map_err(|_| refused(StatusCode::PAYLOAD_TOO_LARGE, "The request is longer than 12 MiB."))?;
    let body = body.to_bytes();
    let changes: Replay = match body.is_empty() {
        true => Replay::default(),
        false => serde_json::from_slice(&body).map_err(|error| {
            refused(StatusCode::UNPROCESSABLE_ENTITY, &format!("The JSON cannot be used: {error}."))
        })?,
    };
    let mut answer = json(&Replayed { id: replay::start(&server.shared, id, &changes)? });
    *answer.status_mut() = StatusCode::CREATED;
    Ok(answer)
}
