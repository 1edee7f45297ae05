//! Passwords: from a prompt, the standard input, the environment or the command line.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

use anyhow::Context as _;
use clap::Args;
use sallyport_api::Secret;
use sallyport_model::MAX_PASSWORD_BYTES;

use crate::{failure::Failure, signals};

/// The longest code that is read, in bytes.
const MAX_CODE_BYTES: u64 = 256;

/// The source of a password.
#[derive(Debug, Args)]
pub(crate) struct PasswordArgs {
    /// The password. Other users of this machine can see flags: without this one a terminal asks, or use
    /// --password-stdin or the environment
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) password: Option<String>,
    /// Read the password from the standard input
    #[arg(long, conflicts_with = "password")]
    pub(crate) password_stdin: bool,
}

/// How to prompt for a password.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PasswordPrompt<'a> {
    /// The environment variable.
    pub(crate) env: &'a str,
    /// The text of the prompt.
    pub(crate) prompt: &'a str,
    /// Whether it is a new password, which is typed twice.
    pub(crate) twice: bool,
}

impl PasswordArgs {
    /// Whether an option gives a password.
    pub(crate) fn is_given(&self) -> bool {
        self.password.is_some() || self.password_stdin
    }

    /// The password.
    ///
    /// # Errors
    /// There is no password and no terminal, or the two typed ones differ.
    pub(crate) fn read(&self, ask: PasswordPrompt<'_>) -> anyhow::Result<Secret> {
        if let Some(password) = &self.password {
            return Ok(password.as_str().into());
        }
        if self.password_stdin {
            return Ok(from_reader(io::stdin().lock())?.into());
        }
        if let Some(password) = std::env::var_os(ask.env).filter(|value| !value.is_empty()) {
            let text = password.into_string().map_err(|_| Failure::usage(format!("{} is not UTF-8", ask.env)))?;
            return Ok(text.into());
        }
        if !io::stdin().is_terminal() {
            return Err(Failure::usage("there is no password, and no terminal to ask for it")
                .next(format!("give it with --password-stdin or in {}", ask.env))
                .into());
        }
        let password = prompt(&format!("{}: ", ask.prompt)).context("cannot ask for the password")?;
        if ask.twice {
            let again = prompt(&format!("{} again: ", ask.prompt)).context("cannot ask for the password again")?;
            if again != password {
                return Err(Failure::usage("the two passwords differ").into());
            }
        }
        Ok(password.into())
    }
}

/// The current and the new password, each on a line of the standard input.
///
/// # Errors
/// There are not two lines.
pub(crate) fn two_lines() -> anyhow::Result<(Secret, Secret)> {
    let bound = 2 * (MAX_PASSWORD_BYTES as u64 + 2);
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(bound)
        .read_to_string(&mut text)
        .context("cannot read the passwords from the standard input")?;
    split_lines(&text).map(|(current, next)| (current.into(), next.into()))
}

fn split_lines(text: &str) -> anyhow::Result<(&str, &str)> {
    let mut lines = text.lines();
    match (lines.next().filter(|line| !line.is_empty()), lines.next().filter(|line| !line.is_empty()), lines.next()) {
        (Some(current), Some(next), None) => Ok((current, next)),
        _ => Err(Failure::usage("the standard input has not two lines")
            .next("give the password of now on the first, and the next one on the second")
            .into()),
    }
}

/// Prompts for a code, which is echoed: on the terminal, else from the next line of the standard input.
///
/// # Errors
/// There is no input.
pub(crate) fn ask_for_code(what: &str) -> anyhow::Result<Secret> {
    let mut terminal = io::stderr().lock();
    write!(terminal, "{what}: ").and_then(|()| terminal.flush()).context("cannot ask for the code")?;
    let mut line = String::new();
    io::stdin().lock().take(MAX_CODE_BYTES).read_line(&mut line).context("cannot read the code")?;
    let code = line.trim();
    if code.is_empty() {
        return Err(Failure::usage("there is no code").next("type it, or write it to the standard input").into());
    }
    Ok(code.into())
}

/// Prompts on the terminal. Ctrl-C ends the process, after the echo is on again.
fn prompt(text: &str) -> io::Result<String> {
    signals::restore_terminal_at_end()?;
    rpassword::prompt_password(text).inspect_err(|error| {
        if error.kind() == io::ErrorKind::Interrupted {
            eprintln!();
            std::process::exit(signals::INTERRUPTED);
        }
    })
}

/// One line, without its end.
fn from_reader(reader: impl io::Read) -> anyhow::Result<String> {
    let bound = MAX_PASSWORD_BYTES as u64 + 2;
    let mut text = String::new();
    reader.take(bound).read_to_string(&mut text).context("cannot read the password from the standard input")?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains('\n') {
        return Err(Failure::usage("the standard input has more than one line: give the password only").into());
    }
    if line.is_empty() {
        return Err(Failure::usage("the standard input has no password").into());
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_a_password_with_all_its_spaces() {
        for (input, password) in [("secret", "secret"), ("secret\n", "secret"), (" a b \r\n", " a b ")] {
            assert_eq!(from_reader(input.as_bytes()).unwrap(), password);
        }
        for bad in ["", "\n", "a\nb\n"] {
            assert!(from_reader(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(from_reader(&b"\xff\xfe"[..]).is_err());
    }

    #[test]
    fn two_lines_are_two_passwords() {
        assert_eq!(split_lines("old one\r\nnew one\n").unwrap(), ("old one", "new one"));
        for bad in ["", "a", "a\n", "\nb\n", "a\n\n", "a\nb\nc\n"] {
            assert!(split_lines(bad).is_err(), "{bad:?}");
        }
    }
}
