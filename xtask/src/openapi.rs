//! `cargo xtask openapi`: generates the descriptions of APIs from the code. Tests of their crates say when a committed
//! file is not current.

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
