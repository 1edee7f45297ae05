//! The output of commands: tables, lines while a tunnel is held, times and words.
//! Uses `args` and `failure`.

pub(crate) mod columns;
pub(crate) mod live;
pub(crate) mod plan_drawing;

/// A time for people, in UTC.
pub(crate) fn utc(at: time::OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    format!("{} {:02}:{:02}:{:02} UTC", at.date(), at.hour(), at.minute(), at.second())
}

/// The text quoted for a shell.
pub(crate) fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', "'\\''")).into()
}
