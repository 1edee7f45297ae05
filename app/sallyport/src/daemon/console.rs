//! Messages of `sallyport up` on a terminal, in place of log lines.

use std::{io::IsTerminal as _, path::Path};

use crate::output::note;

/// Whether a person watches the terminal. Then short messages replace log lines below warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Console {
    is_on: bool,
}

/// The message once the server is ready.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    pub(crate) api: &'a str,
    /// The address of the dashboard; `None` without one.
    pub(crate) desk: Option<&'a str>,
    pub(crate) data: &'a Path,
    pub(crate) root: &'a Path,
    /// Whether there is no account yet.
    pub(crate) is_new: bool,
}

impl Console {
    /// No messages: the log has everything.
    pub(crate) const OFF: Self = Self { is_on: false };

    /// On if the log would go to a terminal, unless the log was asked for explicitly.
    pub(crate) fn choose(wants_log: bool) -> Self {
        let has_filter = std::env::var_os("SALLYPORT_LOG").is_some_and(|value| !value.is_empty());
        Self { is_on: std::io::stderr().is_terminal() && !wants_log && !has_filter }
    }

    /// Whether messages are printed.
    pub(crate) fn is_on(self) -> bool {
        self.is_on
    }

    /// Prints a message. Returns whether messages are on.
    pub(crate) fn print(self, text: &str) -> bool {
        if self.is_on {
            note(text);
        }
        self.is_on
    }

    /// Prints the addresses and the next step.
    pub(crate) fn ready(self, ready: &Ready<'_>) {
        self.print(&text(ready));
    }
}

fn text(ready: &Ready<'_>) -> String {
    let Ready { api, desk, data, root, is_new } = ready;
    let desk = desk.map(|desk| format!("desk    {desk}\n")).unwrap_or_default();
    let next = if *is_new {
        "sallyport account create --name \"Ann\" --email ann@example.com"
    } else {
        "sallyport connect 8000"
    };
    format!(
        "ready   {api}    (Ctrl-C stops it)\n{desk}data    {}\nroot    {}\nnext, in another terminal: {next}",
        data.display(),
        root.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_the_next_step() {
        let message = |is_new, desk| {
            let (data, root) = (Path::new("/data"), Path::new("/data/ca.pem"));
            text(&Ready { api: "https://api.localhost:8443", desk, data, root, is_new })
        };
        let lines: Vec<_> = message(true, Some("https://desk.localhost:8443")).lines().map(str::to_owned).collect();
        assert_eq!((lines.len(), lines[1].as_str()), (5, "desk    https://desk.localhost:8443"));
        assert!(lines[0].contains("https://api.localhost:8443") && lines[4].contains("account create"), "{lines:?}");
        assert_eq!(message(true, None).lines().count(), 4);
        assert!(message(false, None).ends_with("next, in another terminal: sallyport connect 8000"));
    }
}
