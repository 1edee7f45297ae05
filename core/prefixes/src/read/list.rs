//! Files of lines: plain lists, and delegated statistics.
//!
//! A line of a list begins with a prefix, an address or `FIRST-LAST`. What follows behind a comma or a space is not
//! read, so that geofeeds (RFC 8805) and exports of routes are lists too. `#` and `;` begin comments.

use std::io::{BufRead, Read as _};

use super::{MAX_LINE_BYTES, PrefixError, ReadError, SourceKind, collector::Collector, delegated};

/// Reads the lines. The first line with a `|` makes the file delegated statistics.
pub(super) fn read(
    mut input: impl BufRead,
    collector: &mut Collector,
    holder: Option<&str>,
) -> Result<(SourceKind, Option<String>), ReadError> {
    let (mut kind, mut date) = (None, None);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if input.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let at_line = |error| ReadError::Line { line, error };
        let is_short = bytes.len() as u64 <= MAX_LINE_BYTES;
        let text = std::str::from_utf8(&bytes).ok().filter(|_| is_short).ok_or(at_line(PrefixError::NoText))?;
        let text = text.split(['#', ';']).next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let kind = *kind.get_or_insert(if text.contains('|') { SourceKind::Delegated } else { SourceKind::List });
        if kind == SourceKind::Delegated {
            let made = delegated::add_line(text, collector, holder).map_err(at_line)?;
            date = date.or(made);
        } else {
            collector.add_text(first_field(text)).map_err(at_line)?;
        }
    }
    Ok((kind.unwrap_or(SourceKind::List), date))
}

/// The text before the first comma or space; spaces around the `-` of a range do not count.
fn first_field(text: &str) -> &str {
    let field = text.split(',').next().unwrap_or_default().trim_end();
    let Some((first, rest)) = field.split_once(char::is_whitespace) else { return field };
    if !rest.trim_start().starts_with('-') {
        return first;
    }
    let last = rest.trim_start().trim_start_matches('-').trim_start();
    let end = last.find(char::is_whitespace).unwrap_or(last.len());
    &field[..field.len() - last.len() + end]
}
