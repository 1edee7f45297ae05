//! Exchanges as an HTTP archive (HAR 1.2), with the messages of WebSockets as browsers write them.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    answer::date_time,
    decode::{MAX_DECODED_BYTES, decode},
    message::{Exchange, Field, FrameKind, From, Message},
    redact::unescaped,
    view::is_text,
};

/// The archive of these exchanges, in their order.
#[must_use]
pub fn har<'a>(exchanges: impl IntoIterator<Item = &'a Exchange>, version: &str) -> Value {
    let entries: Vec<Value> = exchanges.into_iter().map(entry).collect();
    json!({ "log": {
        "version": "1.2",
        "creator": { "name": "sallyport", "version": version },
        "pages": [],
        "entries": entries,
    }})
}

fn entry(exchange: &Exchange) -> Value {
    let millis = |micros: u64| {
        #[expect(clippy::cast_precision_loss, reason = "durations are far below 2^53 microseconds")]
        let millis = micros as f64 / 1_000.0;
        millis
    };
    let took = exchange.duration_us.unwrap_or(0);
    let first = exchange.first_byte_us.unwrap_or(took).min(took);
    let (wait, receive) = (millis(first), millis(took - first));
    let mut entry = json!({
        "startedDateTime": date_time(exchange.at_ms),
        "time": wait + receive,
        "request": request(exchange),
        "response": response(exchange),
        "cache": {},
        "timings": { "send": 0, "wait": wait, "receive": receive },
    });
    let comments: Vec<&str> = exchange.problems.iter().map(String::as_str).collect();
    if !comments.is_empty() {
        entry["comment"] = comments.join(" ").into();
    }
    let extras = [
        ("_requestId", &exchange.request_id),
        ("_identity", &exchange.identity),
        ("_rule", &exchange.rule),
        ("_edge", &exchange.source.edge),
        ("_socket", &exchange.source.socket),
    ];
    for (name, value) in extras {
        if let Some(value) = value {
            entry[name] = value.as_str().into();
        }
    }
    let messages: Vec<Value> = exchange.frames.iter().filter_map(message).collect();
    if !messages.is_empty() {
        entry["_resourceType"] = "websocket".into();
        entry["_webSocketMessages"] = messages.into();
    }
    entry
}

fn message(frame: &crate::message::Frame) -> Option<Value> {
    let opcode = match frame.kind {
        FrameKind::Text => 1,
        FrameKind::Binary => 2,
        FrameKind::Close => 8,
        FrameKind::Ping => 9,
        FrameKind::Pong => 10,
        FrameKind::Event | FrameKind::Grpc => return None,
    };
    let data = match frame.kind {
        FrameKind::Text => String::from_utf8_lossy(&frame.data).into_owned(),
        _ => BASE64_STANDARD.encode(&frame.data),
    };
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
    let time = frame.at_ms as f64 / 1_000.0;
    let kind = if frame.from == From::Client { "send" } else { "receive" };
    Some(json!({ "type": kind, "time": time, "opcode": opcode, "data": data }))
}

fn request(exchange: &Exchange) -> Value {
    let request = &exchange.request;
    let query = exchange.target.split_once('?').map_or("", |(_, query)| query);
    let pairs: Vec<Value> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            json!({ "name": unescaped(name.as_bytes()), "value": unescaped(value.as_bytes()) })
        })
        .collect();
    let mut shown = json!({
        "method": exchange.method,
        "url": super::url(exchange),
        "httpVersion": version(request),
        "cookies": [],
        "headers": fields(&request.fields),
        "queryString": pairs,
        "headersSize": -1,
        "bodySize": size(request),
    });
    if !request.body.bytes.is_empty() {
        let (text, encoding) = content(request);
        let mut post = json!({ "mimeType": request.content_type(), "text": text, "params": [] });
        if let Some(encoding) = encoding {
            post["_encoding"] = encoding.into();
        }
        shown["postData"] = post;
    }
    shown
}

fn response(exchange: &Exchange) -> Value {
    let empty = Message::default();
    let response = exchange.response.as_ref().unwrap_or(&empty);
    let (text, encoding) = content(response);
    let mut content = json!({ "size": text.len(), "mimeType": response.content_type() });
    if !response.body.bytes.is_empty() {
        content["text"] = text.into();
        if let Some(encoding) = encoding {
            content["encoding"] = encoding.into();
        }
    }
    if response.body.is_truncated {
        content["comment"] = "The body is not whole.".into();
    }
    let status = exchange.status.unwrap_or(0);
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    json!({
        "status": status,
        "statusText": reason.unwrap_or_default(),
        "httpVersion": version(response),
        "cookies": [],
        "headers": fields(&response.fields),
        "content": content,
        "redirectURL": response.field("location").unwrap_or_default(),
        "headersSize": -1,
        "bodySize": size(response),
    })
}

fn version(message: &Message) -> &str {
    if message.version.is_empty() { "HTTP/1.1" } else { message.version }
}

fn size(message: &Message) -> i64 {
    i64::try_from(message.body.passed).unwrap_or(-1)
}

fn fields(fields: &[Field]) -> Vec<Value> {
    fields.iter().map(|field| json!({ "name": field.name, "value": field.text() })).collect()
}

/// The decoded body as text, and its encoding there if it is no text.
fn content(message: &Message) -> (String, Option<&'static str>) {
    let decoded = decode(&message.encoding(), &message.body.bytes, MAX_DECODED_BYTES);
    let bytes =
        if decoded.problem.is_some() && decoded.bytes.is_empty() { message.body.bytes.to_vec() } else { decoded.bytes };
    match String::from_utf8(bytes) {
        Ok(text) if is_text(text.as_bytes()) || text.is_empty() => (text, None),
        Ok(text) => (BASE64_STANDARD.encode(text), Some("base64")),
        Err(error) => (BASE64_STANDARD.encode(error.as_bytes()), Some("base64")),
    }
}
