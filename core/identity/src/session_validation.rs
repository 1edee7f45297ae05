//! Whether a login is worth anything at a socket: asked by edges at each request, and by whoever gives something for a login.

use sallyport_model::{AccountId, IdentitySettings, LoginSession};

/// Why a login is worth nothing at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionRejected {
    /// It is one of another organisation, which may know whom it likes.
    #[error("this login is one of another organisation: log in for this socket")]
    Organisation,
    /// It has ended.
    #[error("this login has ended: log in again")]
    Ended,
    /// The provider was asked too long ago for this socket.
    #[error("this login is too long ago for this socket: log in again")]
    TooOld,
    /// The socket does not believe who vouches for it.
    #[error("this socket believes other identity providers: log in again")]
    Provider,
}

/// Whether the login is good at a socket of this organisation that asks this, at `now` in seconds since 1970 (UTC).
///
/// # Errors
/// Why it is not.
pub fn validate_session(
    session: &LoginSession,
    organisation: AccountId,
    asks: &IdentitySettings,
    now: i64,
) -> Result<(), SessionRejected> {
    if session.organisation != organisation {
        Err(SessionRejected::Organisation)
    } else if now >= session.expires_at {
        Err(SessionRejected::Ended)
    } else if now >= ends_at(session, asks) {
        Err(SessionRejected::TooOld)
    } else if !asks.providers.is_empty() && !asks.providers.contains(&session.person.provider) {
        Err(SessionRejected::Provider)
    } else {
        Ok(())
    }
}

/// When the login is over at a socket that asks this, in seconds since 1970 (UTC).
#[must_use]
pub fn ends_at(session: &LoginSession, asks: &IdentitySettings) -> i64 {
    session.expires_at.min(session.authenticated_at.saturating_add(i64::from(asks.session_minutes) * 60))
}

#[cfg(test)]
mod tests {
    use sallyport_model::{LoginSessionId, Person};

    use super::*;

    #[test]
    fn a_login_is_worth_what_its_socket_asks_and_no_more() {
        let organisation = AccountId::from_random([1; 16]);
        let session = LoginSession {
            id: LoginSessionId::from_random([2; 16]),
            organisation,
            person: Person {
                email: "ann@example.com".parse().unwrap(),
                name: None,
                groups: Vec::new(),
                groups_stated: true,
                provider: "dex".parse().unwrap(),
                subject: "1".to_owned(),
            },
            authenticated_at: 1_000,
            expires_at: 10_000,
        };
        let asks = IdentitySettings { session_minutes: 10, ..IdentitySettings::default() };
        let judged = |asks: &IdentitySettings, now| validate_session(&session, organisation, asks, now);
        assert_eq!(judged(&asks, 1_599), Ok(()));
        assert_eq!(judged(&asks, 1_600), Err(SessionRejected::TooOld));
        let long = IdentitySettings { session_minutes: u32::MAX, ..asks.clone() };
        assert_eq!((judged(&long, 9_999), judged(&long, 10_000)), (Ok(()), Err(SessionRejected::Ended)));
        for (name, expected) in [("dex", Ok(())), ("google", Err(SessionRejected::Provider))] {
            let asks = IdentitySettings { providers: vec![name.parse().unwrap()], ..asks.clone() };
            assert_eq!(judged(&asks, 1_000), expected);
        }
        let other = AccountId::from_random([3; 16]);
        assert_eq!(validate_session(&session, other, &asks, 1_000), Err(SessionRejected::Organisation));
        assert_eq!((ends_at(&session, &asks), ends_at(&session, &long)), (1_600, 10_000));
    }
}
