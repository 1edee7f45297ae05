//! What the network namespace counts of receive queues.

use std::fs;

use sallyport_tcp_window::NetworkCounts;

/// The counts since the network namespace of this thread began. What the kernel does not count is zero.
#[must_use]
pub fn network_counts() -> NetworkCounts {
    parse(&fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default())
}

/// Parses pairs of lines, the first with names and the second with values.
fn parse(text: &str) -> NetworkCounts {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let of = |wanted: &str| -> u64 {
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        pairs.find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
    };
    NetworkCounts {
        coalesced: of("TCPRcvCoalesce"),
        collapsed: of("TCPRcvCollapsed"),
        dropped: of("TCPRcvQDrop").saturating_add(of("TCPBacklogDrop")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_name() {
        let text = "Other: TCPRcvCoalesce\nOther: 9\nTcpExt: TCPRcvCollapsed TCPBacklogDrop TCPRcvQDrop TCPRcvCoalesce\n\
                    TcpExt: 1 2 3 4\n";
        assert_eq!(parse(text), NetworkCounts { coalesced: 4, collapsed: 1, dropped: 5 });
        assert_eq!(parse("TcpExt: TCPRcvCoalesce"), NetworkCounts::default());
        assert_eq!(parse(""), NetworkCounts::default());
    }
}
