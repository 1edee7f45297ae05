//! The clocks, as one argument that tests can set.

use std::{
    fmt,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use time::OffsetDateTime;

/// A moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// For durations: never jumps.
    pub monotonic: Instant,
    /// For dates, in seconds since 1970 (UTC): may jump both ways.
    pub unix_seconds: i64,
}

/// The source of the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    /// The clocks of the machine.
    #[must_use]
    pub fn system() -> Self {
        Self::new(|| {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
            Moment { monotonic: Instant::now(), unix_seconds: i64::try_from(since_1970).unwrap_or(i64::MAX) }
        })
    }

    /// Clocks that the caller turns.
    pub fn new(read: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Moment {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}

/// The moment as a date, as the API writes it.
pub(crate) fn date(unix_seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(unix_seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// The same of milliseconds.
pub(crate) fn date_of_ms(unix_milliseconds: i64) -> OffsetDateTime {
    let nanoseconds = i128::from(unix_milliseconds) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
