//! Whether a request that got no answer is sent again, and where to.
//!
//! The rule: **what may not be repeated is never sent a second time when an origin may have got any of it.** So that few
//! requests end for it, nothing of such a request leaves before its origin has taken the connection
//! ([`Delivery::may_go_ahead`]): an attempt that reached nobody, or of which nobody says whether it did, has cost nothing then.

/// What the origin of an attempt without an answer has got, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing: none of it has left, or whoever was to reach the origin has said that it did not.
    Nothing,
    /// Something has left, and nobody says what became of it.
    Unknown,
    /// Some of it, or all.
    Some,
}

impl Received {
    /// Nobody has said whether the origin was reached. `sent`: whether anything of the request has left.
    #[must_use]
    pub fn unsaid(sent: bool) -> Self {
        if sent { Self::Unknown } else { Self::Nothing }
    }
}

/// What follows an attempt without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The same origin, over a new connection.
    SameOrigin,
    /// Another origin.
    OtherOrigin,
    /// Nothing: the client is told of this failure.
    Nothing,
}

/// One request on its way to whichever origin answers it.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    may_repeat: bool,
    /// Whether the attempt under way is the second one with its origin, over a new connection.
    is_second: bool,
}

impl Delivery {
    /// Nothing was tried. `may_repeat`: doing it twice does no more than doing it once (RFC 9110 section 9.2.2).
    #[must_use]
    pub fn new(may_repeat: bool) -> Self {
        Self { may_repeat, is_second: false }
    }

    /// Whether it may be done twice.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        self.may_repeat
    }

    /// Whether it may leave for an origin that has not taken the connection yet.
    #[must_use]
    pub fn may_go_ahead(&self) -> bool {
        self.may_repeat
    }

    /// Whether the attempt under way has to be made over a new connection.
    #[must_use]
    pub fn wants_new_connection(&self) -> bool {
        self.is_second
    }

    /// An attempt has ended without an answer. `is_whole`: all of the request is still here to be sent. `was_idle`: it was
    /// made over a connection that had been used before and has ended, which says nothing of its origin.
    #[must_use]
    pub fn handle_end(&mut self, received: Received, is_whole: bool, was_idle: bool) -> Next {
        let may_follow = match received {
            Received::Nothing => is_whole,
            Received::Unknown => is_whole && self.may_repeat,
            Received::Some => false,
        };
        let is_second = was_idle && !self.is_second;
        self.is_second = may_follow && is_second;
        match (may_follow, is_second) {
            (false, _) => Next::Nothing,
            (true, true) => Next::SameOrigin,
            (true, false) => Next::OtherOrigin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_what_harms_nobody() {
        use Received::{Nothing, Some, Unknown};
        for (may_repeat, received, is_whole, follows) in [
            (false, Nothing, true, true),
            (false, Nothing, false, false),
            (false, Unknown, true, false),
            (false, Some, true, false),
            (true, Nothing, true, true),
            (true, Unknown, true, true),
            (true, Unknown, false, false),
            (true, Some, true, false),
        ] {
            let next = Delivery::new(may_repeat).handle_end(received, is_whole, false);
            assert_eq!(next == Next::OtherOrigin, follows, "{may_repeat} {received:?} {is_whole}");
            assert_eq!(next == Next::Nothing, !follows);
        }
        assert!(Delivery::new(true).may_go_ahead() && !Delivery::new(false).may_go_ahead());
    }

    #[test]
    fn an_origin_whose_idle_connection_had_ended_gets_one_new_one() {
        let mut delivery = Delivery::new(true);
        assert!(!delivery.wants_new_connection());
        assert_eq!(delivery.handle_end(Received::Unknown, true, true), Next::SameOrigin);
        assert!(delivery.wants_new_connection());
        assert_eq!(delivery.handle_end(Received::Nothing, true, true), Next::OtherOrigin);
        assert!(!delivery.wants_new_connection());
    }
}
