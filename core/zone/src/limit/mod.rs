//! Limits of what strangers get over UDP: rates of answers, and cookies of clients that are no strangers.
//!
//! May use: nothing else of this crate.

mod cookie;
mod rate;

pub use cookie::{CookieSecrets, CookieVerdict, SERVER_COOKIE_BYTES};
pub use rate::{AnswerClass, RateConfig, RateLimiter, RateVerdict, SharedRateLimiter};
