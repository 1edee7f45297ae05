//! Reads Rust source as tokens: the paths that it uses outside of tests, and what it defines.
//!
//! Tokens exclude comments and strings, unlike text. They include the arguments of macros, unlike a syntax tree.

use std::{
    collections::HashSet,
    iter::Peekable,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree, token_stream};

/// A path such as `std::fs`, at the identifier that ends it. `std::fs::read` gives three paths.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathUse {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

/// What one file uses outside of its tests.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) paths: Vec<PathUse>,
    /// Modules in files of their own that are compiled for tests only.
    pub(crate) test_modules: Vec<Module>,
}

/// A module in a file of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    name: String,
    /// The value of `#[path = "..."]`.
    path: Option<String>,
}

impl Module {
    /// The possible files of the module, if `file` declares it.
    pub(crate) fn places(&self, file: &Path) -> Vec<PathBuf> {
        let parent = file.parent().unwrap_or(Path::new(""));
        if let Some(path) = &self.path {
            return vec![parent.join(path)];
        }
        let stem = file.file_stem().unwrap_or_default();
        let is_root = stem == "lib" || stem == "main" || stem == "mod";
        let folder = if is_root { parent.to_path_buf() } else { parent.join(stem) };
        vec![folder.join(format!("{}.rs", self.name)), folder.join(&self.name)]
    }
}

/// Parses the file.
pub(crate) fn read(path: &Path) -> Result<TokenStream> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    text.parse().map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// The paths that the source uses outside of its tests.
pub(crate) fn uses(source: TokenStream) -> Uses {
    let mut uses = Uses::default();
    walk(source, &[], &mut uses);
    uses
}

type Tokens = Peekable<token_stream::IntoIter>;

/// Walks the tokens of one group. `prefix` is the path in front of a `use` group's braces.
fn walk(source: TokenStream, prefix: &[String], uses: &mut Uses) {
    let mut tokens = source.into_iter().peekable();
    let mut path = prefix.to_vec();
    let mut extends = true; // whether the next identifier belongs to `path`
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) => {
                if !extends {
                    path.clear();
                }
                path.push(ident.to_string());
                uses.paths.push(PathUse { segments: path.clone(), line: ident.span().start().line });
                extends = false;
            }
            TokenTree::Group(group) => {
                let in_use = extends && !path.is_empty() && group.delimiter() == Delimiter::Brace;
                let inner_prefix = if in_use { path.as_slice() } else { &[] };
                walk(group.stream(), inner_prefix, uses);
                path.clear();
                extends = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint => {
                tokens.next();
                extends = true;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => {
                path = prefix.to_vec();
                extends = true;
            }
            TokenTree::Punct(punct) if punct.as_char() == '#' => match attribute(&mut tokens) {
                Attribute::TestFile => return,
                Attribute::TestItem => skip_item(&mut tokens, uses),
                Attribute::Other => {}
            },
            TokenTree::Punct(_) | TokenTree::Literal(_) => {
                path.clear();
                extends = false;
            }
        }
    }
}

enum Attribute {
    /// `#![cfg(test)]`: the whole file is for tests.
    TestFile,
    /// `#[cfg(test)]` or `#[test]`: the next item is for tests.
    TestItem,
    Other,
}

/// Reads an attribute after its `#`.
fn attribute(tokens: &mut Tokens) -> Attribute {
    let inner = matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '!');
    if inner {
        tokens.next();
    }
    let Some(TokenTree::Group(group)) = tokens.peek() else { return Attribute::Other };
    if group.delimiter() != Delimiter::Bracket {
        return Attribute::Other;
    }
    let for_tests = is_for_tests(group);
    tokens.next();
    match (for_tests, inner) {
        (true, true) => Attribute::TestFile,
        (true, false) => Attribute::TestItem,
        (false, _) => Attribute::Other,
    }
}

fn is_for_tests(attribute: &Group) -> bool {
    let words = identifiers(attribute.stream());
    match words.first().map(String::as_str) {
        Some("test") => true,
        Some("cfg") => words.iter().any(|word| word == "test") && !words.iter().any(|word| word == "not"),
        _ => false,
    }
}

/// Every identifier in the tokens, in order, inner groups included.
fn identifiers(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => found.push(ident.to_string()),
            TokenTree::Group(group) => found.extend(identifiers(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// Skips an item for tests, up to its braces or its semicolon.
fn skip_item(tokens: &mut Tokens, uses: &mut Uses) {
    let mut after_mod = false;
    let (mut name, mut path) = (None, None);
    for token in tokens.by_ref() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                path = path.or(path_attribute(&group))
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => {
                return uses.test_modules.extend(name.map(|name| Module { name, path }));
            }
            TokenTree::Ident(ident) => {
                if after_mod {
                    name = Some(ident.to_string());
                }
                after_mod = ident == "mod";
            }
            _ => after_mod = false,
        }
    }
}

/// The file in `[path = "..."]`.
fn path_attribute(attribute: &Group) -> Option<String> {
    let mut tokens = attribute.stream().into_iter();
    match (tokens.next()?, tokens.next()?, tokens.next()?) {
        (TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Literal(path)) if word == "path" => {
            Some(path.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}

/// The definitions of the workspace, by name.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Functions, types, traits, constants, modules.
    pub(crate) names: HashSet<String>,
    /// Methods, variants and fields, with their type.
    pub(crate) members: HashSet<(String, String)>,
}

impl Definitions {
    /// Adds the definitions of this source.
    pub(crate) fn add(&mut self, source: TokenStream) {
        let mut tokens = source.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Ident(word) => match word.to_string().as_str() {
                    "fn" | "const" | "static" | "type" | "mod" | "union" => self.add_next(&tokens),
                    "struct" | "enum" | "trait" => {
                        self.add_next(&tokens);
                        self.add_body(&mut tokens);
                    }
                    "impl" => self.add_body(&mut tokens),
                    _ => {}
                },
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn add_next(&mut self, tokens: &Tokens) {
        if let Some(TokenTree::Ident(name)) = tokens.clone().next() {
            self.names.insert(name.to_string());
        }
    }

    /// Reads the rest of a type, trait or impl: the owner's name, then the identifiers in its braces.
    fn add_body(&mut self, tokens: &mut Tokens) {
        let mut owner = None;
        let mut depth = 0_i32; // of angle brackets: what stands in them is no owner
        let mut settled = false; // after the colon or `where` of a header there are only bounds
        for token in tokens.by_ref() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ';' => return,
                TokenTree::Punct(punct) => match punct.as_char() {
                    '<' => depth += 1,
                    '>' => depth -= 1,
                    ':' if depth == 0 && punct.spacing() == Spacing::Alone => settled = owner.is_some(),
                    _ => {}
                },
                TokenTree::Ident(word) if depth == 0 && !settled => {
                    if word == "where" {
                        settled = true;
                    } else if word != "for" && word != "dyn" {
                        owner = Some(word.to_string());
                    }
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    if let Some(owner) = owner {
                        for token in group.stream() {
                            if let TokenTree::Ident(member) = token {
                                self.members.insert((owner.clone(), member.to_string()));
                            }
                        }
                    }
                    return self.add(group.stream());
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        uses(source.parse().unwrap()).paths.into_iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn nested_uses_are_followed_and_comments_and_strings_are_not() {
        let found =
            paths("use std::{fs, net::{TcpStream, SocketAddr}};\n// std::env::var\nconst A: &str = \"std::env\";");
        assert!(found.contains(&"std::fs".to_owned()), "{found:?}");
        assert!(found.contains(&"std::net::TcpStream".to_owned()), "{found:?}");
        assert!(!found.iter().any(|path| path.contains("env")), "{found:?}");
    }

    #[test]
    fn arguments_of_macros_count() {
        assert!(paths("fn f() { log!(\"{:?}\", Instant::now()); }").contains(&"Instant::now".to_owned()));
    }

    #[test]
    fn what_is_for_tests_does_not_count() {
        let source = "#[cfg(test)]\nmod tests { use std::fs; }\n\
                      #[cfg(test)] mod more; #[cfg(test)] #[path = \"a/b.rs\"] mod far;\n\
                      #[test] fn t() { std::env::var(\"A\"); }\nfn f() { std::thread::yield_now() }";
        let found = uses(source.parse().unwrap());
        let paths: Vec<_> = found.paths.iter().map(|path| path.segments.join("::")).collect();
        assert!(!paths.iter().any(|path| path.contains("fs") || path.contains("env")), "{paths:?}");
        assert!(paths.contains(&"std::thread".to_owned()), "{paths:?}");
        let places: Vec<_> =
            found.test_modules.iter().flat_map(|module| module.places(Path::new("src/x.rs"))).collect();
        assert_eq!(places, ["src/x/more.rs", "src/x/more", "src/a/b.rs"].map(PathBuf::from));
        let last = found.paths.last().unwrap();
        assert_eq!(last.line, 5);
    }

    #[test]
    fn definitions_know_their_owner() {
        let mut definitions = Definitions::default();
        let source = "pub enum Verdict { Allow, Deny(u8) } \
                      impl<T: Copy> Serve<T> for Edge<T> where T: Send { pub(crate) async fn serve(&self) {} } \
                      fn free() {} struct Unit; trait Gate: Send { fn open(&self); }";
        definitions.add(source.parse().unwrap());
        let member = |owner: &str, name: &str| definitions.members.contains(&(owner.to_owned(), name.to_owned()));
        assert!(member("Verdict", "Allow") && member("Edge", "serve") && member("Gate", "open"));
        assert!(!member("Serve", "serve"));
        assert!(definitions.names.contains("free") && definitions.names.contains("Unit"));
    }
}
