//! Runs a program: a script goes in, or text comes out.

use std::{io, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    time::timeout,
};

/// How long a program may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of output that are read.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// How much of what a program says of a failure is kept, in bytes.
const MAX_MESSAGE_BYTES: usize = 400;

/// Why a program did not do it.
#[derive(Debug)]
pub(crate) enum Trouble {
    Missing,
    Run(io::Error),
    TooSlow,
    /// What the program says.
    Refused(String),
    /// More output than is read.
    TooMuch,
}

/// Has the program read this script from its standard input.
pub(crate) async fn feed(program: &str, args: &[&str], script: &str) -> Result<(), Trouble> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(unstarted)?;
    let stdin = child.stdin.take();
    let run = async {
        if let Some(mut stdin) = stdin {
            // A program that refuses the beginning does not read the rest.
            let _ = stdin.write_all(script.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(PATIENCE, run).await.map_err(|_| Trouble::TooSlow)?.map_err(Trouble::Run)?;
    if output.status.success() { Ok(()) } else { Err(refused(&output.stderr)) }
}

/// What the program prints.
pub(crate) async fn read(program: &str, args: &[&str]) -> Result<String, Trouble> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(unstarted)?;
    let stdout = child.stdout.take();
    let run = async {
        let mut text = String::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_OUTPUT_BYTES + 1).read_to_string(&mut text).await?;
        }
        if text.len() as u64 > MAX_OUTPUT_BYTES {
            child.kill().await?;
        }
        io::Result::Ok((text, child.wait_with_output().await?))
    };
    let (text, output) = timeout(PATIENCE, run).await.map_err(|_| Trouble::TooSlow)?.map_err(Trouble::Run)?;
    if text.len() as u64 > MAX_OUTPUT_BYTES {
        return Err(Trouble::TooMuch);
    }
    if output.status.success() { Ok(text) } else { Err(refused(&output.stderr)) }
}

fn unstarted(error: io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::NotFound => Trouble::Missing,
        _ => Trouble::Run(error),
    }
}

fn refused(stderr: &[u8]) -> Trouble {
    let said = String::from_utf8_lossy(&stderr[..stderr.len().min(MAX_MESSAGE_BYTES)]);
    Trouble::Refused(said.lines().next().unwrap_or_default().to_owned())
}
