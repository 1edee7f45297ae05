//! Decides whether a request without a response is sent again, and where to.
//!
//! The rule: **a request that may not be repeated is never sent again if an origin may have received any of it.** So
//! that the rule fails few requests, nothing of such a request leaves before the origin has accepted the connection
//! ([`Delivery::may_go_ahead`]). An attempt that reached no origin, or may not have, then has no effect.

/// The part of a request that an origin has received in a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing: no byte has left, or the connector has reported that the origin was not reached.
    Nothing,
    /// Bytes have left; their fate is unknown.
    Unknown,
    /// Some of the request, or all.
    Some,
}

impl Received {
    /// The result of an attempt without a report on whether the origin was reached. `sent`: whether any byte of the
    /// request has left.
    #[must_use]
    pub fn from_sent(sent: bool) -> Self {
        if sent { Self::Unknown } else { Self::Nothing }
    }
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The same origin, over a new connection.
    SameOrigin,
    /// Another origin.
    OtherOrigin,
    /// No further attempt: the client gets the error.
    Nothing,
}

/// The delivery of one request to an origin.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    may_repeat: bool,
    /// Whether the current attempt repeats the last one with the same origin over a new connection.
    is_second: bool,
}

impl Delivery {
    /// Starts a delivery. `may_repeat`: the request is idempotent (RFC 9110 section 9.2.2).
    #[must_use]
    pub fn new(may_repeat: bool) -> Self {
        Self { may_repeat, is_second: false }
    }

    /// Whether the request may be repeated.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        self.may_repeat
    }

    /// Whether the request may be sent before the origin has accepted the connection.
    #[must_use]
    pub fn may_go_ahead(&self) -> bool {
        self.may_repeat
    }

    /// Whether the current attempt needs a new connection.
    #[must_use]
    pub fn wants_new_connection(&self) -> bool {
        self.is_second
    }

    /// Handles an attempt that ended without a response. `is_whole`: the complete request can still be sent.
    /// `was_idle`: the attempt used an idle connection that had ended, which says nothing about its origin.
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
    fn a_failed_attempt_is_repeated_only_without_harm() {
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
