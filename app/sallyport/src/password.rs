//! Passwords: from a prompt, the standard input, the environment or, if need be, the command line.

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::Context as _;
use clap::Args;
use sallyport_api::Secret;
use sallyport_model::MAX_PASSWORD_BYTES;

use crate::{failure::Failure, signals};

/// Where a password comes from.
#[derive(Debug, Args)]
pub(crate) struct PasswordArgs {
    /// The password; other users of this machine can see it, so leave it out to be asked for it, or use
    /// --password-stdin or the environment
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) password: Option<String>,
    /// Read the password from the standard input
    #[arg(long, conflicts_with = "password")]
    pub(crate) password_stdin: bool,
}

/// How a password is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The environment variable that may have it.
    pub(crate) env: &'a str,
    /// What the prompt says.
    pub(crate) prompt: &'a str,
    /// Whether it is a new one, which is typed twice.
    pub(crate) twice: bool,
}

impl PasswordArgs {
    /// Whether one was given with the options.
    pub(crate) fn is_given(&self) -> bool {
        self.password.is_some() || self.password_stdin
    }

    /// The password.
    ///
    /// # Errors
    /// There is none, and nobody to ask; or what was typed differs.
    pub(crate) fn read(&self, ask: Ask<'_>) -> anyhow::Result<Secret> {
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

/// Asks on the terminal. Ctrl-C ends the process, once the terminal shows again what is typed.
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
}
