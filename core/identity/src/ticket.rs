//! What a login says of itself on its way, and when it is believed.

use sallyport_model::{LoginSessionId, SocketId};
use serde::{Deserialize, Serialize};

/// How long a person may take to log in, in seconds.
pub const LOGIN_SECONDS: i64 = 600;
/// How long the way back to the socket may take, in seconds.
pub const GRANT_SECONDS: i64 = 60;
/// How far clocks of edges and control may be apart, in seconds.
pub const CLOCK_LEEWAY_SECONDS: i64 = 60;
/// The longest path with its query that a person is brought back to, in bytes; longer ones become `/`.
pub const MAX_RETURN_TO_BYTES: usize = 1_024;

/// An edge asks for a login: the browser brings this to where people log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginRequest {
    /// The socket that is asked for.
    pub socket: SocketId,
    /// Of the browser's [`Binding`]: SHA-256 of its secret.
    pub binding: [u8; 32],
    /// The path and query that was wanted.
    pub return_to: String,
    /// Whether the person wants to be somebody else than now.
    pub switch: bool,
    /// Whether `return_to` is of the place where people log in, which asks for itself.
    #[serde(default)]
    pub is_of_login_host: bool,
    /// When, in seconds since 1970 (UTC).
    pub at: i64,
}

/// The answer to a [`LoginRequest`]: the browser brings this back to the socket, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Different for each; an edge takes none twice.
    pub id: [u8; 16],
    /// The socket that was asked for: it is good nowhere else.
    pub socket: SocketId,
    /// As in the request: it is good in no other browser.
    pub binding: [u8; 32],
    /// Who it is.
    pub session: LoginSessionId,
    /// As in the request.
    pub return_to: String,
    /// When, in seconds since 1970 (UTC).
    pub at: i64,
}

/// Ties a login to the browser that began it; a cookie of the socket's own host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Random.
    pub secret: [u8; 32],
    /// When, in seconds since 1970 (UTC).
    pub at: i64,
}

/// The login at one socket; a cookie of the socket's own host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketCookie {
    /// The socket: it is good nowhere else.
    pub socket: SocketId,
    /// Who it is.
    pub session: LoginSessionId,
    /// When it was last renewed, in seconds since 1970 (UTC).
    pub seen_at: i64,
}

/// What the place where people log in keeps in a browser, for each organisation: who it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignOn {
    /// Who it is.
    pub session: LoginSessionId,
}

/// An edge asks for the end of a login: the browser brings this to where people log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogoutTicket {
    /// The login that ends, everywhere.
    pub session: LoginSessionId,
    /// The socket where that was asked for.
    pub socket: SocketId,
    /// When, in seconds since 1970 (UTC).
    pub at: i64,
}

impl LogoutTicket {
    /// Whether it is still done.
    #[must_use]
    pub fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.at, now, GRANT_SECONDS)
    }
}

/// Whether something made at `at` is believed `now`: for so many seconds, and not when it is of the future.
fn is_fresh(at: i64, now: i64, seconds: i64) -> bool {
    at <= now.saturating_add(CLOCK_LEEWAY_SECONDS) && now <= at.saturating_add(seconds)
}

impl LoginRequest {
    /// Whether it is still answered.
    #[must_use]
    pub fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.at, now, LOGIN_SECONDS)
    }
}

impl Grant {
    /// Whether it lets in, at this socket, the browser with this binding. Whether it was used before is for the edge to know.
    #[must_use]
    pub fn is_for(&self, socket: SocketId, binding: &Binding, now: i64) -> bool {
        self.socket == socket && self.binding == binding.hash() && is_fresh(self.at, now, GRANT_SECONDS)
    }
}

impl Binding {
    /// What others are told of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        use sha2::Digest as _;
        sha2::Sha256::digest(self.secret).into()
    }

    /// Whether a login that it began may still come back.
    #[must_use]
    pub fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.at, now, LOGIN_SECONDS)
    }
}

impl SocketCookie {
    /// Whether it is one of this socket that has not rested for longer than this.
    #[must_use]
    pub fn is_good(&self, socket: SocketId, idle_seconds: i64, now: i64) -> bool {
        self.socket == socket && is_fresh(self.seen_at, now, idle_seconds)
    }

    /// Whether it is time for a new one: not at each request, and often enough that use is noticed.
    #[must_use]
    pub fn wants_renewal(&self, idle_seconds: i64, now: i64) -> bool {
        now.saturating_sub(self.seen_at) >= (idle_seconds / 10).clamp(1, 60)
    }
}

/// The path and query to bring a person back to: within the same host whatever a browser makes of it, or `/`.
#[must_use]
pub fn safe_return_to(wanted: &str) -> &str {
    let is_path = wanted.starts_with('/')
        // `//host` and `/\host` are other hosts to browsers, and so is what they make of it without tabs and line ends.
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
    fn nobody_is_sent_to_another_host() {
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
