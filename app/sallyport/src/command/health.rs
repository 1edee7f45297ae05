//! Why origins get no requests, for people.

use sallyport_api::HealthFailure;

use crate::{output, view::utc};

/// Why an origin gets no requests, and since when.
pub(super) fn why(failure: &HealthFailure) -> String {
    format!("{}, since {}", output::safe(&failure.message), utc(failure.since))
}
