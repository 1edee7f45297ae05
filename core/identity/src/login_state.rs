//! The contents of sealed texts of a login, and their validity.

use sallyport_model::{LoginSessionId, SocketId};
use serde::{Deserialize, Serialize};

/// Time that a person has to log in, in seconds.
pub const LOGIN_SECONDS: i64 = 600;
/// Time for the redirect back to the socket, in seconds.
pub const GRANT_SECONDS: i64 = 60;
/// Tolerance between the clocks of edges and control, in seconds.
pub const CLOCK_LEEWAY_SECONDS: i64 = 60;
/// The longest path with query that a person returns to, in bytes; longer ones become `/`.
pub const MAX_RETURN_TO_BYTES: usize = 1_024;

/// An edge's request for a login; the browser carries it to the login host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginRequest {
    /// The requested socket.
    pub socket: SocketId,
    /// SHA-256 of the secret of the browser's [`Binding`].
    pub binding: [u8; 32],
    /// The requested path and query.
    pub return_to: String,
    /// The host that the browser has asked for, if it is a domain of the socket's organisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether the person wants to log in as another identity.
    pub switch: bool,
    /// Whether `return_to` is a path of the login host, which started the login itself.
    #[serde(default)]
    pub is_of_login_host: bool,
    /// Time of the request in seconds since 1970 (UTC).
    pub at: i64,
}

/// The answer to a [`LoginRequest`]; the browser carries it back to the socket, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Unique id; an edge accepts a grant once.
    pub id: [u8; 16],
    /// The requested socket; the grant is valid nowhere else.
    pub socket: SocketId,
    /// As in the request; the grant is valid in no other browser.
    pub binding: [u8; 32],
    /// The login session.
    pub session: LoginSessionId,
    /// As in the request.
    pub return_to: String,
    /// Time of the grant in seconds since 1970 (UTC).
    pub at: i64,
}

/// Binds a login to the browser that started it; a cookie of the socket's host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Random.
    pub secret: [u8; 32],
    /// Time of creation in seconds since 1970 (UTC).
    pub at: i64,
}

/// The login at one socket; a cookie of the socket's host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketCookie {
    /// The socket; the cookie is valid nowhere else.
    pub socket: SocketId,
    /// The login session.
    pub session: LoginSessionId,
    /// Time of the last renewal in seconds since 1970 (UTC).
    pub seen_at: i64,
}

/// The login at the login host, for each organisation; a cookie of the login host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignOn {
    /// The login session.
    pub session: LoginSessionId,
}

/// An edge's request for a logout; the browser carries it to the login host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogoutRequest {
    /// The login session, which ends at all sockets.
    pub session: LoginSessionId,
    /// The socket where the person logged out.
    pub socket: SocketId,
    /// Time of the request in seconds since 1970 (UTC).
    pub at: i64,
}

impl LogoutRequest {
    /// Whether the request is recent enough.
    #[must_use]
    pub fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.at, now, GRANT_SECONDS)
    }
}

/// Whether something of time `at` is at most `seconds` old at `now`, and not from the future.
fn is_fresh(at: i64, now: i64, seconds: i64) -> bool {
    at <= now.saturating_add(CLOCK_LEEWAY_SECONDS) && now <= at.saturating_add(seconds)
}

impl LoginRequest {
    /// Whether the request is recent enough.
    #[must_use]
    pub fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.at, now, LOGIN_SECONDS)
    }
}

impl Grant {
    /// Whether the grant is valid at this socket for the browser with this binding. The edge checks whether it was used
    /// before.
    #[must_use]
    pub fn is_for(&self, socket: SocketId, binding: &Binding, now: i64) -> bool {
        self.socket == socket && self.binding == binding.hash() && is_fresh(self.at, now, GRANT_SECONDS)
    }
}

impl Binding {
    /// The hash of the secret, which is sent to others.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        use sha2::Digest as _;
        sha2::Sha256::digest(self.secret).into()
    }

    /// Whether a login that started with this binding may still return.
    #[must_use]
    pub fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.at, now, LOGIN_SECONDS)
    }
}

impl SocketCookie {
    /// Whether the cookie is valid at this socket and was used within the idle time.
    #[must_use]
    pub fn is_good(&self, socket: SocketId, idle_seconds: i64, now: i64) -> bool {
        self.socket == socket && is_fresh(self.seen_at, now, idle_seconds)
    }

    /// Whether to renew the cookie: not at each request, and often enough to record use.
    #[must_use]
    pub fn wants_renewal(&self, idle_seconds: i64, now: i64) -> bool {
        now.saturating_sub(self.seen_at) >= (idle_seconds / 10).clamp(1, 60)
    }
}

/// A safe path and query to return to: within the same host in every browser's interpretation, or `/`.
#[must_use]
pub fn safe_return_to(wanted: &str) -> &str {
    let is_path = wanted.starts_with('/')
        // Browsers take `//host` and `/\host` for other hosts, also after removing tabs and line ends.
        && !wanted[1..].starts_with(['/', '\\'])
        && wanted.len() <= MAX_RETURN_TO_BYTES
        && wanted.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_path { wanted } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn socket(id: u8) -> SocketId {
        SocketId::from_random([id; 16])
    }

    #[test]
    fn a_grant_is_for_one_socket_one_browser_and_one_minute() {
        let binding = Binding { secret: [7; 32], at: NOW };
        let grant = Grant {
            id: [0; 16],
            socket: socket(1),
            binding: binding.hash(),
            session: LoginSessionId::from_random([9; 16]),
            return_to: "/".to_owned(),
            at: NOW,
        };
        for (now, is_good) in [(NOW - 61, false), (NOW - 60, true), (NOW, true), (NOW + 60, true), (NOW + 61, false)] {
            assert_eq!(grant.is_for(socket(1), &binding, now), is_good, "{now}");
        }
        assert!(!grant.is_for(socket(2), &binding, NOW));
        assert!(!grant.is_for(socket(1), &Binding { secret: [8; 32], at: NOW }, NOW));
    }

    #[test]
    fn a_cookie_rests_so_long_and_is_renewed_in_use() {
        let cookie = SocketCookie { socket: socket(1), session: LoginSessionId::from_random([9; 16]), seen_at: NOW };
        assert!(cookie.is_good(socket(1), 3_600, NOW + 3_600) && !cookie.is_good(socket(1), 3_600, NOW + 3_601));
        assert!(!cookie.is_good(socket(2), 3_600, NOW));
        assert!(!cookie.wants_renewal(3_600, NOW + 59) && cookie.wants_renewal(3_600, NOW + 60));
        assert!(cookie.wants_renewal(60, NOW + 6) && !cookie.wants_renewal(60, NOW + 5));
    }

    #[test]
    fn no_browser_is_sent_to_another_host() {
        for good in ["/", "/a?b=c&d=%2F", "/a//b", "/?next=https://evil.test/"] {
            assert_eq!(safe_return_to(good), good);
        }
        for bad in [
            "",
            "a",
            "//evil.test",
            "/\\evil.test",
            "https://evil.test",
            "/\t/evil.test",
            "/a\\b",
            "/\u{e9}",
            "*",
            "/a b",
        ] {
            assert_eq!(safe_return_to(bad), "/", "{bad:?}");
        }
        assert_eq!(safe_return_to(&format!("/{}", "a".repeat(2_000))), "/");
    }
}
