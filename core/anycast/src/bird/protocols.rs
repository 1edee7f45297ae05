//! Rows of `show protocols all`.

use std::net::IpAddr;

use super::{Reply, ReplyError};

/// The most protocols that are read.
pub const MAX_PROTOCOLS: usize = 4096;
const MAX_CHANNELS: usize = 16;
/// The longest text that is kept, in characters.
const MAX_TEXT: usize = 200;

/// A protocol: a session with a neighbour, or a part of BIRD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protocol {
    /// Its name.
    pub name: String,
    /// Its kind, such as `BGP`.
    pub kind: String,
    /// Its state, such as `up`, `start` or `down`.
    pub state: String,
    /// Since when, as BIRD writes it.
    pub since: String,
    /// More about the state, such as `Established`, or why there is no session.
    pub info: String,
    /// The address of the neighbour.
    pub neighbour: Option<IpAddr>,
    /// The number of the neighbour's autonomous system.
    pub neighbour_as: Option<u32>,
    /// The last error of the session, as BIRD says it.
    pub last_error: Option<String>,
    /// The role that is spoken of with the neighbour, as BIRD writes the own one.
    pub local_role: Option<String>,
    /// Its channels.
    pub channels: Vec<Channel>,
}

/// Routes of one family within a protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channel {
    /// Its name, such as `ipv4`.
    pub name: String,
    /// Its state, such as `UP`.
    pub state: String,
    /// How many routes came.
    pub imported: u64,
    /// How many routes go out.
    pub exported: u64,
}

impl Protocol {
    /// Whether a session with a neighbour stands. Those with servers of RPKI are no such sessions.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.kind == "BGP" && self.state == "up" && self.info.starts_with("Established")
    }
}

/// Reads the rows.
///
/// # Errors
/// BIRD refused, or rows are not understood.
pub fn protocols(reply: Reply) -> Result<Vec<Protocol>, ReplyError> {
    let reply = reply.into_success()?;
    let mut found: Vec<Protocol> = Vec::new();
    for line in &reply.lines {
        match line.code {
            1002 if !line.text.trim().is_empty() => {
                if found.len() == MAX_PROTOCOLS {
                    return Err(ReplyError::TooManyRows(MAX_PROTOCOLS, "protocols"));
                }
                found.push(row(&line.text)?);
            }
            1006 => {
                if let Some(protocol) = found.last_mut() {
                    detail(protocol, line.text.trim());
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// Reads `NAME KIND TABLE STATE SINCE [INFO]`. Since is one word or two.
fn row(text: &str) -> Result<Protocol, ReplyError> {
    let not_understood = || ReplyError::Row(text.chars().take(64).collect());
    let mut words = text.split_ascii_whitespace();
    let mut next = || words.next().ok_or_else(not_understood);
    let (name, kind, _, state, since) = (next()?, next()?, next()?, next()?, next()?);
    let mut protocol =
        Protocol { name: cut(name), kind: cut(kind), state: cut(state), since: cut(since), ..Protocol::default() };
    let mut info: Vec<&str> = words.collect();
    let is_time =
        |word: &&str| word.len() >= 5 && word.bytes().all(|byte| byte.is_ascii_digit() || b":.".contains(&byte));
    if protocol.since.contains('-') && info.first().is_some_and(is_time) {
        protocol.since = cut(&format!("{} {}", protocol.since, info.remove(0)));
    }
    protocol.info = cut(&info.join(" "));
    Ok(protocol)
}

fn detail(protocol: &mut Protocol, text: &str) {
    if let Some(name) = text.strip_prefix("Channel ") {
        if protocol.channels.len() < MAX_CHANNELS {
            protocol.channels.push(Channel { name: cut(name), ..Channel::default() });
        }
        return;
    }
    let Some((key, value)) = text.split_once(':') else { return };
    let value = value.trim();
    match (key.trim(), protocol.channels.last_mut()) {
        ("State", Some(channel)) => channel.state = cut(value),
        ("Routes", Some(channel)) => {
            let count = |wanted: &str| {
                let mut parts = value.split(',').filter_map(|part| part.trim().split_once(' '));
                parts.find(|(_, what)| *what == wanted).and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
            };
            (channel.imported, channel.exported) = (count("imported"), count("exported"));
        }
        ("Neighbor address", _) => {
            protocol.neighbour = value.split('%').next().and_then(|address| address.parse().ok());
        }
        ("Neighbor AS", _) => protocol.neighbour_as = value.parse().ok(),
        // Local capabilities come before those of the neighbour.
        ("Role", _) if protocol.local_role.is_none() => protocol.local_role = Some(cut(value)),
        ("Last error", _) => protocol.last_error = Some(cut(value)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bird::ReplyReader;

    fn read(text: &str) -> Result<Vec<Protocol>, ReplyError> {
        let mut reader = ReplyReader::default();
        reader.feed(text.as_bytes()).unwrap();
        protocols(reader.take().unwrap())
    }

    #[test]
    fn sessions_are_read() {
        let text = "2002-Name       Proto      Table      State  Since         Info\n\
            1002-sp_device  Device     ---        up     07:29:19.065  \n1006-\n\
            1002-sp_peer_x  BGP        ---        up     2026-11-27 07:29:21  Established   \n\
            1006-  BGP state:          Established\n      Neighbor address: 10.0.0.2\n      Neighbor AS:      64501\n\
            \x20      Role: customer\n        Role: provider\n    Channel ipv4\n      State:          UP\n\
            \x20      Routes:         1 imported, 2 exported, 1 preferred\n\
            1006-\n1002-sp_peer_y  BGP        ---        start  07:29:21.034  Idle          Received: Role mismatch\n\
            1006-  Neighbor address: fe80::1%eth0\n     Last error:       Socket: No route to host\n0000\n";
        let found = read(text).unwrap();
        assert_eq!(found.len(), 3);
        let session = &found[1];
        assert!(session.is_established() && !found[0].is_established() && !found[2].is_established());
        assert_eq!((session.neighbour_as, session.neighbour), (Some(64501), Some("10.0.0.2".parse().unwrap())));
        assert_eq!(session.since, "2026-11-27 07:29:21");
        assert_eq!(session.local_role.as_deref(), Some("customer"));
        let channel = Channel { name: "ipv4".to_owned(), state: "UP".to_owned(), imported: 1, exported: 2 };
        assert_eq!(session.channels, [channel]);
        let rpki = read("1002-sp_rpki_1  RPKI       ---        up     07:29:21.034  Established\n0000\n").unwrap();
        assert!(!rpki[0].is_established());
        assert_eq!(found[2].info, "Idle Received: Role mismatch");
        assert_eq!(found[2].last_error.as_deref(), Some("Socket: No route to host"));
        assert_eq!(found[2].neighbour, Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn bad_rows_are_refused() {
        assert_eq!(read("1002-sp_x BGP\n0000\n").unwrap_err(), ReplyError::Row("sp_x BGP".to_owned()));
        assert_eq!(read("9001 syntax error\n").unwrap_err(), ReplyError::Refused(9001, "syntax error".to_owned()));
        let many = "1002-a b c d e\n".repeat(MAX_PROTOCOLS + 1) + "0000\n";
        assert_eq!(read(&many).unwrap_err(), ReplyError::TooManyRows(MAX_PROTOCOLS, "protocols"));
    }
}
