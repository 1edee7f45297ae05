//! Confirmation before something is deleted for good.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

use clap::Args;

use crate::{
    failure::{Failure, Kind},
    output,
};

/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 256;

/// Whether to ask.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct YesArg {
    /// Do not ask for confirmation; without a terminal there is no question either
    #[arg(long, short = 'y')]
    yes: bool,
}

impl YesArg {
    /// Whether to prompt: only with a person at both ends, so that no script waits for an answer.
    pub(crate) fn asks(self) -> bool {
        !self.yes && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks whether this is to be done, such as "Delete the socket blog?".
    ///
    /// # Errors
    /// The answer is not yes.
    pub(crate) fn confirm(self, question: &str) -> Result<(), Failure> {
        if !self.asks() {
            return Ok(());
        }
        let mut terminal = io::stderr().lock();
        // A failed write to the terminal does not confirm anything; the answer is still read.
        let _ = write!(terminal, "{} [y/N] ", output::safe(question)).and_then(|()| terminal.flush());
        drop(terminal);
        let mut answer = String::new();
        let read = io::stdin().lock().take(MAX_ANSWER_BYTES).read_line(&mut answer);
        let is_yes = read.is_ok() && ["y", "yes"].contains(&&*answer.trim().to_ascii_lowercase());
        if is_yes { Ok(()) } else { Err(Failure::new(Kind::Failed, "nothing was changed: it was not confirmed")) }
    }
}
