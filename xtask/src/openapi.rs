//! `cargo xtask openapi`: generates the descriptions of APIs from the code, or checks that the committed files are
//! current.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, bail};

/// The files, each with the package and its example that prints it.
const FILES: [(&str, &str, &str); 2] = [
    ("api/openapi.json", "sallyport-control", "openapi"),
    ("api/inspector.json", "sallyport-inspect", "inspector_openapi"),
];

/// Writes the descriptions.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (file, package, example) in FILES {
        let text = generate(root, package, example)?;
        std::fs::write(root.join(file), text).with_context(|| format!("writing {file}"))?;
        println!("openapi: wrote {file}");
    }
    Ok(())
}

/// Fails if a committed description is not current.
pub(crate) fn check(root: &Path) -> Result<()> {
    FILES.into_iter().try_for_each(|(file, package, example)| check_file(root, file, package, example))
}

fn check_file(root: &Path, file: &str, package: &str, example: &str) -> Result<()> {
    let generated = generate(root, package, example)?;
    let committed = std::fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
    if let Some((line, (old, new))) = first_difference(&committed, &generated) {
        bail!(
            "openapi: {file} differs from the code at line {line}: the file has {old:?}, the code {new:?}; run \
             `cargo xtask openapi` and commit the result"
        );
    }
    println!("openapi: {file} agrees with the code");
    Ok(())
}

/// The description as JSON, from a program of its own, so that the other checks need no build of the API.
fn generate(root: &Path, package: &str, example: &str) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--locked", "--package", package, "--example", example])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo did not start")?;
    if !output.status.success() {
        bail!("openapi: the example `{example}` of {package} did not build or run");
    }
    String::from_utf8(output.stdout).context("the description is not UTF-8")
}

/// The first line in which two texts differ, counted from 1.
fn first_difference<'a>(old: &'a str, new: &'a str) -> Option<(usize, (&'a str, &'a str))> {
    if old == new {
        return None;
    }
    let (mut old, mut new) = (old.lines(), new.lines());
    for line in 1_usize.. {
        match (old.next(), new.next()) {
            (None, None) => return Some((line, ("the end", "another line end"))),
            (old, new) if old != new => return Some((line, (old.unwrap_or("the end"), new.unwrap_or("the end")))),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_reported() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some((2, ("b", "c"))));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some((2, ("the end", "b"))));
        assert!(first_difference("a\n", "a").is_some());
    }
}
