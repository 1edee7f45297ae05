//! Takes secrets out of what is kept: before anything is stored, so that no view and no export has them.

use crate::multipart;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";
/// The same in a query or a form.
const REDACTED_IN_FORM: &str = "%5Bredacted%5D";

/// Header fields that are secrets by what they are.
const SECRET_FIELDS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-sallyport-assertion",
    "x-csrf-token",
    "x-auth-key",
];
/// Parts of names that mark a secret, without the characters between words.
const SECRET_PARTS: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "sessionid",
    "authorization",
    "assertion",
];
/// Whole names that mark a secret.
const SECRET_NAMES: &[&str] = &["pwd", "jwt", "otp", "pin", "pass", "auth", "bearer", "sig", "cvv", "cvc"];
/// Names with a marked part that are no secrets.
const HARMLESS: &[&str] =
    &["maxtokens", "prompttokens", "completiontokens", "totaltokens", "tokentype", "inputtokens", "outputtokens"];

/// Whether a field, a key or a parameter with this name has a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    if SECRET_FIELDS.contains(&lower.as_str()) {
        return true;
    }
    let folded: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    !HARMLESS.contains(&folded.as_str())
        && (SECRET_NAMES.contains(&folded.as_str()) || SECRET_PARTS.iter().any(|part| folded.contains(part)))
}

/// A target or a URL without the secrets in its query; `None` if there are none.
pub(crate) fn target(text: &str) -> Option<String> {
    let (path, rest) = text.split_once('?')?;
    let (query, fragment) = rest.split_once('#').map_or((rest, None), |(query, fragment)| (query, Some(fragment)));
    let mut redacted = String::from_utf8(form(query.as_bytes())?).ok()?;
    if let Some(fragment) = fragment {
        redacted.push('#');
        redacted.push_str(fragment);
    }
    Some(format!("{path}?{redacted}"))
}

/// A form without its secrets; `None` if there are none.
pub(crate) fn form(body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len());
    let mut is_changed = false;
    for (at, pair) in body.split(|byte| *byte == b'&').enumerate() {
        if at > 0 {
            out.push(b'&');
        }
        match pair.iter().position(|byte| *byte == b'=') {
            Some(end) if end + 1 < pair.len() && is_secret_name(&unescaped(&pair[..end])) => {
                out.extend_from_slice(&pair[..=end]);
                out.extend_from_slice(REDACTED_IN_FORM.as_bytes());
                is_changed = true;
            }
            _ => out.extend_from_slice(pair),
        }
    }
    is_changed.then_some(out)
}

/// A name or a value of a form, without its escapes.
pub(crate) fn unescaped(text: &[u8]) -> String {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (b'+', ..) => {
                out.push(b' ');
                at += 1;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A list or an object that is open.
struct Open {
    is_object: bool,
    /// Whether all in it is secret.
    is_hidden: bool,
}

/// JSON without its secrets; `None` if there are none.
///
/// The text may be cut, malformed, or several values in a row: it is read token by token, without recursion.
pub(crate) fn json(body: &[u8]) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::with_capacity(body.len());
    let mut open: Vec<Open> = Vec::new();
    let (mut awaits_key, mut is_hidden, mut is_changed, mut at) = (false, false, false, 0);
    while let Some(&byte) = body.get(at) {
        let from = at;
        at += 1;
        match byte {
            b'"' => {
                at = end_of_string(body, at);
                let text = &body[from..at];
                if awaits_key {
                    is_hidden = open.last().is_some_and(|open| open.is_hidden) || is_secret_name(&key(text));
                    awaits_key = false;
                } else if is_hidden && text.len() > 2 {
                    hide(&mut out);
                    is_changed = true;
                    continue;
                }
            }
            b'{' | b'[' => {
                open.push(Open { is_object: byte == b'{', is_hidden });
                awaits_key = byte == b'{';
            }
            b'}' | b']' => {
                open.pop();
                (awaits_key, is_hidden) = (false, false);
            }
            b',' => {
                awaits_key = open.last().is_some_and(|open| open.is_object);
                is_hidden = open.last().is_some_and(|open| open.is_hidden);
            }
            b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b' ' | b'\n' | b'\r');
                at += body[at..].iter().position(is_end).unwrap_or(body.len() - at);
                let is_constant = matches!(&body[from..at], b"null" | b"true" | b"false");
                if is_hidden && !awaits_key && !is_constant {
                    hide(&mut out);
                    is_changed = true;
                    continue;
                }
            }
        }
        out.extend_from_slice(&body[from..at]);
    }
    is_changed.then_some(out)
}

fn hide(out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(REDACTED.as_bytes());
    out.push(b'"');
}

/// The name in a quoted key, without its escapes.
fn key(quoted: &[u8]) -> String {
    serde_json::from_slice(quoted).unwrap_or_else(|_| String::from_utf8_lossy(quoted).into_owned())
}

/// Where the string that began before `at` ends, with its quote; the end of the text if it is cut.
fn end_of_string(body: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', body.get(at..).unwrap_or_default()) {
        at += found;
        if body[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    body.len()
}

/// A decoded body of this type without its secrets; `None` if none were found.
pub(crate) fn body(content_type: &str, body: &[u8]) -> Option<Vec<u8>> {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let first = body.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    if essence == "application/x-www-form-urlencoded" {
        return form(body);
    }
    if let Some(boundary) = multipart::boundary(content_type) {
        return multipart::redacted(body, &boundary);
    }
    let says_json = essence.ends_with("json") || essence.ends_with("jsonl") || essence == "text/event-stream";
    (says_json || matches!(first, Some(b'{' | b'['))).then(|| json(body)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(text: &str) -> String {
        json(text.as_bytes()).map_or_else(|| text.to_owned(), |bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for secret in [
            "Authorization",
            "set-cookie",
            "X-Api-Key",
            "access_token",
            "client-secret",
            "refreshToken",
            "PASSWORD",
            "db_passwd",
            "aws.secret.access.key",
            "X-Gitlab-Token",
            "jwt",
            "X-Sallyport-Assertion",
        ] {
            assert!(is_secret_name(secret), "{secret}");
        }
        for harmless in [
            "content-type",
            "max_tokens",
            "token_type",
            "x-hub-signature-256",
            "stripe-signature",
            "key",
            "author",
            "path",
            "compass",
            "spinner",
        ] {
            assert!(!is_secret_name(harmless), "{harmless}");
        }
    }

    #[test]
    fn json_keeps_its_shape_and_loses_its_secrets() {
        assert_eq!(json_of(r#"{"a":1,"token":"x","b":[1]}"#), r#"{"a":1,"token":"[redacted]","b":[1]}"#);
        assert_eq!(
            json_of(r#"{"to\u006ben": "x\"y", "n":{"password" : 12}}"#),
            r#"{"to\u006ben": "[redacted]", "n":{"password" : "[redacted]"}}"#
        );
        assert_eq!(
            json_of(r#"{"secrets":{"a":["x",{"b":"y"}],"c":null},"d":"e"}"#),
            r#"{"secrets":{"a":["[redacted]",{"b":"[redacted]"}],"c":null},"d":"e"}"#
        );
        assert_eq!(json_of("{\"token\":\"cut of"), "{\"token\":\"[redacted]\"");
        assert_eq!(
            json_of("{\"token\":\"a\"}\n{\"token\":\"b\"}"),
            "{\"token\":\"[redacted]\"}\n{\"token\":\"[redacted]\"}"
        );
        assert_eq!(json_of(r#"["token","x"]"#), r#"["token","x"]"#);
        let deep = "[".repeat(100_000) + r#"{"token":"x"}"#;
        assert!(json_of(&deep).ends_with(r#""[redacted]"}"#));
    }

    #[test]
    fn queries_and_forms_lose_their_secrets() {
        assert_eq!(
            target("/a?x=1&access%5Ftoken=abc&y=2").as_deref(),
            Some("/a?x=1&access%5Ftoken=%5Bredacted%5D&y=2")
        );
        assert_eq!(target("/a?x=1"), None);
        assert_eq!(target("/token"), None);
        assert_eq!(form(b"password=p%26q&a").as_deref(), Some(&b"password=%5Bredacted%5D&a"[..]));
        assert_eq!(unescaped(b"a%2Bb+c%zz%"), "a+b c%zz%");
    }
}
