//! Comments: the name of a type is in backticks.

use std::{collections::HashSet, path::Path};

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};

use crate::{source, workspace};

/// Names that comments use for a product or a protocol, although a type may have the same name.
const PRODUCTS: &[&str] = &["OpenSSH", "OpenSSL", "PostgreSQL", "WebSocket", "WebSockets"];

/// The findings in the comments of the workspace.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for folder in ["api", "app", "bench", "core", "io", "xtask"] {
        files.extend(workspace::files(&root.join(folder), "rs")?);
    }
    let mut types = HashSet::new();
    for file in &files {
        add_types(source::read(file)?, &mut types);
    }
    types.retain(|name| !PRODUCTS.contains(&name.as_str()));
    let mut findings = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let place = file.strip_prefix(root).unwrap_or(file).display();
        let found = bare_names(&text, &types).into_iter();
        findings.extend(found.map(|(line, name)| format!("{place}:{line}: the type {name} is not in backticks")));
    }
    Ok(findings)
}

/// Adds the names of the types that the source defines, if the names have two humps, such as `LegPool`. Other names may
/// be words of a sentence.
fn add_types(source: TokenStream, types: &mut HashSet<String>) {
    let mut tokens = source.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => add_types(group.stream(), types),
            TokenTree::Ident(word) if word == "struct" || word == "enum" || word == "trait" => {
                if let Some(TokenTree::Ident(name)) = tokens.peek() {
                    types.extend(Some(name.to_string()).filter(|name| has_two_humps(name)));
                }
            }
            _ => {}
        }
    }
}

/// Whether a capital letter follows a small one.
fn has_two_humps(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.as_bytes().windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

/// The types that comments name without backticks, with their lines. Fenced code does not count, nor do citations of
/// RFCs (`//=` and `//#`).
fn bare_names(text: &str, types: &HashSet<String>) -> Vec<(usize, String)> {
    let (mut found, mut is_fenced) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_fenced = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']);
        if comment.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && !comment.starts_with(['#', '=']) {
            let prose = prose(comment);
            let words = prose.split(|c: char| !c.is_alphanumeric() && c != '_');
            found.extend(words.filter(|word| types.contains(*word)).map(|word| (index + 1, word.to_owned())));
        }
    }
    found
}

/// The comment without its code spans and links.
fn prose(comment: &str) -> String {
    let (mut prose, mut skipped_until) = (String::new(), None);
    let mut chars = comment.chars().peekable();
    while let Some(c) = chars.next() {
        match (skipped_until, c) {
            (Some(end), _) if c == end => {
                // The target of a link follows its text.
                skipped_until = (end == ']').then(|| chars.next_if_eq(&'(')).flatten().map(|_| ')');
                prose.push(' ');
            }
            (Some(_), _) => {}
            (None, '`') => skipped_until = Some('`'),
            (None, '[') => skipped_until = Some(']'),
            (None, _) => prose.push(c),
        }
    }
    prose
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(source: &str) -> HashSet<String> {
        let mut types = HashSet::new();
        add_types(source.parse().unwrap(), &mut types);
        types
    }

    #[test]
    fn types_with_two_humps_are_collected() {
        let types =
            types("pub struct SquarePeg; enum End { OfAll } mod a { trait RoundHole {} } fn a(b: FlatBoard) {}");
        assert_eq!(types, HashSet::from(["SquarePeg", "RoundHole"].map(str::to_owned)));
    }

    #[test]
    fn a_type_without_backticks_is_found_in_prose_alone() {
        let types = types("struct SquarePeg;");
        let text = "/// A SquarePeg.\n\
                    // Of `SquarePeg`, [`SquarePeg`](a::SquarePeg), [a pool](SquarePeg), [SquarePeg] and legs.\n\
                    let pool: SquarePeg = a;\n\
                    /// ```\n\
                    /// SquarePeg::new();\n\
                    /// ```\n\
                    //# a SquarePeg of an RFC\n\
                    //! `End` of the SquarePeg, and SquarePegs.\n";
        assert_eq!(bare_names(text, &types), [(1, "SquarePeg".to_owned()), (8, "SquarePeg".to_owned())]);
    }
}
