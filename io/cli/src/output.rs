//! The standard output: tables for people, JSON or YAML for programs.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write as _},
};

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::{Failure, OutputClosed};

/// The requested form of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Form {
    /// For people.
    #[default]
    Table,
    /// For people with a wide terminal.
    Wide,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// The form in which data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

impl Form {
    /// The printed form.
    pub fn format(self) -> Format {
        match self {
            Self::Table | Self::Wide => Format::Table,
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
        }
    }
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether to colour output to this stream.
    fn wanted(self, is_terminal: bool, no_color: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && !no_color,
        }
    }
}

/// How a program prints.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// The form of data.
    pub format: Format,
    /// Whether tables have all columns, and not only those for a narrow terminal.
    pub is_wide: bool,
    /// Whether the standard output is coloured.
    pub color: bool,
    /// Whether the standard error is coloured.
    color_errors: bool,
    /// Whether the standard output is a terminal.
    pub terminal: bool,
}

/// The data as one YAML document, without a line end.
///
/// Words that YAML 1.1 reads as something else, such as `no` or `12:30:45`, are quoted: many programs read YAML 1.1.
///
/// # Errors
/// The data cannot be expressed in YAML, such as a map whose keys are maps.
pub fn yaml<T: Serialize>(data: &T) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(data, options)?;
    Ok(text.trim_end().to_owned())
}

impl Output {
    /// Prints in this form, coloured if the streams and `NO_COLOR` allow.
    pub fn new(format: Format, color: Color) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal();
        Self {
            format,
            is_wide: false,
            color: color.wanted(terminal, no_color),
            color_errors: color.wanted(io::stderr().is_terminal(), no_color),
            terminal,
        }
    }

    /// The same output with all columns of tables.
    pub fn wide(self, is_wide: bool) -> Self {
        Self { is_wide, ..self }
    }

    /// Prints data: for people as `table` formats it, for programs completely.
    ///
    /// # Errors
    /// The standard output is closed or cannot be written.
    pub fn data<T: Serialize>(&self, data: &T, table: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        match self.format {
            Format::Table => line(&table(data)),
            Format::Json => line(&serde_json::to_string_pretty(data)?),
            Format::Yaml => line(&yaml(data)?),
        }
    }

    /// Prints a list: an empty one is a hint on a terminal, and an empty list for programs.
    ///
    /// # Errors
    /// The standard output is closed or cannot be written.
    pub fn list<T: Serialize>(
        &self,
        items: &[T],
        empty: &str,
        table: impl FnOnce(&[T]) -> String,
    ) -> anyhow::Result<()> {
        if items.is_empty() && self.terminal && self.format == Format::Table {
            return line(empty);
        }
        self.data(&items, |items| table(items))
    }

    /// Prints a hint for people.
    pub fn hint(&self, text: &str) {
        if self.format == Format::Table {
            note(text);
        }
    }

    /// Prints a failure to the standard error.
    pub fn failure(&self, failure: &Failure) {
        if self.format == Format::Json {
            #[derive(Serialize)]
            struct Outer<'a> {
                error: &'a Failure,
            }
            if let Ok(json) = serde_json::to_string(&Outer { error: failure }) {
                note(&json);
                return;
            }
        }
        let word = if self.color_errors { paint("error:", AnsiColor::Red) } else { "error:".to_owned() };
        note(&format!("{word} {}", safe(&failure.message)));
        if let Some(step) = &failure.next_step {
            note(&format!("  {}", safe(step)));
        }
        if let Some(id) = &failure.request_id {
            note(&format!("  request {}", safe(id)));
        }
    }
}

/// The text with a colour.
pub fn paint(text: &str, color: AnsiColor) -> String {
    styled(text, color.on_default())
}

/// The text with a style.
pub fn styled(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints a value as one line of JSON, without buffering.
///
/// # Errors
/// The standard output is closed or cannot be written.
pub fn json_line<T: Serialize>(value: &T) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Prints one line, without buffering.
///
/// # Errors
/// The standard output is closed or cannot be written.
pub fn line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to the standard output")),
    }
}

/// Writes one line to the standard error, ignoring failures.
pub fn note(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// A table for people. Cells may contain text from others: control characters are escaped.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| safe(&cell).into_owned()));
    }
    trim(&table)
}

/// Aligned lines of cells, the first line being the header. The cells must be safe to print.
pub fn lines_of(lines: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for line in lines {
        table.add_row(line);
    }
    trim(&table)
}

/// The width of the text in terminal columns.
pub fn width(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// Aligned names and values.
pub fn pairs(rows: &[(&str, String)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (name, value) in rows {
        table.add_row([Cow::Borrowed(*name), safe(value)]);
    }
    trim(&table)
}

/// Removes the padding of the first and last column.
fn trim(table: &Table) -> String {
    let lines: Vec<String> =
        table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n")
}

/// The text with everything escaped that could control a terminal: control characters, and bidirectional marks.
pub fn safe(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), |mut out, c| {
        if steers(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_made_visible() {
        assert_eq!(safe("/a?b=ü c"), "/a?b=ü c");
        assert_eq!(safe("/\u{1b}[2J\r\n\u{9b}x\u{7f}"), r"/\u{1b}[2J\r\n\u{9b}x\u{7f}");
        assert_eq!(safe("a\u{202e}b\u{2066}"), r"a\u{202e}b\u{2066}");
    }

    #[test]
    fn words_that_yaml_1_1_takes_for_something_else_are_quoted() {
        let words = [
            "no",
            "Off",
            "y",
            "TRUE",
            "null",
            "~",
            "",
            "12:30:45",
            "1_000",
            "0x1f",
            "1e3",
            "-1",
            "+1",
            ".inf",
            "2026-01-01",
            "<<",
            "=",
            "a: b",
            "a:",
            " a",
            "a ",
            "- a",
            "a #b",
            "#a",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a",
            "{a",
            "[a",
            "a\nb",
            "'a'",
            "\u{1b}",
        ];
        for word in words {
            let written = yaml(&word).unwrap();
            assert!(
                written.starts_with(['"', '\'']) && written.ends_with(['"', '\'']),
                "{word:?} is written {written}"
            );
            assert_eq!(serde_saphyr::from_str::<String>(&written).unwrap(), word, "{written}");
        }
        let long = "a word ".repeat(30).trim_end().to_owned();
        for word in
            ["http", "my test service", "wandering-shape-7752.localhost", "https://a.localhost:8443/x", "/a", &long]
        {
            assert_eq!(yaml(&word).unwrap(), word);
        }
    }

    #[test]
    fn lists_and_fields_are_read_from_yaml_as_they_were() {
        #[derive(Serialize)]
        enum Either {
            One { a: u64 },
            Other(Vec<Self>),
            Neither,
        }
        let either = [Either::One { a: u64::MAX }, Either::Other(vec![Either::Neither, Either::One { a: 1 }])];
        let data = serde_json::json!([
            {"id": "a1", "up": true, "none": null, "of": {"n": 1, "list": ["x", "no", [1, 2]], "empty": [], "void": {}}},
            {"id": "2", "weight": 0.5, "list": [{"a": 1, "b": [{"c": "d"}]}]},
            [], {}, [["deep"]], either,
        ]);
        let written = yaml(&data).unwrap();
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&written).unwrap(), data, "{written}");
        let written = yaml(&either).unwrap();
        let read: serde_json::Value = serde_saphyr::from_str(&written).unwrap();
        assert_eq!(read, serde_json::to_value(&either).unwrap(), "{written}");
    }

    #[test]
    fn columns_are_aligned_without_borders() {
        let text = table(["ID", "NAME"], [["1".into(), "one\u{1b}".into()], ["22".into(), "two".into()]]);
        assert_eq!(text, "ID  NAME\n1   one\\u{1b}\n22  two");
        assert_eq!(pairs(&[("id", "1".into()), ("name", "x y".into())]), "id    1\nname  x y");
        assert_eq!(table(["ID", "NAME"], []), "ID  NAME");
    }

    #[test]
    fn colour_follows_the_flag_then_the_environment_then_the_terminal() {
        assert!(Color::Always.wanted(false, true));
        assert!(!Color::Never.wanted(true, false));
        assert!(Color::Auto.wanted(true, false));
        assert!(!Color::Auto.wanted(true, true));
        assert!(!Color::Auto.wanted(false, false));
        assert_eq!(paint("x", AnsiColor::Red), "\u{1b}[31mx\u{1b}[0m");
    }
}
