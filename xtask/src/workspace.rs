//! The packages of the workspace from `cargo metadata`, and their files.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// One package of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Its name in Cargo.toml.
    pub(crate) name: String,
    /// Its Cargo.toml.
    pub(crate) manifest_path: PathBuf,
    /// Its dependencies of every kind.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The name of the package.
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// The requested features.
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Package {
    /// The package's folder, relative to the workspace's.
    pub(crate) fn folder(&self, root: &Path) -> PathBuf {
        let folder = self.manifest_path.parent().unwrap_or(root);
        folder.strip_prefix(root).unwrap_or(folder).to_path_buf()
    }
}

/// Every package of the workspace.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata did not start")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("the answer of cargo metadata")?;
    Ok(metadata.packages)
}

/// Every file under the folder with this extension, sorted; empty without the folder.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_path_buf()];
    while let Some(folder) = pending.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if hidden || path.file_name().is_some_and(|name| name == "target" || name == "book") {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
