//! Formats log lines for people.
//!
//! Lines of the access log, one for each request, use a faster formatter with the same result.

use std::{
    cell::Cell,
    fmt::{self, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Writer},
    },
    registry::LookupSpan,
};

/// The target of the access log's lines.
const ACCESS: &str = "access";
/// The length of `2026-11-21T03:04:05.`, in bytes.
const SECOND_BYTES: usize = 20;
/// Buffer size that a thread keeps between lines, in bytes.
const MAX_KEPT_BYTES: usize = 16 * 1024;

/// The format of lines.
#[derive(Debug, Default)]
pub struct Lines(Format);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let meta = event.metadata();
        if meta.target() != ACCESS || *meta.level() != Level::INFO || to.has_ansi_escapes() || is_in_span(ctx) {
            return self.0.format_event(ctx, to, event);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Gathered first, because each write to `to` is a virtual call.
        let mut line = LINE.try_with(Cell::take).unwrap_or_default();
        line.clear();
        line.push_str(std::str::from_utf8(&second(now.as_secs())).unwrap_or_default());
        line.push_str(std::str::from_utf8(&six_digits(now.subsec_micros())).unwrap_or_default());
        line.push_str("Z  INFO access:");
        event.record(&mut Fields { line: &mut line });
        line.push('\n');
        let result = to.write_str(&line);
        if line.capacity() <= MAX_KEPT_BYTES {
            // During the end of a thread nothing is kept.
            let _ = LINE.try_with(|room| room.set(line));
        }
        result
    }
}

thread_local! {
    /// Buffer for a line of the access log.
    static LINE: Cell<String> = const { Cell::new(String::new()) };
}

fn is_in_span<S, N>(ctx: &FmtContext<'_, S, N>) -> bool
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    ctx.event_scope().is_some_and(|mut spans| spans.next().is_some())
}

struct Fields<'a> {
    line: &'a mut String,
}

impl Fields<'_> {
    fn name(&mut self, field: &Field) {
        self.line.push(' ');
        self.line.push_str(field.name());
        self.line.push('=');
    }

    /// Writing to a `String` does not fail; a value that fails to format keeps its beginning.
    fn value(&mut self, value: fmt::Arguments<'_>) {
        let _ = self.line.write_fmt(value);
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.name(field);
        // Without an early exit, so that the loop is vectorised.
        let is_plain =
            value.bytes().fold(true, |is, byte| is & matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\'));
        if is_plain {
            self.line.push('"');
            self.line.push_str(value);
            self.line.push('"');
        } else {
            self.value(format_args!("{value:?}"));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.name(field);
        self.line.push_str(itoa::Buffer::new().format(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.name(field);
        self.value(format_args!("{value:?}"));
    }
}

/// A number below a million, with leading zeros.
fn six_digits(number: u32) -> [u8; 6] {
    [100_000, 10_000, 1_000, 100, 10, 1].map(|weight| b'0' + u8::try_from(number / weight % 10).unwrap_or_default())
}

/// Date and time of this second since 1970, up to the fraction's point. A busy log uses the same second many times.
fn second(since_1970: u64) -> [u8; SECOND_BYTES] {
    thread_local! {
        static LAST: Cell<Option<(u64, [u8; SECOND_BYTES])>> = const { Cell::new(None) };
    }
    if let Some((_, text)) = LAST.get().filter(|(at, _)| *at == since_1970) {
        return text;
    }
    let text = write_second(since_1970);
    LAST.set(Some((since_1970, text)));
    text
}

fn write_second(since_1970: u64) -> [u8; SECOND_BYTES] {
    let (year, month, day) = date(since_1970 / 86_400);
    let (hour, minute, second) = (since_1970 / 3_600 % 24, since_1970 / 60 % 60, since_1970 % 60);
    let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.");
    text.as_bytes().first_chunk().copied().unwrap_or([b'?'; SECOND_BYTES])
}

/// The Gregorian date of a day counted from 1 January 1970. Years begin in March, so that the leap day is the last one,
/// and are counted in eras of 400, which all have the same number of days.
fn date(since_1970: u64) -> (u64, u64, u64) {
    let days = since_1970 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use parking_lot::Mutex;
    use tracing_subscriber::{Registry, layer::SubscriberExt as _};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_the_access_log_looks_as_it_would_by_the_long_way() {
        let log = || {
            tracing::info!(
                target: "access",
                id = "a0",
                client = %"[::1]:80",
                path = "/\"quoted\\\"\u{7}é\n",
                status = 200_u16,
                bytes_in = 5_u64,
                socket = Some(tracing::field::display(7)),
                tunnel = None::<u64>,
                end = "complete",
            );
            tracing::info!(target: "another", answer = 42, "words");
        };
        let written = |is_short: bool| {
            let kept = Captured::default();
            let to = kept.clone();
            let layer = tracing_subscriber::fmt::layer().with_writer(move || to.clone()).with_ansi(false);
            let both = || {
                log();
                tracing::info_span!("around", a = 1).in_scope(log);
            };
            if is_short {
                let layer = layer.event_format(Lines::default());
                tracing::subscriber::with_default(Registry::default().with(layer), both);
            } else {
                tracing::subscriber::with_default(Registry::default().with(layer), both);
            }
            kept
        };
        let (short, long) = (written(true), written(false));
        // The lines without their timestamps.
        let lines = |kept: &Captured| -> Vec<String> {
            let text = String::from_utf8(kept.0.lock().clone()).unwrap();
            text.lines().map(|line| line[SECOND_BYTES + 7..].to_owned()).collect()
        };
        assert_eq!(lines(&short), lines(&long));
        assert_eq!(lines(&short).len(), 4);
        assert!(lines(&short)[0].starts_with("  INFO access: id=\"a0\" client=[::1]:80 path="), "{:?}", lines(&short));
    }

    #[test]
    fn a_second_is_written_as_its_date_and_time() {
        for (since_1970, text) in [
            (0, "1970-01-01T00:00:00."),
            (951_782_399, "2000-02-28T23:59:59."),
            (951_782_400, "2000-02-29T00:00:00."),
            (951_868_800, "2000-03-01T00:00:00."),
            (1_794_100_000, "2026-11-08T01:06:40."),
            (4_107_542_399, "2100-02-28T23:59:59."),
            (4_107_542_400, "2100-03-01T00:00:00."),
        ] {
            assert_eq!(second(since_1970), text.as_bytes(), "{since_1970}");
            assert_eq!(second(since_1970), text.as_bytes(), "again");
        }
    }
}
