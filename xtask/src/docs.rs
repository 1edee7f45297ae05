//! `cargo xtask docs`: links and names of code in the pages must exist, and comments name types in backticks.

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::{
    comments,
    source::{self, Definitions},
    workspace,
};

const SUMMARY: &str = "docs/SUMMARY.md";
/// Pages whose paths and functions in backticks must exist.
const NAMING_CODE: &[&str] = &["docs/life-of-a-request.md", "docs/life-of-a-packet.md", "ARCHITECTURE.md"];
/// The folder of programs in C, whose functions pages may name.
const C_SOURCES: &str = "packet/bpf";
/// The page whose table names tests.
const NAMING_TESTS: &str = "docs/identity.md";
/// Folders of the repository, by which a path in backticks is recognized.
const FOLDERS: &[&str] =
    &["core", "io", "app", "api", "packet", "xtask", "docs", "bench", "scripts", "tests", ".ci", "fuzz"];

/// The checked parts of a page.
#[derive(Debug, Default)]
struct Page {
    /// Link targets.
    links: Vec<String>,
    /// The anchors of its headings.
    anchors: HashSet<String>,
    /// Code spans.
    code: Vec<String>,
}

/// Runs the check.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut findings = Vec::new();
    let mut pages = workspace::files(&root.join("docs"), "md")?;
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    for page in &pages {
        findings.extend(check_links(root, page)?);
    }
    findings.extend(check_summary(root, &pages)?);

    let code = Code::of(root)?;
    for name in NAMING_CODE {
        let path = root.join(name);
        if !path.is_file() {
            findings.push(format!("{name}: the page is missing"));
            continue;
        }
        for span in read(&path)?.code {
            findings.extend(code.check(root, &span).map(|reason| format!("{name}: `{span}`: {reason}")));
        }
    }
    findings.extend(check_tests(root)?);
    findings.extend(comments::check(root)?);
    crate::report("docs", &format!("{} pages point at things that are there", pages.len()), &findings)
}

fn read(path: &Path) -> Result<Page> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.to_string())
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => page.anchors.extend(heading.take().map(|text| anchor(&text))),
            Event::Code(code) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&code));
                page.code.push(code.to_string());
            }
            Event::Text(text) => heading.iter_mut().for_each(|heading| heading.push_str(&text)),
            _ => {}
        }
    }
    page
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn check_links(root: &Path, path: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let page = read(path)?;
    let name = path.strip_prefix(root).unwrap_or(path).display();
    for link in &page.links {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (target, fragment) = link.split_once('#').unwrap_or((link, ""));
        let target_path = if target.is_empty() { path.to_path_buf() } else { normal(&path.with_file_name(target)) };
        if !target_path.exists() {
            findings.push(format!("{name}: the link to {link} leads nowhere"));
        } else if !fragment.is_empty()
            && target_path.extension().is_some_and(|extension| extension == "md")
            && !read(&target_path)?.anchors.contains(fragment)
        {
            findings.push(format!("{name}: the link to {link} names a heading that is not there"));
        }
    }
    Ok(findings)
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// Every page under docs/ is in the book's table of contents.
fn check_summary(root: &Path, pages: &[PathBuf]) -> Result<Vec<String>> {
    let summary = root.join(SUMMARY);
    if !summary.is_file() {
        return Ok(vec![format!("{SUMMARY}: the page is missing")]);
    }
    let listed: HashSet<PathBuf> =
        read(&summary)?.links.iter().map(|link| normal(&summary.with_file_name(link))).collect();
    let docs = root.join("docs");
    let missing = pages.iter().filter(|page| page.starts_with(&docs) && **page != summary && !listed.contains(*page));
    Ok(missing
        .map(|page| format!("{}: it is not listed in {SUMMARY}", page.strip_prefix(root).unwrap_or(page).display()))
        .collect())
}

/// Every test that the page names must exist. Names of tests are sentences of at least four words.
fn check_tests(root: &Path) -> Result<Vec<String>> {
    let mut sources = String::new();
    for folder in ["core", "io", "api", "app"] {
        for file in workspace::files(&root.join(folder), "rs")? {
            sources += &std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        }
    }
    let is_test = |span: &String| {
        span.matches('_').count() > 2
            && span.bytes().all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
    };
    let named = read(&root.join(NAMING_TESTS))?.code.into_iter().filter(is_test);
    let missing = named.filter(|name| !sources.contains(&format!("fn {name}(")));
    Ok(missing.map(|name| format!("{NAMING_TESTS}: `{name}`: there is no such test")).collect())
}

/// The definitions that pages may name.
struct Code {
    definitions: Definitions,
    /// The first part of external paths: `std` and the external packages.
    external: HashSet<String>,
    /// Modules and packages of the workspace.
    modules: HashSet<String>,
}

impl Code {
    fn of(root: &Path) -> Result<Self> {
        let mut definitions = Definitions::default();
        let mut external: HashSet<String> = ["std", "alloc"].map(str::to_owned).into();
        let mut modules: HashSet<String> = ["crate", "self", "super"].map(str::to_owned).into();
        let packages = workspace::packages(root)?;
        for package in &packages {
            modules.insert(package.name.replace('-', "_"));
            for file in workspace::files(&root.join(package.folder(root)).join("src"), "rs")? {
                definitions.add(source::read(&file)?);
                let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let folder = file.parent().and_then(Path::file_name).unwrap_or_default();
                modules.insert(if stem == "mod" { folder.to_string_lossy().into_owned() } else { stem });
            }
        }
        for extension in ["c", "h"] {
            for file in workspace::files(&root.join(C_SOURCES), extension)? {
                definitions.names.extend(c_functions(&std::fs::read_to_string(file)?).map(str::to_owned));
            }
        }
        let names = packages.iter().flat_map(|package| &package.dependencies).map(|on| on.name.replace('-', "_"));
        external.extend(names.filter(|name| !modules.contains(name)));
        Ok(Self { definitions, external, modules })
    }

    /// The fault of a code span; `None` if it exists, or is neither a path nor a function.
    fn check(&self, root: &Path, span: &str) -> Option<String> {
        if let Some(path) = as_path(span) {
            return (!root.join(path).exists()).then(|| "there is no such file".to_owned());
        }
        let called = span.strip_suffix("()");
        let name = called.unwrap_or(span);
        let segments: Vec<&str> = name.split("::").collect();
        if !segments.iter().all(|segment| is_identifier(segment)) {
            return None;
        }
        match segments.as_slice() {
            [first, ..] if segments.len() > 1 && self.external.contains(*first) => None,
            [function] if called.is_some() => {
                (!self.definitions.names.contains(*function)).then(|| format!("no function {function} is defined"))
            }
            [.., owner, member] if owner.starts_with(char::is_uppercase) => {
                let known = self.definitions.members.contains(&((*owner).to_owned(), (*member).to_owned()));
                (!known).then(|| format!("{owner} has no {member}"))
            }
            [modules @ .., last] if !modules.is_empty() => {
                if let Some(unknown) = modules.iter().find(|module| !self.modules.contains(**module)) {
                    return Some(format!("there is no module {unknown}"));
                }
                let known = self.definitions.names.contains(*last) || self.modules.contains(*last);
                (!known).then(|| format!("{last} is not defined"))
            }
            _ => None,
        }
    }
}

/// The functions that a source in C defines: a definition starts its line, and helpers of the kernel are constants.
fn c_functions(text: &str) -> impl Iterator<Item = &str> {
    let starts = |line: &&str| ["INLINE ", "NOINLINE ", "GLOBAL ", "int "].iter().any(|start| line.starts_with(start));
    text.lines().filter(starts).filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
}

/// The span as a path of the repository, without a line number.
fn as_path(span: &str) -> Option<&str> {
    let path = span.split_once(".rs:").map_or(span, |(path, _)| &span[..path.len() + 3]);
    let (folder, rest) = path.split_once('/')?;
    let plain = !path.contains(|c: char| c.is_whitespace() || "*<>{}$".contains(c));
    (plain && FOLDERS.contains(&folder) && !rest.starts_with('/')).then_some(path)
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> Code {
        let mut definitions = Definitions::default();
        definitions.add("struct Edge; impl Edge { fn serve(&self) {} } fn answer() {}".parse().unwrap());
        Code { definitions, external: ["hyper".to_owned()].into(), modules: ["request".to_owned()].into() }
    }

    #[test]
    fn names_that_exist_pass_and_others_are_reported() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let code = code();
        for good in [
            "answer()",
            "Edge::serve",
            "Edge::serve()",
            "request::answer",
            "hyper::upgrade::on",
            "xtask/src/docs.rs",
            "make demo",
            "404",
        ] {
            assert_eq!(code.check(root, good), None, "{good}");
        }
        for bad in ["gone()", "Edge::gone", "request::gone", "nowhere::answer", "xtask/src/gone.rs", "core/gone/"] {
            assert!(code.check(root, bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn functions_in_c_are_found() {
        let text = "INLINE void *at(struct xdp_md *ctx)\n{\n\treturn f(x);\nGLOBAL int nat_after(struct xdp_md *ctx)\n\
                    int sallyport_router(struct xdp_md *ctx)\n";
        assert_eq!(c_functions(text).collect::<Vec<_>>(), ["at", "nat_after", "sallyport_router"]);
    }

    #[test]
    fn dead_links_and_unlisted_pages_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("docs")).unwrap();
        std::fs::write(root.join("docs/a.md"), "# One Two\n[b](b.md) [c](#one-two) [d](#three) [e](../README.md)")
            .unwrap();
        std::fs::write(root.join(SUMMARY), "[b](b.md)").unwrap();
        std::fs::write(root.join("README.md"), "x").unwrap();
        let found = check_links(root, &root.join("docs/a.md")).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("b.md") && found[1].contains("three"), "{found:?}");
        let found = check_summary(root, &[root.join("docs/a.md"), root.join(SUMMARY)]).unwrap();
        assert_eq!(found, ["docs/a.md: it is not listed in docs/SUMMARY.md"]);
    }

    #[test]
    fn anchors_are_those_of_the_renderers() {
        assert_eq!(anchor("What `sallyport up` does, and why"), "what-sallyport-up-does-and-why");
    }
}
