//! Lists as tables: within 80 characters as a rule, and complete with `-o wide`.

use sallyport_model::ShortId;

use crate::output::{self, Output};

/// The narrowest width of a cut column, in characters.
const MIN_CUT_CHARS: usize = 12;
/// The gap between two columns.
const GAP_CHARS: usize = 2;

/// A column of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Always shown whole.
    Plain(&'static str),
    /// Always shown; cut on a narrow terminal, whole with `-o wide`.
    Cut(&'static str),
    /// An id, shown by its beginning, which commands accept; whole with `-o wide`.
    Id(&'static str),
    /// Shown only with `-o wide`.
    Wide(&'static str),
}

impl Column {
    /// A cut column if it has content, else one for `-o wide` only.
    pub(crate) fn cut_if(says_something: bool, title: &'static str) -> Self {
        if says_something { Self::Cut(title) } else { Self::Wide(title) }
    }

    fn title(self) -> &'static str {
        let (Self::Plain(title) | Self::Cut(title) | Self::Id(title) | Self::Wide(title)) = self;
        title
    }
}

/// The table of these rows, with a cell for each column.
pub(crate) fn table<const N: usize>(
    output: &Output,
    columns: [Column; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows: Vec<_> = rows.into_iter().map(Vec::from).collect();
    let width = if output.terminal { terminal_width() } else { None };
    draw(&columns, rows, output.is_wide, width)
}

fn draw(columns: &[Column], rows: Vec<Vec<String>>, is_wide: bool, width: Option<usize>) -> String {
    let shown: Vec<usize> =
        (0..columns.len()).filter(|at| is_wide || !matches!(columns[*at], Column::Wide(_))).collect();
    let cell = |row: &[String], at: usize| match columns[at] {
        Column::Id(_) if !is_wide => ShortId::shown(&row[at]),
        _ => output::safe(&row[at]).into_owned(),
    };
    let mut cells: Vec<Vec<String>> = vec![shown.iter().map(|at| columns[*at].title().to_owned()).collect()];
    cells.extend(rows.iter().map(|row| shown.iter().map(|at| cell(row, *at)).collect::<Vec<_>>()));
    if let (Some(width), false) = (width, is_wide) {
        let can_be_cut: Vec<bool> = shown.iter().map(|at| matches!(columns[*at], Column::Cut(_))).collect();
        fit(&mut cells, &can_be_cut, width);
    }
    output::lines_of(cells)
}

/// Cuts the widest of the cuttable columns until the table fits, or all are at their minimum.
fn fit(cells: &mut [Vec<String>], can_be_cut: &[bool], width: usize) {
    let mut widths: Vec<usize> = vec![0; can_be_cut.len()];
    for row in cells.iter() {
        for (at, cell) in row.iter().enumerate() {
            widths[at] = widths[at].max(output::width(cell));
        }
    }
    let mut total = widths.iter().sum::<usize>() + GAP_CHARS * widths.len().saturating_sub(1);
    while total > width {
        let widest = (0..widths.len()).filter(|at| can_be_cut[*at] && widths[*at] > MIN_CUT_CHARS);
        let Some(at) = widest.max_by_key(|at| widths[*at]) else { break };
        (widths[at], total) = (widths[at] - 1, total - 1);
    }
    for row in cells {
        for (at, cell) in row.iter_mut().enumerate() {
            if output::width(cell) > widths[at] {
                *cell = cut(cell, widths[at]);
            }
        }
    }
}

/// The beginning of the text, with a mark for the rest.
fn cut(text: &str, width: usize) -> String {
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if output::width(&kept) >= width {
            kept.pop();
            break;
        }
    }
    format!("{kept}…")
}

/// How many characters a line of the terminal has.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The time to the minute, in UTC, for lists.
pub(crate) fn minute(at: time::OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    format!("{} {:02}:{:02}", at.date(), at.hour(), at.minute())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [Column::Cut("NAME"), Column::Plain("UP"), Column::Wide("TYPE"), Column::Id("SOCKET")];

    fn row(name: &str) -> Vec<String> {
        vec![name.into(), "1/1".into(), "http".into(), "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11".into()]
    }

    #[test]
    fn a_list_has_wide_columns_and_whole_ids_only_by_option() {
        let narrow = draw(&COLUMNS, vec![row("blog")], false, None);
        assert_eq!(narrow, "NAME  UP   SOCKET\nblog  1/1  0b7e3c1a");
        let wide = draw(&COLUMNS, vec![row("blog")], true, Some(20));
        assert!(wide.ends_with("blog  1/1  http  0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11"), "{wide}");
    }

    #[test]
    fn names_are_cut_to_fit_a_terminal_and_nothing_else_is() {
        let long = "a name that is far too long for a line";
        assert!(draw(&COLUMNS, vec![row(long)], false, None).contains(long), "a pipe has no width");
        let fitted = draw(&COLUMNS, vec![row(long), row("ü")], false, Some(32));
        assert!(fitted.lines().all(|line| line.chars().count() <= 32), "{fitted}");
        assert!(fitted.contains("a name that is f… "), "{fitted}");
        assert!(fitted.contains("0b7e3c1a"), "{fitted}");
        let least = draw(&COLUMNS, vec![row(long)], false, Some(5));
        assert!(least.contains("a name that…"), "{least}");
    }
}
