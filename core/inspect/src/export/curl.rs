//! A request as a command line of curl, for a POSIX shell.

use crate::{
    message::{Exchange, Field},
    replay::is_stripped,
};

/// The longest body that is an argument, in bytes: the kernel bounds arguments.
const MAX_ARGUMENT_BYTES: usize = 64 * 1024;

/// The command. Nothing of the request is read by the shell, whatever it has.
#[must_use]
pub fn curl(exchange: &Exchange) -> String {
    let request = &exchange.request;
    let body = &request.body.bytes;
    let mut words = vec!["curl".to_owned(), "--globoff".to_owned(), "--path-as-is".to_owned()];
    match exchange.method.as_str() {
        "HEAD" if body.is_empty() => words.push("--head".to_owned()),
        "GET" if body.is_empty() => {}
        method => words.push(format!("--request {}", quoted(method))),
    }
    let mut left_out: Vec<String> = Vec::new();
    for field in &request.fields {
        if field.is_redacted {
            left_out.push(field.name.clone());
        } else if !is_left_out(field, request.body.is_kept_decoded) {
            words.push(format!("--header {}", quoted(&header(field))));
        }
    }
    if exchange.is_target_redacted {
        left_out.push("values in the query".to_owned());
    }
    if request.body.is_redacted {
        left_out.push("values in the body".to_owned());
    }
    let is_argument = body.len() <= MAX_ARGUMENT_BYTES && !body.contains(&0) && std::str::from_utf8(body).is_ok();
    let mut before = String::new();
    if !body.is_empty() && is_argument {
        words.push(format!("--data-raw {}", quoted(&String::from_utf8_lossy(body))));
        // Without a type of its own, curl would say that the body is a form.
        if request.field("content-type").is_none() {
            words.push("--header 'Content-Type:'".to_owned());
        }
    } else if !body.is_empty() {
        before = format!("printf '{}' | ", octal(body));
        words.push("--data-binary @-".to_owned());
        if request.field("content-type").is_none() {
            words.push("--header 'Content-Type:'".to_owned());
        }
    }
    words.push(format!("--url {}", quoted(&super::url(exchange))));
    let mut notes = String::new();
    if !left_out.is_empty() {
        notes.push_str(&format!("# Left out as secrets: {}\n", visible(&left_out.join(", "))));
    }
    if request.body.is_truncated || !request.body.is_complete {
        notes.push_str("# The body is not whole: the inspector has only its start\n");
    }
    format!("{notes}{before}{}\n", words.join(" \\\n  "))
}

fn is_left_out(field: &Field, is_decoded: bool) -> bool {
    let name = field.name.to_ascii_lowercase();
    is_stripped(&name)
        || matches!(name.as_str(), "host" | "content-length" | "forwarded" | "via" | "x-real-ip")
        || name.starts_with("x-forwarded-")
        || (is_decoded && name == "content-encoding")
}

/// A field for `--header`: an empty value needs a semicolon.
fn header(field: &Field) -> String {
    let value = visible(&field.text());
    if value.is_empty() { format!("{};", visible(&field.name)) } else { format!("{}: {value}", visible(&field.name)) }
}

/// The text without control characters.
fn visible(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() || *letter == '\t').collect()
}

/// A word that the shell takes as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\0', "").replace('\'', r"'\''"))
}

/// Bytes for the format of `printf`.
fn octal(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        match byte {
            b'%' => out.push_str("%%"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b',' | b'.' | b':' | b'{' | b'}' | b'"' | b'=' | b'&' => {
                out.push(char::from(*byte));
            }
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out
}
