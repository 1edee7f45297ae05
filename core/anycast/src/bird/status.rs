//! Rows of `show status`.

use std::net::Ipv4Addr;

use super::{Reply, ReplyError};

/// The longest time that is kept, in characters.
const MAX_TEXT: usize = 64;

/// How BIRD is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The number by which neighbours tell it from others.
    pub router_id: Option<Ipv4Addr>,
    /// When it started, as it writes it: another text after each start.
    pub started: String,
    /// When it took its configuration.
    pub configured: String,
    /// Whether the last configuration is still on its way.
    pub is_configuring: bool,
    /// Whether it ends.
    pub is_ending: bool,
}

/// Reads the rows.
///
/// # Errors
/// BIRD refused, or the reply is another.
pub fn status(reply: Reply) -> Result<Status, ReplyError> {
    let reply = reply.into_success()?;
    let (code, last) = reply.last();
    if code != 13 {
        return Err(ReplyError::Row(last.chars().take(MAX_TEXT).collect()));
    }
    let mut found = Status {
        is_configuring: last.starts_with("Reconfiguration in progress"),
        is_ending: last.starts_with("Shutdown in progress"),
        ..Status::default()
    };
    for line in reply.lines.iter().filter(|line| line.code == 1011) {
        let after =
            |words: &str| line.text.strip_prefix(words).map(|rest| rest.trim().chars().take(MAX_TEXT).collect());
        if let Some(text) = after("Router ID is ") {
            let text: String = text;
            found.router_id = text.parse().ok();
        } else if let Some(text) = after("Last reboot on ") {
            found.started = text;
        } else if let Some(text) = after("Last reconfiguration on ") {
            found.configured = text;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bird::ReplyReader;

    fn read(text: &str) -> Result<Status, ReplyError> {
        let mut reader = ReplyReader::default();
        reader.feed(text.as_bytes()).unwrap();
        status(reader.take().unwrap())
    }

    #[test]
    fn a_status_is_read() {
        let text = "1000-BIRD 2.0.12\n1011-Router ID is 192.0.2.1\n Hostname is vm\n \
            Current server time is 2026-11-27 07:29:34.034\n Last reboot on 2026-11-27 07:29:19.065\n \
            Last reconfiguration on 2026-11-27 07:29:34.032\n";
        let running = read(&format!("{text}0013 Daemon is up and running\n")).unwrap();
        assert_eq!(running.router_id, Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(running.started, "2026-11-27 07:29:19.065");
        assert_eq!(running.configured, "2026-11-27 07:29:34.032");
        assert!(!running.is_configuring && !running.is_ending);
        assert!(read(&format!("{text}0013 Reconfiguration in progress\n")).unwrap().is_configuring);
        assert!(read("0013 Shutdown in progress\n").unwrap().is_ending);
        assert_eq!(read("0000 x\n"), Err(ReplyError::Row("x".to_owned())));
    }
}
