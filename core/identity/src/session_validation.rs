//! Validates a login session at a socket: for each request at an edge, and before a login is exchanged for something
//! else.

use sallyport_model::{AccountId, IdentitySettings, LoginSession};

/// Reason why a login is not valid at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionRejected {
    /// The login belongs to another organisation, which controls its own identities.
    #[error("this login belongs to another organisation: log in for this socket")]
    Organisation,
    /// The login has expired.
    #[error("this login has ended: log in again")]
    Ended,
    /// The login is older than the socket allows.
    #[error("this login is too long ago for this socket: log in again")]
    TooOld,
    /// The socket does not accept the login's provider.
    #[error("this socket accepts other identity providers: log in again")]
    Provider,
}

/// Checks a login at a socket of this organisation with these settings, at `now` in seconds since 1970 (UTC).
///
/// # Errors
/// The reason of the rejection.
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

/// When the login ends at a socket with these settings, in seconds since 1970 (UTC).
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
