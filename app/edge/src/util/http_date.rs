//! The `date` field for responses without one (RFC 9110 section 6.6.1).

use std::{
    cell::RefCell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderValue, header::DATE};

thread_local! {
    /// The second of the last date, and its formatted value.
    static WRITTEN: RefCell<(u64, HeaderValue)> = RefCell::new((0, written(0)));
}

/// Adds the `date` field, unless there is one.
pub(crate) fn date(fields: &mut HeaderMap) {
    if fields.contains_key(DATE) {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    WRITTEN.with_borrow_mut(|(second, value)| {
        if *second != now {
            (*second, *value) = (now, written(now));
        }
        fields.insert(DATE, value.clone());
    });
}

fn written(second: u64) -> HeaderValue {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
    HeaderValue::from_maybe_shared(text.into_bytes()).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_one_date_and_keeps_its_own() {
        assert_eq!(written(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        let mut fields = HeaderMap::new();
        date(&mut fields);
        let now = httpdate::parse_http_date(fields["date"].to_str().unwrap()).unwrap();
        assert!(SystemTime::now().duration_since(now).unwrap() < Duration::from_secs(3_600));
        fields.insert(DATE, written(784_111_777));
        date(&mut fields);
        assert_eq!(fields["date"], "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
