//! The project's own checks and generators: `cargo xtask <what>`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};

mod comments;
mod docs;
mod instructions;
mod layers;
mod names;
mod openapi;
mod rooms;
mod source;
mod workspace;

const HELP: &str = "\
usage: cargo xtask <what>

  layers             check the rule of the folders: what core/, io/, api and app/ may depend on and call, and
                     that the rooms inside a crate do not use one another in a circle
  names              check that functions called is_ or has_ return a bool
  openapi            write api/openapi.json and api/inspector.json from the code
  docs               check links, the book's table of contents, that every file and function that
                     docs/life-of-a-request.md and ARCHITECTURE.md name is there, and that comments
                     name types in backticks
  instructions [--accept] [--core]
                     count the instructions of the hot paths under callgrind, and compare them with
                     bench/instructions/counts.json, or write them there; --core leaves the edge out
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["layers"] => root().and_then(|root| layers::run(&root)),
        ["names"] => root().and_then(|root| names::run(&root)),
        ["openapi"] => root().and_then(|root| openapi::write(&root)),
        ["docs"] => root().and_then(|root| docs::run(&root)),
        ["instructions", options @ ..] if options.iter().all(|option| ["--accept", "--core"].contains(option)) => {
            let options =
                instructions::Options { accept: options.contains(&"--accept"), core_only: options.contains(&"--core") };
            root().and_then(|root| instructions::run(&root, options))
        }
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root folder of the workspace.
fn root() -> Result<PathBuf> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).context("xtask stands in no folder")
}

/// Prints the findings, and fails if there are any.
fn report(check: &str, passed: &str, findings: &[String]) -> Result<()> {
    if findings.is_empty() {
        println!("{check}: {passed}");
        return Ok(());
    }
    for finding in findings {
        eprintln!("{finding}");
    }
    anyhow::bail!("{check}: {} finding{}", findings.len(), if findings.len() == 1 { "" } else { "s" })
}
