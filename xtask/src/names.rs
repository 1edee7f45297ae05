//! Names: functions that begin with `is_` or `has_` return a bool.

use std::path::Path;

use anyhow::Result;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{source, workspace};

/// A function whose name and type do not agree.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    name: String,
    line: usize,
}

/// Checks every function of the workspace, tests included.
pub(crate) fn run(root: &Path) -> Result<()> {
    let (mut findings, mut functions) = (Vec::new(), 0);
    for folder in ["api", "app", "bench", "core", "io", "xtask"] {
        for file in workspace::files(&root.join(folder), "rs")? {
            let (found, seen) = check(source::read(&file)?);
            functions += seen;
            let place = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            findings.extend(found.into_iter().map(|Finding { name, line }| {
                format!(
                    "{place}:{line}: {name} returns no bool: a setter is set_, record_ or mark_, and a getter says \
                     what it gets"
                )
            }));
        }
    }
    crate::report("names", &format!("{functions} functions named is_ or has_ return a bool"), &findings)
}

/// The findings in this source, and how many functions have such a name.
fn check(source: TokenStream) -> (Vec<Finding>, usize) {
    let (mut findings, mut seen) = (Vec::new(), 0);
    let tokens: Vec<TokenTree> = source.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let (inner, count) = check(group.stream());
                findings.extend(inner);
                seen += count;
            }
            TokenTree::Ident(word) if word == "fn" => {
                let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else { continue };
                let text = name.to_string();
                if !(text.starts_with("is_") || text.starts_with("has_")) {
                    continue;
                }
                seen += 1;
                if !returns_bool(&tokens[at + 2..]) {
                    findings.push(Finding { name: text, line: name.span().start().line });
                }
            }
            _ => {}
        }
    }
    (findings, seen)
}

/// Whether the return type is a bool, or has one in it: `Option<bool>`, `impl Future<Output = bool>`.
fn returns_bool(rest: &[TokenTree]) -> bool {
    let end = rest.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    });
    let signature = &rest[..end.unwrap_or(rest.len())];
    // After the parameters: an arrow among them belongs to a parameter's type.
    let parameters = signature
        .iter()
        .position(|token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis));
    let result = &signature[parameters.map_or(0, |at| at + 1)..];
    mentions_bool(result)
}

fn mentions_bool(tokens: &[TokenTree]) -> bool {
    tokens.iter().any(|token| match token {
        TokenTree::Ident(word) => word == "bool",
        TokenTree::Group(group) => mentions_bool(&group.stream().into_iter().collect::<Vec<_>>()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        check(source.parse().unwrap()).0.into_iter().map(|finding| finding.name).collect()
    }

    #[test]
    fn setters_and_getters_are_found_wherever_they_stand() {
        let source = "struct S; impl S { fn is_late(&mut self) {} async fn has_room(&self) -> Option<u8> { None } }
                      trait T { fn is_gone(&self); }";
        assert_eq!(names(source), ["is_late", "has_room", "is_gone"]);
    }

    #[test]
    fn what_says_whether_passes() {
        let source =
            "fn is_a(f: impl Fn() -> u8) -> bool { true } fn has_b<T: Fn(u8) -> u8>(t: T) -> Option<bool> { None }
                      fn is_c() -> impl Future<Output = bool> { async { true } } fn island() {} fn other() {}";
        assert_eq!(names(source), Vec::<String>::new());
    }
}
