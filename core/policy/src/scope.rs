//! The scope of a service token, which applies in addition to policies.

use sallyport_model::{ServiceTokenScope, SocketType};

use crate::{MAX_METHOD_BYTES, PathPattern, PathPatternError, path::PathView, path::text_matches};

/// The most entries of one list of a scope.
pub const MAX_SCOPE_ENTRIES: usize = 50;
/// Safe methods (RFC 9110 section 9.2.1) that browsers and programs use.
const READING: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Reason why a scope is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// A list has too many entries.
    #[error("{0} has more than {MAX_SCOPE_ENTRIES} entries")]
    TooMany(&'static str),
    /// A method is malformed.
    #[error("{0:?} is not an HTTP method such as GET or POST")]
    Method(String),
    /// A method that a read-only token cannot use.
    #[error("a read-only token cannot use {0}: leave out one of them")]
    NotReading(String),
    /// A path is malformed.
    #[error(transparent)]
    Path(#[from] PathPatternError),
    /// No port.
    #[error("0 is not a port")]
    Port,
    /// No socket of these types supports the scope.
    #[error("no socket of these types supports the scope: {0}")]
    Types(&'static str),
}

/// A request to check against a scope.
#[derive(Debug, Clone, Copy)]
pub struct Reached<'a> {
    /// The type of the socket.
    pub socket_type: SocketType,
    /// The HTTP method; `None` below HTTP.
    pub method: Option<&'a str>,
    /// The path as received; `None` below HTTP.
    pub path: Option<&'a str>,
    /// The port that the client connected to.
    pub port: u16,
}

/// Checks and normalises the scope: methods in capitals, no duplicates.
///
/// # Errors
/// The scope permits nothing, or exceeds a limit.
pub fn check_scope(mut scope: ServiceTokenScope) -> Result<ServiceTokenScope, ScopeError> {
    let lists = [
        ("methods", scope.methods.len()),
        ("paths", scope.paths.len()),
        ("ports", scope.ports.len()),
        ("types", scope.types.len()),
    ];
    if let Some((list, _)) = lists.into_iter().find(|(_, entries)| *entries > MAX_SCOPE_ENTRIES) {
        return Err(ScopeError::TooMany(list));
    }
    for method in &mut scope.methods {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-' || byte == b'_';
        if !(1..=MAX_METHOD_BYTES).contains(&method.len()) || !method.bytes().all(is_letter) {
            return Err(ScopeError::Method(method.chars().take(MAX_METHOD_BYTES).collect()));
        }
        method.make_ascii_uppercase();
        if scope.read_only && !READING.contains(&method.as_str()) {
            return Err(ScopeError::NotReading(method.clone()));
        }
    }
    for path in &scope.paths {
        path.parse::<PathPattern>()?;
    }
    if scope.ports.contains(&0) {
        return Err(ScopeError::Port);
    }
    let knows = |wanted: fn(SocketType) -> bool| scope.types.is_empty() || scope.types.iter().any(|one| wanted(*one));
    if !knows(|one| one.is_http() || one == SocketType::Tls) {
        return Err(ScopeError::Types("only http, https and tls sockets identify clients"));
    }
    if is_of_http(&scope) && !knows(SocketType::is_http) {
        return Err(ScopeError::Types("methods and paths are for http and https sockets"));
    }
    scope.methods.sort_unstable();
    scope.methods.dedup();
    scope.paths.sort_unstable();
    scope.paths.dedup();
    scope.ports.sort_unstable();
    scope.ports.dedup();
    let mut types = Vec::with_capacity(scope.types.len());
    for one in scope.types {
        if !types.contains(&one) {
            types.push(one);
        }
    }
    scope.types = types;
    Ok(scope)
}

fn is_of_http(scope: &ServiceTokenScope) -> bool {
    scope.read_only || !scope.methods.is_empty() || !scope.paths.is_empty()
}

/// Whether the scope permits the request. A path that programs interpret differently is never permitted by a list of
/// paths.
#[must_use]
pub fn scope_permits(scope: &ServiceTokenScope, wanted: &Reached<'_>) -> bool {
    if scope.is_empty() {
        return true;
    }
    let of_list = |wanted: &str, methods: &[String]| {
        methods.iter().any(|method| method == wanted || (method == "GET" && wanted == "HEAD"))
    };
    let method = || {
        wanted.method.is_some_and(|method| {
            let reads = !scope.read_only || READING.contains(&method);
            reads && (scope.methods.is_empty() || of_list(method, &scope.methods))
        })
    };
    let binds_methods = scope.read_only || !scope.methods.is_empty();
    let path = || {
        wanted.path.is_some_and(|path| match PathView::of(path) {
            PathView::Plain { path, .. } => scope.paths.iter().any(|pattern| text_matches(pattern, &path)),
            PathView::Odd => false,
        })
    };
    (scope.types.is_empty() || scope.types.contains(&wanted.socket_type))
        && (scope.ports.is_empty() || scope.ports.contains(&wanted.port))
        && (!binds_methods || method())
        && (scope.paths.is_empty() || path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn asks(method: &'static str, path: &'static str) -> Reached<'static> {
        Reached { socket_type: SocketType::Http, method: Some(method), path: Some(path), port: 443 }
    }

    #[test]
    fn a_token_reaches_what_all_of_its_scope_says() {
        let free = ServiceTokenScope::default();
        let tls = Reached { socket_type: SocketType::Tls, method: None, path: None, port: 443 };
        assert!(scope_permits(&free, &asks("DELETE", "/x")) && scope_permits(&free, &tls));
        let reads = ServiceTokenScope { read_only: true, ..free.clone() };
        for (method, may) in [("GET", true), ("HEAD", true), ("OPTIONS", true), ("POST", false), ("get", false)] {
            assert_eq!(scope_permits(&reads, &asks(method, "/x")), may, "{method}");
        }
        assert!(!scope_permits(&reads, &tls), "the content of the flow is unknown");
        let paths = ServiceTokenScope { paths: texts(&["/api", "/v*/x"]), ..free.clone() };
        for (path, may) in [
            ("/api", true),
            ("/api/users?x=/", true),
            ("/%61pi/users", true),
            ("/v1/x/y", true),
            ("/apix", false),
            ("/", false),
            ("/API", false),
            ("/api/../admin", false),
            ("/api//x", false),
            ("/api/%2e%2e/admin", false),
            ("/api;x", false),
        ] {
            assert_eq!(scope_permits(&paths, &asks("GET", path)), may, "{path}");
        }
        assert!(!scope_permits(&paths, &tls));
        let ports = ServiceTokenScope { ports: vec![8443], types: vec![SocketType::Tls], ..free };
        assert!(!scope_permits(&ports, &tls) && scope_permits(&ports, &Reached { port: 8443, ..tls }));
        assert!(!scope_permits(&ports, &Reached { port: 8443, ..asks("GET", "/") }));
    }

    #[test]
    fn a_scope_has_one_form_and_nonsense_is_refused() {
        let scope = ServiceTokenScope {
            methods: texts(&["post", "GET", "POST"]),
            paths: texts(&["/b", "/a", "/b"]),
            ports: vec![2, 1, 2],
            types: vec![SocketType::Http, SocketType::Http],
            read_only: false,
        };
        let checked = check_scope(scope).unwrap();
        assert_eq!((checked.methods, checked.paths), (texts(&["GET", "POST"]), texts(&["/a", "/b"])));
        assert_eq!((checked.ports, checked.types), (vec![1, 2], vec![SocketType::Http]));
        let free = ServiceTokenScope::default;
        for bad in [
            ServiceTokenScope { methods: texts(&["GE T"]), ..free() },
            ServiceTokenScope { methods: texts(&[""]), ..free() },
            ServiceTokenScope { methods: texts(&["POST"]), read_only: true, ..free() },
            ServiceTokenScope { paths: texts(&["api"]), ..free() },
            ServiceTokenScope { paths: texts(&["/a/../b"]), ..free() },
            ServiceTokenScope { ports: vec![0], ..free() },
            ServiceTokenScope { ports: vec![1; 51], ..free() },
            ServiceTokenScope { types: vec![SocketType::Udp, SocketType::Tcp], ..free() },
            ServiceTokenScope { types: vec![SocketType::Tls], read_only: true, ..free() },
        ] {
            assert!(check_scope(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
