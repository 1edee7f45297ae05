//! Flows that connection tracking knows, listed and cut by `conntrack`.

use std::{collections::BTreeSet, fmt::Write as _, io, net::IpAddr};

use crate::program::{self, PATIENCE, Trouble};

/// The most flows that are read.
pub const MAX_FLOWS: usize = 1_000_000;

/// Why flows were not listed, or not cut.
#[derive(Debug, thiserror::Error)]
pub enum FlowsError {
    /// There is no `conntrack`.
    #[error("the program conntrack is not there: install the package conntrack")]
    Missing,
    /// It does not run.
    #[error("conntrack does not run: {0}")]
    Run(#[source] io::Error),
    /// It takes too long.
    #[error("conntrack has not ended within {} s", PATIENCE.as_secs())]
    TooSlow,
    /// It refuses.
    #[error("conntrack refuses: {0}")]
    Refused(String),
    /// It lists too many.
    #[error("connection tracking knows more than {MAX_FLOWS} flows")]
    TooMany,
    /// It prints what is not understood.
    #[error("a line of conntrack is not understood: {0:?}")]
    Unreadable(String),
}

impl From<Trouble> for FlowsError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Missing => Self::Missing,
            Trouble::Run(error) => Self::Run(error),
            Trouble::TooSlow => Self::TooSlow,
            Trouble::Refused(said) => Self::Refused(said),
            Trouble::TooMuch => Self::TooMany,
        }
    }
}

/// A flow of connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrackedFlow {
    /// Protocol number.
    pub protocol: u8,
    /// Who began it, as it was sent.
    pub source: IpAddr,
    /// To whom, as it was sent.
    pub destination: IpAddr,
    /// To which port, as it was sent; 0 if the protocol has none.
    pub port: u16,
    /// Who answers: after a translation of the destination, another than `destination`.
    pub answering: IpAddr,
    /// The port that answers.
    pub answering_port: u16,
}

/// All flows of this network namespace.
///
/// # Errors
/// `conntrack` is not there, or may not list.
pub async fn flows() -> Result<Vec<TrackedFlow>, FlowsError> {
    let text = program::read("conntrack", &["-L", "-o", "extended"]).await?;
    if text.lines().count() > MAX_FLOWS {
        return Err(FlowsError::TooMany);
    }
    text.lines().map(|line| parse(line).ok_or_else(|| FlowsError::Unreadable(line.to_owned()))).collect()
}

/// Has connection tracking forget these flows, and all others between the same two to the same port: their next packet
/// meets the rules. A flow that has ended is no error.
///
/// # Errors
/// `conntrack` is not there, or refuses.
pub async fn cut(flows: impl IntoIterator<Item = TrackedFlow>) -> Result<(), FlowsError> {
    let lines: BTreeSet<_> = flows.into_iter().map(|flow| deletion(&flow)).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let script: String = lines.into_iter().collect();
    Ok(program::feed("conntrack", &["-R", "-"], &script).await?)
}

fn deletion(flow: &TrackedFlow) -> String {
    let TrackedFlow { protocol, source, destination, port, .. } = flow;
    let family = if source.is_ipv4() { "ipv4" } else { "ipv6" };
    let mut line = format!("-D -f {family} -p {protocol} -s {source} -d {destination}");
    if *port != 0 {
        let _ = write!(line, " --dport {port}");
    }
    line.push('\n');
    line
}

/// A line such as `ipv4 2 tcp 6 431999 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=40000 dport=80 src=10.0.0.2 ...`:
/// first as the flow was sent, then as it is answered.
fn parse(line: &str) -> Option<TrackedFlow> {
    let mut words = line.split_whitespace();
    let protocol = words.nth(3)?.parse().ok()?;
    let words: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
    // The first of a key is of what was sent, the second of the answer.
    let value = |key: &str, place: usize| words.iter().filter(|(name, _)| *name == key).nth(place).map(|word| word.1);
    let address = |key: &str, place: usize| value(key, place)?.parse().ok();
    let port = |key: &str, place: usize| value(key, place).map_or(Some(0), |port| port.parse().ok());
    Some(TrackedFlow {
        protocol,
        source: address("src", 0)?,
        destination: address("dst", 0)?,
        port: port("dport", 0)?,
        answering: address("src", 1)?,
        answering_port: port("sport", 1)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_both_directions() {
        let line = "ipv4     2 tcp      6 431999 ESTABLISHED src=10.0.0.1 dst=192.0.2.1 sport=40000 dport=80 \
                    src=10.0.0.2 dst=10.0.0.1 sport=8080 dport=40000 [ASSURED] mark=0 use=1";
        let flow = parse(line).unwrap();
        assert_eq!((flow.protocol, flow.source.to_string(), flow.port), (6, "10.0.0.1".to_owned(), 80));
        assert_eq!((flow.answering.to_string(), flow.answering_port), ("10.0.0.2".to_owned(), 8080));
        assert_eq!(deletion(&flow), "-D -f ipv4 -p 6 -s 10.0.0.1 -d 192.0.2.1 --dport 80\n");
        let line = "ipv6     10 icmpv6   58 29 src=fd00::1 dst=fd00::2 type=128 code=0 id=7 src=fd00::2 dst=fd00::1 \
                    type=129 code=0 id=7 mark=0 use=1";
        assert_eq!(deletion(&parse(line).unwrap()), "-D -f ipv6 -p 58 -s fd00::1 -d fd00::2\n");
        let line = "ipv4 2 unknown 253 599 src=10.0.0.1 dst=10.0.0.2 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 use=1";
        assert_eq!(deletion(&parse(line).unwrap()), "-D -f ipv4 -p 253 -s 10.0.0.1 -d 10.0.0.2\n");
    }

    #[test]
    fn other_lines_are_not_understood() {
        for line in ["", "ipv4 2 tcp 6", "ipv4 2 tcp six 1 src=10.0.0.1", "ipv4 2 tcp 6 1 src=10.0.0.1 dst=10.0.0.2"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
