//! An owner's changes to the header fields that pass through a socket.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::OriginAddr;

/// The most fields that one list of a socket sets or removes.
pub const MAX_HEADER_CHANGES: usize = 32;
/// The longest name of a field that is set or removed, in bytes.
pub const MAX_HEADER_NAME_BYTES: usize = 128;
/// The longest value that a field is set to, in bytes.
pub const MAX_HEADER_VALUE_BYTES: usize = 2_048;
/// Bound on all names and values of one socket in bytes, because every edge holds them in memory.
pub const MAX_HEADER_RULES_BYTES: usize = 8 * 1_024;
/// The keyword for the origin's own address.
const ORIGIN: &str = "origin";

/// The `Host` that an origin gets instead of the public name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostHeader {
    /// The address at which the origin is dialed.
    Origin,
    /// This host, with the given port, if any.
    Named(String),
}

/// The text is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no host: expected a name or an address with or without a port, such as localhost:3000, or {ORIGIN} for \
     the address at which the service is dialed"
)]
pub struct HostHeaderError(pub String);

impl HostHeader {
    /// The setting as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Origin => ORIGIN,
            Self::Named(host) => host,
        }
    }
}

impl FromStr for HostHeader {
    type Err = HostHeaderError;

    fn from_str(text: &str) -> Result<Self, HostHeaderError> {
        if text == ORIGIN {
            return Ok(Self::Origin);
        }
        if let Ok(address) = text.parse::<OriginAddr>() {
            return Ok(Self::Named(address.to_string()));
        }
        // The host alone is checked by the rules for a host with a port.
        let with_port = format!("{text}:80").parse::<OriginAddr>().map(|address| address.to_string());
        let host = with_port.ok().and_then(|host| host.strip_suffix(":80").map(str::to_owned));
        host.map(Self::Named).ok_or_else(|| HostHeaderError(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for HostHeader {
    type Error = HostHeaderError;

    fn try_from(text: String) -> Result<Self, HostHeaderError> {
        text.parse()
    }
}

impl From<HostHeader> for String {
    fn from(host: HostHeader) -> String {
        host.as_str().to_owned()
    }
}

impl fmt::Display for HostHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One header field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderField {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Changes to the header fields of one direction: first `remove`, then `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderChanges {
    /// Fields that replace those of the same name; several of one name are all sent. `Set-Cookie` is added to existing
    /// ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<HeaderField>,
    /// Names of fields that are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// Changes to the header fields of requests and of the origins' responses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRules {
    /// In requests, before they are sent to an origin.
    #[serde(default, skip_serializing_if = "HeaderChanges::is_empty")]
    pub request: HeaderChanges,
    /// In responses, before they are sent to a client.
    #[serde(default, skip_serializing_if = "HeaderChanges::is_empty")]
    pub response: HeaderChanges,
}

/// Reason why header rules are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderRulesError {
    /// The name is malformed.
    #[error(
        "{0:?} is no name of a header field: use letters, digits and - for it, {MAX_HEADER_NAME_BYTES} bytes at most"
    )]
    Name(String),
    /// The field is reserved.
    #[error("the header field {name} cannot be set or removed: {why}")]
    Reserved {
        /// The name.
        name: String,
        /// The purpose of the field.
        why: &'static str,
    },
    /// The value is malformed.
    #[error(
        "the value of the header field {0} is not one line of at most {MAX_HEADER_VALUE_BYTES} printable ASCII \
         characters without blanks at its ends"
    )]
    Value(String),
    /// There are too many fields.
    #[error("a socket sets at most {MAX_HEADER_CHANGES} header fields in each direction, and removes as many")]
    TooMany,
    /// The rules are too long in total.
    #[error("the header fields that a socket sets and removes have at most {MAX_HEADER_RULES_BYTES} bytes together")]
    TooLong,
}

impl HeaderChanges {
    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    fn bytes(&self) -> usize {
        let set = self.set.iter().map(|field| field.name.len() + field.value.len());
        set.chain(self.remove.iter().map(String::len)).sum()
    }

    fn check(&self) -> Result<(), HeaderRulesError> {
        if self.set.len().max(self.remove.len()) > MAX_HEADER_CHANGES {
            return Err(HeaderRulesError::TooMany);
        }
        self.set.iter().try_for_each(|field| {
            check_name(&field.name)?;
            let value = field.value.as_bytes();
            let is_printable = value.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\t');
            let is_good =
                is_printable && value.trim_ascii().len() == value.len() && value.len() <= MAX_HEADER_VALUE_BYTES;
            if is_good { Ok(()) } else { Err(HeaderRulesError::Value(field.name.clone())) }
        })?;
        self.remove.iter().try_for_each(|name| check_name(name))
    }
}

impl HeaderRules {
    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty()
    }

    /// Checks the rules.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), HeaderRulesError> {
        self.request.check()?;
        self.response.check()?;
        if self.request.bytes() + self.response.bytes() > MAX_HEADER_RULES_BYTES {
            return Err(HeaderRulesError::TooLong);
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), HeaderRulesError> {
    let shown = || name.chars().take(64).collect::<String>();
    //= RFC 9110 section 5.6.2
    //# tchar = "!" / "#" / "$" / "%" / "&" / "'" / "*" / "+" / "-" / "." / "^" / "_" / "`" / "|" / "~" / DIGIT / ALPHA
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > MAX_HEADER_NAME_BYTES || !name.bytes().all(is_token) {
        return Err(HeaderRulesError::Name(shown()));
    }
    match reserved(name) {
        Some(why) => Err(HeaderRulesError::Reserved { name: shown(), why }),
        None => Ok(()),
    }
}

/// The reason why a field is reserved, if it is. Servers that pass fields as environment variables replace other
/// characters by `-` or `_`, so every spelling counts.
fn reserved(name: &str) -> Option<&'static str> {
    let fold = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    let folded: Vec<u8> = name.bytes().map(fold).collect();
    let is_one_of = |names: &[&str]| names.iter().any(|one| one.as_bytes() == folded.as_slice());
    let begins_with = |starts: &[&str]| starts.iter().any(|start| folded.starts_with(start.as_bytes()));
    if is_one_of(&["host"]) {
        return Some("the host has a setting of its own: --host-header, in the API host_header");
    }
    if is_one_of(&["content-length", "transfer-encoding", "trailer", "te", "expect"]) {
        return Some("it describes the framing of the body");
    }
    const OF_CONNECTION: [&str; 7] = [
        "connection",
        "keep-alive",
        "upgrade",
        "http2-settings",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
    ];
    if is_one_of(&OF_CONNECTION) || begins_with(&["sec-websocket-"]) {
        return Some("it concerns one connection");
    }
    let of_edge = ["x-forwarded-", "x-auth-", "x-sallyport-", "sallyport-token-"];
    if begins_with(&of_edge) || is_one_of(&["x-forwarded", "forwarded", "x-real-ip", "x-request-id"]) {
        return Some("the edge uses it to describe the source of a request");
    }
    if is_one_of(&["grpc-status", "grpc-message", "grpc-status-details-bin"]) {
        return Some("it has the result of a gRPC call");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(set: &[(&str, &str)], remove: &[&str]) -> HeaderRules {
        let field = |(name, value): &(&str, &str)| HeaderField { name: (*name).to_owned(), value: (*value).to_owned() };
        let changes = HeaderChanges {
            set: set.iter().map(field).collect(),
            remove: remove.iter().map(|name| (*name).to_owned()).collect(),
        };
        HeaderRules { request: changes, ..HeaderRules::default() }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_or_that_of_the_origin() {
        for (text, kept) in [
            ("origin", "origin"),
            ("localhost", "localhost"),
            ("LOCALHOST:3000", "localhost:3000"),
            ("10.0.0.7", "10.0.0.7"),
            ("[::1]", "[::1]"),
            ("[::1]:80", "[::1]:80"),
            ("app.internal:443", "app.internal:443"),
        ] {
            assert_eq!(text.parse::<HostHeader>().unwrap().as_str(), kept);
        }
        for bad in ["", "a b", "a:0", "a:b", "http://a", "a/b", "u@a", "::1", "a\r\nb", "*"] {
            assert!(bad.parse::<HostHeader>().unwrap_err().to_string().contains("is no host"), "{bad}");
        }
    }

    #[test]
    fn fields_that_are_not_the_owners_are_refused_in_every_spelling() {
        for name in [
            "Host",
            "content-length",
            "Content_Length",
            "Transfer-Encoding",
            "Connection",
            "upgrade",
            "TE",
            "Trailer",
            "X-Forwarded-For",
            "x_forwarded_for",
            "X-Forwarded-Prefix",
            "Forwarded",
            "X-Real-IP",
            "X-Request-Id",
            "X-Auth-Email",
            "x.auth.groups",
            "X-Sallyport-Anything",
            "Sallyport-Token-Secret",
            "Sec-WebSocket-Key",
            "Proxy-Authorization",
            "Keep-Alive",
            "HTTP2-Settings",
            "Expect",
            "grpc-status",
        ] {
            for rules in [rules(&[(name, "a")], &[]), rules(&[], &[name])] {
                assert!(matches!(rules.check(), Err(HeaderRulesError::Reserved { .. })), "{name}");
            }
        }
        for name in ["Authorization", "X-Api-Key", "Server", "Strict-Transport-Security", "Cookie", "X-Forward"] {
            assert_eq!(rules(&[(name, "a")], &[name]).check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for name in ["", "a b", "a:", "ä", "a\r\nb", ":path", &"a".repeat(129)] {
            assert!(matches!(rules(&[], &[name]).check(), Err(HeaderRulesError::Name(_))), "{name}");
        }
        for value in ["a\r\nX: b", "a\nb", "a\0", " a", "a ", "é", &"a".repeat(2_049)] {
            assert!(matches!(rules(&[("X-A", value)], &[]).check(), Err(HeaderRulesError::Value(_))), "{value}");
        }
        assert_eq!(rules(&[("X-A", ""), ("X-A", "b\tc")], &[]).check(), Ok(()));
        let many: Vec<_> = (0..33).map(|_| "X-A").collect();
        assert_eq!(rules(&[], &many).check(), Err(HeaderRulesError::TooMany));
        let long = "a".repeat(2_000);
        let fields: Vec<_> = (0..5).map(|_| ("X-A", long.as_str())).collect();
        assert_eq!(rules(&fields, &[]).check(), Err(HeaderRulesError::TooLong));
    }

    #[test]
    fn rules_have_a_form_and_older_edges_see_none_where_there_are_none() {
        assert_eq!(serde_json::to_string(&HeaderRules::default()).unwrap(), "{}");
        let text = r#"{"request":{"set":[{"name":"X-A","value":"b"}]},"response":{"remove":["Server"]}}"#;
        let rules: HeaderRules = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&rules).unwrap(), text);
        assert!(serde_json::from_str::<HeaderRules>(r#"{"request":{"add":[]}}"#).is_err());
    }
}
