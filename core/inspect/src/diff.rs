//! The comparison of two exchanges, line by line.

use crate::{
    answer::{Diff, DiffLine, DiffOp, DiffSection, ViewKind},
    message::{Exchange, Message},
    view::view,
};

/// How many lines of a text are compared.
const MAX_LINES: usize = 2_000;
/// How many letters of a line are compared.
const MAX_LINE_CHARS: usize = 1_000;

/// Compares two exchanges.
#[must_use]
pub fn diff(first: &Exchange, second: &Exchange) -> Diff {
    let empty = Message::default();
    let responses = [first, second].map(|one| one.response.as_ref().unwrap_or(&empty));
    let section =
        |title: &str, [old, new]: [Vec<String>; 2]| DiffSection { title: title.to_owned(), lines: lines(&old, &new) };
    let start = |one: &Exchange| vec![format!("{} {}", one.method, one.target)];
    let status = |one: &Exchange| one.status.map(|status| status.to_string()).into_iter().collect();
    Diff {
        sections: vec![
            section("Request", [first, second].map(start)),
            section("Request headers", [first, second].map(|one| fields(&one.request))),
            section("Request body", [first, second].map(|one| body(&one.request))),
            section("Status", [first, second].map(status)),
            section("Response headers", responses.map(fields)),
            section("Response body", responses.map(body)),
        ],
    }
}

fn fields(message: &Message) -> Vec<String> {
    message.fields.iter().map(|field| format!("{}: {}", field.name, cut(&field.text()))).collect()
}

fn body(message: &Message) -> Vec<String> {
    let view = view(message);
    match (&view.text, view.kind) {
        (_, ViewKind::Form | ViewKind::Multipart) => {
            let shown = |part: &crate::answer::Part| {
                let (name, text) = (part.name.as_deref().unwrap_or_default(), part.text.as_deref());
                let bytes = part.bytes;
                cut(&format!("{name} = {}", text.map_or_else(|| format!("{bytes} bytes"), str::to_owned)))
            };
            view.parts.iter().take(MAX_LINES).map(shown).collect()
        }
        (Some(text), _) => text.lines().take(MAX_LINES).map(cut).collect(),
        (None, ViewKind::Empty) => Vec::new(),
        (None, _) => vec![format!("{} bytes, {:016x}", view.bytes, sum(&message.body.bytes))],
    }
}

/// A number that differs for different bytes (FNV-1a).
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn cut(line: &str) -> String {
    line.chars().take(MAX_LINE_CHARS).collect()
}

/// The lines of both, by the longest common subsequence.
fn lines(old: &[String], new: &[String]) -> Vec<DiffLine> {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(old, new)| old == new).count();
    let (middle_old, middle_new) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let line = |op| move |text: &String| DiffLine { op, text: text.clone() };
    let mut out: Vec<DiffLine> = old[..start].iter().map(line(DiffOp::Same)).collect();
    // common[i][j]: how many lines the rests from i and j have in common.
    let width = middle_new.len() + 1;
    let mut common = vec![0_u16; (middle_old.len() + 1) * width];
    for i in (0..middle_old.len()).rev() {
        for j in (0..middle_new.len()).rev() {
            common[i * width + j] = if middle_old[i] == middle_new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < middle_old.len() || j < middle_new.len() {
        if i < middle_old.len() && j < middle_new.len() && middle_old[i] == middle_new[j] {
            out.push(line(DiffOp::Same)(&middle_old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == middle_new.len()
            || (i < middle_old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            out.push(line(DiffOp::Removed)(&middle_old[i]));
            i += 1;
        } else {
            out.push(line(DiffOp::Added)(&middle_new[j]));
            j += 1;
        }
    }
    out.extend(old[old.len() - end..].iter().map(line(DiffOp::Same)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> String {
        let of = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let sign = |op| match op {
            DiffOp::Same => ' ',
            DiffOp::Removed => '-',
            DiffOp::Added => '+',
        };
        lines(&of(old), &of(new)).iter().map(|line| format!("{}{}", sign(line.op), line.text)).collect()
    }

    #[test]
    fn lines_are_compared() {
        assert_eq!(shown("abcd", "abxd"), " a b-c+x d");
        assert_eq!(shown("", "ab"), "+a+b");
        assert_eq!(shown("ab", ""), "-a-b");
        assert_eq!(shown("abc", "abc"), " a b c");
        assert_eq!(shown("xaby", "zabw"), "-x+z a b-y+w");
        assert_eq!(shown("aa", "a"), " a-a");
    }
}
